//! What maps hold, in a form that both sides' maps have.

use std::collections::BTreeMap;

use towpath_bpf::program::MapType;
use towpath_kernel::KernelMap;
use towpath_maps::Map;

use super::arena;

/// A map's elements in an order of their own.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Whether a map's elements mean the same on both sides (and not a descriptor, an id, a socket).
fn is_comparable(kind: MapType) -> bool {
    matches!(
        kind,
        MapType::Hash
            | MapType::Array
            | MapType::PercpuHash
            | MapType::PercpuArray
            | MapType::LruHash
            | MapType::LruPercpuHash
            | MapType::LpmTrie
            | MapType::Queue
            | MapType::Stack
    )
}

/// What the kernel holds in a map.
pub fn kernel_contents(map: &KernelMap) -> Option<Contents> {
    if map.kind() == MapType::Arena {
        return arena::read(|offset, page| map.read_arena(offset, page).is_ok());
    }
    if !is_comparable(map.kind()) {
        return None;
    }
    if matches!(map.kind(), MapType::Queue | MapType::Stack) {
        return Some(map.lookup(&[]).ok().map(|value| (Vec::new(), value)).into_iter().collect());
    }
    let entries = map.entries(ENTRIES_MAX).ok()?;
    let percpu = is_percpu(map.kind());
    let folded = |value: Vec<u8>| {
        let count = if percpu { value.len() / map.cpu_value_bytes() } else { 1 };
        let values: Vec<&[u8]> = value.chunks(value.len() / count.max(1)).collect();
        if percpu { fold(&values) } else { value.clone() }
    };
    Some(entries.into_iter().map(|(key, value)| (key, folded(value))).collect())
}

/// What our map holds.
pub fn contents(map: &Map) -> Option<Contents> {
    if let Some(arena) = map.arena() {
        let at = |offset: usize| arena.user_start() + offset as u64;
        return arena::read(|offset, page| arena.read(at(offset), page).is_ok());
    }
    if !is_comparable(map.kind()) {
        return None;
    }
    let user = map.user();
    if matches!(map.kind(), MapType::Queue | MapType::Stack) {
        let head = user.lookup(&[], 0).ok().map(|value| (Vec::new(), value.bytes().to_vec()));
        return Some(head.into_iter().collect());
    }
    let folded = |value: &towpath_maps::Value| {
        if map.is_percpu() { fold(&value.cpus()) } else { value.bytes().to_vec() }
    };
    Some(user.entries().take(ENTRIES_MAX).map(|(key, value)| (key, folded(&value))).collect())
}

/// The first element that differs: what each side has.
pub(super) fn difference(theirs: &Contents, ours: &Contents) -> Option<(String, String)> {
    if theirs == ours {
        return None;
    }
    let mut keys = theirs.keys().chain(ours.keys());
    let key = keys.find(|key| theirs.get(*key) != ours.get(*key))?;
    let text = |value: Option<&Vec<u8>>| match value {
        Some(value) => format!("key {key:02x?}: {value:02x?}"),
        None => format!("key {key:02x?}: not there"),
    };
    Some((text(theirs.get(key)), text(ours.get(key))))
}

fn is_percpu(kind: MapType) -> bool {
    matches!(kind, MapType::PercpuHash | MapType::PercpuArray | MapType::LruPercpuHash)
}

/// All CPUs' values as one: the sum of their 64-bit words, as a run may happen on any CPU.
fn fold(values: &[&[u8]]) -> Vec<u8> {
    let words = values.iter().map(|value| value.len().div_ceil(8)).max().unwrap_or(0);
    let mut sums = vec![0u64; words];
    for value in values {
        for (sum, word) in sums.iter_mut().zip(value.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            *sum = sum.wrapping_add(u64::from_le_bytes(bytes));
        }
    }
    sums.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Elements compared of one map.
const ENTRIES_MAX: usize = 100_000;
