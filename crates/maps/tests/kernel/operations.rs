//! Random sequences of the commands of `bpf(2)`, on our map and on the kernel's.

use std::sync::Arc;

use fastrand::Rng;
use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};
use towpath_kernel::KernelMap;
use towpath_maps::{CreateOptions, Domain, Environment, Map, Value};

use crate::{def, kernel, pick};

const ZERO_SEED: u32 = 1 << 6;
const NO_PREALLOC: u32 = 1;

/// The devices of a fresh network namespace, and the kernel's CPUs.
#[derive(Debug)]
struct LikeKernel {
    cpus: u32,
}

impl Environment for LikeKernel {
    fn has_device(&self, ifindex: u32) -> bool {
        ifindex == 1
    }

    fn has_cpu(&self, cpu: u32) -> bool {
        cpu < self.cpus
    }

    fn program(&self, _number: u32, _kind: MapType) -> Result<u32, Errno> {
        Err(Errno::EBADF)
    }

    fn socket(&self, _number: u32) -> Result<(u32, u32), Errno> {
        Err(Errno::EBADF)
    }
}

/// Both maps of a definition.
struct Pair {
    ours: Arc<Map>,
    kernels: towpath_kernel::MapSet,
    cpus: usize,
}

impl Pair {
    fn new(def: &MapDef) -> Option<Pair> {
        let kernel = kernel()?;
        let cpus = kernel.possible_cpus();
        let mut options = CreateOptions::new(Domain::new(cpus));
        options.environment = Arc::new(LikeKernel { cpus: cpus as u32 });
        let ours = Map::create(def, &options).expect("a valid definition");
        let kernels = kernel.load_maps(std::slice::from_ref(def)).expect("a valid definition");
        Some(Pair { ours, kernels, cpus })
    }

    fn kernels(&self) -> &KernelMap {
        &self.kernels.maps()[0]
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64) -> [Result<(), Errno>; 2] {
        let (ours, kernels) = if self.ours.is_percpu() {
            let padded = value.len().next_multiple_of(8);
            let mut all = Vec::new();
            let mut one_each = Vec::new();
            for cpu in 0..self.cpus {
                let mut own = value.to_vec();
                own[0] = own[0].wrapping_add(cpu as u8);
                all.extend_from_slice(&own);
                all.resize((cpu + 1) * padded, 0);
                one_each.push(own);
            }
            (Value::PerCpu(one_each), all)
        } else {
            (Value::One(value.to_vec()), value.to_vec())
        };
        [self.ours.user().update(key, &ours, flags), self.kernels().update(key, &kernels, flags)]
    }

    fn lookup(&self, key: &[u8]) -> [Result<Vec<u8>, Errno>; 2] {
        let ours = self.ours.user().lookup(key, 0).map(|value| {
            if !self.ours.is_percpu() {
                return value.bytes().to_vec();
            }
            let padded = |bytes: &&[u8]| {
                let mut bytes = bytes.to_vec();
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                bytes
            };
            value.cpus().iter().flat_map(padded).collect()
        });
        [ours, self.kernels().lookup(key)]
    }

    fn delete(&self, key: &[u8]) -> [Result<(), Errno>; 2] {
        [self.ours.user().delete(key), self.kernels().delete(key)]
    }

    fn next_key(&self, key: Option<&[u8]>) -> [Result<Vec<u8>, Errno>; 2] {
        let kernels = self.kernels().next_key(key);
        let kernels = kernels.and_then(|next| next.ok_or(Errno::ENOENT));
        [self.ours.user().next_key(key), kernels]
    }
}

fn same<T: PartialEq + std::fmt::Debug>([ours, kernels]: [T; 2], what: &str) {
    assert_eq!(ours, kernels, "ours, then the kernel's: {what}");
}

/// Runs random commands with keys from `key`; `order` compares iteration too.
fn compare(def: &MapDef, order: bool, key: impl Fn(&mut Rng) -> Vec<u8>) {
    compare_values(def, order, key, |random, size| {
        (0..size).map(|_| random.u64(..256) as u8).collect()
    });
}

fn compare_values(
    def: &MapDef,
    order: bool,
    key: impl Fn(&mut Rng) -> Vec<u8>,
    value: impl Fn(&mut Rng, usize) -> Vec<u8>,
) {
    let Some(pair) = Pair::new(def) else { return };
    let mut random = Rng::with_seed(u64::from(def.max_entries) * 31 + 5);
    for step in 0..3000 {
        let key = key(&mut random);
        let what = format!("{:?} step {step}, key {key:?}", def.kind);
        match random.u64(..6) {
            0 | 1 => {
                let value = value(&mut random, def.value_size as usize);
                let flags = pick(&mut random, &[0, 0, 0, 1, 2, 3, 4, 8]);
                let what = format!("update {what}, value {value:?}, flags {flags}");
                same(pair.update(&key, &value, flags), &what);
            }
            2 => same(pair.delete(&key), &format!("delete {what}")),
            3 if order => same(pair.next_key(Some(&key)), &format!("next key {what}")),
            4 if order => same(pair.next_key(None), &format!("first key {what}")),
            _ => same(pair.lookup(&key), &format!("lookup {what}")),
        }
    }
}

fn number(limit: u64) -> impl Fn(&mut Rng) -> Vec<u8> {
    move |random| (random.u64(..limit) as u32).to_ne_bytes().to_vec()
}

#[test]
fn arrays() {
    for kind in [MapType::Array, MapType::PercpuArray] {
        compare(&def(kind, 4, 12, 6, 0), true, number(8));
    }
}

#[test]
fn hash_tables() {
    for kind in [MapType::Hash, MapType::PercpuHash] {
        for prealloc in [0, NO_PREALLOC] {
            compare(&def(kind, 4, 12, 20, prealloc | ZERO_SEED), true, number(32));
        }
    }
    let odd = |random: &mut Rng| vec![random.u64(..4) as u8; 17];
    compare(&def(MapType::Hash, 17, 3, 3, ZERO_SEED), true, odd);
}

#[test]
fn lru_tables_with_room() {
    // The choice of evicted elements is up to each side.
    for kind in [MapType::LruHash, MapType::LruPercpuHash] {
        compare(&def(kind, 4, 12, 2000, ZERO_SEED), true, number(16));
    }
}

#[test]
fn tries() {
    for data in [1usize, 4, 9] {
        let key = move |random: &mut Rng| {
            let length = random.u64(..data as u64 * 8 + 2) as u32;
            let mut key = length.to_ne_bytes().to_vec();
            key.extend((0..data).map(|_| pick(random, &[0u8, 1, 0x80, 0xff])));
            key
        };
        compare(&def(MapType::LpmTrie, 4 + data as u32, 4, 24, NO_PREALLOC), true, key);
    }
}

#[test]
fn maps_of_targets() {
    let words = |choices: &'static [u32]| {
        move |random: &mut Rng, size: usize| {
            (0..size / 4).flat_map(|_| pick(random, choices).to_ne_bytes()).collect()
        }
    };
    for size in [4, 8] {
        let devices = words(&[0, 1, 1, 1, 0x7fff_fff0, u32::MAX]);
        compare_values(&def(MapType::Devmap, 4, size, 5, 0), true, number(7), devices);
        let devices = words(&[0, 1, 1, 1, 0x7fff_fff0, u32::MAX]);
        compare_values(&def(MapType::DevmapHash, 4, size, 5, 0), true, number(9), devices);
        let queues = words(&[0, 1, 64, 16384, 16385, u32::MAX]);
        compare_values(&def(MapType::Cpumap, 4, size, 2, 0), true, number(3), queues);
    }
    let sockets = words(&[0x7fff_fff0]);
    compare_values(&def(MapType::Xskmap, 4, 4, 5, 0), true, number(7), sockets);
}

#[test]
fn slots_of_objects() {
    let bad = |_: &mut Rng, _: usize| 0x7fff_fff0u32.to_ne_bytes().to_vec();
    compare_values(&def(MapType::ProgArray, 4, 4, 5, 0), true, number(7), bad);
    compare_values(&def(MapType::PerfEventArray, 4, 4, 5, 0), true, number(7), bad);
    compare_values(&def(MapType::CgroupArray, 4, 4, 5, 0), true, number(7), bad);
    for kind in [MapType::ArrayOfMaps, MapType::HashOfMaps] {
        let mut outer = def(kind, 4, 4, 5, 0);
        outer.inner = Some(Box::new(def(MapType::Array, 4, 4, 1, 0)));
        compare_values(&outer, true, number(7), bad);
    }
}

#[test]
fn without_keys() {
    let none = |_: &mut Rng| Vec::new();
    for kind in [MapType::Queue, MapType::Stack] {
        compare(&def(kind, 0, 6, 4, 0), true, none);
    }
}

#[test]
fn rings_and_the_rest() {
    let none = |_: &mut Rng| Vec::new();
    for kind in [MapType::Ringbuf, MapType::UserRingbuf] {
        compare(&def(kind, 0, 0, 4096, 0), true, none);
    }
    compare(&def(MapType::StackTrace, 4, 80, 5, 0), true, number(7));
    compare_values(&def(MapType::Sockmap, 4, 4, 5, 0), true, number(7), |_, _| {
        0x7fff_fff0u32.to_ne_bytes().to_vec()
    });
}
