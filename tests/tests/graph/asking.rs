//! An AF_XDP socket that only sends: it keeps a number of packets until they are sent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use towpath_engine::port::Wake;
use towpath_engine::{QueueId, Socket};
use towpath_xdp::{Frame, Pool};

#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) place: QueueId,
    pub(crate) left: AtomicUsize,
    pub(crate) packet: Vec<u8>,
    /// Number of times that a worker polled it.
    pub(crate) polls: AtomicUsize,
}

impl Asking {
    pub(crate) fn new(place: QueueId, packets: usize, packet: Vec<u8>) -> Asking {
        Asking { place, left: packets.into(), packet, polls: 0.into() }
    }
}

impl Socket for Asking {
    fn id(&self) -> u32 {
        7
    }

    fn bound_to(&self) -> Option<QueueId> {
        Some(self.place)
    }

    fn receives(&self) -> bool {
        false
    }

    fn transmits(&self) -> bool {
        true
    }

    fn deliver(&self, _from: QueueId, frames: &mut Vec<Frame>, pool: &mut Pool) -> usize {
        pool.give_all(frames);
        0
    }

    fn flush(&self) {}

    fn has_packets(&self) -> bool {
        self.polls.fetch_add(1, Ordering::SeqCst);
        self.left.load(Ordering::SeqCst) > 0
    }

    fn collect(&self, pool: &mut Pool, frames: &mut Vec<Frame>, limit: usize) -> usize {
        let count = pool.take_many(limit.min(self.left.load(Ordering::SeqCst)), frames);
        frames.iter_mut().for_each(|frame| frame.fill(&self.packet));
        count
    }

    fn sent(&self, count: usize) {
        self.left.fetch_sub(count, Ordering::SeqCst);
    }

    fn arm(&self) -> Wake<'_> {
        Wake::At(Instant::now() + Duration::from_millis(1))
    }

    fn disarm(&self) {}
}
