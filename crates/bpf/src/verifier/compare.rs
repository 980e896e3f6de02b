//! Conditional jumps on numbers: known outcomes, and the knowledge that each outcome adds.
//!
//! The kernel's `is_scalar_branch_taken` and `regs_refine_cond_op`.

use crate::insn::{
    BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JLE, BPF_JLT, BPF_JNE, BPF_JSET, BPF_JSGE, BPF_JSGT, BPF_JSLE,
    BPF_JSLT,
};

use super::scalar::Scalar;
use super::tnum::Tnum;

/// The views a comparison of one width uses, widened to 64 bits.
struct View {
    tnum: Tnum,
    umin: u64,
    umax: u64,
    smin: i64,
    smax: i64,
}

impl View {
    fn of(s: &Scalar, is32: bool) -> Self {
        if !is32 {
            return View { tnum: s.tnum, umin: s.umin, umax: s.umax, smin: s.smin, smax: s.smax };
        }
        View {
            tnum: s.tnum.subreg(),
            umin: s.u32_min.into(),
            umax: s.u32_max.into(),
            smin: s.s32_min.into(),
            smax: s.s32_max.into(),
        }
    }

    fn disjoint(&self, other: &View) -> bool {
        !self.tnum.overlaps(other.tnum)
            || self.umin > other.umax
            || self.umax < other.umin
            || self.smin > other.smax
            || self.smax < other.smin
    }
}

/// Whether `a OP b` always (`Some(true)`) or never holds.
pub(crate) fn outcome(a: &Scalar, b: &Scalar, op: u8, is32: bool) -> Option<bool> {
    let (x, y) = (View::of(a, is32), View::of(b, is32));
    match op {
        BPF_JEQ => equal(a, b, &x, &y),
        BPF_JNE => equal(a, b, &x, &y).map(|equal| !equal),
        BPF_JSET => any_bit(&x, &y),
        BPF_JGT => greater(x.umin, x.umax, y.umin, y.umax),
        BPF_JLE => greater(x.umin, x.umax, y.umin, y.umax).map(|greater| !greater),
        BPF_JLT => greater(y.umin, y.umax, x.umin, x.umax),
        BPF_JGE => greater(y.umin, y.umax, x.umin, x.umax).map(|less| !less),
        BPF_JSGT => greater(x.smin, x.smax, y.smin, y.smax),
        BPF_JSLE => greater(x.smin, x.smax, y.smin, y.smax).map(|greater| !greater),
        BPF_JSLT => greater(y.smin, y.smax, x.smin, x.smax),
        BPF_JSGE => greater(y.smin, y.smax, x.smin, x.smax).map(|less| !less),
        _ => None,
    }
}

fn equal(a: &Scalar, b: &Scalar, x: &View, y: &View) -> Option<bool> {
    if x.tnum.is_const() && y.tnum.is_const() {
        return Some(x.tnum.value == y.tnum.value);
    }
    // Unequal halves are unequal numbers.
    let halves = View::of(a, true).disjoint(&View::of(b, true));
    (x.disjoint(y) || halves).then_some(false)
}

fn any_bit(x: &View, y: &View) -> Option<bool> {
    // Bits known to be set on one side and tested by a constant on the other.
    let (value, bits) = match (x.tnum.is_const(), y.tnum.is_const()) {
        (_, true) => (x.tnum, y.tnum.value),
        (true, false) => (y.tnum, x.tnum.value),
        _ => return None,
    };
    if value.value & bits != 0 {
        return Some(true);
    }
    (value.max() & bits == 0).then_some(false)
}

fn greater<T: PartialOrd + Copy>(min: T, max: T, other_min: T, other_max: T) -> Option<bool> {
    if min > other_max {
        return Some(true);
    }
    (max <= other_min).then_some(false)
}

/// Refines both sides if `a OP b` holds (`holds`) or not. False if that is impossible.
pub(crate) fn refine(a: &mut Scalar, b: &mut Scalar, op: u8, is32: bool, holds: bool) -> bool {
    let reversed = if holds { op } else { reverse(op) };
    match reversed {
        BPF_JEQ if is32 => refine_equal_32(a, b),
        BPF_JEQ => refine_equal_64(a, b),
        BPF_JNE => refine_unequal(a, b, is32),
        BPF_JSET => refine_bits(a, b, is32, holds),
        BPF_JLE => refine_unsigned(a, b, is32, false),
        BPF_JLT => refine_unsigned(a, b, is32, true),
        BPF_JGE => refine_unsigned(b, a, is32, false),
        BPF_JGT => refine_unsigned(b, a, is32, true),
        BPF_JSLE => refine_signed(a, b, is32, false),
        BPF_JSLT => refine_signed(a, b, is32, true),
        BPF_JSGE => refine_signed(b, a, is32, false),
        BPF_JSGT => refine_signed(b, a, is32, true),
        _ => {}
    }
    let mut is_possible = true;
    for side in [a, b] {
        side.sync();
        if side.is_contradiction() {
            // Impossible in truth, but the views can't prove it: stay on the safe side
            // (`reg_bounds_sanity_check`).
            *side = Scalar::UNKNOWN;
            is_possible = false;
        }
    }
    is_possible
}

/// The comparison that holds if `op` does not; `JSET` has none and is kept.
fn reverse(op: u8) -> u8 {
    match op {
        BPF_JEQ => BPF_JNE,
        BPF_JNE => BPF_JEQ,
        BPF_JGT => BPF_JLE,
        BPF_JLE => BPF_JGT,
        BPF_JGE => BPF_JLT,
        BPF_JLT => BPF_JGE,
        BPF_JSGT => BPF_JSLE,
        BPF_JSLE => BPF_JSGT,
        BPF_JSGE => BPF_JSLT,
        BPF_JSLT => BPF_JSGE,
        _ => op,
    }
}

fn refine_equal_64(a: &mut Scalar, b: &mut Scalar) {
    let tnum = a.tnum.intersect(b.tnum);
    let both = Scalar {
        tnum,
        umin: a.umin.max(b.umin),
        umax: a.umax.min(b.umax),
        smin: a.smin.max(b.smin),
        smax: a.smax.min(b.smax),
        u32_min: a.u32_min.max(b.u32_min),
        u32_max: a.u32_max.min(b.u32_max),
        s32_min: a.s32_min.max(b.s32_min),
        s32_max: a.s32_max.min(b.s32_max),
    };
    *a = both;
    *b = both;
}

fn refine_equal_32(a: &mut Scalar, b: &mut Scalar) {
    let tnum = a.tnum.subreg().intersect(b.tnum.subreg());
    let (u32_min, u32_max) = (a.u32_min.max(b.u32_min), a.u32_max.min(b.u32_max));
    let (s32_min, s32_max) = (a.s32_min.max(b.s32_min), a.s32_max.min(b.s32_max));
    for side in [a, b] {
        side.tnum = side.tnum.with_subreg(tnum);
        (side.u32_min, side.u32_max) = (u32_min, u32_max);
        (side.s32_min, side.s32_max) = (s32_min, s32_max);
    }
}

/// A range that starts or ends at the excluded constant gets shorter.
fn refine_unequal(a: &mut Scalar, b: &mut Scalar, is32: bool) {
    let constant = |s: &Scalar| {
        if is32 { s.const_subreg().map(u64::from) } else { s.is_const().then_some(s.tnum.value) }
    };
    let (side, excluded) = match (constant(a), constant(b)) {
        (_, Some(value)) => (a, value),
        (Some(value), None) => (b, value),
        _ => return,
    };
    if is32 {
        let value = excluded as u32;
        trim(&mut side.u32_min, &mut side.u32_max, value, u32::wrapping_add, u32::wrapping_sub, 1);
        let value = value as i32;
        trim(&mut side.s32_min, &mut side.s32_max, value, i32::wrapping_add, i32::wrapping_sub, 1);
    } else {
        let value = excluded;
        trim(&mut side.umin, &mut side.umax, value, u64::wrapping_add, u64::wrapping_sub, 1);
        let value = value as i64;
        trim(&mut side.smin, &mut side.smax, value, i64::wrapping_add, i64::wrapping_sub, 1);
    }
}

fn trim<T: PartialEq + Copy>(
    min: &mut T,
    max: &mut T,
    excluded: T,
    add: impl Fn(T, T) -> T,
    sub: impl Fn(T, T) -> T,
    one: T,
) {
    if *min == *max {
        return;
    }
    if *min == excluded {
        *min = add(*min, one);
    }
    if *max == excluded {
        *max = sub(*max, one);
    }
}

fn refine_bits(a: &mut Scalar, b: &mut Scalar, is32: bool, holds: bool) {
    let constant = |s: &Scalar| {
        if is32 { s.const_subreg().map(u64::from) } else { s.is_const().then_some(s.tnum.value) }
    };
    let (side, bits) = match (constant(a), constant(b)) {
        (_, Some(bits)) => (a, bits),
        (Some(bits), None) => (b, bits),
        _ => return,
    };
    if holds {
        // Some bit is set; it is known which one only if there is just one candidate.
        if bits.is_power_of_two() {
            side.tnum = side.tnum.or(Tnum::constant(bits));
        }
    } else {
        // From the bits alone, as in the kernel: in unreachable code, ranges may contradict them.
        *side = Scalar::from_tnum(side.tnum.and(Tnum::constant(!bits)));
    }
}

/// Refines both sides by `a <= b`, or `a < b` if `strict`.
fn refine_unsigned(a: &mut Scalar, b: &mut Scalar, is32: bool, strict: bool) {
    if is32 {
        let step = u32::from(strict);
        let (max, min) = (b.u32_max.saturating_sub(step), a.u32_min.saturating_add(step));
        a.u32_max = a.u32_max.min(max);
        b.u32_min = b.u32_min.max(min);
    } else {
        let step = u64::from(strict);
        let (max, min) = (b.umax.saturating_sub(step), a.umin.saturating_add(step));
        a.umax = a.umax.min(max);
        b.umin = b.umin.max(min);
    }
}

/// As [`refine_unsigned`], signed.
fn refine_signed(a: &mut Scalar, b: &mut Scalar, is32: bool, strict: bool) {
    if is32 {
        let step = i32::from(strict);
        let (max, min) = (b.s32_max.saturating_sub(step), a.s32_min.saturating_add(step));
        a.s32_max = a.s32_max.min(max);
        b.s32_min = b.s32_min.max(min);
    } else {
        let step = i64::from(strict);
        let (max, min) = (b.smax.saturating_sub(step), a.smin.saturating_add(step));
        a.smax = a.smax.min(max);
        b.smin = b.smin.max(min);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: [u8; 11] = [
        BPF_JEQ, BPF_JNE, BPF_JSET, BPF_JGT, BPF_JGE, BPF_JLT, BPF_JLE, BPF_JSGT, BPF_JSGE,
        BPF_JSLT, BPF_JSLE,
    ];

    fn concrete(op: u8, a: u64, b: u64, is32: bool) -> bool {
        let (a, b) = if is32 { (u64::from(a as u32), u64::from(b as u32)) } else { (a, b) };
        let (sa, sb) =
            if is32 { (i64::from(a as i32), i64::from(b as i32)) } else { (a as i64, b as i64) };
        match op {
            BPF_JEQ => a == b,
            BPF_JNE => a != b,
            BPF_JSET => a & b != 0,
            BPF_JGT => a > b,
            BPF_JGE => a >= b,
            BPF_JLT => a < b,
            BPF_JLE => a <= b,
            BPF_JSGT => sa > sb,
            BPF_JSGE => sa >= sb,
            BPF_JSLT => sa < sb,
            _ => sa <= sb,
        }
    }

    fn holds(s: &Scalar, n: u64) -> bool {
        n & !s.tnum.mask == s.tnum.value
            && (s.umin..=s.umax).contains(&n)
            && (s.smin..=s.smax).contains(&(n as i64))
            && (s.u32_min..=s.u32_max).contains(&(n as u32))
            && (s.s32_min..=s.s32_max).contains(&(n as i32))
    }

    #[test]
    fn outcomes_and_refinements_hold_concrete_numbers() {
        let edges = [0u64, 1, 2, 7, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, u64::MAX >> 1]
            .into_iter()
            .chain([1 << 63, u64::MAX - 1, u64::MAX, 0xffff_ffff_8000_0000]);
        let edges: Vec<u64> = edges.collect();
        for &low in &edges {
            for &high in edges.iter().filter(|&&high| high >= low) {
                for &other in &edges {
                    for op in OPS {
                        for is32 in [false, true] {
                            check_one(low, high, other, op, is32);
                        }
                    }
                }
            }
        }
    }

    fn check_one(low: u64, high: u64, other: u64, op: u8, is32: bool) {
        let range = Scalar::unsigned_range(low, high);
        for right in [Scalar::constant(other), Scalar::unsigned_range(other / 2, other)] {
            for x in [low, high, low / 2 + high / 2] {
                if !holds(&range, x) {
                    continue;
                }
                let truth = concrete(op, x, other, is32);
                if let Some(known) = outcome(&range, &right, op, is32) {
                    assert_eq!(known, truth, "{op:x} {is32} {x:x} {other:x}");
                }
                let (mut a, mut b) = (range, right);
                refine(&mut a, &mut b, op, is32, truth);
                assert!(holds(&a, x), "{op:x} {is32} {truth} {x:x} {other:x} {a:?}");
                assert!(holds(&b, other), "{op:x} {is32} {truth} {x:x} {other:x} {b:?}");
            }
        }
    }
}
