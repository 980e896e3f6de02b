//! The number of receive queues of the interface, which may change while its port runs.
//!
//! Without `queues` in the configuration, the port is to get every frame, so frames on a queue
//! without a socket are dropped: none bypasses the port's programs into the host's stack. With
//! `queues`, the remaining queues belong to the host.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use towpath_kernel::Unserved;

use super::Options;
use crate::Error;
use crate::host::Interface;

/// The queues of an interface.
#[derive(Debug)]
pub(super) struct Queues {
    count: AtomicU32,
    /// The port serves all queues, also those added later.
    is_all: bool,
    /// Largest possible number of queues.
    pub(super) max: u32,
    /// The error, if a new queue could not be opened.
    failure: Mutex<Option<String>>,
}

impl Queues {
    pub(super) fn new(interface: &Interface, options: &Options) -> Result<Queues, Error> {
        let (there, max) = (interface.rx_queues(), interface.rx_queues_max());
        let count = options.queues.unwrap_or(there);
        if !(1..=there).contains(&count) {
            return Err(Error::Range {
                interface: options.name.clone(),
                what: "queues",
                value: u64::from(count),
                min: 1,
                max: u64::from(there),
            });
        }
        let is_all = options.queues.is_none();
        let count = AtomicU32::new(count);
        Ok(Queues { count, is_all, max, failure: Mutex::default() })
    }

    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// The treatment of frames on other queues.
    pub(super) fn unserved(&self) -> Unserved {
        if self.is_all { Unserved::Drop } else { Unserved::Pass }
    }

    /// Reads the number of queues again; returns whether it grew.
    pub(super) fn look(&self, interface: &Interface) -> bool {
        if !self.is_all {
            return false;
        }
        let count = interface.rx_queues().min(self.max);
        self.count.swap(count, Ordering::AcqRel) < count
    }

    /// Records the error of opening a queue, or clears it.
    pub(super) fn note<T>(&self, queue: u32, opened: &io::Result<T>) {
        let mut failure = self.failure.lock();
        *failure = opened.as_ref().err().map(|error| {
            format!("receive queue {queue} can't be opened, its frames are dropped: {error}")
        });
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }
}
