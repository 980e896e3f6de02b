//! The rows, by group: each has only its differences from [`PLAIN`] or from the row before.

use super::Rule::{
    ArenaPages, ElementBelow, Entries, EntriesMax, Flags, Hashes, Inner, Key, KeyMax, NoEntries,
    PercpuValue, Ranks, RingBytes, StackFrames, Value, ValueMax, With, Without,
};
use super::flags::*;
use super::{
    Batch, FieldSet, Helpers, Host, Keys, KindSpec, Rule, Shape, Sizes, Types, UserOps, Values,
};
use crate::errno::Errno;
use crate::proto::id::*;

// --- Hash tables ---

pub(super) static HASH: KindSpec = TABLE;

pub(super) static PERCPU_HASH: KindSpec = KindSpec {
    name: "percpu_hash",
    values: Values::PerCpu,
    create: PERCPU_HASH_RULES,
    offloadable: false,
    helpers: Helpers::CommonAnd(&[MAP_LOOKUP_PERCPU_ELEM]),
    fields: FieldSet::KPTR,
    ..TABLE
};

pub(super) static LRU_HASH: KindSpec = KindSpec {
    name: "lru_hash",
    lru: true,
    create: LRU_RULES,
    offloadable: false,
    fields: FieldSet::KPTR.and(FieldSet::TIMER),
    ..TABLE
};

pub(super) static LRU_PERCPU_HASH: KindSpec = KindSpec {
    name: "lru_percpu_hash",
    values: Values::PerCpu,
    lru: true,
    create: LRU_PERCPU_RULES,
    offloadable: false,
    helpers: Helpers::CommonAnd(&[MAP_LOOKUP_PERCPU_ELEM]),
    fields: FieldSet::KPTR,
    ..TABLE
};

/// A hash table that grows, in kernels after 6.18.
pub(super) static RHASH: KindSpec = KindSpec {
    name: "rhash",
    extra: true,
    offloadable: false,
    kernel_struct: "bpf_rhtab",
    fields: FieldSet::NONE,
    ..TABLE
};

const TABLE: KindSpec = KindSpec {
    name: "hash",
    sleepable: true,
    create: HASH_RULES,
    offloadable: true,
    fields: FieldSet::LOCK.and(FieldSet::TIMER).and(FieldSet::KPTR),
    user: UserOps { lookup_and_delete: Ok(()), ..USER },
    batch: Batch::Buckets,
    shape: Shape::Table,
    ..PLAIN
};

const HASH_RULES: &[Rule] =
    &[NO_COMMON_LRU, Flags(TABLE_FLAGS), Entries, SOME_KEY, SOME_VALUE, ELEMENT_SIZE, ENTRIES_MAX];
const PERCPU_HASH_RULES: &[Rule] = &[
    NO_COMMON_LRU,
    Flags(TABLE_FLAGS),
    Entries,
    SOME_KEY,
    SOME_VALUE,
    ELEMENT_SIZE,
    PercpuValue,
    ENTRIES_MAX,
];
const LRU_RULES: &[Rule] = &[
    Flags(TABLE_FLAGS | BPF_F_NO_COMMON_LRU),
    LRU_IS_PREALLOCATED,
    Entries,
    SOME_KEY,
    SOME_VALUE,
    ELEMENT_SIZE,
    ENTRIES_MAX,
];
const LRU_PERCPU_RULES: &[Rule] = &[
    Flags(TABLE_FLAGS | BPF_F_NO_COMMON_LRU),
    LRU_IS_PREALLOCATED,
    Entries,
    SOME_KEY,
    SOME_VALUE,
    ELEMENT_SIZE,
    PercpuValue,
    ENTRIES_MAX,
];
const TABLE_FLAGS: u32 = BPF_F_NO_PREALLOC | BPF_F_NUMA_NODE | BPF_F_ZERO_SEED | ACCESS_MASK;
const NO_COMMON_LRU: Rule =
    Without(BPF_F_NO_COMMON_LRU, Errno::EINVAL, "BPF_F_NO_COMMON_LRU is for LRU maps");
const LRU_IS_PREALLOCATED: Rule =
    Without(BPF_F_NO_PREALLOC, Errno::ENOTSUPP, "an LRU map can't be BPF_F_NO_PREALLOC");
const ELEMENT_SIZE: Rule =
    ElementBelow(KMALLOC_MAX_SIZE - HTAB_ELEM_BYTES, "key and value exceed 4 MiB");
const ENTRIES_MAX: Rule = EntriesMax(1 << 31, "max_entries exceeds 2^31");

pub(super) static LPM_TRIE: KindSpec = KindSpec {
    name: "lpm_trie",
    keys: Keys::Prefix,
    create: &[
        Entries,
        NO_PREALLOC_NEEDED,
        Flags(BPF_F_NO_PREALLOC | BPF_F_NUMA_NODE | ACCESS_MASK),
        Key(
            Sizes::Range(5, 4 + LPM_DATA_MAX),
            "key_size must be 5 to 260: a 32-bit prefix length, then data",
        ),
        Value(
            Sizes::Range(1, KMALLOC_MAX_SIZE as u32 - LPM_DATA_MAX - LPM_NODE_BYTES),
            "value_size must be 1 to about 4 MiB",
        ),
    ],
    types: Types::Struct,
    kernel_struct: "lpm_trie",
    batch: Batch::Keys,
    shape: Shape::Trie,
    ..PLAIN
};

// --- Arrays ---

pub(super) static ARRAY: KindSpec = KindSpec {
    name: "array",
    sleepable: true,
    create: &[
        Entries,
        INDEX_KEY,
        SOME_VALUE,
        NO_PRESERVE,
        Flags(ARRAY_FLAGS | BPF_F_MMAPABLE | BPF_F_INNER_MAP),
        VALUE_MAX,
    ],
    types: Types::Index,
    offloadable: true,
    fields: FieldSet::LOCK.and(FieldSet::TIMER).and(FieldSet::KPTR),
    ..SLOTS
};

pub(super) static PERCPU_ARRAY: KindSpec = KindSpec {
    name: "percpu_array",
    sleepable: true,
    values: Values::PerCpu,
    create: &[
        Entries,
        INDEX_KEY,
        SOME_VALUE,
        ONLY_ARRAY,
        NO_PRESERVE,
        Flags(ARRAY_FLAGS),
        VALUE_MAX,
        PercpuValue,
    ],
    types: Types::IndexOnly,
    helpers: Helpers::CommonAnd(&[MAP_LOOKUP_PERCPU_ELEM]),
    fields: FieldSet::KPTR,
    ..SLOTS
};

pub(super) static PROG_ARRAY: KindSpec = KindSpec {
    name: "prog_array",
    values: Values::Program,
    create: FD_ARRAY_RULES,
    types: Types::Any,
    as_inner: NO_INNER,
    helpers: Helpers::Only(&[TAIL_CALL]),
    user: USER,
    batch: Batch::No,
    shape: Shape::Programs,
    ..SLOTS
};

pub(super) static PERF_EVENT_ARRAY: KindSpec = KindSpec {
    name: "perf_event_array",
    values: Values::Events,
    create: &[
        DESCRIPTOR,
        NOT_FOR_PROGRAMS,
        Entries,
        INDEX_KEY,
        ONLY_ARRAY,
        Flags(ARRAY_FLAGS | BPF_F_PRESERVE_ELEMS),
    ],
    types: Types::Refused,
    helpers: Helpers::Only(&[PERF_EVENT_READ, PERF_EVENT_OUTPUT, PERF_EVENT_READ_VALUE]),
    user: UserOps { lookup: Err(Errno::ENOTSUPP), ..USER },
    batch: Batch::No,
    shape: Shape::Opaque,
    ..SLOTS
};

pub(super) static CGROUP_ARRAY: KindSpec = KindSpec {
    name: "cgroup_array",
    values: Values::Host(Host::Cgroup),
    create: FD_ARRAY_RULES,
    types: Types::Refused,
    helpers: Helpers::Only(&[SKB_UNDER_CGROUP, CURRENT_TASK_UNDER_CGROUP]),
    user: UserOps { lookup: Err(Errno::ENOTSUPP), ..USER },
    batch: Batch::No,
    shape: Shape::Opaque,
    ..SLOTS
};

const SLOTS: KindSpec = KindSpec {
    keys: Keys::Index,
    kernel_struct: "bpf_array",
    user: UserOps { delete: Err(Errno::EINVAL), ..USER },
    batch: Batch::Slots,
    shape: Shape::Array,
    ..PLAIN
};

/// `fd_array_map_alloc_check`
const FD_ARRAY_RULES: &[Rule] = &[
    DESCRIPTOR,
    NOT_FOR_PROGRAMS,
    Entries,
    INDEX_KEY,
    ONLY_ARRAY,
    NO_PRESERVE,
    Flags(ARRAY_FLAGS),
];
const ARRAY_FLAGS: u32 = BPF_F_NUMA_NODE | ACCESS_MASK;
const DESCRIPTOR: Rule = Value(Sizes::In(&[4]), "value_size must be 4");
const NOT_FOR_PROGRAMS: Rule = Without(
    BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG,
    Errno::EINVAL,
    "slots can't be restricted for programs",
);
const ONLY_ARRAY: Rule = Without(
    BPF_F_MMAPABLE | BPF_F_INNER_MAP,
    Errno::EINVAL,
    "BPF_F_MMAPABLE and BPF_F_INNER_MAP are for ARRAY",
);
const NO_PRESERVE: Rule =
    Without(BPF_F_PRESERVE_ELEMS, Errno::EINVAL, "BPF_F_PRESERVE_ELEMS is for PERF_EVENT_ARRAY");
const VALUE_MAX: Rule = ValueMax(i32::MAX as u32, "value_size exceeds 2 GiB");

// --- Maps of maps ---

pub(super) static ARRAY_OF_MAPS: KindSpec = KindSpec {
    name: "array_of_maps",
    sleepable: true,
    values: Values::Map,
    create: &[
        DESCRIPTOR,
        NOT_FOR_PROGRAMS,
        Entries,
        INDEX_KEY,
        ONLY_ARRAY,
        NO_PRESERVE,
        Flags(ARRAY_FLAGS),
        Inner,
    ],
    types: Types::Refused,
    as_inner: NO_NESTING,
    helpers: Helpers::Only(&[MAP_LOOKUP_ELEM]),
    user: USER,
    shape: Shape::Handles,
    ..SLOTS
};

pub(super) static HASH_OF_MAPS: KindSpec = KindSpec {
    name: "hash_of_maps",
    values: Values::Map,
    create: &[
        DESCRIPTOR,
        NO_COMMON_LRU,
        Flags(TABLE_FLAGS),
        Entries,
        SOME_KEY,
        ELEMENT_SIZE,
        ENTRIES_MAX,
        Inner,
    ],
    types: Types::Refused,
    as_inner: NO_NESTING,
    offloadable: false,
    helpers: Helpers::Only(&[MAP_LOOKUP_ELEM]),
    fields: FieldSet::NONE,
    user: USER,
    shape: Shape::TableOfHandles,
    ..TABLE
};

const NO_NESTING: Result<(), (Errno, &str)> = Err((Errno::EINVAL, "maps of maps don't nest"));
const NO_INNER: Result<(), (Errno, &str)> =
    Err((Errno::ENOTSUPP, "this kind can't be an inner map"));

// --- Targets of redirects ---

pub(super) static DEVMAP: KindSpec = DEVICES;

pub(super) static DEVMAP_HASH: KindSpec =
    KindSpec { name: "devmap_hash", keys: Keys::Bytes, shape: Shape::Opaque, ..DEVICES };

pub(super) static CPUMAP: KindSpec = KindSpec {
    name: "cpumap",
    values: Values::Cpu,
    create: &[
        Entries,
        INDEX_KEY,
        TARGET_VALUE,
        Flags(BPF_F_NUMA_NODE),
        EntriesMax(NR_CPUS, "max_entries exceeds the number of CPUs"),
    ],
    helpers: Helpers::Only(&[REDIRECT_MAP]),
    kernel_struct: "bpf_cpu_map",
    ..DEVICES
};

pub(super) static XSKMAP: KindSpec = KindSpec {
    name: "xskmap",
    values: Values::Socket,
    create: &[
        Entries,
        INDEX_KEY,
        Value(Sizes::In(&[4]), "value_size must be 4 (or 8 where allowed)"),
        Flags(TARGET_FLAGS),
    ],
    kernel_struct: "xsk_map",
    user: UserOps { lookup: Err(Errno::EOPNOTSUPP), ..USER },
    ..DEVICES
};

const DEVICES: KindSpec = KindSpec {
    name: "devmap",
    keys: Keys::Index,
    values: Values::Device,
    create: TARGET_RULES,
    types: Types::Refused,
    helpers: Helpers::Only(&[REDIRECT_MAP, MAP_LOOKUP_ELEM]),
    kernel_struct: "bpf_dtab",
    shape: Shape::Targets,
    ..PLAIN
};

const TARGET_RULES: &[Rule] = &[Entries, INDEX_KEY, TARGET_VALUE, Flags(TARGET_FLAGS)];
const TARGET_FLAGS: u32 = BPF_F_NUMA_NODE | BPF_F_RDONLY | BPF_F_WRONLY;
const TARGET_VALUE: Rule = Value(Sizes::In(&[4, 8]), "value_size must be 4 (or 8 where allowed)");

// --- Without keys ---

pub(super) static QUEUE: KindSpec = QUEUED;

pub(super) static STACK: KindSpec = KindSpec { name: "stack", ..QUEUED };

const QUEUED: KindSpec = KindSpec {
    name: "queue",
    sleepable: true,
    keys: Keys::None,
    values: Values::Queued,
    create: &[
        Entries,
        EMPTY_KEY,
        SOME_VALUE,
        Flags(BPF_F_NUMA_NODE | ACCESS_MASK),
        ValueMax(KMALLOC_MAX_SIZE as u32, "value_size exceeds 4 MiB"),
    ],
    helpers: Helpers::Only(&[MAP_PEEK_ELEM, MAP_POP_ELEM, MAP_PUSH_ELEM]),
    kernel_struct: "bpf_queue_stack",
    user: UserOps {
        delete: Err(Errno::EINVAL),
        next_key: Err(Errno::EINVAL),
        lookup_and_delete: Ok(()),
        ..USER
    },
    ..PLAIN
};

pub(super) static BLOOM_FILTER: KindSpec = KindSpec {
    name: "bloom_filter",
    keys: Keys::None,
    values: Values::Members,
    create: &[
        EMPTY_KEY,
        SOME_VALUE,
        Entries,
        Flags(BPF_F_NUMA_NODE | BPF_F_ZERO_SEED | ACCESS_MASK),
        Hashes,
    ],
    extra: true,
    types: Types::NoKey,
    helpers: Helpers::Only(&[MAP_PEEK_ELEM, MAP_PUSH_ELEM]),
    kernel_struct: "bpf_bloom_filter",
    user: UserOps { delete: Err(Errno::EOPNOTSUPP), next_key: Err(Errno::EOPNOTSUPP), ..USER },
    ..PLAIN
};

pub(super) static RINGBUF: KindSpec = KindSpec {
    name: "ringbuf",
    helpers: Helpers::Only(&[
        RINGBUF_OUTPUT,
        RINGBUF_RESERVE,
        RINGBUF_QUERY,
        RINGBUF_RESERVE_DYNPTR,
        RINGBUF_SUBMIT_DYNPTR,
        RINGBUF_DISCARD_DYNPTR,
    ]),
    ..RING
};

pub(super) static USER_RINGBUF: KindSpec =
    KindSpec { name: "user_ringbuf", helpers: Helpers::Only(&[USER_RINGBUF_DRAIN]), ..RING };

const RING: KindSpec = KindSpec {
    sleepable: true,
    keys: Keys::None,
    values: Values::Records,
    create: &[Flags(BPF_F_NUMA_NODE), EMPTY_KEY, EMPTY_VALUE, Entries, RingBytes],
    kernel_struct: "bpf_ringbuf_map",
    user: UserOps {
        lookup: Err(Errno::ENOTSUPP),
        update: Err(Errno::ENOTSUPP),
        delete: Err(Errno::ENOTSUPP),
        next_key: Err(Errno::ENOTSUPP),
        ..USER
    },
    ..PLAIN
};

pub(super) static ARENA: KindSpec = KindSpec {
    name: "arena",
    sleepable: true,
    keys: Keys::None,
    values: Values::Pages,
    create: &[
        Key(Sizes::In(&[0]), "key_size and value_size must be 0"),
        Value(Sizes::In(&[0]), "key_size and value_size must be 0"),
        Entries,
        With(BPF_F_MMAPABLE, "BPF_F_MMAPABLE is required"),
        Flags(BPF_F_SEGV_ON_FAULT | BPF_F_MMAPABLE | BPF_F_NO_USER_CONV),
        ArenaPages,
    ],
    extra: true,
    types: Types::Refused,
    helpers: Helpers::Only(&[]),
    kernel_struct: "bpf_arena",
    user: UserOps {
        lookup: Err(Errno::EINVAL),
        update: Err(Errno::EOPNOTSUPP),
        delete: Err(Errno::EOPNOTSUPP),
        next_key: Err(Errno::EOPNOTSUPP),
        ..USER
    },
    ..PLAIN
};

// --- Ranked queues, which no kernel has: proposed as "xdp: Add packet queueing and scheduling
// capabilities" (July 2022) ---

pub(super) static PIFO_GENERIC: KindSpec = RANKED;

pub(super) static PIFO_XDP: KindSpec = KindSpec {
    name: "pifo_xdp",
    values: Values::Packets,
    create: &[
        Entries,
        INDEX_KEY,
        DESCRIPTOR,
        Flags(BPF_F_NUMA_NODE | BPF_F_RDONLY | BPF_F_WRONLY),
        Ranks,
    ],
    helpers: Helpers::Only(&[REDIRECT_MAP]),
    ..RANKED
};

const RANKED: KindSpec = KindSpec {
    name: "pifo_generic",
    keys: Keys::Ignored,
    values: Values::Ranked,
    create: &[
        Entries,
        INDEX_KEY,
        SOME_VALUE,
        Flags(BPF_F_NUMA_NODE | BPF_F_RDONLY | BPF_F_WRONLY),
        ValueMax(KMALLOC_MAX_SIZE as u32, "value_size exceeds 4 MiB"),
        Ranks,
    ],
    extra: true,
    helpers: Helpers::Only(&[MAP_PEEK_ELEM, MAP_POP_ELEM, MAP_PUSH_ELEM]),
    kernel_struct: "bpf_map",
    user: UserOps {
        update: Err(Errno::EINVAL),
        delete: Err(Errno::EINVAL),
        next_key: Err(Errno::EINVAL),
        ..USER
    },
    ..PLAIN
};

// --- Maps that only the stack of a host can fill ---

pub(super) static SOCKMAP: KindSpec = KindSpec {
    name: "sockmap",
    keys: Keys::Index,
    values: Values::Host(Host::Socket),
    create: TARGET_RULES,
    helpers: Helpers::Only(&[
        SK_REDIRECT_MAP,
        SOCK_MAP_UPDATE,
        MSG_REDIRECT_MAP,
        SK_SELECT_REUSEPORT,
        MAP_LOOKUP_ELEM,
        MAP_UPDATE_ELEM,
        MAP_DELETE_ELEM,
    ]),
    kernel_struct: "bpf_stab",
    user: UserOps { update: Err(Errno::EBADF), delete: Err(Errno::EINVAL), ..USER },
    ..PLAIN
};

pub(super) static SOCKHASH: KindSpec = KindSpec {
    name: "sockhash",
    values: Values::Host(Host::Socket),
    create: &[
        Entries,
        SOME_KEY,
        TARGET_VALUE,
        Flags(TARGET_FLAGS),
        KeyMax(512, "key_size exceeds a program's stack"),
    ],
    helpers: Helpers::Only(&[
        SK_REDIRECT_HASH,
        SOCK_HASH_UPDATE,
        MSG_REDIRECT_HASH,
        SK_SELECT_REUSEPORT,
        MAP_LOOKUP_ELEM,
        MAP_UPDATE_ELEM,
        MAP_DELETE_ELEM,
    ]),
    kernel_struct: "bpf_shtab",
    user: UserOps { update: Err(Errno::EBADF), ..USER },
    ..PLAIN
};

pub(super) static REUSEPORT_SOCKARRAY: KindSpec = KindSpec {
    name: "reuseport_sockarray",
    keys: Keys::Index,
    values: Values::Host(Host::Socket),
    create: &[TARGET_VALUE, Entries, INDEX_KEY, ONLY_ARRAY, NO_PRESERVE, Flags(ARRAY_FLAGS)],
    helpers: Helpers::Only(&[SK_SELECT_REUSEPORT]),
    kernel_struct: "reuseport_array",
    ..PLAIN
};

pub(super) static STACK_TRACE: KindSpec = KindSpec {
    name: "stack_trace",
    keys: Keys::Bucket,
    values: Values::Host(Host::Stack),
    create: &[
        Flags(BPF_F_NUMA_NODE | BPF_F_STACK_BUILD_ID | BPF_F_RDONLY | BPF_F_WRONLY),
        Entries,
        INDEX_KEY,
        StackFrames,
        ENTRIES_MAX,
    ],
    types: Types::Refused,
    helpers: Helpers::Only(&[GET_STACKID]),
    kernel_struct: "bpf_stack_map",
    user: UserOps { update: Err(Errno::EINVAL), lookup_and_delete: Err(Errno::ENOENT), ..USER },
    ..PLAIN
};

pub(super) static SK_STORAGE: KindSpec = KindSpec {
    name: "sk_storage",
    helpers: Helpers::Only(&[SK_STORAGE_GET, SK_STORAGE_DELETE, KPTR_XCHG]),
    ..STORAGE
};

pub(super) static INODE_STORAGE: KindSpec = KindSpec {
    name: "inode_storage",
    helpers: Helpers::Only(&[INODE_STORAGE_GET, INODE_STORAGE_DELETE, KPTR_XCHG]),
    ..STORAGE
};

pub(super) static TASK_STORAGE: KindSpec = KindSpec {
    name: "task_storage",
    helpers: Helpers::Only(&[TASK_STORAGE_GET, TASK_STORAGE_DELETE, KPTR_XCHG]),
    fields: FieldSet::LOCK.and(FieldSet::KPTR).and(FieldSet::UPTR),
    ..STORAGE
};

pub(super) static CGRP_STORAGE: KindSpec = KindSpec {
    name: "cgrp_storage",
    helpers: Helpers::Only(&[CGRP_STORAGE_GET, CGRP_STORAGE_DELETE, KPTR_XCHG]),
    fields: FieldSet::LOCK.and(FieldSet::KPTR),
    ..STORAGE
};

const STORAGE: KindSpec = KindSpec {
    sleepable: true,
    keys: Keys::Owner,
    values: Values::Host(Host::Storage),
    create: &[
        Flags(BPF_F_NO_PREALLOC | BPF_F_CLONE),
        NO_PREALLOC_NEEDED,
        NoEntries,
        INDEX_KEY,
        SOME_VALUE,
        Rule::Types,
        ValueMax(LOCAL_STORAGE_MAX, "value_size exceeds 64 KiB"),
    ],
    kernel_struct: "bpf_local_storage_map",
    user: UserOps {
        lookup: Err(Errno::EBADF),
        update: Err(Errno::EBADF),
        delete: Err(Errno::EBADF),
        next_key: Err(Errno::ENOTSUPP),
        ..USER
    },
    ..PLAIN
};

pub(super) static CGROUP_STORAGE: KindSpec = CGROUPS;

pub(super) static PERCPU_CGROUP_STORAGE: KindSpec = KindSpec {
    name: "percpu_cgroup_storage",
    values: Values::Host(Host::PercpuCgroupStorage),
    fields: FieldSet::NONE,
    ..CGROUPS
};

const CGROUPS: KindSpec = KindSpec {
    name: "cgroup_storage",
    keys: Keys::Owner,
    values: Values::Host(Host::CgroupStorage),
    create: &[
        Key(Sizes::In(&[8, 16]), "key_size must be 8 or 16"),
        SOME_VALUE,
        ValueMax(4096, "value_size exceeds a page"),
        Flags(BPF_F_NUMA_NODE | ACCESS_MASK),
        NoEntries,
    ],
    as_inner: NO_INNER,
    helpers: Helpers::Only(&[GET_LOCAL_STORAGE]),
    kernel_struct: "bpf_cgroup_storage_map",
    fields: FieldSet::LOCK,
    user: UserOps { lookup: Err(Errno::ENOENT), delete: Err(Errno::EINVAL), ..USER },
    ..PLAIN
};

pub(super) static INSN_ARRAY: KindSpec = KindSpec {
    name: "insn_array",
    keys: Keys::Bytes,
    values: Values::Host(Host::Insns),
    create: &[Flags(0), Entries, INDEX_KEY, Value(Sizes::In(&[16]), "value_size must be 16")],
    helpers: Helpers::Only(&[]),
    kernel_struct: "bpf_insn_array",
    user: UserOps { update: Err(Errno::EOPNOTSUPP), ..USER },
    ..PLAIN
};

pub(super) static STRUCT_OPS: KindSpec = KindSpec {
    name: "struct_ops",
    values: Values::Host(Host::StructOps),
    create: &[Rule::Nowhere("struct_ops has no meaning outside a kernel")],
    helpers: Helpers::Only(&[]),
    kernel_struct: "bpf_struct_ops_map",
    ..PLAIN
};

// --- Common parts ---

/// Any bytes as key and value, all operations on one element, and nothing else.
const PLAIN: KindSpec = KindSpec {
    name: "",
    sleepable: false,
    keys: Keys::Bytes,
    values: Values::Bytes,
    lru: false,
    create: &[],
    extra: false,
    types: Types::Any,
    as_inner: Ok(()),
    offloadable: false,
    helpers: Helpers::CommonAnd(&[]),
    kernel_struct: "bpf_htab",
    fields: FieldSet::NONE,
    user: USER,
    batch: Batch::No,
    shape: Shape::Opaque,
};

/// Results as in `bpf(2)`: `lookup_and_delete` is set by the kinds that have it.
const USER: UserOps = UserOps {
    lookup: Ok(()),
    update: Ok(()),
    delete: Ok(()),
    next_key: Ok(()),
    lookup_and_delete: Err(Errno::ENOTSUPP),
};

const SOME_KEY: Rule = Key(Sizes::Range(1, u32::MAX), "key_size must not be 0");
const SOME_VALUE: Rule = Value(Sizes::Range(1, u32::MAX), "value_size must not be 0");
const EMPTY_KEY: Rule = Key(Sizes::In(&[0]), "key_size must be 0");
const EMPTY_VALUE: Rule = Value(Sizes::In(&[0]), "value_size must be 0");
const INDEX_KEY: Rule = Key(Sizes::In(&[4]), "key_size must be 4");
const NO_PREALLOC_NEEDED: Rule = With(BPF_F_NO_PREALLOC, "BPF_F_NO_PREALLOC is required");

/// Largest allocation of the kernel in one piece, in bytes (`KMALLOC_MAX_SIZE` on x86-64).
const KMALLOC_MAX_SIZE: u64 = 4 << 20;
/// Size in bytes of an element's header in the kernel's hash table, part of its size limit.
const HTAB_ELEM_BYTES: u64 = 48;
/// Number of bytes before a trie node's data, part of its size limit (`sizeof(struct
/// lpm_trie_node)`).
const LPM_NODE_BYTES: u32 = 40;
/// Largest number of bytes of an LPM key's data (`LPM_DATA_SIZE_MAX`).
const LPM_DATA_MAX: u32 = 256;
/// Largest number of CPUs in a cpumap (`NR_CPUS` of common distribution kernels).
const NR_CPUS: u32 = 8192;
/// Largest size in bytes of a local storage value (`BPF_LOCAL_STORAGE_MAX_VALUE_SIZE`, about 64
/// KiB).
const LOCAL_STORAGE_MAX: u32 = 0xffff - 200;
