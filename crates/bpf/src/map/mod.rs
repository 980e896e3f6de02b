//! Kinds of map: one row for each, which loader, verifier, compiler, objects, daemon and commands
//! read.
//!
//! A row ([`KindSpec`]) describes a kind: its sizes and flags, its keys, the meaning of its values,
//! the rights of users and programs, and properties for compiled code. Its behaviour is its
//! storage, in `towpath-maps`. Code that distinguishes kinds asks for a property ([`Keys`],
//! [`Values`], [`Shape`]) and names all of them, so that a new kind finds its place everywhere, and
//! a new property is a compile error wherever it matters.

pub mod flags;
mod rules;
mod table;

use crate::errno::Errno;
use crate::proto::id;

pub use rules::{Broken, Rule, Sizes};

/// What a kind of map is (`struct bpf_map_ops` as data).
#[derive(Debug)]
pub struct KindSpec {
    /// The kernel's name, lower case, as bpftool prints it.
    pub name: &'static str,
    /// What its keys are.
    pub keys: Keys,
    /// What its values mean.
    pub values: Values,
    /// When it is full the least recently used element makes room.
    pub lru: bool,
    /// What `BPF_MAP_CREATE` asks of sizes and flags, in the kernel's order (`map_alloc_check`).
    pub create: &'static [Rule],
    /// `map_extra` means something.
    pub extra: bool,
    /// What it wants of the types of its keys and values (`map_check_btf`).
    pub types: Types,
    /// Whether a map of maps may hold it, or why not (`bpf_map_meta_alloc`).
    pub as_inner: Result<(), (Errno, &'static str)>,
    /// A network card may hold such a map (`bpf_map_offload_map_alloc`).
    pub offloadable: bool,
    /// Which helpers programs may call with it (`check_map_func_compatibility`).
    pub helpers: Helpers,
    /// The kernel's structure, which programs may read through a pointer to the map
    /// (`map_btf_id`).
    pub kernel_struct: &'static str,
    /// Special fields its values may have.
    pub fields: FieldSet,
    /// What the commands of `bpf(2)` on one element answer.
    pub user: UserOps,
    /// The commands on many elements that it knows.
    pub batch: Batch,
    /// Where compiled code finds elements.
    pub shape: Shape,
}

/// What the keys of a kind are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// There are none.
    None,
    /// Any bytes.
    Bytes,
    /// A number below `max_entries`, and every slot exists.
    Index,
    /// A number below `max_entries`, and only slots in use exist.
    Bucket,
    /// Bits to compare and how many of them: the longest that fits is found.
    Prefix,
    /// The descriptor of the thing that values belong to.
    Owner,
    /// Nothing: what is in the map is told apart by rank alone, and no key leads to it.
    Ignored,
}

/// What the values of a kind mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Bytes that programs and users share.
    Bytes,
    /// Such bytes, for each CPU others.
    PerCpu,
    /// Bytes that go in and come out whole.
    Queued,
    /// Bytes that go in with a rank, and come out by it, the lowest first.
    Ranked,
    /// Packets that go in and come out like that.
    Packets,
    /// Bytes of which is only known whether they were put in.
    Members,
    /// Records that the kind's own helpers write or read.
    Records,
    /// Memory that programs and processes share, page by page.
    Pages,
    /// Samples for the process that opened the slot.
    Events,
    /// A program to continue in: users give a descriptor and see an id.
    Program,
    /// A map of the template's shape: users give a descriptor and see an id.
    Map,
    /// A device by its ifindex, and the program that runs there.
    Device,
    /// A CPU's queue by its size, and the program that runs there.
    Cpu,
    /// An AF_XDP socket.
    Socket,
    /// What only the stack of a host has; here such a map stays empty.
    Host(Host),
}

/// What values stand for beside their bytes: users name it, and an element keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refers {
    /// A program.
    Program,
    /// A map.
    Map,
    /// A device, and a program.
    Device,
    /// A CPU's queue, and a program.
    Cpu,
    /// An AF_XDP socket.
    Socket,
}

impl Values {
    /// What they stand for; nothing where they are bytes, or a kind has none.
    pub fn refers(self) -> Option<Refers> {
        match self {
            Values::Program => Some(Refers::Program),
            Values::Map => Some(Refers::Map),
            Values::Device => Some(Refers::Device),
            Values::Cpu => Some(Refers::Cpu),
            Values::Socket => Some(Refers::Socket),
            Values::Bytes
            | Values::PerCpu
            | Values::Queued
            | Values::Ranked
            | Values::Packets
            | Values::Members
            | Values::Records
            | Values::Pages
            | Values::Events
            | Values::Host(_) => None,
        }
    }
}

/// Things of a host's stack that maps hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// A cgroup.
    Cgroup,
    /// A connected or listening socket.
    Socket,
    /// A stack trace.
    Stack,
    /// Memory that belongs to a socket, inode, task or cgroup.
    Storage,
    /// Memory that belongs to a cgroup and an attachment.
    CgroupStorage,
    /// Such memory, for each CPU other.
    PercpuCgroupStorage,
    /// Places in a program to jump to.
    Insns,
    /// Functions that the kernel calls.
    StructOps,
}

/// What a kind asks of the types of its keys and values (`map_check_btf`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Types {
    /// Types with the sizes of the map.
    Any,
    /// Besides, a 32-bit number as key; or a data section as value of the only element, and no key.
    Index,
    /// A 32-bit number as key.
    IndexOnly,
    /// A struct as key.
    Struct,
    /// No key.
    NoKey,
    /// No types.
    Refused,
}

/// The helpers that take a kind of map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helpers {
    /// All that no other kind has for itself, and these.
    CommonAnd(&'static [u32]),
    /// These.
    Only(&'static [u32]),
}

/// Kinds of special field in a value, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSet(u8);

/// What users get from the commands on one element: an error number where the kind has no such
/// operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserOps {
    /// `BPF_MAP_LOOKUP_ELEM`
    pub lookup: Result<(), Errno>,
    /// `BPF_MAP_UPDATE_ELEM`
    pub update: Result<(), Errno>,
    /// `BPF_MAP_DELETE_ELEM`
    pub delete: Result<(), Errno>,
    /// `BPF_MAP_GET_NEXT_KEY`
    pub next_key: Result<(), Errno>,
    /// `BPF_MAP_LOOKUP_AND_DELETE_ELEM`
    pub lookup_and_delete: Result<(), Errno>,
}

/// Which commands on many elements a kind knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// None.
    No,
    /// All but those that remove, since slots exist always.
    Slots,
    /// `BPF_MAP_{LOOKUP,UPDATE,DELETE}_BATCH`, the cursor is a key.
    Keys,
    /// All batch operations, also `BPF_MAP_LOOKUP_AND_DELETE_BATCH`; the cursor is the number of a
    /// bucket.
    Buckets,
}

/// How elements lie in memory, as far as compiled code looks them up itself; a map's own numbers
/// are its `Layout` in `towpath-maps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Compiled code calls.
    Opaque,
    /// Values side by side.
    Array,
    /// A hash table of values.
    Table,
    /// A hash table of maps' handles.
    TableOfHandles,
    /// Prefixes, longest first.
    Trie,
    /// Maps' handles side by side.
    Handles,
    /// Programs' numbers side by side.
    Programs,
    /// Targets of redirects side by side.
    Targets,
}

macro_rules! map_types {
    ($($name:ident = $value:literal, $row:ident;)*) => {
        /// `enum bpf_map_type`, and behind it kinds of our own, far from the kernel's next ones.
        /// Numbers without a variant are refused by the object loader by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum MapType {
            $(#[doc = concat!("`BPF_MAP_TYPE_", stringify!($row), "`")] $name = $value,)*
        }

        impl MapType {
            /// All kinds, by number.
            pub const ALL: &[MapType] = &[$(MapType::$name,)*];

            /// From the kernel's number.
            pub fn from_number(number: u32) -> Option<Self> {
                match number { $($value => Some(MapType::$name),)* _ => None }
            }

            /// Its row.
            pub const fn spec(self) -> &'static KindSpec {
                match self { $(MapType::$name => &table::$row,)* }
            }
        }
    };
}

map_types! {
    Hash = 1, HASH;
    Array = 2, ARRAY;
    ProgArray = 3, PROG_ARRAY;
    PerfEventArray = 4, PERF_EVENT_ARRAY;
    PercpuHash = 5, PERCPU_HASH;
    PercpuArray = 6, PERCPU_ARRAY;
    StackTrace = 7, STACK_TRACE;
    CgroupArray = 8, CGROUP_ARRAY;
    LruHash = 9, LRU_HASH;
    LruPercpuHash = 10, LRU_PERCPU_HASH;
    LpmTrie = 11, LPM_TRIE;
    ArrayOfMaps = 12, ARRAY_OF_MAPS;
    HashOfMaps = 13, HASH_OF_MAPS;
    Devmap = 14, DEVMAP;
    Sockmap = 15, SOCKMAP;
    Cpumap = 16, CPUMAP;
    Xskmap = 17, XSKMAP;
    Sockhash = 18, SOCKHASH;
    CgroupStorage = 19, CGROUP_STORAGE;
    ReuseportSockarray = 20, REUSEPORT_SOCKARRAY;
    PercpuCgroupStorage = 21, PERCPU_CGROUP_STORAGE;
    Queue = 22, QUEUE;
    Stack = 23, STACK;
    SkStorage = 24, SK_STORAGE;
    DevmapHash = 25, DEVMAP_HASH;
    StructOps = 26, STRUCT_OPS;
    Ringbuf = 27, RINGBUF;
    InodeStorage = 28, INODE_STORAGE;
    TaskStorage = 29, TASK_STORAGE;
    BloomFilter = 30, BLOOM_FILTER;
    UserRingbuf = 31, USER_RINGBUF;
    CgrpStorage = 32, CGRP_STORAGE;
    Arena = 33, ARENA;
    InsnArray = 34, INSN_ARRAY;
    Rhash = 35, RHASH;
    PifoGeneric = 1024, PIFO_GENERIC;
    PifoXdp = 1025, PIFO_XDP;
}

impl MapType {
    /// The kernel's name, lower case, as bpftool prints it.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// Whether no kernel has it.
    pub fn is_ours(self) -> bool {
        self as u32 >= MapType::PifoGeneric as u32
    }

    /// The kind of a name as bpftool writes it.
    pub fn from_name(name: &str) -> Option<MapType> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// What its keys are.
    pub fn keys(self) -> Keys {
        self.spec().keys
    }

    /// What its values mean.
    pub fn values(self) -> Values {
        self.spec().values
    }

    /// Whether each CPU has values of its own.
    pub fn is_percpu(self) -> bool {
        matches!(self.values(), Values::PerCpu | Values::Host(Host::PercpuCgroupStorage))
    }

    /// Whether it is an array of values that all CPUs share.
    pub fn is_array(self) -> bool {
        self.spec().shape == Shape::Array && self.values() == Values::Bytes
    }

    /// Bytes of a value on the user's side (`bpf_map_value_size`): every CPU's, rounded up to 8; 4
    /// where a value is a descriptor.
    pub fn user_value_bytes(self, value_size: u32, cpus: usize) -> usize {
        match self.values() {
            _ if self.is_percpu() => (value_size as usize).next_multiple_of(8) * cpus,
            Values::Program | Values::Map | Values::Events | Values::Host(Host::Cgroup) => 4,
            Values::Bytes
            | Values::PerCpu
            | Values::Queued
            | Values::Ranked
            | Values::Packets
            | Values::Members
            | Values::Records
            | Values::Pages
            | Values::Device
            | Values::Cpu
            | Values::Socket
            | Values::Host(_) => value_size as usize,
        }
    }

    /// Whether programs may call a helper with such a map.
    pub fn takes(self, helper: u32) -> bool {
        match self.spec().helpers {
            Helpers::Only(own) => own.contains(&helper),
            Helpers::CommonAnd(own) => {
                let of_others = || Self::ALL.iter().any(|kind| kind.spec().helpers.name(helper));
                COMMON.contains(&helper) || own.contains(&helper) || !of_others()
            }
        }
    }
}

impl Helpers {
    fn name(self, helper: u32) -> bool {
        let (Helpers::CommonAnd(own) | Helpers::Only(own)) = self;
        own.contains(&helper)
    }
}

impl FieldSet {
    /// None.
    pub const NONE: FieldSet = FieldSet(0);
    /// `bpf_spin_lock` and `bpf_res_spin_lock`.
    pub const LOCK: FieldSet = FieldSet(1);
    /// Timers, work queues, lists and trees.
    pub const TIMER: FieldSet = FieldSet(2);
    /// Pointers to objects of the kernel, and the rest.
    pub const KPTR: FieldSet = FieldSet(4);
    /// Pointers to memory of a process.
    pub const UPTR: FieldSet = FieldSet(8);

    /// All of both.
    #[must_use]
    pub const fn and(self, other: FieldSet) -> FieldSet {
        FieldSet(self.0 | other.0)
    }

    /// Whether all of `other` are in it.
    pub fn has(self, other: FieldSet) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Helpers that kinds without a list take although others name them.
const COMMON: &[u32] =
    &[id::MAP_LOOKUP_ELEM, id::MAP_UPDATE_ELEM, id::MAP_DELETE_ELEM, id::KPTR_XCHG];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_kinds() {
        for (at, &kind) in MapType::ALL.iter().enumerate() {
            let number = kind as usize;
            assert_eq!(number, if kind.is_ours() { number } else { at + 1 }, "a row for each");
            assert_eq!(MapType::from_number(kind as u32), Some(kind));
            assert_eq!(MapType::from_name(kind.name()), Some(kind));
        }
        assert_eq!(MapType::LruPercpuHash.name(), "lru_percpu_hash");
        assert_eq!(MapType::from_number(0), None);
    }

    #[test]
    fn maps_take_their_own_helpers_only() {
        assert!(MapType::Hash.takes(id::MAP_LOOKUP_ELEM));
        assert!(!MapType::Hash.takes(id::REDIRECT_MAP));
        assert!(MapType::Hash.takes(id::FOR_EACH_MAP_ELEM));
        assert!(!MapType::Hash.takes(id::MAP_LOOKUP_PERCPU_ELEM));
        assert!(MapType::PercpuHash.takes(id::MAP_LOOKUP_PERCPU_ELEM));
        assert!(!MapType::ProgArray.takes(id::MAP_LOOKUP_ELEM));
        assert!(MapType::Sockmap.takes(id::MAP_UPDATE_ELEM));
        assert!(!MapType::Devmap.takes(id::MAP_UPDATE_ELEM));
    }

    #[test]
    fn what_a_row_says_goes_together() {
        for kind in MapType::ALL {
            let spec = kind.spec();
            let is_slots = matches!(spec.keys, Keys::Index);
            assert!(spec.batch != Batch::Slots || is_slots, "{}", spec.name);
            assert!(!spec.lru || spec.shape == Shape::Table, "{}", spec.name);
            let shares = matches!(spec.values, Values::Bytes | Values::PerCpu);
            assert!(spec.fields == FieldSet::NONE || shares || spec.keys == Keys::Owner);
            let keyless = spec.keys == Keys::None;
            assert!(!keyless || spec.user.next_key.is_err(), "{}", spec.name);
        }
    }

    #[test]
    fn users_see_all_cpus_and_descriptors() {
        assert_eq!(MapType::PercpuArray.user_value_bytes(12, 3), 48);
        assert_eq!(MapType::HashOfMaps.user_value_bytes(4, 3), 4);
        assert_eq!(MapType::Hash.user_value_bytes(12, 3), 12);
    }
}
