//! Functions of the runtime that code calls directly, and the effects of a call.
//!
//! Unlike a helper, such a function takes its arguments as the machine does, declares its effects,
//! and is known to every pass: memory that it does not access can be optimized across the call.

use towpath_bpf::proto::id;

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
    /// `(view, words of the key)`: the inner map in a hash table of maps, or 0.
    HandleLookup {
        /// Number of words of a key.
        words: u8,
    },
    /// `(map, words of the key)`: as `HashLookup`, for a map that is unknown at compile time.
    InnerHashLookup {
        /// Number of words of a key.
        words: u8,
        /// Whether the element is marked as used (LRU kinds).
        marks: bool,
    },
    /// `(map, words of the key)`: the value of the longest prefix in a trie, or 0.
    TrieLookup {
        /// Number of words of a key, which has at most [`towpath_maps::PREFIX_BYTES_MAX`] bytes.
        words: u8,
    },
    /// `(from, from_size, to, to_size, seed)`: `bpf_csum_diff`.
    CsumDiff,
    /// `(address, count)`: the sum of this many adjacent numbers.
    Sum {
        /// Whether the numbers have 32 bits; else 16.
        wide: bool,
        /// Whether the numbers are big-endian; else little-endian.
        swapped: bool,
    },
    /// `()`: `bpf_ktime_get_ns`.
    Ktime,
    /// `()`: `bpf_jiffies64`; the first call of a burst fixes the result for all of them.
    Jiffies,
    /// `()`: `bpf_get_prandom_u32`.
    Random,
    /// `(ifindex, flags)`: `bpf_redirect`.
    Redirect,
    /// `(map, key, flags)`: `bpf_redirect_map`.
    RedirectMap,
    /// `(map, key)`: the entry of a map of targets, as a word, or 0.
    TargetLookup,
    /// `(offset, buffer address, size)`: `bpf_xdp_load_bytes`.
    LoadBytes,
    /// `(offset, buffer address, size)`: `bpf_xdp_store_bytes`.
    StoreBytes,
    /// `(ifindex, address of a length, change, flags)`: `bpf_check_mtu`.
    CheckMtu,
    /// `(map, size)`: `bpf_ringbuf_reserve`, the record's address, or 0.
    RingReserve,
    /// `(record address)`: `bpf_ringbuf_submit`; gives 0.
    RingSubmit,
    /// `(record address)`: `bpf_ringbuf_discard`; gives 0.
    RingDiscard,
    /// `(lock address)`: `bpf_spin_lock`.
    SpinLock,
    /// `(lock address)`: `bpf_spin_unlock`.
    SpinUnlock,
    /// `(view, words of the key)`: address of a value in a hash table (for per-CPU kinds that of
    /// CPU 0), or 0.
    HashLookup {
        /// Number of words of a key, 1 to [`towpath_maps::KEY_WORDS_MAX`].
        words: u8,
        /// Whether the element is marked as used (LRU kinds).
        marks: bool,
    },
    /// `(view, words of the key)`: prefetches memory for [`Self::HashLookup`]; gives 0.
    HashAhead {
        /// Number of words of a key, 1 to [`towpath_maps::KEY_WORDS_MAX`].
        words: u8,
        /// Memory to prefetch.
        stage: Stage,
    },
}

/// Memory that one pass over a burst prefetches before the burst is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The bucket of the key.
    Bucket,
    /// The first element in the bucket, once the bucket has arrived.
    Element,
}

/// Memory that a function accesses through its arguments, besides its own bookkeeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// None, or only stack bytes that its arguments name.
    Nothing,
    /// Values of maps, and no other memory.
    MapValues,
    /// Any memory that an argument points to, but not the context.
    Arguments,
}

/// Effects of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effects {
    /// Memory it reads.
    pub reads: Reach,
    /// Memory it writes.
    pub writes: Reach,
    /// Whether it only computes its result: if that is unused, the call may be removed.
    pub removable: bool,
    /// Whether it may end the run: `machine.stop` is read after it.
    pub stops: bool,
    /// Whether its first argument, before those listed, is the machine.
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
    /// Whether memory of this class may be accessed.
    pub const fn includes(self, alias: Alias) -> bool {
        match (self, alias) {
            (Reach::Nothing, _) | (_, Alias::Ctx) => false,
            (Reach::MapValues, Alias::Map(_) | Alias::Other) => true,
            (Reach::MapValues, _) => false,
            // Bookkeeping belongs to the functions; code that reads it has a stricter rule.
            (Reach::Arguments, _) => true,
        }
    }
}

impl RuntimeFunction {
    /// Effects of a call of the function.
    pub const fn effects(self) -> Effects {
        use RuntimeFunction as F;
        let reading = Effects::reading(Reach::Arguments);
        let acting = Effects { removable: false, ..Effects::reading(Reach::Nothing) };
        let machine = Effects { takes_machine: true, ..acting };
        match self {
            // Lookups mark elements of LRU maps as used.
            F::MapLookup | F::MapLookupPercpu => Effects { removable: false, ..reading },
            F::HandleLookup { .. } | F::TrieLookup { .. } | F::TargetLookup => {
                Effects { removable: true, ..acting }
            }
            F::HashLookup { words: _, marks } | F::InnerHashLookup { words: _, marks } => {
                Effects { removable: !marks, ..acting }
            }
            F::HashAhead { .. } => acting,
            // Per-CPU values are written in place; objects that values owned are released in place.
            // Values may be long: after each copy of one, the run checks whether it is to end.
            F::MapUpdate => {
                Effects { writes: Reach::MapValues, removable: false, stops: true, ..reading }
            }
            F::MapDelete => Effects { writes: Reach::MapValues, removable: false, ..reading },
            F::MapPush => Effects { removable: false, stops: true, ..reading },
            F::MapPop | F::MapPeek => {
                let writes = Reach::Arguments;
                Effects { writes, removable: false, stops: true, ..reading }
            }
            F::CsumDiff | F::Sum { .. } => reading,
            F::Ktime | F::Jiffies | F::Random | F::Redirect | F::RedirectMap | F::RingReserve => {
                machine
            }
            // Other threads read the record from then on.
            F::RingSubmit | F::RingDiscard => Effects { reads: Reach::Arguments, ..machine },
            F::LoadBytes | F::StoreBytes | F::CheckMtu => {
                Effects { reads: Reach::Arguments, writes: Reach::Arguments, ..machine }
            }
            // Data that a lock protects is read after it is taken and written before it is free.
            F::SpinLock | F::SpinUnlock => {
                Effects { reads: Reach::Arguments, writes: Reach::Arguments, ..acting }
            }
        }
    }

    /// The helper that takes the same arguments and checks them. `None` for functions with harmless
    /// arguments, or whose arguments are always named stack bytes (`LoadBytes`, `StoreBytes`,
    /// `CheckMtu`).
    pub const fn checked(self) -> Option<u32> {
        use RuntimeFunction as F;
        use towpath_bpf::proto::id;
        Some(match self {
            F::MapLookup => id::MAP_LOOKUP_ELEM,
            F::MapLookupPercpu => id::MAP_LOOKUP_PERCPU_ELEM,
            F::MapUpdate => id::MAP_UPDATE_ELEM,
            F::MapDelete => id::MAP_DELETE_ELEM,
            F::MapPush => id::MAP_PUSH_ELEM,
            F::MapPop => id::MAP_POP_ELEM,
            F::MapPeek => id::MAP_PEEK_ELEM,
            F::CsumDiff => id::CSUM_DIFF,
            F::RedirectMap => id::REDIRECT_MAP,
            F::SpinLock => id::SPIN_LOCK,
            F::SpinUnlock => id::SPIN_UNLOCK,
            F::Ktime
            | F::Jiffies
            | F::Random
            | F::Redirect
            | F::LoadBytes
            | F::StoreBytes
            | F::CheckMtu
            | F::HashLookup { .. }
            | F::HandleLookup { .. }
            | F::TrieLookup { .. }
            | F::HashAhead { .. } => return None,
            // Never used in untrusted programs.
            F::InnerHashLookup { .. } | F::Sum { .. } => return None,
            F::RingReserve | F::RingSubmit | F::RingDiscard => return None,
            // No instruction: redirects by a table become calls of it.
            F::TargetLookup => return None,
        })
    }

    /// Whether it compares its arguments with existing objects, and returns, copies or changes
    /// these if they match: a processor that predicts a match does so speculatively. Other lookups
    /// use a hash or bits of the key, and their result is an element for any key.
    pub const fn checks_arguments(self) -> bool {
        use RuntimeFunction as F;
        match self {
            F::MapLookup
            | F::MapLookupPercpu
            | F::MapUpdate
            | F::MapDelete
            | F::MapPush
            | F::MapPop
            | F::MapPeek
            | F::CsumDiff
            | F::Sum { .. }
            | F::LoadBytes
            | F::StoreBytes
            | F::CheckMtu
            | F::RingReserve
            | F::RedirectMap
            | F::TargetLookup => true,
            F::HandleLookup { .. }
            | F::InnerHashLookup { .. }
            | F::TrieLookup { .. }
            | F::HashLookup { .. }
            | F::HashAhead { .. }
            | F::Ktime
            | F::Jiffies
            | F::Random
            | F::Redirect
            | F::RingSubmit
            | F::RingDiscard
            | F::SpinLock
            | F::SpinUnlock => false,
        }
    }

    /// Name in the text form and in symbols.
    pub fn name(self) -> String {
        let name = match self {
            RuntimeFunction::MapLookup => "map_lookup",
            RuntimeFunction::MapLookupPercpu => "map_lookup_percpu",
            RuntimeFunction::MapUpdate => "map_update",
            RuntimeFunction::MapDelete => "map_delete",
            RuntimeFunction::MapPush => "map_push",
            RuntimeFunction::MapPop => "map_pop",
            RuntimeFunction::MapPeek => "map_peek",
            RuntimeFunction::HandleLookup { words } => return format!("handle_lookup_{words}"),
            RuntimeFunction::InnerHashLookup { words, marks } => {
                return format!("inner_{}_lookup_{words}", if marks { "lru" } else { "hash" });
            }
            RuntimeFunction::TrieLookup { words } => return format!("trie_lookup_{words}"),
            RuntimeFunction::CsumDiff => "csum_diff",
            RuntimeFunction::Sum { wide, swapped } => {
                let (bits, order) = (if wide { 32 } else { 16 }, if swapped { "_be" } else { "" });
                return format!("sum_{bits}{order}");
            }
            RuntimeFunction::Ktime => "ktime",
            RuntimeFunction::Jiffies => "jiffies",
            RuntimeFunction::Random => "random",
            RuntimeFunction::Redirect => "redirect",
            RuntimeFunction::RedirectMap => "redirect_map",
            RuntimeFunction::TargetLookup => "target_lookup",
            RuntimeFunction::LoadBytes => "load_bytes",
            RuntimeFunction::StoreBytes => "store_bytes",
            RuntimeFunction::CheckMtu => "check_mtu",
            RuntimeFunction::RingReserve => "ring_reserve",
            RuntimeFunction::RingSubmit => "ring_submit",
            RuntimeFunction::RingDiscard => "ring_discard",
            RuntimeFunction::SpinLock => "spin_lock",
            RuntimeFunction::SpinUnlock => "spin_unlock",
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

    /// The function that prefetches for it, if there is one.
    pub const fn ahead(self, stage: Stage) -> Option<Self> {
        match self {
            RuntimeFunction::HashLookup { words, marks: _ } => {
                Some(RuntimeFunction::HashAhead { words, stage })
            }
            _ => None,
        }
    }

    /// Number of its arguments, without the machine.
    pub const fn arg_count(self) -> usize {
        use RuntimeFunction as F;
        match self {
            F::Ktime | F::Jiffies | F::Random => 0,
            F::SpinLock | F::SpinUnlock | F::RingSubmit | F::RingDiscard => 1,
            F::MapPop | F::MapPeek | F::Redirect | F::TargetLookup | F::Sum { .. } => 2,
            F::RingReserve => 2,
            F::MapLookup | F::MapLookupPercpu | F::MapDelete | F::MapPush => 3,
            F::RedirectMap | F::LoadBytes | F::StoreBytes => 3,
            F::CheckMtu => 4,
            F::MapUpdate | F::CsumDiff => 5,
            F::HandleLookup { words }
            | F::InnerHashLookup { words, .. }
            | F::TrieLookup { words }
            | F::HashLookup { words, .. }
            | F::HashAhead { words, .. } => words as usize + 1,
        }
    }
}

/// Whether a helper may end the run. Helpers that move an end of the frame can't: their functions
/// from [`crate::Callees::helper`] work on the frame's record alone.
pub const fn may_stop(helper: u32) -> bool {
    !matches!(helper, id::XDP_ADJUST_HEAD | id::XDP_ADJUST_META | id::XDP_ADJUST_TAIL)
}
