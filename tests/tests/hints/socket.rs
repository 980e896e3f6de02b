//! A socket that notes what is known of the frames it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use towpath_engine::port::Wake;
use towpath_engine::{QueueId, Socket};
use towpath_xdp::{Frame, Pool};

use crate::packets::number_of;
use crate::watch::Seen;

#[derive(Debug)]
pub(crate) struct Collecting {
    place: QueueId,
    got: Mutex<Vec<Option<Seen>>>,
    count: AtomicUsize,
}

impl Collecting {
    pub(crate) fn new(place: QueueId) -> Arc<Collecting> {
        Arc::new(Collecting { place, got: Mutex::default(), count: AtomicUsize::new(0) })
    }

    /// Packets so far.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn got(&self, number: usize) -> Option<Seen> {
        self.got.lock().get(number).copied().flatten()
    }
}

impl Socket for Collecting {
    fn id(&self) -> u32 {
        7
    }

    fn bound_to(&self) -> Option<QueueId> {
        Some(self.place)
    }

    fn receives(&self) -> bool {
        true
    }

    fn transmits(&self) -> bool {
        false
    }

    fn deliver(&self, from: QueueId, frames: &mut Vec<Frame>, pool: &mut Pool) -> usize {
        assert_eq!(from, self.place);
        let mut got = self.got.lock();
        for frame in &*frames {
            let (Some(number), Some(known)) = (frame.with_linear(number_of), frame.rx_metadata())
            else {
                continue;
            };
            let end = got.len().max(number + 1);
            got.resize(end, None);
            let before = got[number].replace((known, frame.origin()));
            self.count.fetch_add(usize::from(before.is_none()), Ordering::Release);
        }
        let count = frames.len();
        pool.give_all(frames);
        count
    }

    fn flush(&self) {}

    fn collect(&self, _pool: &mut Pool, _frames: &mut Vec<Frame>, _limit: usize) -> usize {
        0
    }

    fn sent(&self, _count: usize) {}

    fn arm(&self) -> Wake<'_> {
        Wake::Waker
    }

    fn disarm(&self) {}
}
