//! Reception of frames from the other end.

use std::io;
use std::sync::Arc;

use towpath_engine::Waker;
use towpath_engine::port::{Rx, Wake};
use towpath_xdp::{Frame, Pool};

use crate::frame_ring::FrameRing;

pub(super) struct Queue {
    rings: Arc<[FrameRing]>,
    queue: usize,
}

impl Queue {
    pub(super) fn new(rings: &Arc<[FrameRing]>, queue: usize) -> Queue {
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
        if self.rings[self.queue].is_empty() { Wake::Waker } else { Wake::Now }
    }

    fn set_waker(&mut self, waker: &Arc<Waker>) {
        self.rings[self.queue].set_waker(waker);
    }
}
