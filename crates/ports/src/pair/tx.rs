//! Transmission to the other end, without a copy.

use std::io;
use std::sync::Arc;

use towpath_engine::port::Tx;
use towpath_xdp::{Frame, Pool};

use crate::frame_ring::FrameRing;

pub(super) struct Transmitter {
    rings: Arc<[FrameRing]>,
    queue: usize,
}

impl Transmitter {
    pub(super) fn new(rings: &Arc<[FrameRing]>, queue: usize) -> Transmitter {
        Transmitter { rings: Arc::clone(rings), queue }
    }
}

impl Tx for Transmitter {
    fn transmit(&mut self, frames: &mut Vec<Frame>, _pool: &mut Pool) -> io::Result<()> {
        self.rings[self.queue].push(frames);
        Ok(())
    }

    fn credit(&mut self) -> usize {
        self.rings[self.queue].room()
    }
}
