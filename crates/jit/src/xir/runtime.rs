//! Functions of the runtime that code calls directly, and what a call may change.
//!
//! Unlike a helper, such a function takes its arguments as the machine does, states its effects,
//! and is known to every pass: a call is no barrier for what it does not touch.

use super::ir::Alias;

/// A native function. Arguments and result are 64 bits wide; the arguments are listed in each
/// variant's documentation. None of them moves the packet or changes a field of the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuntimeFunction {
    /// `(map, key address, worker)`: address of the value or 0.
    MapLookup,
}

/// Memory beside its own bookkeeping that a function reaches through its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// None, or only stack bytes its arguments name.
    Nothing,
    /// Values of maps, and none of the rest.
    MapValues,
    /// Whatever an argument points to; not the context.
    Arguments,
}

/// What a call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effects {
    /// Memory it reads.
    pub reads: Reach,
    /// Memory it writes.
    pub writes: Reach,
    /// It only computes its result: without use of that, the call may go.
    pub removable: bool,
    /// It may end the run: `machine.stop` is read after it.
    pub stops: bool,
    /// Its first argument, before those listed, is the machine.
    pub takes_machine: bool,
}

impl Effects {
    /// A function that reads `reads` and gives a result.
    const fn reading(reads: Reach) -> Self {
        let writes = Reach::Nothing;
        Effects { reads, writes, removable: true, stops: false, takes_machine: false }
    }
}

impl Reach {
    /// Whether memory of this class may be among it.
    pub const fn includes(self, alias: Alias) -> bool {
        match (self, alias) {
            (Reach::Nothing, _) | (_, Alias::Ctx) => false,
            (Reach::MapValues, Alias::Map(_) | Alias::Other) => true,
            (Reach::MapValues, _) => false,
            // Bookkeeping is the functions' own business; who reads it in code asks for more.
            (Reach::Arguments, _) => true,
        }
    }
}

impl RuntimeFunction {
    /// What calling it may do.
    pub const fn effects(self) -> Effects {
        match self {
            // It marks elements of LRU maps as used.
            RuntimeFunction::MapLookup => {
                Effects { removable: false, ..Effects::reading(Reach::Arguments) }
            }
        }
    }

    /// What the text form and symbols call it.
    pub fn name(self) -> String {
        match self {
            RuntimeFunction::MapLookup => "map_lookup".into(),
        }
    }

    /// Number of its arguments.
    pub const fn arg_count(self) -> usize {
        match self {
            RuntimeFunction::MapLookup => 3,
        }
    }
}
