//! A source whose frames have numbers, and a target that sees whether all of them come, in order.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towpath_engine::port::{Device, Features, Rx, Tx, Wake};
use towpath_xdp::{Arena, Frame, Pool};

/// A port that receives as much as it is asked for while it runs:
/// frames with its name and the next number.
#[derive(Debug, Clone)]
pub(crate) struct Numbered(Arc<State>);

#[derive(Debug)]
struct State {
    name: u8,
    sent: AtomicU64,
    runs: AtomicBool,
    /// Whether a worker is receiving: only one may at a time.
    is_polled: AtomicBool,
}

impl Numbered {
    pub(crate) fn new(name: u8) -> Numbered {
        let (sent, runs, is_polled) = Default::default();
        Numbered(Arc::new(State { name, sent, runs, is_polled }))
    }

    pub(crate) fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::SeqCst)
    }

    /// From now on, frames come, or none do.
    pub(crate) fn run(&self, runs: bool) {
        self.0.runs.store(runs, Ordering::SeqCst);
    }
}

impl Device for Numbered {
    fn kind(&self) -> &'static str {
        "numbered"
    }

    fn queues(&self) -> u32 {
        1
    }

    fn features(&self) -> Features {
        Features::default()
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Ok(Box::new(self.clone()))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(InOrder::default()))
    }
}

impl Rx for Numbered {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let state = &*self.0;
        if !state.runs.load(Ordering::SeqCst) {
            return Ok(0);
        }
        assert!(!state.is_polled.swap(true, Ordering::SeqCst), "one worker polls a queue");
        let count = pool.take_many(limit, frames);
        let first = state.sent.load(Ordering::SeqCst);
        let mut packet = [0; 64];
        packet[14] = state.name;
        for (number, frame) in (first..).zip(frames.iter_mut()) {
            packet[16..24].copy_from_slice(&number.to_ne_bytes());
            frame.fill(&packet);
        }
        state.sent.store(first + count as u64, Ordering::SeqCst);
        state.is_polled.store(false, Ordering::SeqCst);
        Ok(count)
    }

    fn arm(&mut self) -> Wake<'_> {
        match self.0.runs.load(Ordering::SeqCst) {
            true => Wake::Now,
            false => Wake::At(Instant::now() + Duration::from_millis(1)),
        }
    }
}

/// Takes everything, and counts what comes in order, by its source.
#[derive(Debug, Clone, Default)]
pub(crate) struct InOrder(Arc<Mutex<BTreeMap<u8, u64>>>);

impl InOrder {
    /// Frames of a source that came, each behind the one before it.
    pub(crate) fn count(&self, name: u8) -> u64 {
        self.0.lock().get(&name).copied().unwrap_or(0)
    }
}

impl Tx for InOrder {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let mut next = self.0.lock();
        for frame in frames.drain(..) {
            let packet = frame.to_vec();
            let number = u64::from_ne_bytes(packet[16..24].try_into().unwrap());
            let expected = next.entry(packet[14]).or_default();
            if number == *expected {
                *expected += 1;
            }
            pool.give(frame);
        }
        Ok(())
    }

    fn credit(&mut self) -> usize {
        usize::MAX
    }
}
