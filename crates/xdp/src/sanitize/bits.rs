//! How undefined bits spread: for each operation, the bits of its result that depend on unset bits.
//!
//! Bits are tracked one by one, as Valgrind's memcheck does ("Using Valgrind to detect undefined
//! value errors with bit-precision", USENIX 2005): a program that sets a bit-field of a byte and
//! masks the rest has not read the masked bits.

use towpath_bpf::insn::{
    BPF_ADD, BPF_ALU64, BPF_AND, BPF_ARSH, BPF_DIV, BPF_JEQ, BPF_JGT, BPF_JLE, BPF_JMP32, BPF_JNE,
    BPF_JSET, BPF_JSGE, BPF_JSGT, BPF_JSLE, BPF_JSLT, BPF_LSH, BPF_MOD, BPF_MOV, BPF_MUL, BPF_NEG,
    BPF_OR, BPF_RSH, BPF_SUB, BPF_XOR, Insn,
};

/// A number of which some bits may be undefined (set in `undefined`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Partial {
    pub(super) value: u64,
    pub(super) undefined: u64,
}

impl Partial {
    /// The smallest and the largest value that it may have.
    fn range(self) -> (u64, u64) {
        (self.value & !self.undefined, self.value | self.undefined)
    }

    /// The same for signed numbers.
    fn signed_range(self) -> (i64, i64) {
        let sign = self.undefined & SIGN;
        let rest = self.undefined & !SIGN;
        let low = (self.value | sign) & !rest;
        let high = (self.value & !sign) | rest;
        (low.cast_signed(), high.cast_signed())
    }

    fn low_half(self) -> Partial {
        Partial { value: self.value & LOW, undefined: self.undefined & LOW }
    }

    fn low_half_extended(self) -> Partial {
        let extend = |half: u64| i64::from(half as u32 as i32).cast_unsigned();
        Partial { value: extend(self.value), undefined: extend(self.undefined) }
    }
}

/// Undefined bits of the result of an arithmetic instruction; byte swaps are [`swapped`].
pub(super) fn arithmetic(insn: Insn, dst: Partial, src: Partial) -> u64 {
    let wide = insn.class() == BPF_ALU64;
    let (dst, src) = if wide { (dst, src) } else { (dst.low_half(), src.low_half()) };
    let all = if wide { u64::MAX } else { LOW };
    let either = dst.undefined | src.undefined;
    if either == 0 {
        return 0;
    }
    let is_same = insn.is_reg_operand() && insn.dst == insn.src;
    let undefined = match insn.op() {
        BPF_MOV => moved(insn.off, src.undefined),
        BPF_XOR | BPF_SUB if is_same => 0,
        BPF_XOR => either,
        BPF_AND => {
            dst.undefined & src.undefined
                | dst.undefined & !src.undefined & src.value
                | src.undefined & !dst.undefined & dst.value
        }
        BPF_OR => {
            dst.undefined & src.undefined
                | dst.undefined & !src.undefined & !src.value
                | src.undefined & !dst.undefined & !dst.value
        }
        BPF_ADD => either | spread(dst.range(), src.range(), u64::wrapping_add),
        BPF_SUB => {
            let (low, high) = src.range();
            either | spread(dst.range(), (high, low), u64::wrapping_sub)
        }
        BPF_NEG => from_lowest(dst.undefined),
        BPF_MUL => product(dst, src),
        BPF_LSH | BPF_RSH | BPF_ARSH => return shifted(insn, dst, src) & all,
        BPF_DIV | BPF_MOD => all,
        _ => 0,
    };
    undefined & all
}

/// Undefined bits of the result of a byte swap or truncation (`BPF_END`).
pub(super) fn swapped(insn: Insn, undefined: u64) -> u64 {
    let swaps = insn.class() == BPF_ALU64 || insn.is_reg_operand();
    match (insn.imm, swaps) {
        (16, false) => u64::from(undefined as u16),
        (32, false) => u64::from(undefined as u32),
        (16, true) => u64::from((undefined as u16).swap_bytes()),
        (32, true) => u64::from((undefined as u32).swap_bytes()),
        (64, true) => undefined.swap_bytes(),
        _ => undefined,
    }
}

/// Whether undefined bits decide if a conditional jump is taken.
pub(super) fn decides(insn: Insn, dst: Partial, src: Partial) -> bool {
    if dst.undefined | src.undefined == 0 {
        return false;
    }
    let (a, b) = match insn.class() {
        BPF_JMP32 => (dst.low_half_extended(), src.low_half_extended()),
        _ => (dst, src),
    };
    let either = a.undefined | b.undefined;
    match insn.op() {
        BPF_JEQ | BPF_JNE => either != 0 && (a.value ^ b.value) & !either == 0,
        BPF_JSET => {
            let surely = a.value & !a.undefined & b.value & !b.undefined;
            let maybe = (a.value | a.undefined) & (b.value | b.undefined);
            surely == 0 && maybe != 0
        }
        BPF_JSGT | BPF_JSLE => overlap(a.signed_range(), b.signed_range(), true),
        BPF_JSGE | BPF_JSLT => overlap(a.signed_range(), b.signed_range(), false),
        op => overlap(a.range(), b.range(), matches!(op, BPF_JGT | BPF_JLE)),
    }
}

/// Sign-extends the undefined bits of a load or move of `bytes` bytes.
pub(super) fn extended(undefined: u64, bytes: usize) -> u64 {
    match bytes {
        1 => i64::from(undefined as u8 as i8).cast_unsigned(),
        2 => i64::from(undefined as u16 as i16).cast_unsigned(),
        4 => i64::from(undefined as u32 as i32).cast_unsigned(),
        _ => undefined,
    }
}

fn moved(off: i16, undefined: u64) -> u64 {
    match off {
        8 | 16 | 32 => extended(undefined, off as usize / 8),
        _ => undefined,
    }
}

/// `a > b` (or, not `strict`, `a >= b`) may be true and may be false.
fn overlap<T: PartialOrd + Copy>(a: (T, T), b: (T, T), strict: bool) -> bool {
    let (may, must) = if strict { (a.1 > b.0, a.0 > b.1) } else { (a.1 >= b.0, a.0 >= b.1) };
    may && !must
}

fn spread(a: (u64, u64), b: (u64, u64), operation: fn(u64, u64) -> u64) -> u64 {
    operation(a.0, b.0) ^ operation(a.1, b.1)
}

/// All bits from the lowest set one upwards.
fn from_lowest(bits: u64) -> u64 {
    bits | bits.wrapping_neg()
}

fn product(a: Partial, b: Partial) -> u64 {
    let is_zero = |it: Partial| it.undefined == 0 && it.value == 0;
    if is_zero(a) || is_zero(b) {
        return 0;
    }
    let lowest = match (a.undefined, b.undefined) {
        (undefined, 0) => undefined.trailing_zeros() + b.value.trailing_zeros(),
        (0, undefined) => undefined.trailing_zeros() + a.value.trailing_zeros(),
        (one, other) => (one | other).trailing_zeros(),
    };
    u64::MAX.checked_shl(lowest).unwrap_or(0)
}

fn shifted(insn: Insn, dst: Partial, src: Partial) -> u64 {
    if src.undefined & 63 != 0 {
        return u64::MAX;
    }
    let wide = insn.class() == BPF_ALU64;
    let amount = src.value as u32 & if wide { 63 } else { 31 };
    match insn.op() {
        BPF_LSH => dst.undefined << amount,
        BPF_RSH => dst.undefined >> amount,
        _ if wide => (dst.undefined.cast_signed() >> amount).cast_unsigned(),
        _ => u64::from((dst.undefined as u32 as i32 >> amount) as u32),
    }
}

const LOW: u64 = 0xffff_ffff;
const SIGN: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use towpath_bpf::insn::{BPF_ALU, BPF_JGE, BPF_JLT, BPF_JMP, BPF_X};

    use super::*;

    /// The result of an operation, as in the interpreter, in one line each.
    fn result(insn: Insn, a: u64, b: u64) -> u64 {
        let wide = insn.class() == BPF_ALU64;
        let (a, b) = if wide { (a, b) } else { (a & LOW, b & LOW) };
        let amount = b as u32 & if wide { 63 } else { 31 };
        let full = match insn.op() {
            BPF_ADD => a.wrapping_add(b),
            BPF_SUB => a.wrapping_sub(b),
            BPF_MUL => a.wrapping_mul(b),
            BPF_AND => a & b,
            BPF_OR => a | b,
            BPF_XOR => a ^ b,
            BPF_LSH => a << amount,
            BPF_RSH => a >> amount,
            BPF_ARSH if wide => (a.cast_signed() >> amount).cast_unsigned(),
            BPF_ARSH => u64::from((a as u32 as i32 >> amount) as u32),
            BPF_NEG => a.wrapping_neg(),
            _ => b,
        };
        if wide { full } else { full & LOW }
    }

    fn taken(insn: Insn, a: u64, b: u64) -> bool {
        let (a, b) = match insn.class() {
            BPF_JMP32 => (extended(a, 4), extended(b, 4)),
            _ => (a, b),
        };
        let (c, d) = (a.cast_signed(), b.cast_signed());
        match insn.op() {
            BPF_JEQ => a == b,
            BPF_JNE => a != b,
            BPF_JSET => a & b != 0,
            BPF_JGT => a > b,
            BPF_JGE => a >= b,
            BPF_JLT => a < b,
            BPF_JLE => a <= b,
            BPF_JSGT => c > d,
            BPF_JSGE => c >= d,
            BPF_JSLT => c < d,
            _ => c <= d,
        }
    }

    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let word = *state >> 20 ^ *state << 30;
        // Few undefined bits and small numbers are where operations differ.
        match *state >> 61 {
            0 => 0,
            1 => word & 0xff,
            2 => word & word >> 7 & word << 9,
            3 => word & 0xffff_ffff,
            _ => word,
        }
    }

    /// Whatever the undefined bits are, the defined bits of the result are the same.
    #[test]
    fn defined_bits_do_not_depend_on_undefined_ones() {
        const OPS: [u8; 11] = [
            BPF_ADD, BPF_SUB, BPF_MUL, BPF_AND, BPF_OR, BPF_XOR, BPF_LSH, BPF_RSH, BPF_ARSH,
            BPF_NEG, BPF_MOV,
        ];
        let mut state = 1;
        for round in 0..20_000 {
            let op = OPS[round % OPS.len()];
            let class = if round % 2 == 0 { BPF_ALU64 } else { BPF_ALU };
            let insn = Insn::new(class | op | BPF_X, 1, 2, 0, 0);
            let mut next = || random(&mut state);
            let (a, b) = (
                Partial { value: next(), undefined: next() },
                Partial { value: next(), undefined: next() },
            );
            let undefined = arithmetic(insn, a, b);
            let other_a = a.value ^ (next() & a.undefined);
            let other_b = b.value ^ (next() & b.undefined);
            let differs = result(insn, a.value, b.value) ^ result(insn, other_a, other_b);
            assert_eq!(differs & !undefined, 0, "{insn:?} {a:x?} {b:x?}");
        }
    }

    #[test]
    fn a_jump_that_is_decided_goes_the_same_way() {
        const OPS: [u8; 11] = [
            BPF_JEQ, BPF_JNE, BPF_JSET, BPF_JGT, BPF_JGE, BPF_JLT, BPF_JLE, BPF_JSGT, BPF_JSGE,
            BPF_JSLT, BPF_JSLE,
        ];
        let mut state = 7;
        for round in 0..20_000 {
            let class = if round % 2 == 0 { BPF_JMP } else { BPF_JMP32 };
            let insn = Insn::new(class | OPS[round % OPS.len()] | BPF_X, 1, 2, 0, 0);
            let mut next = || random(&mut state);
            let (a, b) = (
                Partial { value: next(), undefined: next() },
                Partial { value: next(), undefined: next() },
            );
            if decides(insn, a, b) {
                continue;
            }
            let other_a = a.value ^ (next() & a.undefined);
            let other_b = b.value ^ (next() & b.undefined);
            let same = taken(insn, a.value, b.value) == taken(insn, other_a, other_b);
            assert!(same, "{insn:?} {a:x?} {b:x?}");
        }
    }

    #[test]
    fn masked_and_shifted_out_bits_are_defined() {
        let with = |op, value| {
            let insn = Insn::new(BPF_ALU64 | op, 1, 0, 0, 0);
            let dst = Partial { value: 0, undefined: 0xff00 };
            arithmetic(insn, dst, Partial { value, undefined: 0 })
        };
        assert_eq!(with(BPF_AND, 0xff), 0);
        assert_eq!(with(BPF_AND, 0x0f0f), 0x0f00);
        assert_eq!(with(BPF_OR, 0xff00), 0);
        assert_eq!(with(BPF_RSH, 16), 0);
        assert_eq!(with(BPF_MUL, 0), 0);
        let xor = Insn::new(BPF_ALU64 | BPF_XOR | BPF_X, 1, 1, 0, 0);
        let any = Partial { value: 5, undefined: u64::MAX };
        assert_eq!(arithmetic(xor, any, any), 0);
    }
}
