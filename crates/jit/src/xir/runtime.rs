//! Functions of the runtime that code calls directly, and what a call may change.
//!
//! Unlike a helper, such a function takes its arguments as the machine does, states its effects,
//! and is known to every pass: a call is no barrier for what it does not touch.

use super::ir::Alias;

/// A native function. Arguments and result are 64 bits wide; the arguments are listed in each
/// variant's documentation. None of them moves the packet or changes a field of the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuntimeFunction {
    /// `(map, key address, worker)`: `bpf_map_lookup_elem`.
    MapLookup,
    /// `(map, key address, cpu)`: `bpf_map_lookup_percpu_elem`.
    MapLookupPercpu,
    /// `(map, key address, value address, flags, worker)`: `bpf_map_update_elem`.
    MapUpdate,
    /// `(map, key address, worker)`: `bpf_map_delete_elem`.
    MapDelete,
    /// `(map, value address, flags)`: `bpf_map_push_elem`.
    MapPush,
    /// `(map, value address)`: `bpf_map_pop_elem`.
    MapPop,
    /// `(map, value address)`: `bpf_map_peek_elem`.
    MapPeek,
    /// `(view, words of the key)`: the address of a value in a hash table (of CPU 0, for per-CPU
    /// kinds) or 0.
    HashLookup {
        /// Words of a key, 1 to [`towpath_maps::KEY_WORDS_MAX`].
        words: u8,
        /// The element counts as used (LRU kinds).
        marks: bool,
    },
    /// `(view, words of the key)`: asks the processor to fetch what [`Self::HashLookup`] will want;
    /// gives 0.
    HashAhead {
        /// Words of a key, 1 to [`towpath_maps::KEY_WORDS_MAX`].
        words: u8,
        /// What to fetch.
        stage: Stage,
    },
}

/// What one pass over a burst fetches before the burst is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The bucket of the key.
    Bucket,
    /// The first element in it, when the bucket has arrived.
    Element,
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
        use RuntimeFunction::{
            HashAhead, HashLookup, MapDelete, MapLookup, MapLookupPercpu, MapPeek, MapPop, MapPush,
            MapUpdate,
        };
        let reading = Effects::reading(Reach::Arguments);
        match self {
            // Lookups mark elements of LRU maps as used.
            MapLookup | MapLookupPercpu => Effects { removable: false, ..reading },
            HashLookup { words: _, marks } => {
                Effects { removable: !marks, ..Effects::reading(Reach::Nothing) }
            }
            HashAhead { .. } => Effects { removable: false, ..Effects::reading(Reach::Nothing) },
            // Per-CPU values are written in place; what values owned is given up in place.
            MapUpdate | MapDelete => {
                Effects { writes: Reach::MapValues, removable: false, ..reading }
            }
            MapPush => Effects { removable: false, ..reading },
            MapPop | MapPeek => Effects { writes: Reach::Arguments, removable: false, ..reading },
        }
    }

    /// What the text form and symbols call it.
    pub fn name(self) -> String {
        let name = match self {
            RuntimeFunction::MapLookup => "map_lookup",
            RuntimeFunction::MapLookupPercpu => "map_lookup_percpu",
            RuntimeFunction::MapUpdate => "map_update",
            RuntimeFunction::MapDelete => "map_delete",
            RuntimeFunction::MapPush => "map_push",
            RuntimeFunction::MapPop => "map_pop",
            RuntimeFunction::MapPeek => "map_peek",
            RuntimeFunction::HashLookup { words, marks } => {
                return format!("{}_lookup_{words}", if marks { "lru" } else { "hash" });
            }
            RuntimeFunction::HashAhead { words, stage: Stage::Bucket } => {
                return format!("hash_bucket_ahead_{words}");
            }
            RuntimeFunction::HashAhead { words, stage: Stage::Element } => {
                return format!("hash_element_ahead_{words}");
            }
        };
        name.into()
    }

    /// What fetches ahead for it, if anything does.
    pub const fn ahead(self, stage: Stage) -> Option<Self> {
        match self {
            RuntimeFunction::HashLookup { words, marks: _ } => {
                Some(RuntimeFunction::HashAhead { words, stage })
            }
            _ => None,
        }
    }

    /// Number of its arguments, the machine not counted.
    pub const fn arg_count(self) -> usize {
        use RuntimeFunction::{
            HashAhead, HashLookup, MapDelete, MapLookup, MapLookupPercpu, MapPeek, MapPop, MapPush,
            MapUpdate,
        };
        match self {
            MapPop | MapPeek => 2,
            MapLookup | MapLookupPercpu | MapDelete | MapPush => 3,
            MapUpdate => 5,
            HashLookup { words, .. } | HashAhead { words, .. } => words as usize + 1,
        }
    }
}
