//! Tristate numbers: the knowledge about each bit of a value.
//!
//! A bit is known 0, known 1 or unknown; arithmetic keeps as much knowledge as possible. The
//! abstract domain is the kernel's `kernel/bpf/tnum.c` (Vishwanathan et al., "Sound, Precise, and
//! Fast Abstract Interpretation with Tristate Numbers", CGO 2022): bounds and tnums refine each
//! other, so a program accepted there needs the same precision here.

/// `value` has the known ones, `mask` the unknown bits; the two never overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tnum {
    pub(crate) value: u64,
    pub(crate) mask: u64,
}

impl Tnum {
    /// All bits are unknown.
    pub(crate) const UNKNOWN: Tnum = Tnum { value: 0, mask: u64::MAX };

    /// Exactly `value`.
    pub(crate) const fn constant(value: u64) -> Self {
        Tnum { value, mask: 0 }
    }

    /// The smallest tnum that holds every number of `min..=max`.
    pub(crate) fn range(min: u64, max: u64) -> Self {
        let differing_bits = 64 - (min ^ max).leading_zeros();
        if differing_bits > 63 {
            return Tnum::UNKNOWN;
        }
        let delta = (1u64 << differing_bits) - 1;
        Tnum { value: min & !delta, mask: delta }
    }

    pub(crate) fn is_const(self) -> bool {
        self.mask == 0
    }

    pub(crate) fn equals_const(self, value: u64) -> bool {
        self.mask == 0 && self.value == value
    }

    pub(crate) fn is_unknown(self) -> bool {
        self.mask == u64::MAX
    }

    /// The largest possible number.
    pub(crate) fn max(self) -> u64 {
        self.value | self.mask
    }

    /// The smallest possible number above `floor`; `floor` itself if there is none.
    pub(crate) fn next_above(self, floor: u64) -> u64 {
        if floor >= self.max() {
            return floor;
        }
        // The highest known bit that differs decides: bits above it are kept from `floor`. If the
        // number has the 1, it is already larger, and all unknown bits below are 0. If `floor` has
        // the 1, the next unknown 0 above must become 1.
        let differs = (floor & !self.mask) ^ self.value;
        let wrong = 64 - differs.leading_zeros();
        let below = if wrong == 64 { u64::MAX } else { (1u64 << wrong) - 1 };
        let top = (1u64 << wrong.saturating_sub(1)) & differs;
        if top & self.value != 0 {
            return (floor & self.mask & !below) | self.value;
        }
        // The unknown bits above `wrong`, counted up by one.
        let fixed = !self.mask | below;
        let counted = (floor | fixed).wrapping_add(1) & self.mask & !below;
        counted | self.value
    }

    pub(crate) fn lshift(self, shift: u32) -> Self {
        Tnum { value: self.value << (shift & 63), mask: self.mask << (shift & 63) }
    }

    pub(crate) fn rshift(self, shift: u32) -> Self {
        Tnum { value: self.value >> (shift & 63), mask: self.mask >> (shift & 63) }
    }

    /// Arithmetic right shift of a number of `bits` (32 or 64) bits.
    pub(crate) fn arshift(self, shift: u32, bits: u32) -> Self {
        if bits == 32 {
            let value = ((self.value as u32 as i32) >> (shift & 31)) as u32;
            let mask = ((self.mask as u32 as i32) >> (shift & 31)) as u32;
            return Tnum { value: u64::from(value), mask: u64::from(mask) };
        }
        let value = ((self.value as i64) >> (shift & 63)) as u64;
        let mask = ((self.mask as i64) >> (shift & 63)) as u64;
        Tnum { value, mask }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        let sum_masks = self.mask.wrapping_add(other.mask);
        let sum_values = self.value.wrapping_add(other.value);
        let sigma = sum_masks.wrapping_add(sum_values);
        let mask = (sigma ^ sum_values) | self.mask | other.mask;
        Tnum { value: sum_values & !mask, mask }
    }

    pub(crate) fn sub(self, other: Self) -> Self {
        let difference = self.value.wrapping_sub(other.value);
        let alpha = difference.wrapping_add(self.mask);
        let beta = difference.wrapping_sub(other.mask);
        let mask = (alpha ^ beta) | self.mask | other.mask;
        Tnum { value: difference & !mask, mask }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        let alpha = self.value | self.mask;
        let beta = other.value | other.mask;
        let value = self.value & other.value;
        Tnum { value, mask: alpha & beta & !value }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        let value = self.value | other.value;
        let mask = self.mask | other.mask;
        Tnum { value, mask: mask & !value }
    }

    pub(crate) fn xor(self, other: Self) -> Self {
        let mask = self.mask | other.mask;
        Tnum { value: (self.value ^ other.value) & !mask, mask }
    }

    /// Long multiplication; an unknown bit of `self` contributes either 0 or the shifted `other`.
    pub(crate) fn mul(self, other: Self) -> Self {
        let (mut a, mut b) = (self, other);
        let mut sum = Tnum::constant(0);
        while a.value != 0 || a.mask != 0 {
            if a.value & 1 != 0 {
                sum = sum.add(b);
            } else if a.mask & 1 != 0 {
                sum = sum.union(sum.add(b));
            }
            a = a.rshift(1);
            b = b.lshift(1);
        }
        sum
    }

    /// Whether both share a number.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let known = !self.mask & !other.mask;
        (self.value & known) == (other.value & known)
    }

    /// The knowledge of both; meaningful only if they overlap.
    pub(crate) fn intersect(self, other: Self) -> Self {
        let value = self.value | other.value;
        let mask = self.mask & other.mask;
        Tnum { value: value & !mask, mask }
    }

    /// A tnum that includes every number of either.
    pub(crate) fn union(self, other: Self) -> Self {
        let value = self.value & other.value;
        let mask = (self.value ^ other.value) | self.mask | other.mask;
        Tnum { value: value & !mask, mask }
    }

    /// The low `bytes` bytes, zero-extended.
    pub(crate) fn cast(self, bytes: u32) -> Self {
        if bytes >= 8 {
            return self;
        }
        let keep = (1u64 << (bytes * 8)) - 1;
        Tnum { value: self.value & keep, mask: self.mask & keep }
    }

    /// Whether every number is a multiple of `size` (a power of two).
    pub(crate) fn is_aligned(self, size: u64) -> bool {
        (self.value | self.mask) & size.wrapping_sub(1) == 0
    }

    /// Whether every number of `other` is one of `self`.
    pub(crate) fn contains(self, other: Self) -> bool {
        other.mask & !self.mask == 0 && self.value == (other.value & !self.mask)
    }

    /// The low 32 bits.
    pub(crate) fn subreg(self) -> Self {
        self.cast(4)
    }

    /// The low 32 bits cleared.
    pub(crate) fn clear_subreg(self) -> Self {
        self.rshift(32).lshift(32)
    }

    /// The low 32 bits taken from `subreg`.
    pub(crate) fn with_subreg(self, subreg: Self) -> Self {
        self.clear_subreg().or(subreg.subreg())
    }

    pub(crate) fn subreg_is_const(self) -> bool {
        self.subreg().is_const()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tnum of `bits` bits.
    fn all(bits: u32) -> Vec<Tnum> {
        let size = 1u64 << bits;
        let pairs = (0..size).flat_map(|mask| (0..size).map(move |value| (value, mask)));
        pairs.filter(|(v, m)| v & m == 0).map(|(value, mask)| Tnum { value, mask }).collect()
    }

    fn members(t: Tnum) -> impl Iterator<Item = u64> {
        (0..16u64).filter(move |n| n & !t.mask == t.value)
    }

    #[test]
    fn operations_hold_every_concrete_result() {
        for a in all(4) {
            for b in all(4) {
                for x in members(a) {
                    for y in members(b) {
                        let holds = |t: Tnum, n: u64| n & !t.mask == t.value;
                        assert!(holds(a.add(b), x.wrapping_add(y)));
                        assert!(holds(a.sub(b), x.wrapping_sub(y)));
                        assert!(holds(a.and(b), x & y));
                        assert!(holds(a.or(b), x | y));
                        assert!(holds(a.xor(b), x ^ y));
                        assert!(holds(a.mul(b), x.wrapping_mul(y)));
                        assert!(holds(a.union(b), x) && holds(a.union(b), y));
                        if x == y {
                            assert!(a.overlaps(b) && holds(a.intersect(b), x));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_next_number_is_the_smallest_above() {
        for t in all(4) {
            for floor in 0..16 {
                let next = members(t).find(|&n| n > floor);
                assert_eq!(t.next_above(floor), next.unwrap_or(floor), "{t:?} {floor}");
            }
        }
        let signs = Tnum { value: 1, mask: 1 << 63 };
        assert_eq!(signs.next_above(1), 1 | 1 << 63);
        assert_eq!(signs.next_above(0), 1);
        assert_eq!(Tnum::UNKNOWN.next_above(u64::MAX - 1), u64::MAX);
        assert_eq!(Tnum::UNKNOWN.next_above(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_range_holds_its_ends() {
        assert_eq!(Tnum::range(4, 7), Tnum { value: 4, mask: 3 });
        assert_eq!(Tnum::range(0, u64::MAX), Tnum::UNKNOWN);
    }
}
