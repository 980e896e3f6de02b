//! Reception of frames from the other end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use towpath_engine::Waker;
use towpath_engine::port::{Rx, Wake};
use towpath_xdp::{Frame, Pool};

use super::Ring;

pub(super) struct Queue {
    rings: Arc<[Ring]>,
    queue: usize,
}

impl Queue {
    pub(super) fn new(rings: &Arc<[Ring]>, queue: usize) -> Queue {
        Queue { rings: Arc::clone(rings), queue }
    }
}

impl Rx for Queue {
    fn receive(
        &mut self,
        _pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let start = frames.len();
        let count = self.rings[self.queue].pop(limit, frames);
        frames[start..].iter_mut().for_each(|frame| frame.cross());
        Ok(count)
    }

    fn arm(&mut self) -> Wake<'_> {
        match self.rings[self.queue].len.load(Ordering::Acquire) {
            0 => Wake::Waker,
            _ => Wake::Now,
        }
    }

    fn set_waker(&mut self, waker: &Arc<Waker>) {
        let mut known = self.rings[self.queue].waker.lock();
        *known = Some(Arc::clone(waker));
    }
}
