//! What `BPF_MAP_CREATE` refuses: the `map_alloc_check` of each kind, in the kernel's order.

use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};

use crate::error::MapError;
use crate::flags::{
    ACCESS_MASK, BPF_F_CLONE, BPF_F_INNER_MAP, BPF_F_MMAPABLE, BPF_F_NO_COMMON_LRU,
    BPF_F_NO_PREALLOC, BPF_F_NO_USER_CONV, BPF_F_NUMA_NODE, BPF_F_PRESERVE_ELEMS, BPF_F_RDONLY,
    BPF_F_RDONLY_PROG, BPF_F_SEGV_ON_FAULT, BPF_F_STACK_BUILD_ID, BPF_F_WRONLY, BPF_F_WRONLY_PROG,
    BPF_F_ZERO_SEED,
};
use crate::memory::PAGE_BYTES;

/// Most bytes the kernel allocates in one piece (`KMALLOC_MAX_SIZE` on x86-64).
const KMALLOC_MAX_SIZE: u64 = 4 << 20;
/// Most bytes of one per-CPU value (`PCPU_MIN_UNIT_SIZE`).
const PCPU_MIN_UNIT_SIZE: u32 = 32 << 10;
/// Bytes of an element's header in the kernel's hash table, part of its size limit.
const HTAB_ELEM_BYTES: u64 = 48;
/// Bytes before a trie node's data, part of its size limit (`sizeof(struct lpm_trie_node)`).
const LPM_NODE_BYTES: u64 = 40;
/// Most bytes of an LPM key's data (`LPM_DATA_SIZE_MAX`).
const LPM_DATA_MAX: u32 = 256;
/// Most CPUs a cpumap may name (`NR_CPUS` of common distribution kernels).
const NR_CPUS: u32 = 8192;
/// Most stack frames a stack trace holds (`sysctl_perf_event_max_stack`).
const STACK_FRAMES_MAX: u32 = 127;
/// Most bytes of a local storage value (`BPF_LOCAL_STORAGE_MAX_VALUE_SIZE`, about 64 KiB).
const LOCAL_STORAGE_MAX: u32 = 0xffff - 200;

/// A broken rule: what the kernel answers, and the rule in words.
type Broken = (Errno, &'static str);

const NO_SIZE: &str = "max_entries must not be 0";

/// Checks a definition as `BPF_MAP_CREATE` does.
pub(crate) fn check(def: &MapDef) -> Result<(), MapError> {
    common(def).and_then(|()| of_kind(def)).map_err(|(errno, rule)| {
        let (map, kind) = (def.name.clone(), def.kind.name());
        if rule == NO_SIZE {
            return MapError::Unsized { map, kind, errno };
        }
        MapError::Definition { map, kind, rule, errno }
    })
}

/// Whether the two maps may take each other's place in a map of maps (`bpf_map_meta_equal`).
pub(crate) fn same_shape(template: &MapDef, inner: &MapDef) -> bool {
    let array = template.kind == MapType::Array;
    template.kind == inner.kind
        && template.key_size == inner.key_size
        && template.value_size == inner.value_size
        && template.flags == inner.flags
        && (!array
            || template.flags & BPF_F_INNER_MAP != 0
            || template.max_entries == inner.max_entries)
}

fn common(def: &MapDef) -> Result<(), Broken> {
    let has_extra = matches!(def.kind, MapType::BloomFilter | MapType::Arena | MapType::Rhash);
    invalid(def.map_extra != 0 && !has_extra, "map_extra must be 0")?;
    let both = BPF_F_RDONLY | BPF_F_WRONLY;
    invalid(def.flags & both == both, "BPF_F_RDONLY and BPF_F_WRONLY exclude each other")?;
    let both = BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG;
    invalid(def.flags & both == both, "BPF_F_RDONLY_PROG and BPF_F_WRONLY_PROG exclude each other")
}

fn of_kind(def: &MapDef) -> Result<(), Broken> {
    match def.kind {
        MapType::Hash
        | MapType::PercpuHash
        | MapType::LruHash
        | MapType::LruPercpuHash
        | MapType::Rhash => hash(def),
        MapType::HashOfMaps => {
            invalid(def.value_size != 4, "value_size must be 4")?;
            hash(def)?;
            inner_template(def)
        }
        MapType::Array | MapType::PercpuArray => array(def),
        MapType::ProgArray | MapType::PerfEventArray | MapType::CgroupArray => fd_array(def),
        MapType::ArrayOfMaps => {
            fd_array(def)?;
            inner_template(def)
        }
        MapType::LpmTrie => lpm_trie(def),
        MapType::Queue | MapType::Stack => queue_stack(def),
        MapType::BloomFilter => bloom(def),
        MapType::Ringbuf | MapType::UserRingbuf => ringbuf(def),
        MapType::Devmap | MapType::DevmapHash | MapType::Sockmap => {
            target(def, &[4, 8], BPF_F_NUMA_NODE | BPF_F_RDONLY | BPF_F_WRONLY)
        }
        MapType::Xskmap => target(def, &[4], BPF_F_NUMA_NODE | BPF_F_RDONLY | BPF_F_WRONLY),
        MapType::Cpumap => {
            target(def, &[4, 8], BPF_F_NUMA_NODE)?;
            too_big(def.max_entries > NR_CPUS, "max_entries exceeds the number of CPUs")
        }
        MapType::Sockhash => sockhash(def),
        MapType::Arena => arena(def),
        MapType::StackTrace => stack_trace(def),
        MapType::TaskStorage
        | MapType::CgrpStorage
        | MapType::SkStorage
        | MapType::InodeStorage => local_storage(def),
        MapType::CgroupStorage | MapType::PercpuCgroupStorage => cgroup_storage(def),
        MapType::ReuseportSockarray => {
            invalid(!matches!(def.value_size, 4 | 8), "value_size must be 4 or 8")?;
            array(def)
        }
        MapType::InsnArray => {
            known_flags(def, 0)?;
            sizes(def, 4, 16)
        }
        MapType::StructOps => Err((Errno::ENOTSUPP, "struct_ops has no meaning outside a kernel")),
    }
}

/// Objects often leave the size of a map to their loader.
fn has_size(def: &MapDef) -> Result<(), Broken> {
    invalid(def.max_entries == 0, NO_SIZE)
}

/// `htab_map_alloc_check`
fn hash(def: &MapDef) -> Result<(), Broken> {
    let lru = matches!(def.kind, MapType::LruHash | MapType::LruPercpuHash);
    let percpu = matches!(def.kind, MapType::PercpuHash | MapType::LruPercpuHash);
    let own = BPF_F_NO_PREALLOC | BPF_F_NO_COMMON_LRU | BPF_F_NUMA_NODE | BPF_F_ZERO_SEED;
    known_flags(def, own | ACCESS_MASK)?;
    let no_common = def.flags & BPF_F_NO_COMMON_LRU != 0;
    invalid(no_common && !lru, "BPF_F_NO_COMMON_LRU is for LRU maps")?;
    if lru && def.flags & BPF_F_NO_PREALLOC != 0 {
        return Err((Errno::ENOTSUPP, "an LRU map can't be BPF_F_NO_PREALLOC"));
    }
    has_size(def)?;
    invalid(def.key_size == 0, "key_size must not be 0")?;
    invalid(def.value_size == 0, "value_size must not be 0")?;
    let element = u64::from(def.key_size) + u64::from(def.value_size);
    too_big(element >= KMALLOC_MAX_SIZE - HTAB_ELEM_BYTES, "key and value exceed 4 MiB")?;
    too_big(percpu && percpu_too_big(def), "a per-CPU value exceeds 32 KiB")?;
    too_big(def.max_entries > 1 << 31, "max_entries exceeds 2^31")
}

/// `array_map_alloc_check`
fn array(def: &MapDef) -> Result<(), Broken> {
    has_size(def)?;
    invalid(def.key_size != 4, "key_size must be 4")?;
    invalid(def.value_size == 0, "value_size must not be 0")?;
    let own = BPF_F_NUMA_NODE | BPF_F_MMAPABLE | BPF_F_PRESERVE_ELEMS | BPF_F_INNER_MAP;
    known_flags(def, own | ACCESS_MASK)?;
    let only_array = def.flags & (BPF_F_MMAPABLE | BPF_F_INNER_MAP) != 0;
    invalid(
        only_array && def.kind != MapType::Array,
        "BPF_F_MMAPABLE and BPF_F_INNER_MAP are for ARRAY",
    )?;
    let preserve = def.flags & BPF_F_PRESERVE_ELEMS != 0;
    invalid(
        preserve && def.kind != MapType::PerfEventArray,
        "BPF_F_PRESERVE_ELEMS is for PERF_EVENT_ARRAY",
    )?;
    too_big(def.value_size > i32::MAX as u32, "value_size exceeds 2 GiB")?;
    let percpu = def.kind == MapType::PercpuArray;
    too_big(percpu && percpu_too_big(def), "a per-CPU value exceeds 32 KiB")
}

/// `fd_array_map_alloc_check`
fn fd_array(def: &MapDef) -> Result<(), Broken> {
    invalid(def.value_size != 4, "value_size must be 4")?;
    let of_programs = BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG;
    invalid(def.flags & of_programs != 0, "slots can't be restricted for programs")?;
    array(def)
}

/// `bpf_map_meta_alloc`
fn inner_template(def: &MapDef) -> Result<(), Broken> {
    let Some(inner) = &def.inner else {
        return Err((Errno::EBADF, "the inner map is not described"));
    };
    let nested = matches!(inner.kind, MapType::ArrayOfMaps | MapType::HashOfMaps);
    invalid(nested, "maps of maps don't nest")?;
    let unusable = matches!(
        inner.kind,
        MapType::ProgArray | MapType::CgroupStorage | MapType::PercpuCgroupStorage
    );
    if unusable {
        return Err((Errno::ENOTSUPP, "this kind can't be an inner map"));
    }
    Ok(())
}

/// `trie_alloc`
fn lpm_trie(def: &MapDef) -> Result<(), Broken> {
    has_size(def)?;
    invalid(def.flags & BPF_F_NO_PREALLOC == 0, "BPF_F_NO_PREALLOC is required")?;
    known_flags(def, BPF_F_NO_PREALLOC | BPF_F_NUMA_NODE | ACCESS_MASK)?;
    let data = def.key_size.saturating_sub(4);
    invalid(
        data == 0 || data > LPM_DATA_MAX,
        "key_size must be 5 to 260: a 32-bit prefix length, then data",
    )?;
    let value_max = KMALLOC_MAX_SIZE - u64::from(LPM_DATA_MAX) - LPM_NODE_BYTES;
    let value = u64::from(def.value_size);
    invalid(value == 0 || value > value_max, "value_size must be 1 to about 4 MiB")
}

/// `queue_stack_map_alloc_check`
fn queue_stack(def: &MapDef) -> Result<(), Broken> {
    has_size(def)?;
    invalid(def.key_size != 0, "key_size must be 0")?;
    invalid(def.value_size == 0, "value_size must not be 0")?;
    known_flags(def, BPF_F_NUMA_NODE | ACCESS_MASK)?;
    too_big(u64::from(def.value_size) > KMALLOC_MAX_SIZE, "value_size exceeds 4 MiB")
}

/// `bloom_map_alloc`
fn bloom(def: &MapDef) -> Result<(), Broken> {
    invalid(def.key_size != 0, "key_size must be 0")?;
    invalid(def.value_size == 0, "value_size must not be 0")?;
    has_size(def)?;
    known_flags(def, BPF_F_NUMA_NODE | BPF_F_ZERO_SEED | ACCESS_MASK)?;
    invalid(def.map_extra > 15, "map_extra is the number of hashes, at most 15")
}

/// `ringbuf_map_alloc`
fn ringbuf(def: &MapDef) -> Result<(), Broken> {
    known_flags(def, BPF_F_NUMA_NODE)?;
    invalid(def.key_size != 0, "key_size must be 0")?;
    invalid(def.value_size != 0, "value_size must be 0")?;
    has_size(def)?;
    let size = def.max_entries;
    invalid(
        !size.is_power_of_two() || !(size as usize).is_multiple_of(PAGE_BYTES),
        "max_entries is the size in bytes: a power of two and a multiple of the page size",
    )
}

/// `dev_map_init_map`, `cpu_map_alloc`, `xsk_map_alloc`, `sock_map_alloc`
fn target(def: &MapDef, value_sizes: &[u32], flags: u32) -> Result<(), Broken> {
    has_size(def)?;
    invalid(def.key_size != 4, "key_size must be 4")?;
    invalid(!value_sizes.contains(&def.value_size), "value_size must be 4 (or 8 where allowed)")?;
    known_flags(def, flags)
}

/// `sock_hash_alloc`
fn sockhash(def: &MapDef) -> Result<(), Broken> {
    has_size(def)?;
    invalid(def.key_size == 0, "key_size must not be 0")?;
    invalid(!matches!(def.value_size, 4 | 8), "value_size must be 4 or 8")?;
    known_flags(def, BPF_F_NUMA_NODE | BPF_F_RDONLY | BPF_F_WRONLY)?;
    too_big(def.key_size > 512, "key_size exceeds a program's stack")
}

/// `arena_map_alloc`
fn arena(def: &MapDef) -> Result<(), Broken> {
    invalid(def.key_size != 0 || def.value_size != 0, "key_size and value_size must be 0")?;
    has_size(def)?;
    invalid(def.flags & BPF_F_MMAPABLE == 0, "BPF_F_MMAPABLE is required")?;
    known_flags(def, BPF_F_SEGV_ON_FAULT | BPF_F_MMAPABLE | BPF_F_NO_USER_CONV)?;
    let page = PAGE_BYTES as u64;
    invalid(!def.map_extra.is_multiple_of(page), "map_extra must be the address of a page")?;
    let bytes = u64::from(def.max_entries) * page;
    too_big(bytes > 1 << 32, "an arena has at most 4 GiB")?;
    let last = def.map_extra.wrapping_add(bytes - 1);
    if def.map_extra != 0 && def.map_extra >> 32 != last >> 32 {
        return Err((Errno::ERANGE, "the arena may not cross a 4 GiB boundary"));
    }
    Ok(())
}

/// `stack_map_alloc`
fn stack_trace(def: &MapDef) -> Result<(), Broken> {
    let access = BPF_F_RDONLY | BPF_F_WRONLY;
    known_flags(def, BPF_F_NUMA_NODE | BPF_F_STACK_BUILD_ID | access)?;
    has_size(def)?;
    invalid(def.key_size != 4, "key_size must be 4")?;
    let frame = if def.flags & BPF_F_STACK_BUILD_ID != 0 { 32 } else { 8 };
    let frames = def.value_size / frame;
    invalid(
        frames == 0 || !def.value_size.is_multiple_of(frame) || frames > STACK_FRAMES_MAX,
        "value_size must be 1 to 127 stack frames",
    )?;
    too_big(def.max_entries > 1 << 31, "max_entries exceeds 2^31")
}

/// `bpf_local_storage_map_alloc_check`
fn local_storage(def: &MapDef) -> Result<(), Broken> {
    known_flags(def, BPF_F_NO_PREALLOC | BPF_F_CLONE)?;
    invalid(def.flags & BPF_F_NO_PREALLOC == 0, "BPF_F_NO_PREALLOC is required")?;
    invalid(def.max_entries != 0, "max_entries must be 0")?;
    invalid(def.key_size != 4, "key_size must be 4")?;
    invalid(def.value_size == 0, "value_size must not be 0")?;
    invalid(def.key_type == 0 || def.value_type == 0, "key and value need BTF types")?;
    too_big(def.value_size > LOCAL_STORAGE_MAX, "value_size exceeds 64 KiB")
}

/// `cgroup_storage_map_alloc`
fn cgroup_storage(def: &MapDef) -> Result<(), Broken> {
    invalid(!matches!(def.key_size, 8 | 16), "key_size must be 8 or 16")?;
    invalid(def.value_size == 0, "value_size must not be 0")?;
    too_big(def.value_size as usize > PAGE_BYTES, "value_size exceeds a page")?;
    known_flags(def, BPF_F_NUMA_NODE | ACCESS_MASK)?;
    invalid(def.max_entries != 0, "max_entries must be 0")
}

fn sizes(def: &MapDef, key: u32, value: u32) -> Result<(), Broken> {
    has_size(def)?;
    invalid(def.key_size != key, "key_size must be 4")?;
    invalid(def.value_size != value, "value_size must be 16")
}

fn percpu_too_big(def: &MapDef) -> bool {
    def.value_size.checked_next_multiple_of(8).is_none_or(|size| size > PCPU_MIN_UNIT_SIZE)
}

fn known_flags(def: &MapDef, known: u32) -> Result<(), Broken> {
    invalid(def.flags & !known != 0, "map_flags has a flag that this kind doesn't know")
}

fn invalid(broken: bool, rule: &'static str) -> Result<(), Broken> {
    if broken { Err((Errno::EINVAL, rule)) } else { Ok(()) }
}

fn too_big(broken: bool, rule: &'static str) -> Result<(), Broken> {
    if broken { Err((Errno::E2BIG, rule)) } else { Ok(()) }
}
