//! Kinds of map: one row for each kind, read by loader, verifier, compiler, objects, daemon and
//! commands.
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

/// Properties of a kind of map (`struct bpf_map_ops` as data).
#[derive(Debug)]
pub struct KindSpec {
    /// The kernel's name, lower case, as bpftool prints it.
    pub name: &'static str,
    /// Form of the keys.
    pub keys: Keys,
    /// Meaning of the values.
    pub values: Values,
    /// Whether a full map evicts the least recently used element.
    pub lru: bool,
    /// Requirements of `BPF_MAP_CREATE` on sizes and flags, in the kernel's order
    /// (`map_alloc_check`).
    pub create: &'static [Rule],
    /// Whether programs that may sleep can use it (`check_map_prog_compatibility`).
    pub sleepable: bool,
    /// Whether `map_extra` has a meaning.
    pub extra: bool,
    /// Requirements on the types of keys and values (`map_check_btf`).
    pub types: Types,
    /// Whether a map of maps may hold it, or the error and reason (`bpf_map_meta_alloc`).
    pub as_inner: Result<(), (Errno, &'static str)>,
    /// Whether a network card may hold such a map (`bpf_map_offload_map_alloc`).
    pub offloadable: bool,
    /// Helpers that programs may call with it (`check_map_func_compatibility`).
    pub helpers: Helpers,
    /// The kernel's structure for the map, which programs may read through a pointer to the map
    /// (`map_btf_id`).
    pub kernel_struct: &'static str,
    /// Special fields that its values may have.
    pub fields: FieldSet,
    /// Results of the commands of `bpf(2)` on one element.
    pub user: UserOps,
    /// Supported commands on many elements.
    pub batch: Batch,
    /// Layout of the elements for compiled code.
    pub shape: Shape,
}

/// Form of the keys of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// The kind has no keys.
    None,
    /// Any bytes.
    Bytes,
    /// A number below `max_entries`, and every slot exists.
    Index,
    /// A number below `max_entries`, and only occupied slots exist.
    Bucket,
    /// Bits to compare and their number: a lookup finds the longest prefix of the key.
    Prefix,
    /// Descriptor of the object that the value belongs to.
    Owner,
    /// Ignored: elements are distinguished by rank alone, and no key finds them.
    Ignored,
}

/// Meaning of the values of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Bytes that programs and users share.
    Bytes,
    /// Bytes that programs and users share, with separate ones for each CPU.
    PerCpu,
    /// Bytes that go in and come out whole.
    Queued,
    /// Bytes that go in with a rank, and come out by it, the lowest first.
    Ranked,
    /// Packets, queued by rank like the bytes of `Ranked`.
    Packets,
    /// Bytes that can be tested for membership, but not read back.
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
    /// An object that only the stack of a host has; such a map stays empty in Towpath.
    Host(Host),
}

/// Object that a value refers to: users give its name, and an element keeps it alive.
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
    /// Object that the values refer to; `None` if they are bytes, or the kind has no values.
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

/// Objects of a host's stack that maps hold.
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
    /// Memory that belongs to a cgroup and an attachment, with separate memory for each CPU.
    PercpuCgroupStorage,
    /// Jump targets in a program.
    Insns,
    /// Functions that the kernel calls.
    StructOps,
}

/// Requirements of a kind on the types of its keys and values (`map_check_btf`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Types {
    /// Types with the sizes of the map's keys and values.
    Any,
    /// As `Any`, and a 32-bit number as key; or a data section as value of the only element, and no
    /// key.
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

/// Helpers that accept a kind of map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helpers {
    /// These, and all helpers that are not reserved for other kinds.
    CommonAnd(&'static [u32]),
    /// Only these.
    Only(&'static [u32]),
}

/// Kinds of special field in a value, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSet(u8);

/// Results for users of the commands on one element: an error number if the kind has no such
/// operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserOps {
    /// Result of `BPF_MAP_LOOKUP_ELEM`.
    pub lookup: Result<(), Errno>,
    /// Result of `BPF_MAP_UPDATE_ELEM`.
    pub update: Result<(), Errno>,
    /// Result of `BPF_MAP_DELETE_ELEM`.
    pub delete: Result<(), Errno>,
    /// Result of `BPF_MAP_GET_NEXT_KEY`.
    pub next_key: Result<(), Errno>,
    /// Result of `BPF_MAP_LOOKUP_AND_DELETE_ELEM`.
    pub lookup_and_delete: Result<(), Errno>,
}

/// Commands on many elements that a kind supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// None.
    No,
    /// All but the commands that remove elements, since slots always exist.
    Slots,
    /// `BPF_MAP_{LOOKUP,UPDATE,DELETE}_BATCH`, the cursor is a key.
    Keys,
    /// All batch operations, also `BPF_MAP_LOOKUP_AND_DELETE_BATCH`; the cursor is the number of a
    /// bucket.
    Buckets,
}

/// Layout of elements in memory, if compiled code accesses them without calls; the numbers of a
/// single map are its `Layout` in `towpath-maps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// No layout: compiled code calls the map's functions.
    Opaque,
    /// Values in an array.
    Array,
    /// A hash table of values.
    Table,
    /// A hash table of maps' handles.
    TableOfHandles,
    /// Prefixes, longest first.
    Trie,
    /// Maps' handles in an array.
    Handles,
    /// Programs' numbers in an array.
    Programs,
    /// Targets of redirects in an array.
    Targets,
}

macro_rules! map_types {
    ($($name:ident = $value:literal, $row:ident;)*) => {
        /// `enum bpf_map_type`, followed by kinds of Towpath's own, with numbers far above the
        /// kernel's. The object loader refuses numbers without a variant, by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum MapType {
            $(#[doc = concat!("`BPF_MAP_TYPE_", stringify!($row), "`")] $name = $value,)*
        }

        impl MapType {
            /// All kinds, by number.
            pub const ALL: &[MapType] = &[$(MapType::$name,)*];

            /// The kind with this number in the kernel.
            pub fn from_number(number: u32) -> Option<Self> {
                match number { $($value => Some(MapType::$name),)* _ => None }
            }

            /// The row of this kind.
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

    /// Whether the kind is Towpath's own: no kernel has it.
    pub fn is_ours(self) -> bool {
        self as u32 >= MapType::PifoGeneric as u32
    }

    /// The kind with this name in bpftool's output.
    pub fn from_name(name: &str) -> Option<MapType> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Form of the keys.
    pub fn keys(self) -> Keys {
        self.spec().keys
    }

    /// Meaning of the values.
    pub fn values(self) -> Values {
        self.spec().values
    }

    /// Whether each CPU has separate values.
    pub fn is_percpu(self) -> bool {
        matches!(self.values(), Values::PerCpu | Values::Host(Host::PercpuCgroupStorage))
    }

    /// Whether it is an array of values that all CPUs share.
    pub fn is_array(self) -> bool {
        self.spec().shape == Shape::Array && self.values() == Values::Bytes
    }

    /// Size of a value in bytes on the user's side (`bpf_map_value_size`): every CPU's value,
    /// rounded up to 8; 4 if the value is a descriptor.
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
    /// The empty set.
    pub const NONE: FieldSet = FieldSet(0);
    /// `bpf_spin_lock` and `bpf_res_spin_lock`.
    pub const LOCK: FieldSet = FieldSet(1);
    /// Timers, work queues, lists and trees.
    pub const TIMER: FieldSet = FieldSet(2);
    /// Pointers to objects of the kernel, and the rest.
    pub const KPTR: FieldSet = FieldSet(4);
    /// Pointers to memory of a process.
    pub const UPTR: FieldSet = FieldSet(8);

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: FieldSet) -> FieldSet {
        FieldSet(self.0 | other.0)
    }

    /// Whether the set contains all of `other`.
    pub fn has(self, other: FieldSet) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Helpers that every kind without an own list accepts, although some kinds list them.
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
