//! Returns frames to the pool.

use std::io;

use towpath_engine::port::Tx;
use towpath_xdp::{Frame, Pool};

pub(super) struct Transmitter;

impl Tx for Transmitter {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        pool.give_all(frames);
        Ok(())
    }

    fn credit(&mut self) -> usize {
        usize::MAX
    }
}
