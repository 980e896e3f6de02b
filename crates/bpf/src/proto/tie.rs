//! The owner of memory, or of an object, that a call returns: once that has ended, nothing may be
//! read or written there.
//!
//! Each row of the tables of helpers and kfuncs says it, and the verifier makes the result void by
//! nothing else. `tests/src/ends` makes programs of it that use a thing after its end.

use std::fmt;
use std::ops::BitOr;

/// What a result hangs on; all of it must be there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Ties(u8);

impl Ties {
    /// Nothing: values of maps, the kernel's variables, what reads as 0 where nothing is.
    pub const NONE: Ties = Ties(0);
    /// A reference of its own. The function that releases it ends it.
    pub const OWN: Ties = Ties(1 << 0);
    /// The first argument's: the iterator until it is destroyed, the socket until it is released.
    pub const FIRST: Ties = Ties(1 << 1);
    /// The dynptr in the first argument, and what that hangs on: its record until that is submitted
    /// or discarded, the packet until that changes. A dynptr ends, too, when it is overwritten.
    pub const DYNPTR: Ties = Ties(1 << 2);
    /// The buffer in the third argument, which may be what is given: its function's stack, its
    /// record, or the dynptr it is part of.
    pub const BUFFER: Ties = Ties(1 << 3);
    /// The section under RCU, if one was entered; else the program.
    pub const RCU: Ties = Ties(1 << 4);
    /// The lock that is held.
    pub const LOCK: Ties = Ties(1 << 5);
    /// Of what a function of the program is called with: its call. The key of an element, the
    /// dynptr over a message.
    pub const CALLBACK: Ties = Ties(1 << 6);

    /// Whether all ties of `other` are among them.
    pub const fn has(self, other: Ties) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    pub const fn with(self, other: Ties) -> Ties {
        Ties(self.0 | other.0)
    }
}

impl BitOr for Ties {
    type Output = Ties;
    fn bitor(self, other: Ties) -> Ties {
        self.with(other)
    }
}

impl fmt::Debug for Ties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["own", "first", "dynptr", "buffer", "rcu", "lock", "callback"];
        let set = names.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0);
        f.debug_list().entries(set.map(|(_, name)| name)).finish()
    }
}
