//! A source of numbered frames of many flows, in both directions, and a target that sees whether
//! all frames of each flow come, in order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towpath_engine::port::{Device, Features, Rx, Tx, Wake};
use towpath_xdp::{Arena, Frame, Pool};

/// Flows there are.
pub(crate) const FLOWS: u64 = 100;

/// A port with one queue that receives UDP packets, each of the next flow, as long as not too many
/// are under way.
#[derive(Debug, Clone)]
pub(crate) struct Flows(Arc<State>);

#[derive(Debug)]
struct State {
    sent: AtomicU64,
    runs: AtomicBool,
    /// Most frames that are under way.
    window: AtomicU64,
    /// Whether a worker is receiving: only one may at a time.
    is_polled: AtomicBool,
    target: FlowsInOrder,
}

impl Flows {
    pub(crate) fn new(target: &FlowsInOrder) -> Flows {
        let (sent, runs, is_polled) = Default::default();
        let window = AtomicU64::new(512);
        Flows(Arc::new(State { sent, runs, window, is_polled, target: target.clone() }))
    }

    pub(crate) fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::SeqCst)
    }

    /// From now on, frames come, or none do.
    pub(crate) fn run(&self, runs: bool) {
        self.0.runs.store(runs, Ordering::SeqCst);
    }

    /// Makes `count` frames arrive at once, without waiting for them.
    pub(crate) fn flood(&self, count: u64) {
        self.0.window.store(count, Ordering::SeqCst);
        self.run(true);
    }
}

/// The next frame of all, and which of its flow that is.
fn packet(number: u64) -> [u8; 64] {
    let (flow, turn) = (number % FLOWS, number / FLOWS);
    let mut packet = [0; 64];
    packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    packet[14] = 0x45;
    packet[23] = 17;
    let (mut from, mut to) = (26, 30);
    let (mut from_port, mut to_port) = (34, 36);
    // Answers come in between.
    if turn % 2 == 1 {
        std::mem::swap(&mut from, &mut to);
        std::mem::swap(&mut from_port, &mut to_port);
    }
    packet[from..from + 4].copy_from_slice(&[10, 0, 0, (flow / 10) as u8]);
    packet[to..to + 4].copy_from_slice(&[10, 1, 0, 1]);
    packet[from_port..from_port + 2].copy_from_slice(&(4000 + flow as u16).to_be_bytes());
    packet[to_port + 1] = 53;
    packet[42] = flow as u8;
    packet[48..56].copy_from_slice(&turn.to_ne_bytes());
    packet
}

impl Device for Flows {
    fn kind(&self) -> &'static str {
        "flows"
    }

    fn queues(&self) -> u32 {
        1
    }

    fn features(&self) -> Features {
        Features { zero_copy: true, ..Features::default() }
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Ok(Box::new(self.clone()))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(FlowsInOrder::default()))
    }
}

impl Rx for Flows {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let state = &*self.0;
        let first = state.sent.load(Ordering::SeqCst);
        let under_way = first - state.target.count();
        let room = state.window.load(Ordering::SeqCst).saturating_sub(under_way);
        if !state.runs.load(Ordering::SeqCst) || room == 0 {
            return Ok(0);
        }
        assert!(!state.is_polled.swap(true, Ordering::SeqCst), "one worker polls a queue");
        let count = pool.take_many(limit.min(room as usize), frames);
        for (number, frame) in (first..).zip(frames.iter_mut()) {
            frame.fill(&packet(number));
        }
        state.sent.store(first + count as u64, Ordering::SeqCst);
        state.is_polled.store(false, Ordering::SeqCst);
        Ok(count)
    }

    fn arm(&mut self) -> Wake<'_> {
        Wake::At(Instant::now() + Duration::from_millis(1))
    }
}

/// Takes everything, and counts what comes in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlowsInOrder(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    count: u64,
    /// By flow, the number that comes next.
    next: Vec<u64>,
    /// Frames that came before one that they are behind of, or after.
    strays: u64,
}

impl FlowsInOrder {
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().count
    }

    pub(crate) fn strays(&self) -> u64 {
        self.0.lock().strays
    }
}

impl Tx for FlowsInOrder {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let mut seen = self.0.lock();
        seen.next.resize(FLOWS as usize, 0);
        for frame in frames.drain(..) {
            let packet = frame.to_vec();
            let number = u64::from_ne_bytes(packet[48..56].try_into().unwrap());
            let flow = usize::from(packet[42]);
            let is_next = number == seen.next[flow];
            seen.strays += u64::from(!is_next);
            seen.next[flow] = number + 1;
            seen.count += 1;
            pool.give(frame);
        }
        Ok(())
    }

    fn credit(&mut self) -> usize {
        usize::MAX
    }
}
