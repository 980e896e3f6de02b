//! What the tests of several kinds share.

use towpath_bpf::MapDef;
use towpath_bpf::program::MapType;

/// A definition with sizes and flags only.
pub(crate) fn def(kind: MapType, key: u32, value: u32, entries: u32, flags: u32) -> MapDef {
    MapDef { flags, ..MapDef::new(format!("a_{}", kind.name()), kind, key, value, entries) }
}

/// A small generator with a fixed start (xorshift64*), so that failures repeat.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}
