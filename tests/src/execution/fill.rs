//! Elements for the maps of both sides, so that programs find something in them.
//!
//! Most programs do nothing until somebody puts addresses, ports or limits into their maps. Keys
//! are cut out of the packets where addresses and ports usually are, values are small numbers.

use towpath_bpf::Errno;
use towpath_bpf::program::MapType;
use towpath_kernel::KernelMap;
use towpath_maps::{Map, Value};

use super::Mismatch;
use crate::random::Random;

/// Fills one map on both sides; both must answer each update alike.
pub(super) fn fill(
    theirs: &KernelMap,
    ours: &Map,
    packets: &[Vec<u8>],
    random: &mut Random,
) -> Option<Mismatch> {
    if ours.def().section.is_some() || !is_fillable(ours.kind()) {
        return None;
    }
    for packet in packets.iter().take(ELEMENTS) {
        let key = key(ours, packet, random);
        let value = value(ours, random);
        let theirs_said = theirs.update(&key, &value, 0);
        let ours_said = ours.user().update(&key, &Value::One(value), 0);
        if theirs_said != ours_said {
            let text = |said: Result<(), Errno>| format!("update of {key:02x?}: {said:?}");
            return Some(Mismatch {
                kind: format!("map {}", ours.name()),
                packet: 0,
                kernel: text(theirs_said),
                ours: text(ours_said),
            });
        }
    }
    None
}

/// Per-CPU maps have other numbers of values on the two sides; of the rest, those whose elements
/// are data or interfaces.
fn is_fillable(kind: MapType) -> bool {
    matches!(
        kind,
        MapType::Hash
            | MapType::Array
            | MapType::LruHash
            | MapType::LpmTrie
            | MapType::Devmap
            | MapType::DevmapHash
    )
}

fn key(map: &Map, packet: &[u8], random: &mut Random) -> Vec<u8> {
    let size = map.key_size() as usize;
    if matches!(map.kind(), MapType::Array | MapType::Devmap) {
        let index = random.below(map.max_entries().min(64) as usize) as u32;
        return index.to_le_bytes().to_vec();
    }
    // Ethernet addresses, IPv4 addresses, ports, IPv6 addresses; then wherever.
    let anywhere = random.below(64);
    let start = *random.pick(&[0, 6, 26, 30, 34, 36, 22, 38, anywhere]);
    let mut key: Vec<u8> = packet.iter().copied().skip(start).take(size).collect();
    key.resize(size, 0);
    if map.kind() == MapType::LpmTrie && size > 4 {
        let bits = random.below((size - 4) * 8 + 1) as u32;
        key[..4].copy_from_slice(&bits.to_le_bytes());
    }
    key
}

/// Small numbers in 32-bit words; the only interface there is, for a devmap.
fn value(map: &Map, random: &mut Random) -> Vec<u8> {
    let size = map.value_size() as usize;
    if matches!(map.kind(), MapType::Devmap | MapType::DevmapHash) {
        let mut value = 1u32.to_le_bytes().to_vec();
        value.resize(size, 0);
        return value;
    }
    let mut value = Vec::with_capacity(size + 4);
    while value.len() < size {
        value.extend((random.below(6) as u32).to_le_bytes());
    }
    value.truncate(size);
    value
}

/// Elements put into each map.
const ELEMENTS: usize = 48;
