//! Functions of the runtime that code calls directly, and what a call may change.
//!
//! Unlike a helper, such a function takes its arguments as the machine does, states its effects,
//! and is known to every pass: a call is no barrier for what it does not touch.

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
    /// `(view, words of the key)`: the inner map in a hash table of them or 0.
    HandleLookup {
        /// Words of a key.
        words: u8,
    },
    /// `(map, words of the key)`: as `HashLookup`, for a map that is not known when code is made.
    InnerHashLookup {
        /// Words of a key.
        words: u8,
        /// The element counts as used (LRU kinds).
        marks: bool,
    },
    /// `(map, words of the key)`: the value of the longest prefix in a trie or 0.
    TrieLookup {
        /// Words of a key of [`towpath_maps::PREFIX_BYTES_MAX`] bytes or fewer.
        words: u8,
    },
    /// `(from, from_size, to, to_size, seed)`: `bpf_csum_diff`.
    CsumDiff,
    /// `(address, count)`: the sum of so many neighbouring numbers.
    Sum {
        /// Of 32 bits, else of 16.
        wide: bool,
        /// Big-endian, else little-endian.
        swapped: bool,
    },
    /// `()`: `bpf_ktime_get_ns`.
    Ktime,
    /// `()`: `bpf_jiffies64`; the first call of a burst decides for all of them.
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
    /// `(map, size)`: `bpf_ringbuf_reserve`, the record's address or 0.
    RingReserve,
    /// `(record address)`: `bpf_ringbuf_submit`; gives 0.
    RingSubmit,
    /// `(record address)`: `bpf_ringbuf_discard`; gives 0.
    RingDiscard,
    /// `(lock address)`: `bpf_spin_lock`.
    SpinLock,
    /// `(lock address)`: `bpf_spin_unlock`.
    SpinUnlock,
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
            // Per-CPU values are written in place; what values owned is given up in place.
            // Values may be long: whether the run is to end is looked at after each copy of one.
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
            // Others read the record from then on.
            F::RingSubmit | F::RingDiscard => Effects { reads: Reach::Arguments, ..machine },
            F::LoadBytes | F::StoreBytes | F::CheckMtu => {
                Effects { reads: Reach::Arguments, writes: Reach::Arguments, ..machine }
            }
            // What a lock protects is read after it is taken and written before it is free.
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
            // Never made of what is not trusted.
            F::InnerHashLookup { .. } | F::Sum { .. } => return None,
            F::RingReserve | F::RingSubmit | F::RingDiscard => return None,
            // No instruction: redirects by a table are made of it.
            F::TargetLookup => return None,
        })
    }

    /// Whether it compares its arguments with what there is, and gives, copies or changes what they
    /// name if they are right: a processor that foresees them to be right has it done all the same.
    /// Of the others, those that look something up go by a hash or by bits of the key, and what
    /// they give is an element whatever the key is.
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

/// Whether a helper may end the run. What moves an end of the frame does not: what
/// [`crate::Callees::helper`] gives for these works on the frame's record alone.
pub const fn may_stop(helper: u32) -> bool {
    !matches!(helper, id::XDP_ADJUST_HEAD | id::XDP_ADJUST_META | id::XDP_ADJUST_TAIL)
}
