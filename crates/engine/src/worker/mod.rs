//! A worker: one thread that polls the queues it owns.
//!
//! ```text
//! rx burst -> programs of the hook -> verdicts -> drop | upper | tx | redirect -> one flush
//! ```

mod adopt;
mod bond;
mod cpu;
mod deliver;
mod errand;
mod idle;
mod judge;
mod lender;
mod live;
mod outbox;
mod sockets;
mod tap;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use towpath_maps::Domain;
use towpath_xdp::{Frame, Pool};

use crate::counters::FrameCounters;
use crate::port::Rx;
use crate::snapshot::{Opened, PortId, Snapshot};
use crate::waker::Waker;
pub(crate) use cpu::Inbox;
use errand::Entrusted;
pub use errand::{Desk, Errand};
use idle::Idle;
use judge::Judge;
use lender::Lender;
pub use live::{LiveError, LiveRun};
use outbox::Outboxes;
use sockets::Collector;

/// Frames received and judged at a time.
pub const BURST: usize = 64;

/// How a worker waits for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Never sleeps: lowest latency, a whole core.
    Busy,
    /// Spins for a while, then sleeps until a descriptor is readable.
    #[default]
    Adaptive,
}

/// What control code and other workers know of a worker.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) number: usize,
    pub(crate) mode: Mode,
    pub(crate) waker: Arc<Waker>,
    pub(crate) counters: FrameCounters,
    pub(crate) inbox: Inbox,
    /// The configuration to adopt.
    snapshot: Mutex<Arc<Snapshot>>,
    /// Its generation.
    offered: AtomicU64,
    /// The generation the worker lives by, and who waits for it to change.
    adopted: Mutex<u64>,
    adopts: Condvar,
    stop: AtomicBool,
}

impl Seat {
    pub(crate) fn new(number: usize, mode: Mode) -> std::io::Result<Seat> {
        Ok(Seat {
            number,
            mode,
            waker: Arc::new(Waker::new()?),
            counters: FrameCounters::default(),
            inbox: Inbox::default(),
            snapshot: Mutex::default(),
            offered: AtomicU64::new(0),
            adopted: Mutex::new(0),
            adopts: Condvar::new(),
            stop: AtomicBool::new(false),
        })
    }

    /// Lets the worker adopt a configuration at its next pause. Gives the one before, for the
    /// caller to keep until the worker has let go of it.
    pub(crate) fn offer(&self, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
        let mut current = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, Arc::clone(snapshot));
        self.offered.store(snapshot.generation, Ordering::Release);
        drop(current);
        self.waker.wake();
        before
    }

    /// Waits until the worker lives by this generation or a later one.
    pub(crate) fn wait_adopted(&self, generation: u64) {
        let adopted = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.adopts.wait_while(adopted, |adopted| *adopted < generation);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn note_adopted(&self, generation: u64) {
        *self.adopted.lock().unwrap_or_else(PoisonError::into_inner) = generation;
        self.adopts.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A queue that the worker polls.
struct Poll {
    port: PortId,
    queue: u32,
    rx: Box<dyn Rx>,
    opened: Arc<Opened>,
    is_finished: bool,
    /// Whose memory it receives into, if not our own.
    lender: Option<Lender>,
}

/// The thread's state.
pub(crate) struct Worker {
    seat: Arc<Seat>,
    snapshot: Arc<Snapshot>,
    polls: Vec<Poll>,
    /// Queues it should poll and another worker still holds.
    awaited: Vec<(PortId, u32)>,
    /// Sockets that it collects packets from.
    collectors: Vec<Collector>,
    /// What control code has it do.
    errands: Vec<Box<dyn Entrusted>>,
    frames: Vec<Frame>,
    judge: Judge,
    out: Outboxes,
    /// The readers' groups of all programs' maps.
    domains: Vec<Arc<Domain>>,
    idle: Idle,
}

impl Worker {
    pub(crate) fn new(seat: &Arc<Seat>, seats: &Arc<[Arc<Seat>]>, pool: Pool) -> Worker {
        Worker {
            seat: Arc::clone(seat),
            snapshot: Arc::default(),
            polls: Vec::new(),
            awaited: Vec::new(),
            collectors: Vec::new(),
            errands: Vec::new(),
            frames: Vec::with_capacity(2 * BURST),
            judge: Judge::new(seat.number),
            out: Outboxes::new(seat, seats, pool),
            domains: Vec::new(),
            idle: Idle::default(),
        }
    }

    /// Works until told to stop.
    pub(crate) fn run(mut self) {
        loop {
            if self.seat.offered.load(Ordering::Acquire) != self.snapshot.generation {
                let next = self.seat.current();
                self.adopt(next);
            }
            if self.seat.stop.load(Ordering::Acquire) {
                break;
            }
            let work = self.round();
            self.rest(work);
        }
        // Like a configuration without ports: everything open is parked, everything held sent.
        self.drain_inbox();
        self.errands.clear();
        self.adopt(Arc::default());
    }

    /// Polls everything once; gives the number of frames seen.
    fn round(&mut self) -> usize {
        if !self.awaited.is_empty() {
            self.claim_awaited();
        }
        let mut work = 0;
        for index in 0..self.polls.len() {
            work += self.poll(index);
        }
        if !self.collectors.is_empty() {
            work += self.collect();
        }
        if !self.errands.is_empty() {
            work += self.run_errands();
        }
        work += self.take_inbox();
        self.out.end_round(work >= BURST);
        work
    }

    /// Receives, judges and sends one burst.
    #[inline]
    fn poll(&mut self, index: usize) -> usize {
        let Self { snapshot, polls, frames, judge, out, seat, .. } = self;
        let poll = &mut polls[index];
        if poll.is_finished {
            return 0;
        }
        if let Some(lender) = &mut poll.lender {
            lender.enter(&mut out.pool);
        }
        let received = poll.rx.receive(&mut out.pool, frames, BURST);
        if let Some(lender) = &mut poll.lender {
            lender.leave(&mut out.pool);
        }
        let count = match received {
            Ok(count) => count,
            Err(error) => {
                poll.fail(&error);
                frames.len()
            }
        };
        if count == 0 {
            poll.note_end();
            return 0;
        }
        let Some(slot) = snapshot.port(poll.port) else {
            out.drop_all(frames);
            return count;
        };
        let mut bytes = 0;
        for frame in frames.iter_mut() {
            bytes += frame.arrive(slot.ifindex, poll.queue);
        }
        // First, so that who sees the port's frames sees that there are frames.
        seat.counters.received.add(count as u64);
        let counters = &slot.opened.counters[seat.number];
        counters.rx_packets.add(count as u64);
        counters.rx_bytes.add(bytes as u64);
        judge.burst(snapshot, slot, frames, out);
        out.expects_more = count == BURST;
        out.flush(snapshot, judge);
        out.expects_more = false;
        count
    }
}

/// Nobody waits for a worker that is gone, even if it panicked.
impl Drop for Worker {
    fn drop(&mut self) {
        self.seat.inbox.close();
        self.seat.note_adopted(u64::MAX);
    }
}

impl Poll {
    /// The queue is of no more use; its port says why.
    #[cold]
    fn fail(&mut self, error: &std::io::Error) {
        self.is_finished = true;
        let mut failure = self.opened.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| format!("queue {}: {error}", self.queue));
        self.opened.failed.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn note_end(&mut self) {
        if self.rx.is_finished() {
            self.is_finished = true;
            self.opened.finished.fetch_add(1, Ordering::Relaxed);
        }
    }
}
