//! The first word of a timer inside its map value: whether there is a timer, and when it is due.
//!
//! A packet of a known flow pushes its timer back, and the program has just read the value around
//! it. As long as only the time changes, only the word is written.

use towpath_bpf::interp::AtomicOp;

use crate::memory::{self, Grant};

/// The word of one timer. It is not 0 from the timer's creation until its value gives it up,
/// because a map releases only fields that are not 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word(Grant);

impl Word {
    /// The word in an aligned grant of 8 bytes.
    pub(crate) fn new(grant: Grant) -> Word {
        Word(grant)
    }

    /// The address of the timer.
    #[inline]
    pub(crate) fn place(self) -> u64 {
        self.0.addr()
    }

    /// When the timer is due; `None` when it does not wait.
    #[inline]
    pub(super) fn due(self) -> Option<u64> {
        waits(memory::atomic(self.0, AtomicOp::LoadAcquire, 0))
    }

    /// Moves the time of a waiting timer to a later one; `false`, and nothing done, when it does
    /// not wait, or is due later.
    #[inline]
    pub(super) fn push_back(self, due: u64) -> bool {
        self.due().is_some_and(|before| before <= due && self.exchange(before, due))
    }

    /// Lets the timer wait until `due`. Its shard is locked.
    pub(super) fn wait(self, due: u64) {
        memory::atomic(self.0, AtomicOp::Exchange, due.max(FIRST));
    }

    /// Stops the timer; returns whether it was waiting. Its shard is locked.
    pub(super) fn stop(self) -> bool {
        waits(memory::atomic(self.0, AtomicOp::Exchange, IDLE)).is_some()
    }

    /// Stops the timer if it is due at `due`, and was not pushed back meanwhile. Its shard is
    /// locked.
    pub(super) fn fire(self, due: u64) -> bool {
        self.exchange(due, IDLE)
    }

    /// Removes the timer. Its shard is locked.
    pub(super) fn clear(self) {
        memory::atomic(self.0, AtomicOp::Exchange, 0);
    }

    #[inline]
    fn exchange(self, expected: u64, new: u64) -> bool {
        memory::atomic(self.0, AtomicOp::CompareExchange { expected }, new) == expected
    }
}

#[inline]
fn waits(word: u64) -> Option<u64> {
    (word >= FIRST).then_some(word)
}

/// A timer that does not wait.
const IDLE: u64 = 1;
/// The first moment that a timer can wait for: the words below mean something else.
const FIRST: u64 = 2;
