//! Elements for maps, so that programs find some.
//!
//! Most programs do nothing without addresses, ports or limits in their maps. Keys are cut out of
//! the packets at the usual offsets of addresses and ports, values are small numbers.

use towpath_bpf::MapDef;
use towpath_bpf::program::MapType;

use crate::random::Random;

/// Keys and values to put into a map: one for each of the first packets, none for maps that must
/// not be filled. A key may occur twice.
pub fn elements(map: &MapDef, packets: &[Vec<u8>], random: &mut Random) -> Vec<(Vec<u8>, Vec<u8>)> {
    if map.section.is_some() || !is_fillable(map.kind) {
        return Vec::new();
    }
    let element = |packet: &Vec<u8>| {
        let key = key(map, packet, random);
        let value = value(map, random);
        (key, value)
    };
    packets.iter().take(ELEMENTS).map(element).collect()
}

/// Whether a map can be filled: per-CPU maps have other numbers of values in another engine; of the
/// rest, maps whose elements are data or interfaces.
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

fn key(map: &MapDef, packet: &[u8], random: &mut Random) -> Vec<u8> {
    let size = map.key_size as usize;
    if matches!(map.kind, MapType::Array | MapType::Devmap) {
        let index = random.below(map.max_entries.min(64) as usize) as u32;
        return index.to_le_bytes().to_vec();
    }
    // Offsets of Ethernet addresses, IPv4 addresses, ports, IPv6 addresses; then any other.
    let anywhere = random.below(64);
    let start = *random.pick(&[0, 6, 26, 30, 34, 36, 22, 38, anywhere]);
    let mut key: Vec<u8> = packet.iter().copied().skip(start).take(size).collect();
    key.resize(size, 0);
    if map.kind == MapType::LpmTrie && size > 4 {
        let bits = random.below((size - 4) * 8 + 1) as u32;
        key[..4].copy_from_slice(&bits.to_le_bytes());
    }
    key
}

/// Small numbers in 32-bit words; for a devmap the only interface that exists.
fn value(map: &MapDef, random: &mut Random) -> Vec<u8> {
    let size = map.value_size as usize;
    if matches!(map.kind, MapType::Devmap | MapType::DevmapHash) {
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

/// Number of elements for each map.
const ELEMENTS: usize = 48;
