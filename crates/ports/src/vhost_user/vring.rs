//! One queue: its setup by the front end, and its ring while it runs.
//!
//! A worker holds the queue's lock for a burst; a thread that stops, moves or resizes the queue
//! takes the same lock, between two bursts. So a queue can start, stop and change at any moment
//! without delaying other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use towpath_engine::Waker;

use super::bell_unsafe::{CallEvent, Kick};
use super::burst::{Chain, Violation};
use super::feature::Negotiated;
use super::inflight::{Inflight, Region};
use super::log::Log;
use super::memory::Memory;
use super::ring::{Addresses, Ring, SetupError};

/// A queue of the device: even numbers are the guest's receive queues, odd ones its transmit
/// queues.
#[derive(Debug, Default)]
pub(super) struct Vring {
    /// The queue may have work; readable without the lock.
    is_running: AtomicBool,
    state: Mutex<State>,
    /// Available buffers as last read, minus those used since: the driver only adds to them.
    /// Written under the lock.
    room: AtomicU32,
    /// Wakes the worker that polls the queue.
    waker: Mutex<Option<Arc<Waker>>>,
    pub(super) counters: Counters,
}

/// Counters of a queue.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Malformed frames, and frames with an inconsistent header.
    pub(super) malformed: AtomicU64,
    /// Frames that the guest sent on a disabled queue.
    pub(super) disabled: AtomicU64,
    /// Number of times the driver broke the queue.
    pub(super) broken: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) setup: Setup,
    pub(super) active: Option<Active>,
    /// The violation for which the device stopped it.
    pub(super) broken: Option<Violation>,
}

/// Settings by the front end.
#[derive(Debug, Default)]
pub(super) struct Setup {
    pub(super) size: u32,
    pub(super) base: u32,
    pub(super) addresses: Option<Addresses>,
    /// Signalled by the driver for new buffers; without it the device polls.
    pub(super) kick: Option<Arc<Kick>>,
    /// Signalled by the device to interrupt the driver.
    pub(super) call: Option<CallEvent>,
    /// Signalled by the device if the queue is broken.
    pub(super) error: Option<CallEvent>,
    pub(super) is_enabled: bool,
    /// It was enabled before: frames sent while it is disabled again are discarded. Before the
    /// first time they wait, because the front end is about to enable it.
    pub(super) was_enabled: bool,
}

impl Setup {
    pub(super) fn enable(&mut self, is_on: bool) {
        self.is_enabled = is_on;
        self.was_enabled |= is_on;
    }
}

/// A running ring.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) ring: Ring,
    pub(super) memory: Arc<Memory>,
    pub(super) features: Negotiated,
    pub(super) log: Option<Arc<Log>>,
    inflight: Option<Inflight>,
}

impl Active {
    /// Returns buffers to the driver.
    #[inline]
    pub(super) fn complete(&mut self, chains: &[Chain]) {
        self.ring.complete(chains);
        if let Some(log) = &self.log {
            let (guest, len) = self.ring.used_range();
            log.mark(guest, len);
        }
    }
}

impl State {
    /// Interrupts the driver if it wants that.
    #[inline]
    pub(super) fn signal(&mut self) {
        let Some(active) = &mut self.active else { return };
        if active.ring.wants_signal() {
            ring(self.setup.call.as_ref());
        }
    }

    /// Interrupts the driver unconditionally: buffers returned before the queue started here, or
    /// before it had an interrupt, may have signalled an eventfd without a listener (QEMU starts a
    /// queue first, and clears the eventfd that it had until then).
    fn signal_anew(&self) {
        if self.active.is_some() {
            ring(self.setup.call.as_ref());
        }
    }
}

impl Vring {
    /// Whether the queue may have work.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Number of available buffers, within the look-ahead. Sources ask in each round, also idle
    /// ones, and for a bond for every queue of every member, so they must not wait for the thread
    /// that fills buffers. Meanwhile at least the buffers not used yet are available.
    pub(super) fn room(&self) -> usize {
        let Some(mut state) = self.state.try_lock() else {
            return self.room.load(Ordering::Relaxed) as usize;
        };
        let room = state.active.as_mut().map_or(0, |active| active.ring.pending());
        self.room.store(room as u32, Ordering::Relaxed);
        room
    }

    /// Subtracts used buffers; the caller holds the lock.
    #[inline]
    pub(super) fn take_room(&self, buffers: usize) {
        let room = self.room.load(Ordering::Relaxed);
        self.room.store(room.saturating_sub(buffers as u32), Ordering::Relaxed);
    }

    /// Starts the ring that the front end set up. `region` is the in-flight region, if there is
    /// one.
    pub(super) fn start(
        &self,
        memory: &Arc<Memory>,
        features: Negotiated,
        log: Option<Arc<Log>>,
        region: Option<(&Region, u32)>,
    ) -> Result<(), SetupError> {
        let mut state = self.state.lock();
        let Setup { size, base, addresses, .. } = &state.setup;
        let addresses = addresses.as_ref().ok_or(SetupError::Incomplete)?;
        let noted_as = Ring::noted_as(features);
        let inflight = region.and_then(|(region, index)| region.queue(index, noted_as, *size));
        let ring = Ring::new(memory, (*size, *base), addresses, features, inflight.clone())?;
        let memory = Arc::clone(memory);
        state.active = Some(Active { ring, memory, features, log, inflight });
        state.broken = None;
        state.signal_anew();
        self.is_running.store(true, Ordering::Release);
        drop(state);
        self.wake();
        Ok(())
    }

    /// Stops it; returns its position.
    pub(super) fn stop(&self) -> u32 {
        let mut state = self.state.lock();
        self.take_down(&mut state);
        state.setup.base
    }

    /// Takes the running ring away.
    fn take_down(&self, state: &mut State) {
        self.is_running.store(false, Ordering::Release);
        self.room.store(0, Ordering::Relaxed);
        if let Some(mut active) = state.active.take() {
            active.ring.ignore_kicks();
            state.setup.base = active.ring.base();
        }
    }

    /// Stops it and resets its setup.
    pub(super) fn reset(&self) {
        self.stop();
        let mut state = self.state.lock();
        (state.setup, state.broken) = (Setup::default(), None);
    }

    /// Moves the queue to the new memory, at its present position.
    pub(super) fn remap(&self, memory: &Arc<Memory>, log: Option<&Arc<Log>>, features: Negotiated) {
        let mut state = self.state.lock();
        let Some(before) = state.active.take() else { return };
        self.room.store(0, Ordering::Relaxed);
        let (size, base) = (u32::from(before.ring.size()), before.ring.base());
        let addresses = state.setup.addresses;
        let ring = addresses.ok_or(SetupError::Incomplete);
        let inflight = before.inflight;
        let again = |it| Ring::new(memory, (size, base), &it, features, inflight.clone());
        if let Ok(ring) = ring.and_then(again) {
            let log = log.filter(|_| features.has(super::feature::LOG_ALL)).map(Arc::clone);
            let memory = Arc::clone(memory);
            state.active = Some(Active { ring, memory, features, log, inflight });
        } else {
            // Its memory was removed, so that the ring cannot run.
            state.setup.base = base;
            self.is_running.store(false, Ordering::Release);
        }
        drop(state);
        self.wake();
    }

    /// Stops a queue after a violation by the driver, until it is set up again.
    #[cold]
    pub(super) fn break_down(&self, state: &mut State, violation: Violation) {
        self.take_down(state);
        state.broken = Some(violation);
        self.counters.broken.fetch_add(1, Ordering::Relaxed);
        ring(state.setup.error.as_ref());
    }

    /// Sets the eventfd that interrupts the driver.
    pub(super) fn set_call(&self, call: Option<CallEvent>) {
        let mut state = self.state.lock();
        state.setup.call = call;
        state.signal_anew();
    }

    pub(super) fn set_waker(&self, waker: &Arc<Waker>) {
        let mut known = self.waker.lock();
        *known = Some(Arc::clone(waker));
    }

    /// Wakes the worker that polls it.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake();
        }
    }
}

#[inline]
fn ring(bell: Option<&CallEvent>) {
    if let Some(bell) = bell {
        bell.ring();
    }
}
