//! Definitions that are refused, and their errors.

use fastrand::Rng;
use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};
use towpath_kernel::Kernel;
use towpath_maps::{CreateOptions, Domain, Map};

use crate::{def, kernel, pick};

/// A definition of each kind that works.
fn accepted() -> Vec<MapDef> {
    const NO_PREALLOC: u32 = 1;
    const MMAPABLE: u32 = 1 << 10;
    let inner = |kind| {
        let mut outer = def(kind, 4, 4, 3, 0);
        outer.inner = Some(Box::new(def(MapType::Array, 4, 4, 1, 0)));
        outer
    };
    vec![
        def(MapType::Hash, 4, 8, 3, 0),
        def(MapType::Array, 4, 8, 3, 0),
        def(MapType::ProgArray, 4, 4, 3, 0),
        def(MapType::PerfEventArray, 4, 4, 3, 0),
        def(MapType::PercpuHash, 4, 8, 3, 0),
        def(MapType::PercpuArray, 4, 8, 3, 0),
        def(MapType::StackTrace, 4, 80, 3, 0),
        def(MapType::CgroupArray, 4, 4, 3, 0),
        def(MapType::LruHash, 4, 8, 3, 0),
        def(MapType::LruPercpuHash, 4, 8, 3, 0),
        def(MapType::LpmTrie, 8, 8, 3, NO_PREALLOC),
        inner(MapType::ArrayOfMaps),
        inner(MapType::HashOfMaps),
        def(MapType::Devmap, 4, 8, 3, 0),
        def(MapType::DevmapHash, 4, 8, 3, 0),
        def(MapType::Cpumap, 4, 8, 2, 0),
        def(MapType::Xskmap, 4, 4, 3, 0),
        def(MapType::Sockmap, 4, 4, 3, 0),
        def(MapType::Sockhash, 4, 4, 3, 0),
        def(MapType::Queue, 0, 8, 3, 0),
        def(MapType::Stack, 0, 8, 3, 0),
        def(MapType::BloomFilter, 0, 8, 3, 0),
        def(MapType::Ringbuf, 0, 0, 4096, 0),
        def(MapType::UserRingbuf, 0, 0, 4096, 0),
        def(MapType::Arena, 0, 0, 3, MMAPABLE),
    ]
}

/// Map kinds the running kernel lacks are left out.
fn refuses_kind(kernel: &Kernel, base: &MapDef) -> bool {
    let known = ask_kernel(kernel, base);
    if let Err(errno) = known {
        println!("{}: the kernel says {errno} to a plain map", base.kind.name());
    }
    known.is_err()
}

fn ask_kernel(kernel: &Kernel, def: &MapDef) -> Result<(), Errno> {
    match kernel.load_maps(std::slice::from_ref(def)) {
        Ok(_) => Ok(()),
        Err(towpath_kernel::MapError::Create { errno, .. }) => Err(errno),
        Err(other) => panic!("{def:?}: {other}"),
    }
}

fn ask_us(def: &MapDef) -> Result<(), Errno> {
    let options = CreateOptions::new(Domain::new(1));
    Map::create(def, &options).map(drop).map_err(|error| error.errno())
}

#[test]
fn the_same_definitions_are_refused() {
    let Some(kernel) = kernel() else { return };
    let mut random = Rng::with_seed(77);
    let mut asked = 0;
    let mut different = Vec::new();
    for base in accepted() {
        if refuses_kind(&kernel, &base) {
            continue;
        }
        for round in 0..80 {
            let mut changed = base.clone();
            for _ in 0..=round % 2 {
                change(&mut changed, &mut random);
            }
            if changed.kind == MapType::Cpumap && changed.max_entries > CPUS_MAX_LEAST {
                continue;
            }
            let (kernels, ours) = (ask_kernel(&kernel, &changed), ask_us(&changed));
            asked += 1;
            if kernels != ours {
                let MapDef { kind, key_size, value_size, max_entries, flags, map_extra, .. } =
                    changed;
                different.push(format!(
                    "{kind:?} key {key_size} value {value_size} entries {max_entries} \
                     flags {flags:#x} extra {map_extra:#x}: kernel {kernels:?}, we {ours:?}"
                ));
            }
        }
    }
    different.sort();
    different.dedup();
    assert!(
        different.is_empty(),
        "{} of {asked} differ:\n{}",
        different.len(),
        different.join("\n")
    );
}

/// Changes one thing, usually for the worse.
fn change(def: &mut MapDef, random: &mut Rng) {
    const KEYS: &[u32] = &[0, 1, 4, 5, 8, 16, 260, 261, 512, 513, 1 << 22];
    const VALUES: &[u32] = &[0, 1, 4, 8, 12, 16, 1016, 1024, 32760, 32768, 32769, 1 << 22];
    const ENTRIES: &[u32] = &[0, 1, 2, 4096, 5000, 8192];
    match random.u64(..9) {
        0 | 1 => def.key_size = pick(random, KEYS),
        2 | 3 => def.value_size = pick(random, VALUES),
        4 => def.max_entries = pick(random, ENTRIES),
        5 => def.map_extra = pick(random, &[1, 15, 16, 4096, 4097, 1 << 32]),
        _ => def.flags ^= 1 << pick(random, &FLAG_BITS),
    }
}

/// `NR_CPUS`, the limit of a cpumap, is the kernel builder's choice; few choose less.
const CPUS_MAX_LEAST: u32 = 64;

/// All but `BPF_F_NUMA_NODE` (2), which needs a node's number, and the flags that name a
/// descriptor or token (13 to 16).
const FLAG_BITS: [u32; 15] = [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 17, 18, 19];
