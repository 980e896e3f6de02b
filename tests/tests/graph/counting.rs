//! The smallest targets: ports that only send, and one that counts frames and accepts a given
//! number of them.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use towpath_engine::port::{Device, Features, Rx, Tx};
use towpath_xdp::{Arena, Frame, Pool};

/// A port that only sends, by a transmitter that all workers share.
#[derive(Debug)]
pub(crate) struct Sends<T>(pub(crate) T);

/// Counts the frames that it is given.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counting(Arc<State>);

#[derive(Debug, Default)]
struct State {
    count: AtomicU64,
    /// Frames it takes before it is full.
    room: AtomicUsize,
    /// Frames that it was given and had no room for.
    refused: AtomicU64,
    /// Number of times that it was asked for room.
    asked: AtomicU64,
}

impl Counting {
    pub(crate) fn with_room(room: usize) -> Counting {
        let counting = Counting::default();
        counting.set_room(room);
        counting
    }

    pub(crate) fn set_room(&self, room: usize) {
        self.0.room.store(room, Ordering::SeqCst);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.count.load(Ordering::SeqCst)
    }

    pub(crate) fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::SeqCst)
    }
}

impl<T: Tx + Clone + Debug + Sync + 'static> Device for Sends<T> {
    fn kind(&self) -> &'static str {
        "sends"
    }

    fn queues(&self) -> u32 {
        0
    }

    fn features(&self) -> Features {
        Features::IN_PROCESS
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(self.0.clone()))
    }
}

impl Tx for Counting {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let fits = frames.len().min(self.0.room.load(Ordering::SeqCst));
        self.0.room.fetch_sub(fits, Ordering::SeqCst);
        frames.drain(..fits).for_each(|frame| pool.give(frame));
        self.0.count.fetch_add(fits as u64, Ordering::SeqCst);
        self.0.refused.fetch_add(frames.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    fn credit(&mut self) -> usize {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        self.0.room.load(Ordering::SeqCst)
    }
}
