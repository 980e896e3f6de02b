//! Owners of memory or objects that a call returns: once the owner has ended, the result may be
//! neither read nor written.
//!
//! Each row of the tables of helpers and kfuncs names the owners, and the verifier invalidates
//! results by these rows alone. `tests/src/ends` derives programs from them that use a result after
//! its end.

use std::fmt;
use std::ops::BitOr;

/// Owners of a result; all of them must exist.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Ties(u8);

impl Ties {
    /// None: map values, the kernel's variables, and memory that reads as 0 where nothing is
    /// mapped.
    pub const NONE: Ties = Ties(0);
    /// The result's own reference, which ends when a function releases it.
    pub const OWN: Ties = Ties(1 << 0);
    /// The object in the first argument: an iterator until it is destroyed, a socket until it is
    /// released.
    pub const FIRST: Ties = Ties(1 << 1);
    /// The dynptr in the first argument, and the owner of its memory: its record until that is
    /// submitted or discarded, the packet until that changes. A dynptr ends also when it is
    /// overwritten.
    pub const DYNPTR: Ties = Ties(1 << 2);
    /// The buffer in the third argument, to which the result may point: the owner is the stack of
    /// the buffer's function, its record, or the dynptr that it belongs to.
    pub const BUFFER: Ties = Ties(1 << 3);
    /// The RCU read-side section, if one was entered; else the program.
    pub const RCU: Ties = Ties(1 << 4);
    /// The held lock.
    pub const LOCK: Ties = Ties(1 << 5);
    /// The call of a callback, for the arguments of the callback: the key of an element, the dynptr
    /// over a message.
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
