//! Busy polling, which an application requests by options of level `SOL_SOCKET`
//! (`net/core/sock.c`).
//!
//! In the kernel they set how long a system call looks for packets before it sleeps, and let
//! interrupts wait meanwhile. Here no system call is needed, and interrupts are wake-ups: an idle
//! worker sleeps after a while, and senders have to wake it. So the options set the time that a
//! worker stays awake for a socket.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::abi::{BUSY_POLL, BUSY_POLL_BUDGET, PREFER_BUSY_POLL};

/// The options set by the application.
#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    microseconds: AtomicU32,
    is_preferred: AtomicBool,
    /// 0 if it was not set.
    budget: AtomicU32,
    /// Number of moved packets at the last look, and the time of its last change.
    last: Mutex<Option<(u64, Instant)>>,
}

impl BusyPoll {
    /// Whether an option is one of these.
    pub(super) fn knows(name: u32) -> bool {
        matches!(name, BUSY_POLL | PREFER_BUSY_POLL | BUSY_POLL_BUDGET)
    }

    /// `setsockopt` (`sk_setsockopt`).
    pub(super) fn set(&self, name: u32, value: &[u8]) -> Result<(), Errno> {
        let value = i32::from_ne_bytes(*value.first_chunk::<4>().ok_or(Errno::INVAL)?);
        let number = u32::try_from(value).map_err(|_negative| Errno::INVAL);
        match name {
            BUSY_POLL => self.microseconds.store(number?, Ordering::Relaxed),
            PREFER_BUSY_POLL if !(0..=1).contains(&value) => return Err(Errno::INVAL),
            PREFER_BUSY_POLL => self.is_preferred.store(value == 1, Ordering::Relaxed),
            _ if value > i32::from(u16::MAX) => return Err(Errno::INVAL),
            _ => self.budget.store(number?, Ordering::Relaxed),
        }
        Ok(())
    }

    /// `getsockopt`, for an answer of at most `room` bytes.
    pub(super) fn get(&self, name: u32, room: usize) -> Vec<u8> {
        let value = match name {
            BUSY_POLL => self.microseconds.load(Ordering::Relaxed),
            PREFER_BUSY_POLL => u32::from(self.is_preferred.load(Ordering::Relaxed)),
            _ => self.budget.load(Ordering::Relaxed),
        };
        let bytes = value.to_ne_bytes();
        bytes[..room.min(bytes.len())].to_vec()
    }

    /// Number of packets that are sent at a time: `limit`, or the application's budget if that is
    /// lower.
    pub(super) fn limit(&self, limit: usize) -> usize {
        match self.budget.load(Ordering::Relaxed) {
            0 => limit,
            budget => limit.min(budget as usize),
        }
    }

    /// Whether a worker stays awake for a socket; `moved` returns the number of packets so far.
    pub(super) fn keeps_awake(&self, moved: impl FnOnce() -> u64) -> bool {
        if !self.is_preferred.load(Ordering::Relaxed) {
            return false;
        }
        let microseconds = u64::from(self.microseconds.load(Ordering::Relaxed));
        let time = Duration::from_micros(microseconds).min(AWAKE_MAX);
        let (moved, now) = (moved(), Instant::now());
        let mut last = self.last.lock();
        match *last {
            Some((before, since)) if before == moved => now.duration_since(since) < time,
            _ => {
                *last = Some((moved, now));
                !time.is_zero()
            }
        }
    }
}

/// Longest time that a socket without packets keeps a worker awake.
const AWAKE_MAX: Duration = Duration::from_secs(1);
