//! The smallest source: the same packet again and again, as often as it is told.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use towpath_engine::port::{Device, Features, Rx, Tx, Wake};
use towpath_xdp::{Arena, Frame, Pool};

/// A port that only receives: this packet, on each of its queues.
#[derive(Debug, Clone)]
pub(crate) struct Repeating(Arc<State>);

#[derive(Debug)]
struct State {
    packet: Vec<u8>,
    queues: AtomicU32,
    /// Queues that are open.
    open: AtomicU32,
    left: AtomicUsize,
    mtu: AtomicU32,
}

/// A queue of the port.
struct Queue(Arc<State>);

impl Repeating {
    pub(crate) fn new(packet: &[u8], times: usize) -> Repeating {
        Repeating(Arc::new(State {
            packet: packet.to_vec(),
            queues: AtomicU32::new(1),
            open: AtomicU32::new(0),
            left: AtomicUsize::new(times),
            mtu: AtomicU32::new(1500),
        }))
    }

    pub(crate) fn repeat(&self, times: usize) {
        self.0.left.fetch_add(times, Ordering::SeqCst);
    }

    pub(crate) fn set_queues(&self, queues: u32) {
        self.0.queues.store(queues, Ordering::SeqCst);
    }

    pub(crate) fn set_mtu(&self, mtu: u32) {
        self.0.mtu.store(mtu, Ordering::SeqCst);
    }

    pub(crate) fn open(&self) -> u32 {
        self.0.open.load(Ordering::SeqCst)
    }

    pub(crate) fn left(&self) -> usize {
        self.0.left.load(Ordering::SeqCst)
    }
}

impl Device for Repeating {
    fn kind(&self) -> &'static str {
        "repeating"
    }

    fn queues(&self) -> u32 {
        self.0.queues.load(Ordering::SeqCst)
    }

    fn features(&self) -> Features {
        Features::default()
    }

    fn mtu(&self) -> u32 {
        self.0.mtu.load(Ordering::SeqCst)
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        self.0.open.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Queue(Arc::clone(&self.0))))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(Nowhere))
    }
}

impl Rx for Queue {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let take = |left: usize| Some(left - left.min(limit));
        let left = self.0.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        let wanted = left.unwrap_or(0).min(limit);
        let count = pool.take_many(wanted, frames);
        self.0.left.fetch_add(wanted - count, Ordering::SeqCst);
        frames.iter_mut().for_each(|frame| frame.fill(&self.0.packet));
        Ok(count)
    }

    fn arm(&mut self) -> Wake<'_> {
        Wake::At(Instant::now() + Duration::from_millis(1))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Sends nothing.
struct Nowhere;

impl Tx for Nowhere {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        pool.give_all(frames);
        Ok(())
    }

    fn credit(&mut self) -> usize {
        usize::MAX
    }
}
