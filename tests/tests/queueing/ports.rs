//! The ports of these tests: one that receives what it is given, and one that sends as fast as it
//! is told, and says how much room it has.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towpath_engine::port::{Device, Features, Rx, Tx, Wake};
use towpath_xdp::{Arena, Frame, Pool};

/// A port that receives these packets, and keeps those that it sends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wire(Arc<State>);

#[derive(Debug, Default)]
struct State {
    arriving: Mutex<VecDeque<Vec<u8>>>,
    sent: Mutex<Vec<(Instant, Vec<u8>)>>,
    /// The frame in the transmit ring, which has room for one.
    ring: Mutex<Option<Frame>>,
    /// Number of frames that the port may send.
    allowed: AtomicUsize,
}

impl Wire {
    /// Allows the port to send `count` more frames.
    pub(crate) fn allow(&self, count: usize) {
        self.0.allowed.fetch_add(count, Ordering::SeqCst);
    }

    /// Frames in its ring.
    pub(crate) fn waiting(&self) -> u64 {
        self.0.ring.lock().is_some().into()
    }

    /// Sends what is in its ring, if it may.
    fn drain(&self, pool: Option<&mut Pool>) {
        let mut ring = self.0.ring.lock();
        let may = |allowed: usize| allowed.checked_sub(1);
        let Some(frame) = ring.as_ref().map(|frame| frame.to_vec()) else { return };
        if self.0.allowed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, may).is_ok() {
            self.0.sent.lock().push((Instant::now(), frame));
            if let (Some(frame), Some(pool)) = (ring.take(), pool) {
                pool.give(frame);
            }
        }
    }

    pub(crate) fn receive(&self, packets: impl IntoIterator<Item = Vec<u8>>) {
        self.0.arriving.lock().extend(packets);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.arriving.lock().is_empty()
    }

    /// The frames sent so far, with their times.
    pub(crate) fn sent(&self) -> Vec<(Instant, Vec<u8>)> {
        self.0.sent.lock().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.sent.lock().len()
    }
}

impl Device for Wire {
    fn kind(&self) -> &'static str {
        "wire"
    }

    fn queues(&self) -> u32 {
        1
    }

    fn features(&self) -> Features {
        Features::IN_PROCESS
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Ok(Box::new(self.clone()))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(self.clone()))
    }
}

impl Rx for Wire {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let mut arriving = self.0.arriving.lock();
        let mut count = 0;
        while count < limit
            && let Some(packet) = arriving.front()
            && let Some(frame) = pool.frame(packet).unwrap()
        {
            frames.push(frame);
            arriving.pop_front();
            count += 1;
        }
        Ok(count)
    }

    fn arm(&mut self) -> Wake<'_> {
        Wake::At(Instant::now() + Duration::from_millis(1))
    }
}

impl Tx for Wire {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        self.drain(Some(pool));
        while !frames.is_empty() && self.0.ring.lock().is_none() {
            *self.0.ring.lock() = Some(frames.remove(0));
            self.drain(Some(pool));
        }
        Ok(())
    }

    fn credit(&mut self) -> usize {
        self.drain(None);
        1 - self.waiting() as usize
    }
}
