//! Detection of guest restarts.
//!
//! A driver that resets the device counts as a new guest; so does another guest behind the same
//! socket. A monitor that reconnects, or resumes its guest after a pause, starts rings where they
//! were left. The two cases differ in the rings: those of a new driver were never used.

use parking_lot::Mutex;

/// Counts new guests.
#[derive(Debug, Default)]
pub(super) struct Generation(Mutex<DriverHistory>);

#[derive(Debug, Default)]
struct DriverHistory {
    restarts: u64,
    /// A driver was present before.
    had_driver: bool,
    /// Whether the end of the guest is counted already.
    is_counted: bool,
    /// It is known whether the driver of the running queues is a new one.
    is_known: bool,
}

impl Generation {
    pub(super) fn restarts(&self) -> u64 {
        self.0.lock().restarts
    }

    /// Notes that the driver has reset the device.
    pub(super) fn note_reset(&self) {
        let mut told = self.0.lock();
        told.restart();
        told.is_counted = true;
    }

    /// Notes that queues started or stopped: whether some run, whether the guest receives, and
    /// whether the running ones were never used.
    pub(super) fn note(&self, is_running: bool, is_open: bool, is_fresh: impl FnOnce() -> bool) {
        let mut told = self.0.lock();
        if !is_running {
            told.is_known = false;
            return;
        }
        if !is_open || told.is_known {
            return;
        }
        told.is_known = true;
        if is_fresh() {
            told.restart();
        }
        (told.had_driver, told.is_counted) = (true, false);
    }
}

impl DriverHistory {
    fn restart(&mut self) {
        self.restarts += u64::from(self.had_driver && !self.is_counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_rings_are_a_new_guest_and_old_ones_the_same() {
        let generation = Generation::default();
        let start = |is_fresh: bool| generation.note(true, true, || is_fresh);
        let stop = || generation.note(false, false, || false);
        start(true);
        assert_eq!(generation.restarts(), 0, "the first one");
        stop();
        start(false);
        assert_eq!(generation.restarts(), 0, "a pause");
        start(true);
        assert_eq!(generation.restarts(), 0, "one queue was resized");
        stop();
        start(true);
        assert_eq!(generation.restarts(), 1, "another one");
        generation.note_reset();
        stop();
        assert_eq!(generation.restarts(), 2, "as soon as it is known");
        start(true);
        assert_eq!(generation.restarts(), 2, "once");
    }
}
