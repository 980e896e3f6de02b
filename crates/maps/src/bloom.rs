//! BLOOM_FILTER: tells whether a value may have been pushed, or certainly was not.
//!
//! Kernel counterpart: `kernel/bpf/bloom_filter.c`, whose sizes and hashes are used here, so that a
//! filter made with `BPF_F_ZERO_SEED` errs on the same values.

use std::hash::{BuildHasher, RandomState};

use towpath_bpf::{Errno, MapDef};

use crate::flags::{BPF_ANY, BPF_F_ZERO_SEED};
use crate::hash::jhash;
use crate::memory::Region;
use crate::store::Store;
use crate::sync::Ordering;
use crate::user::Value;

/// Number of hashes if `map_extra` gives none.
const HASHES_DEFAULT: u32 = 5;

/// A bloom filter.
#[derive(Debug)]
#[doc(alias = "BPF_MAP_TYPE_BLOOM_FILTER")]
pub(crate) struct Bloom {
    bits: Region,
    /// Number of bits, a power of two, minus one.
    mask: u32,
    hashes: u32,
    seed: u32,
}

impl Bloom {
    pub(crate) fn new(def: &MapDef) -> Result<Self, Errno> {
        let extra = (def.map_extra & 0xf) as u32;
        let hashes = if extra == 0 { HASHES_DEFAULT } else { extra };
        let mask = mask_of(def.max_entries, hashes);
        let zero_seed = def.flags & BPF_F_ZERO_SEED != 0;
        let seed = if zero_seed { 0 } else { RandomState::new().hash_one(0u32) as u32 };
        Ok(Bloom { bits: Region::new((u64::from(mask) + 1) / 8)?, mask, hashes, seed })
    }

    fn bits_of<'a>(&'a self, value: &'a [u8]) -> impl Iterator<Item = (usize, u64)> + 'a {
        (0..self.hashes).map(|index| {
            let bit = jhash(value, self.seed.wrapping_add(index)) & self.mask;
            ((bit / 64 * 8) as usize, 1 << (bit % 64))
        })
    }
}

/// The number of bits is entries x hashes x 7/5 (about 1 / ln 2), rounded up to a power of two.
fn mask_of(entries: u32, hashes: u32) -> u32 {
    let wanted = entries.checked_mul(hashes).and_then(|bits| (bits / 5).checked_mul(7));
    match wanted {
        Some(bits) if bits <= 64 => 63,
        Some(bits) if bits <= 1 << 31 => bits.next_power_of_two() - 1,
        _ => u32::MAX,
    }
}

impl Store for Bloom {
    fn push(&self, value: &[u8], flags: u64) -> Result<(), Errno> {
        if flags != BPF_ANY {
            return Err(Errno::EINVAL);
        }
        for (offset, bit) in self.bits_of(value) {
            self.bits.word(offset).fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    fn peek(&self, value: &mut [u8]) -> Result<(), Errno> {
        let held = |(offset, bit)| self.bits.word(offset).load(Ordering::Relaxed) & bit != 0;
        if self.bits_of(value).all(held) { Ok(()) } else { Err(Errno::ENOENT) }
    }

    fn write(&self, _key: &[u8], value: &Value, flags: u64) -> Result<(), Errno> {
        self.push(value.bytes(), flags)
    }
}

#[cfg(test)]
mod tests {
    use towpath_bpf::program::MapType;

    use crate::testing::def;

    use super::*;

    #[test]
    fn what_was_pushed_is_found_and_little_else() {
        let bloom = Bloom::new(&def(MapType::BloomFilter, 0, 8, 1000, BPF_F_ZERO_SEED)).unwrap();
        assert_eq!(bloom.mask, 8191);
        for value in 0u64..1000 {
            bloom.push(&value.to_ne_bytes(), BPF_ANY).unwrap();
        }
        let found = |value: u64| bloom.peek(&mut value.to_ne_bytes()).is_ok();
        assert!((0..1000).all(found));
        let wrong = (1000..11_000).filter(|&value| found(value)).count();
        assert!(wrong < 400, "{wrong} of 10000 found that were never pushed");
        assert_eq!(bloom.push(&[0; 8], 1), Err(Errno::EINVAL));
    }

    #[test]
    fn sizes_are_the_kernels() {
        assert_eq!(mask_of(1, 5), 63);
        assert_eq!(mask_of(1000, 5), 8191);
        assert_eq!(mask_of(u32::MAX, 5), u32::MAX);
    }
}
