//! Shared parts of the tests of several kinds.

use towpath_bpf::MapDef;
use towpath_bpf::program::MapType;

/// A definition with sizes and flags only.
pub(crate) fn def(kind: MapType, key: u32, value: u32, entries: u32, flags: u32) -> MapDef {
    MapDef { flags, ..MapDef::new(format!("a_{}", kind.name()), kind, key, value, entries) }
}
