//! Settings that an object leaves open, and reasons for differences between two runs of a program.

use towpath_bpf::map::{Keys, MapType, Values};
use towpath_bpf::{Linked, MapDef};

/// Sets sizes and inner maps that an object leaves to its own loader; true if there were any.
pub fn complete(linked: &mut Linked) -> bool {
    let mut maps: Vec<MapDef> = linked.maps.to_vec();
    let mut changed = false;
    for map in &mut maps {
        let of_maps = map.kind.values() == Values::Map;
        if of_maps && map.inner.is_none() {
            map.inner = Some(Box::new(plain_map("inner", MapType::Array, (4, 4, 1))));
            changed = true;
        }
        let size = size(map.kind);
        if map.max_entries == 0 && size != 0 {
            map.max_entries = size;
            changed = true;
        }
    }
    if changed {
        linked.maps = maps.into();
    }
    changed
}

/// A size that the kernel accepts: rings have a size in bytes, at least a page. 0 stands for one
/// slot for each CPU in an array of events, and is the only size of local storage.
fn size(kind: MapType) -> u32 {
    match (kind.values(), kind.keys()) {
        (Values::Records, _) => RING_BYTES,
        (Values::Events, _) | (_, Keys::Owner) => 0,
        _ => ENTRIES,
    }
}

/// Whether a program reads values that differ from run to run: clock, random numbers, CPU, task,
/// addresses of kernel objects.
pub fn is_volatile(linked: &Linked) -> bool {
    linked.insns.iter().any(|insn| insn.is_helper_call() && VOLATILE_HELPERS.contains(&insn.imm))
}

/// A map without types, flags and first contents; the sizes are those of key and value, and the
/// number of elements.
pub fn plain_map(
    name: &str,
    kind: MapType,
    (key_size, value_size, max_entries): (u32, u32, u32),
) -> MapDef {
    MapDef::new(name, kind, key_size, value_size, max_entries)
}

const ENTRIES: u32 = 64;
const RING_BYTES: u32 = 4096;

const VOLATILE_HELPERS: &[i32] = &[
    5, 7, 8, 14, 15, 16, 17, 22, 35, 42, 55, 80, 112, 113, 114, 115, 118, 120, 123, 125, 141, 148,
    153, 154, 158, 160, 165, 175, 176, 208,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel would refuse a size that breaks a rule, on a machine whose objects leave this
    /// kind of map open.
    #[test]
    fn what_is_left_open_is_given_a_size_that_can_be() {
        for &kind in MapType::ALL {
            let breaks = |(key, value), word| {
                let entries = kind.entries_of(size(kind), 1);
                let def = MapDef::new("open", kind, key, value, entries);
                def.check().is_err_and(|broken| broken.rule.contains(word))
            };
            let mut fitting = SHAPES.iter().filter(|&&shape| !breaks(shape, "_size")).peekable();
            assert!(fitting.peek().is_some(), "{kind:?}: no key and value of SHAPES fit");
            assert!(!fitting.any(|&shape| breaks(shape, "max_entries")), "{kind:?}");
        }
    }

    /// Sizes in bytes of a key and of a value: one of these fits each kind of map.
    const SHAPES: &[(u32, u32)] = &[(4, 4), (0, 0), (0, 4), (4, 8), (4, 16), (8, 8), (16, 64)];
}
