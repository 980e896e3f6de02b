//! Arithmetic on sets of numbers: the effect of an ALU instruction on every view of its operand.
//!
//! Additions, subtractions and products are computed in wider integers; a range survives when both
//! of its ends wrap equally often. The kernel's `adjust_scalar_min_max_vals`.

use crate::insn::{
    BPF_ADD, BPF_AND, BPF_ARSH, BPF_LSH, BPF_MUL, BPF_NEG, BPF_OR, BPF_RSH, BPF_SUB, BPF_XOR,
};

use super::scalar::Scalar;
use super::tnum::Tnum;

impl Scalar {
    /// The result of `self OP other`, of 64 bits or (`is64` false) of 32 bits, zero-extended.
    pub(crate) fn alu(&self, op: u8, other: &Scalar, is64: bool) -> Scalar {
        let mut out = match op {
            BPF_ADD => add(self, other),
            BPF_SUB => sub(self, other),
            BPF_NEG => sub(&Scalar::constant(0), self),
            BPF_MUL => mul(self, other),
            BPF_AND => and(self, other),
            BPF_OR => or(self, other),
            BPF_XOR => xor(self, other),
            BPF_LSH | BPF_RSH | BPF_ARSH => match shift_amount(other, is64) {
                Some(amount) => shift(self, op, amount, is64),
                None => return Scalar::UNKNOWN,
            },
            // After divisions and shifts by an unknown amount the kernel knows nothing at all, not
            // even that 32-bit results are zero-extended (`is_safe_to_compute_dst_reg_range`).
            _ => return Scalar::UNKNOWN,
        };
        if !is64 {
            out.zext_32_to_64();
        }
        out.sync();
        if out.is_contradiction() {
            // The operand was a contradiction: the path can't happen, and any claim is right.
            out = Scalar::UNKNOWN;
            if !is64 {
                out.truncate(4);
            }
        }
        out
    }
}

/// A shift by a known amount below the width; others are not modelled.
fn shift_amount(other: &Scalar, is64: bool) -> Option<u32> {
    let (amount, width) = if is64 {
        (other.is_const().then_some(other.tnum.value)?, 64)
    } else {
        (u64::from(other.const_subreg()?), 32)
    };
    (amount < width).then_some(amount as u32)
}

/// `min..=max` reduced to unsigned `bits`-bit numbers, if both ends wrap equally often.
fn wrap_unsigned(min: i128, max: i128, bits: u32) -> Option<(u64, u64)> {
    let mask = (1i128 << bits) - 1;
    (min >> bits == max >> bits).then_some(((min & mask) as u64, (max & mask) as u64))
}

/// As [`wrap_unsigned`], for signed numbers.
fn wrap_signed(min: i128, max: i128, bits: u32) -> Option<(i64, i64)> {
    let half = 1i128 << (bits - 1);
    let (low, high) = wrap_unsigned(min + half, max + half, bits)?;
    Some(((i128::from(low) - half) as i64, (i128::from(high) - half) as i64))
}

/// A scalar with `tnum` and the given ranges; `None` stands for an unknown range.
fn with_ranges(
    tnum: Tnum,
    u64s: Option<(u64, u64)>,
    s64s: Option<(i64, i64)>,
    u32s: Option<(u64, u64)>,
    s32s: Option<(i64, i64)>,
) -> Scalar {
    let mut out = Scalar { tnum, ..Scalar::UNKNOWN };
    if let Some((min, max)) = u64s {
        (out.umin, out.umax) = (min, max);
    }
    if let Some((min, max)) = s64s {
        (out.smin, out.smax) = (min, max);
    }
    if let Some((min, max)) = u32s {
        (out.u32_min, out.u32_max) = (min as u32, max as u32);
    }
    if let Some((min, max)) = s32s {
        (out.s32_min, out.s32_max) = (min as i32, max as i32);
    }
    out
}

fn add(a: &Scalar, b: &Scalar) -> Scalar {
    let wide = |x: u64, y: u64| i128::from(x) + i128::from(y);
    let wide_signed = |x: i64, y: i64| i128::from(x) + i128::from(y);
    with_ranges(
        a.tnum.add(b.tnum),
        wrap_unsigned(wide(a.umin, b.umin), wide(a.umax, b.umax), 64),
        wrap_signed(wide_signed(a.smin, b.smin), wide_signed(a.smax, b.smax), 64),
        wrap_unsigned(
            wide(a.u32_min.into(), b.u32_min.into()),
            wide(a.u32_max.into(), b.u32_max.into()),
            32,
        ),
        wrap_signed(
            wide_signed(a.s32_min.into(), b.s32_min.into()),
            wide_signed(a.s32_max.into(), b.s32_max.into()),
            32,
        ),
    )
}

fn sub(a: &Scalar, b: &Scalar) -> Scalar {
    let wide = |x: u64, y: u64| i128::from(x) - i128::from(y);
    let wide_signed = |x: i64, y: i64| i128::from(x) - i128::from(y);
    with_ranges(
        a.tnum.sub(b.tnum),
        wrap_unsigned(wide(a.umin, b.umax), wide(a.umax, b.umin), 64),
        wrap_signed(wide_signed(a.smin, b.smax), wide_signed(a.smax, b.smin), 64),
        wrap_unsigned(
            wide(a.u32_min.into(), b.u32_max.into()),
            wide(a.u32_max.into(), b.u32_min.into()),
            32,
        ),
        wrap_signed(
            wide_signed(a.s32_min.into(), b.s32_max.into()),
            wide_signed(a.s32_max.into(), b.s32_min.into()),
            32,
        ),
    )
}

fn mul(a: &Scalar, b: &Scalar) -> Scalar {
    let unsigned = |min: Option<u64>, max: Option<u64>| min.zip(max);
    let u32s = unsigned(
        u64::from(a.u32_min).checked_mul(b.u32_min.into()),
        u64::from(a.u32_max).checked_mul(b.u32_max.into()),
    )
    .filter(|(_, max)| *max <= u64::from(u32::MAX));
    with_ranges(
        a.tnum.mul(b.tnum),
        unsigned(a.umin.checked_mul(b.umin), a.umax.checked_mul(b.umax)),
        signed_product((a.smin, a.smax), (b.smin, b.smax), i64::MIN.into(), i64::MAX.into()),
        u32s,
        signed_product(
            (a.s32_min.into(), a.s32_max.into()),
            (b.s32_min.into(), b.s32_max.into()),
            i32::MIN.into(),
            i32::MAX.into(),
        ),
    )
}

/// The extreme products of two signed ranges, if they fit `min..=max`.
fn signed_product(a: (i64, i64), b: (i64, i64), min: i128, max: i128) -> Option<(i64, i64)> {
    let wide = |x: i64, y: i64| i128::from(x) * i128::from(y);
    let products = [wide(a.0, b.0), wide(a.0, b.1), wide(a.1, b.0), wide(a.1, b.1)];
    let low = products.iter().copied().min()?;
    let high = products.iter().copied().max()?;
    (low >= min && high <= max).then_some((low as i64, high as i64))
}

/// A scalar with the given unsigned bounds; `sync` derives signed bounds where it can.
fn bitwise(tnum: Tnum, u64s: (u64, u64), u32s: (u32, u32)) -> Scalar {
    with_ranges(tnum, Some(u64s), None, Some((u32s.0.into(), u32s.1.into())), None)
}

fn and(a: &Scalar, b: &Scalar) -> Scalar {
    let tnum = a.tnum.and(b.tnum);
    let low = tnum.value as u32;
    bitwise(tnum, (tnum.value, a.umax.min(b.umax)), (low, a.u32_max.min(b.u32_max)))
}

fn or(a: &Scalar, b: &Scalar) -> Scalar {
    let tnum = a.tnum.or(b.tnum);
    let high = tnum.max();
    bitwise(tnum, (a.umin.max(b.umin), high), (a.u32_min.max(b.u32_min), high as u32))
}

fn xor(a: &Scalar, b: &Scalar) -> Scalar {
    let tnum = a.tnum.xor(b.tnum);
    let high = tnum.max();
    bitwise(tnum, (tnum.value, high), (tnum.value as u32, high as u32))
}

fn shift(a: &Scalar, op: u8, amount: u32, is64: bool) -> Scalar {
    match op {
        BPF_LSH => shift_left(a, amount, is64),
        BPF_RSH => shift_right(a, amount, is64),
        _ => shift_right_arithmetic(a, amount, is64),
    }
}

fn shift_left(a: &Scalar, amount: u32, is64: bool) -> Scalar {
    let mut out = Scalar { tnum: a.tnum.lshift(amount), ..Scalar::UNKNOWN };
    if amount < 32 && u64::from(a.u32_max) << amount <= u64::from(u32::MAX) {
        (out.u32_min, out.u32_max) = (a.u32_min << amount, a.u32_max << amount);
    }
    if !is64 {
        out.tnum = a.tnum.subreg().lshift(amount).subreg();
        return out;
    }
    if amount == 32 {
        // Compilers sign-extend by `(x << 32) s>> 32`: the signed low half becomes the value.
        (out.smin, out.smax) = (i64::from(a.s32_min) << 32, i64::from(a.s32_max) << 32);
    }
    if u128::from(a.umax) << amount <= u128::from(u64::MAX) {
        (out.umin, out.umax) = (a.umin << amount, a.umax << amount);
    }
    out
}

fn shift_right(a: &Scalar, amount: u32, is64: bool) -> Scalar {
    if is64 {
        let mut out = Scalar { tnum: a.tnum.rshift(amount), ..Scalar::UNKNOWN };
        (out.umin, out.umax) = (a.umin >> amount, a.umax >> amount);
        return out;
    }
    let mut out = Scalar { tnum: a.tnum.subreg().rshift(amount), ..Scalar::UNKNOWN };
    (out.u32_min, out.u32_max) = (a.u32_min >> amount, a.u32_max >> amount);
    out
}

fn shift_right_arithmetic(a: &Scalar, amount: u32, is64: bool) -> Scalar {
    if is64 {
        let mut out = Scalar { tnum: a.tnum.arshift(amount, 64), ..Scalar::UNKNOWN };
        (out.smin, out.smax) = (a.smin >> amount, a.smax >> amount);
        return out;
    }
    let mut out = Scalar { tnum: a.tnum.subreg().arshift(amount, 32), ..Scalar::UNKNOWN };
    (out.s32_min, out.s32_max) = (a.s32_min >> amount, a.s32_max >> amount);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: [u8; 9] =
        [BPF_ADD, BPF_SUB, BPF_MUL, BPF_AND, BPF_OR, BPF_XOR, BPF_LSH, BPF_RSH, BPF_ARSH];

    fn concrete(op: u8, a: u64, b: u64, is64: bool) -> u64 {
        if !is64 {
            let (a, b) = (a as u32, b as u32);
            return u64::from(match op {
                BPF_ADD => a.wrapping_add(b),
                BPF_SUB => a.wrapping_sub(b),
                BPF_MUL => a.wrapping_mul(b),
                BPF_AND => a & b,
                BPF_OR => a | b,
                BPF_XOR => a ^ b,
                BPF_LSH => a << (b & 31),
                BPF_RSH => a >> (b & 31),
                _ => ((a as i32) >> (b & 31)) as u32,
            });
        }
        match op {
            BPF_ADD => a.wrapping_add(b),
            BPF_SUB => a.wrapping_sub(b),
            BPF_MUL => a.wrapping_mul(b),
            BPF_AND => a & b,
            BPF_OR => a | b,
            BPF_XOR => a ^ b,
            BPF_LSH => a << (b & 63),
            BPF_RSH => a >> (b & 63),
            _ => ((a as i64) >> (b & 63)) as u64,
        }
    }

    fn holds(s: &Scalar, n: u64) -> bool {
        n & !s.tnum.mask == s.tnum.value
            && (s.umin..=s.umax).contains(&n)
            && (s.smin..=s.smax).contains(&(n as i64))
            && (s.u32_min..=s.u32_max).contains(&(n as u32))
            && (s.s32_min..=s.s32_max).contains(&(n as i32))
    }

    /// A small deterministic generator, biased to the values where ranges break.
    fn numbers(seed: &mut u64) -> u64 {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let n = *seed >> 33;
        match n % 7 {
            0 => n % 5,
            1 => u64::MAX - n % 5,
            2 => (1 << 31) + n % 5,
            3 => (1u64 << 32).wrapping_sub(n % 3),
            4 => (1 << 63) ^ (n % 4),
            5 => *seed,
            _ => 1 << (n % 64),
        }
    }

    #[test]
    fn every_view_holds_every_concrete_result() {
        let mut seed = 1;
        for _ in 0..60_000 {
            let (a, b, c, d) =
                (numbers(&mut seed), numbers(&mut seed), numbers(&mut seed), numbers(&mut seed));
            let left = if c & 1 == 0 {
                Scalar::unsigned_range(a.min(b), a.max(b))
            } else {
                Scalar::signed_range((a as i64).min(b as i64), (a as i64).max(b as i64))
            };
            assert!(holds(&left, a) && holds(&left, b));
            for op in OPS {
                for is64 in [false, true] {
                    let is_shift = matches!(op, BPF_LSH | BPF_RSH | BPF_ARSH);
                    let right = if is_shift {
                        Scalar::constant(d % 80)
                    } else {
                        Scalar::unsigned_range(c.min(d), c.max(d))
                    };
                    let out = left.alu(op, &right, is64);
                    for x in [a, b] {
                        let y = if is_shift { d % 80 } else { d };
                        let n = concrete(op, x, y, is64);
                        assert!(holds(&out, n), "{op:x} {is64} {x:x} {y:x} {n:x} {out:?}");
                    }
                }
            }
        }
    }
}
