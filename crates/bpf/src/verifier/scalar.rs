//! Ranges of a number: as unsigned and signed, 64 and 32 bits, beside its known bits.
//!
//! There are five views of one set of values. Each operation or comparison is exact for some views
//! and useless for others, so every change ends in [`Scalar::sync`], which lets each view refine
//! the others (the kernel's `reg_bounds_sync`).

use super::tnum::Tnum;

/// The set of values that a number may have: those that all views allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scalar {
    pub(crate) tnum: Tnum,
    pub(crate) umin: u64,
    pub(crate) umax: u64,
    pub(crate) smin: i64,
    pub(crate) smax: i64,
    pub(crate) u32_min: u32,
    pub(crate) u32_max: u32,
    pub(crate) s32_min: i32,
    pub(crate) s32_max: i32,
}

impl Scalar {
    /// Any number.
    pub(crate) const UNKNOWN: Scalar = Scalar {
        tnum: Tnum::UNKNOWN,
        umin: 0,
        umax: u64::MAX,
        smin: i64::MIN,
        smax: i64::MAX,
        u32_min: 0,
        u32_max: u32::MAX,
        s32_min: i32::MIN,
        s32_max: i32::MAX,
    };

    /// Exactly `value`.
    pub(crate) const fn constant(value: u64) -> Self {
        Scalar {
            tnum: Tnum::constant(value),
            umin: value,
            umax: value,
            smin: value as i64,
            smax: value as i64,
            u32_min: value as u32,
            u32_max: value as u32,
            s32_min: value as i32,
            s32_max: value as i32,
        }
    }

    /// `min..=max`, unsigned.
    pub(crate) fn unsigned_range(min: u64, max: u64) -> Self {
        let mut range = Scalar { umin: min, umax: max, ..Scalar::UNKNOWN };
        range.sync();
        range
    }

    /// `min..=max`, signed.
    pub(crate) fn signed_range(min: i64, max: i64) -> Self {
        let mut range = Scalar { smin: min, smax: max, ..Scalar::UNKNOWN };
        range.sync();
        range
    }

    /// The numbers of a tnum.
    pub(crate) fn from_tnum(tnum: Tnum) -> Self {
        let mut range = Scalar { tnum, ..Scalar::UNKNOWN };
        range.sync();
        range
    }

    pub(crate) fn is_const(&self) -> bool {
        self.tnum.is_const()
    }

    /// The low 32 bits, if they are known.
    pub(crate) fn const_subreg(&self) -> Option<u32> {
        self.tnum.subreg_is_const().then_some(self.tnum.value as u32)
    }

    /// The same number with a known lower half (`__mark_reg32_known`).
    pub(crate) fn known_low(&self, value: u64) -> Self {
        let (low, signed) = (value as u32, value as i32);
        let tnum = self.tnum.with_subreg(Tnum::constant(value));
        let mut known = Scalar { tnum, ..*self };
        (known.u32_min, known.u32_max) = (low, low);
        (known.s32_min, known.s32_max) = (signed, signed);
        known.sync();
        known
    }

    /// Forgets the bounds of the 32-bit views (`__mark_reg32_unbounded`).
    pub(crate) fn unbound_32(&mut self) {
        self.s32_min = i32::MIN;
        self.s32_max = i32::MAX;
        self.u32_min = 0;
        self.u32_max = u32::MAX;
    }

    /// Whether a view is empty: the path can't happen, or a rule was imprecise.
    pub(crate) fn is_contradiction(&self) -> bool {
        self.umin > self.umax
            || self.smin > self.smax
            || self.u32_min > self.u32_max
            || self.s32_min > self.s32_max
            || self.const_mismatch()
    }

    /// Whether a constant differs between views (`reg_bounds_sanity_check`).
    fn const_mismatch(&self) -> bool {
        let one_value = self.umin == self.umax && self.smin == self.smax;
        one_value != self.is_const()
            || (one_value && (self.umin != self.tnum.value || self.smin as u64 != self.umin))
    }

    /// Lets every view refine the others.
    pub(crate) fn sync(&mut self) {
        self.bounds_from_tnum();
        // Three rounds: the result of a later step can help an earlier one; further rounds change
        // nothing.
        for _ in 0..3 {
            self.deduce_32_from_64();
            self.deduce_32();
            self.deduce_64();
            self.deduce_64_from_32();
        }
        self.tnum_from_bounds();
        self.bounds_from_tnum();
    }

    fn bounds_from_tnum(&mut self) {
        let Tnum { value, mask } = self.tnum;
        let sign = mask & (1 << 63);
        self.smin = self.smin.max((value | sign) as i64);
        self.smax = self.smax.min((value | (mask & !(1 << 63))) as i64);
        self.umin = self.umin.max(value);
        self.umax = self.umax.min(value | mask);
        self.only_number_in_range();

        let (value, mask) = (self.tnum.value as u32, self.tnum.mask as u32);
        let sign = mask & (1 << 31);
        self.s32_min = self.s32_min.max((value | sign) as i32);
        self.s32_max = self.s32_max.min((value | (mask & !(1 << 31))) as i32);
        self.u32_min = self.u32_min.max(value);
        self.u32_max = self.u32_max.min(value | mask);
    }

    /// Makes the number constant if only one number of the tnum lies within the unsigned range.
    fn only_number_in_range(&mut self) {
        if self.umin > self.umax {
            return;
        }
        let starts = self.umin & !self.tnum.mask == self.tnum.value;
        let first = if starts { self.umin } else { self.tnum.next_above(self.umin) };
        let second = self.tnum.next_above(first);
        // `next_above` gives its argument if the tnum has no further number.
        let only = first <= self.umax && (second == first || second > self.umax);
        if only && (starts || first > self.umin) {
            self.tnum = Tnum::constant(first);
            (self.umin, self.umax) = (first, first);
            (self.smin, self.smax) = (first as i64, first as i64);
        }
    }

    fn tnum_from_bounds(&mut self) {
        let tnum64 = self.tnum.intersect(Tnum::range(self.umin, self.umax));
        let range32 = Tnum::range(u64::from(self.u32_min), u64::from(self.u32_max));
        let tnum32 = tnum64.subreg().intersect(range32);
        self.tnum = tnum64.clear_subreg().or(tnum32);
    }

    /// Bounds the lower half by the lower halves of the bounds, if the upper half is constant.
    fn deduce_32_from_64(&mut self) {
        if self.umin >> 32 == self.umax >> 32 {
            self.refine_u32(self.umin as u32, self.umax as u32);
            if self.umin as i32 <= self.umax as i32 {
                self.refine_s32(self.umin as i32, self.umax as i32);
            }
        }
        if self.smin >> 32 == self.smax >> 32 {
            if self.smin as u32 <= self.smax as u32 {
                self.refine_u32(self.smin as u32, self.smax as u32);
            }
            if self.smin as i32 <= self.smax as i32 {
                self.refine_s32(self.smin as i32, self.smax as i32);
            }
        }
        // The upper half increases by one, and the lower half crosses from negative to positive
        // with it.
        let low_crosses = (self.smin as i32) < 0 && (self.smax as i32) >= 0;
        let upper_steps = ((self.smin >> 32) as u32).wrapping_add(1) == (self.smax >> 32) as u32;
        if upper_steps && low_crosses {
            self.refine_s32(self.smin as i32, self.smax as i32);
        }
    }

    fn deduce_32(&mut self) {
        if self.u32_min as i32 <= self.u32_max as i32 {
            self.refine_s32(self.u32_min as i32, self.u32_max as i32);
        }
        if self.s32_min as u32 <= self.s32_max as u32 {
            self.refine_u32(self.s32_min as u32, self.s32_max as u32);
        } else if self.u32_max < self.s32_min as u32 {
            // The lower half is not negative.
            self.refine_s32(self.u32_min as i32, i32::MAX);
            self.refine_u32(0, self.s32_max as u32);
        } else if (self.s32_max as u32) < self.u32_min {
            // The lower half is negative.
            self.refine_s32(i32::MIN, self.u32_max as i32);
            self.refine_u32(self.s32_min as u32, u32::MAX);
        }
    }

    fn deduce_64(&mut self) {
        if self.umin as i64 <= self.umax as i64 {
            self.refine_s64(self.umin as i64, self.umax as i64);
        }
        if self.smin as u64 <= self.smax as u64 {
            self.refine_u64(self.smin as u64, self.smax as u64);
        } else if self.umax < self.smin as u64 {
            self.refine_s64(self.umin as i64, i64::MAX);
            self.refine_u64(0, self.smax as u64);
        } else if (self.smax as u64) < self.umin {
            self.refine_s64(i64::MIN, self.umax as i64);
            self.refine_u64(self.smin as u64, u64::MAX);
        }
    }

    /// Tightens the ends of the 64-bit ranges by the bounds of the lower half.
    fn deduce_64_from_32(&mut self) {
        const UPPER: u64 = !(u32::MAX as u64);
        let (low_min, low_max) = (u64::from(self.u32_min), u64::from(self.u32_max));
        self.refine_u64((self.umin & UPPER) | low_min, (self.umax & UPPER) | low_max);
        self.refine_s64(
            ((self.smin as u64 & UPPER) | low_min) as i64,
            ((self.smax as u64 & UPPER) | low_max) as i64,
        );
        if self.smin >= i64::from(i32::MIN) && self.smax <= i64::from(i32::MAX) {
            self.refine_s64(i64::from(self.s32_min), i64::from(self.s32_max));
        }
    }

    pub(crate) fn refine_u64(&mut self, min: u64, max: u64) {
        self.umin = self.umin.max(min);
        self.umax = self.umax.min(max);
    }

    pub(crate) fn refine_s64(&mut self, min: i64, max: i64) {
        self.smin = self.smin.max(min);
        self.smax = self.smax.min(max);
    }

    pub(crate) fn refine_u32(&mut self, min: u32, max: u32) {
        self.u32_min = self.u32_min.max(min);
        self.u32_max = self.u32_max.min(max);
    }

    pub(crate) fn refine_s32(&mut self, min: i32, max: i32) {
        self.s32_min = self.s32_min.max(min);
        self.s32_max = self.s32_max.min(max);
    }

    /// Whether every value of `other` is one of `self` (`range_within` plus `tnum_in`).
    pub(crate) fn contains(&self, other: &Scalar) -> bool {
        self.umin <= other.umin
            && self.umax >= other.umax
            && self.smin <= other.smin
            && self.smax >= other.smax
            && self.u32_min <= other.u32_min
            && self.u32_max >= other.u32_max
            && self.s32_min <= other.s32_min
            && self.s32_max >= other.s32_max
            && self.tnum.contains(other.tnum)
    }

    /// Zeroes the upper half (a 32-bit operation wrote the register).
    pub(crate) fn zext_32_to_64(&mut self) {
        self.tnum = self.tnum.subreg();
        self.umin = u64::from(self.u32_min);
        self.umax = u64::from(self.u32_max);
        if self.s32_min >= 0 {
            self.smin = i64::from(self.s32_min);
            self.smax = i64::from(self.s32_max);
        } else {
            self.smin = 0;
            self.smax = i64::from(u32::MAX);
        }
        self.sync();
    }

    /// Truncates to `bytes` bytes and zero-extends (`coerce_reg_to_size`).
    pub(crate) fn truncate(&mut self, bytes: u32) {
        if bytes >= 8 {
            return;
        }
        self.tnum = self.tnum.cast(bytes);
        let mask = (1u64 << (bytes * 8)) - 1;
        if self.umin & !mask == self.umax & !mask {
            self.umin &= mask;
            self.umax &= mask;
        } else {
            self.umin = 0;
            self.umax = mask;
        }
        self.smin = self.umin as i64;
        self.smax = self.umax as i64;
        if bytes < 4 {
            self.unbound_32();
        }
        self.sync();
    }

    /// Sign-extends the low `bytes` bytes to 64 bits (`coerce_reg_to_size_sx`).
    pub(crate) fn sign_extend(&mut self, bytes: u32) {
        let bits = bytes * 8;
        if bits == 0 || bits >= 64 {
            return;
        }
        if self.is_const() {
            let shift = 64 - bits;
            *self = Scalar::constant((((self.tnum.value << shift) as i64) >> shift) as u64);
            return;
        }
        let (type_min, type_max) = (-1i64 << (bits - 1), (1i64 << (bits - 1)) - 1);
        let same_upper = self.smin >> bits == self.smax >> bits;
        let extend = |n: i64| (n << (64 - bits)) >> (64 - bits);
        let (low, high) = (extend(self.smin), extend(self.smax));
        let mut out = Scalar::UNKNOWN;
        if same_upper && (low >= 0) == (high >= 0) {
            (out.smin, out.smax) = (low.min(high), low.max(high));
        } else {
            (out.smin, out.smax) = (type_min, type_max);
        }
        let sign = 1u64 << (bits - 1);
        let low_bits = self.tnum.cast(bytes);
        // The upper bits equal the sign bit, so they are known if it is.
        if low_bits.mask & sign == 0 {
            let upper = if low_bits.value & sign != 0 { !(sign - 1) } else { 0 };
            out.tnum = Tnum { value: low_bits.value | upper, mask: low_bits.mask };
        } else {
            out.tnum = Tnum { value: low_bits.value, mask: low_bits.mask | !(sign - 1) };
        }
        out.sync();
        *self = out;
    }

    /// Sign-extends the low `bytes` bytes to 32 bits, with a zero upper half
    /// (`coerce_subreg_to_size_sx`).
    pub(crate) fn sign_extend_32(&mut self, bytes: u32) {
        self.sign_extend(bytes);
        self.truncate(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_unsigned_range_is_known_in_every_view() {
        let range = Scalar::unsigned_range(3, 200);
        assert_eq!((range.smin, range.smax), (3, 200));
        assert_eq!((range.u32_min, range.s32_max), (3, 200));
        assert_eq!(range.tnum, Tnum { value: 0, mask: 0xff });
        assert!(!range.is_contradiction());
    }

    #[test]
    fn truncation_and_sign_extension_hold_concrete_values() {
        for value in [0u64, 1, 0x7f, 0x80, 0xff, 0x8000, 0xffff_8000, u64::MAX] {
            for bytes in [1u32, 2, 4] {
                let mut range = Scalar::unsigned_range(value.saturating_sub(3), value);
                range.sign_extend(bytes);
                let shift = 64 - bytes * 8;
                let concrete = ((value << shift) as i64) >> shift;
                assert!(range.smin <= concrete && concrete <= range.smax, "{value:x} {bytes}");
                let mut range = Scalar::unsigned_range(value.saturating_sub(3), value);
                range.truncate(bytes);
                let concrete = value & (u64::MAX >> shift);
                assert!(range.umin <= concrete && concrete <= range.umax);
            }
        }
    }

    /// Numbers of 4 bits, which lie at the bottom, at the lower half's sign, at the upper half's
    /// start or at the sign.
    #[test]
    fn what_is_left_is_held_and_no_contradiction() {
        for shift in [0, 28, 32, 60] {
            let pairs = (0..16u64).flat_map(|mask| (0..16u64).map(move |value| (value, mask)));
            for (value, mask) in pairs.filter(|(value, mask)| value & mask == 0) {
                let tnum = Tnum { value: value << shift, mask: mask << shift };
                for (min, max) in (0..16u64).flat_map(|max| (0..=max).map(move |min| (min, max))) {
                    refined_holds(tnum, min << shift, max << shift);
                }
            }
        }
    }

    /// Each way to say that a number of this tnum lies between these.
    fn refined_holds(tnum: Tnum, min: u64, max: u64) {
        let (min32, max32) = (min as u32, max as u32);
        let by = |refine: &dyn Fn(&mut Scalar), is_in: &dyn Fn(u64) -> bool| {
            let mut range = Scalar::from_tnum(tnum);
            refine(&mut range);
            range.sync();
            let shift = tnum.mask.trailing_zeros().min(tnum.value.trailing_zeros()).min(60) & !3;
            let numbers =
                (0..16u64).map(|it| it << shift).filter(|it| it & !tnum.mask == tnum.value);
            for number in numbers.filter(|&it| is_in(it)) {
                assert!(!range.is_contradiction(), "{tnum:?} {min:x} {max:x}: {range:?}");
                assert!(range.contains(&Scalar::constant(number)), "{number:x}: {range:?}");
            }
        };
        by(&|it| it.refine_u64(min, max), &|n| (min..=max).contains(&n));
        by(&|it| it.refine_s64(min as i64, max as i64), &|n| {
            (min as i64..=max as i64).contains(&(n as i64))
        });
        by(&|it| it.refine_u32(min32, max32), &|n| (min32..=max32).contains(&(n as u32)));
        by(&|it| it.refine_s32(min32 as i32, max32 as i32), &|n| {
            (min32 as i32..=max32 as i32).contains(&(n as i32))
        });
    }
}
