//! The maps that hostile programs share, by index.

use std::sync::{Arc, LazyLock};

use towpath_bpf::MapDef;
use towpath_bpf::btf::TypeId;
use towpath_bpf::program::MapType;
use towpath_workload::plain_map;

use super::types::{GUARDED_BYTES, KEEPER_BYTES, TIMED_BYTES, types};
use crate::programs::arenas;

/// Four values of 64 bytes.
pub const ARRAY: i32 = 0;
/// One value of 64 bytes, which programs address directly.
pub const SINGLE: i32 = 1;
/// Keys of 8 bytes, values of 24.
pub const HASH: i32 = 2;
/// Eight programs or none.
pub const PROGRAMS: i32 = 3;
/// Arrays of exactly four values of 16 bytes, or none.
pub const OUTER: i32 = 4;
/// The same by key, of four values or fewer (`BPF_F_INNER_MAP`).
pub const OUTER_ANY: i32 = 5;
/// A ring of one page.
pub const RING: i32 = 6;
/// An arena.
pub const ARENA: i32 = 7;
/// Values with a lock, a list and a tree.
pub const GUARDED: i32 = 8;
/// Values with pointers to objects; those that are there.
pub const KEEPER: i32 = 9;
/// Values with a timer.
pub const TIMED: i32 = 10;
/// Four values of 16 bytes for each CPU.
pub const PERCPU: i32 = 11;
/// The least recently used go; values of 16 bytes.
pub const LRU: i32 = 12;

/// Bytes of a value of [`ARRAY`] and of [`SINGLE`].
pub(super) const ARRAY_BYTES: u32 = 64;
/// Bytes of a value of [`HASH`].
pub(super) const HASH_BYTES: u32 = 24;
/// Bytes of a value of the maps in [`OUTER`] and [`OUTER_ANY`], of [`PERCPU`] and [`LRU`].
pub(super) const SMALL_BYTES: u32 = 16;
/// Values that the inner maps promise.
pub const INNER_ENTRIES: u32 = 4;
/// Slots of [`PROGRAMS`].
pub const PROGRAM_SLOTS: u32 = 8;

/// The definitions.
pub fn maps() -> &'static Arc<[MapDef]> {
    static MAPS: LazyLock<Arc<[MapDef]>> = LazyLock::new(define);
    &MAPS
}

/// A map that fits into [`OUTER`].
pub fn inner() -> MapDef {
    plain_map("inner", MapType::Array, (4, SMALL_BYTES, INNER_ENTRIES))
}

/// One of so many values that fits into [`OUTER_ANY`].
pub fn inner_of(entries: u32) -> MapDef {
    let def = plain_map("inner_any", MapType::Array, (4, SMALL_BYTES, entries));
    MapDef { flags: F_INNER_MAP, ..def }
}

fn define() -> Arc<[MapDef]> {
    use MapType as T;
    let outer = |name: &str, kind, template: MapDef| {
        let inner = Some(Box::new(template));
        MapDef { inner, ..plain_map(name, kind, (4, 4, 4)) }
    };
    vec![
        plain_map("array", T::Array, (4, ARRAY_BYTES, 4)),
        plain_map("single", T::Array, (4, ARRAY_BYTES, 1)),
        plain_map("hash", T::Hash, (8, HASH_BYTES, 8)),
        plain_map("programs", T::ProgArray, (4, 4, PROGRAM_SLOTS)),
        outer("outer", T::ArrayOfMaps, inner()),
        outer("outer_any", T::HashOfMaps, inner_of(INNER_ENTRIES)),
        plain_map("ring", T::Ringbuf, (0, 0, 4096)),
        arenas::map(),
        typed("guarded", T::Array, GUARDED_BYTES, types().guarded),
        typed("keeper", T::Hash, KEEPER_BYTES, types().keeper),
        typed("timed", T::Array, TIMED_BYTES, types().timed),
        plain_map("percpu", T::PercpuArray, (4, SMALL_BYTES, 4)),
        plain_map("lru", T::LruHash, (4, SMALL_BYTES, 8)),
    ]
    .into()
}

fn typed(name: &str, kind: MapType, bytes: u32, value_type: TypeId) -> MapDef {
    let flags = if kind == MapType::Hash { F_NO_PREALLOC } else { 0 };
    let types = types();
    let (key_type, btf) = (types.key, Some(Arc::clone(&types.btf)));
    MapDef { flags, key_type, value_type, btf, ..plain_map(name, kind, (4, bytes, 2)) }
}

const F_NO_PREALLOC: u32 = 1;
const F_INNER_MAP: u32 = 1 << 12;
