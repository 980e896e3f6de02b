//! A bounded queue of frames from transmitters of any worker to the worker that polls it, for kinds
//! whose frames stay in this process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use towpath_engine::Waker;
use towpath_xdp::Frame;

/// A bounded queue of frames, or of frames with something about each.
#[derive(Debug)]
pub(crate) struct FrameRing<T = Frame> {
    frames: Mutex<VecDeque<T>>,
    /// Their number, readable without the lock.
    len: AtomicUsize,
    capacity: usize,
    /// Waker of the worker that polls the queue.
    waker: Mutex<Option<Arc<Waker>>>,
}

impl<T> FrameRing<T> {
    pub(crate) fn new(capacity: usize) -> FrameRing<T> {
        FrameRing {
            frames: Mutex::new(VecDeque::with_capacity(capacity)),
            len: AtomicUsize::new(0),
            capacity: capacity.max(1),
            waker: Mutex::default(),
        }
    }

    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// Sets the waker of the worker that polls the queue.
    pub(crate) fn set_waker(&self, waker: &Arc<Waker>) {
        *self.waker.lock() = Some(Arc::clone(waker));
    }

    /// Number of frames that fit.
    pub(crate) fn room(&self) -> usize {
        self.capacity.saturating_sub(self.len.load(Ordering::Acquire))
    }

    /// Takes the frames that fit, from the front.
    pub(crate) fn push(&self, frames: &mut Vec<T>) {
        let mut ring = self.frames.lock();
        let fits = frames.len().min(self.capacity - ring.len());
        ring.extend(frames.drain(..fits));
        self.len.store(ring.len(), Ordering::Release);
        drop(ring);
        if let Some(waker) = &*self.waker.lock() {
            waker.wake();
        }
    }

    /// Appends up to `limit` frames to `out`; returns their number.
    pub(crate) fn pop(&self, limit: usize, out: &mut Vec<T>) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut ring = self.frames.lock();
        let count = limit.min(ring.len());
        out.extend(ring.drain(..count));
        self.len.store(ring.len(), Ordering::Release);
        count
    }
}
