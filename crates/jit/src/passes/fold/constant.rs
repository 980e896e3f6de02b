//! Arithmetic on constants, with BPF's results in corner cases (RFC 9669 section 4.1).

use crate::xir::{BinaryOp, Cond, Type, UnaryOp};

/// The result, truncated to `ty`.
pub(in super::super) fn binary(op: BinaryOp, ty: Type, a: u64, b: u64) -> u64 {
    let (sa, sb) = (signed(ty, a), signed(ty, b));
    let shift = (b & u64::from(ty.bits() - 1)) as u32;
    let value = match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::UDiv => a.checked_div(b).unwrap_or(0),
        BinaryOp::URem => a.checked_rem(b).unwrap_or(a),
        BinaryOp::SDiv if b == 0 => 0,
        BinaryOp::SDiv => sa.wrapping_div(sb) as u64,
        BinaryOp::SRem if b == 0 => a,
        BinaryOp::SRem => sa.wrapping_rem(sb) as u64,
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a << shift,
        BinaryOp::LShr => a >> shift,
        BinaryOp::AShr => (sa >> shift) as u64,
        BinaryOp::Rotl => match ty {
            Type::I32 => (a as u32).rotate_left(shift).into(),
            Type::I64 => a.rotate_left(shift),
        },
    };
    value & ty.mask()
}

/// The result of an operation on a value of `from`, truncated to `to`.
pub(in super::super) fn unary(op: UnaryOp, from: Type, to: Type, a: u64) -> u64 {
    let value = match op {
        UnaryOp::Bswap16 => u64::from((a as u16).swap_bytes()),
        UnaryOp::Bswap32 => u64::from((a as u32).swap_bytes()),
        UnaryOp::Bswap64 => a.swap_bytes(),
        UnaryOp::Sext8 => i64::from(a as i8) as u64,
        UnaryOp::Sext16 => i64::from(a as i16) as u64,
        UnaryOp::Sext => signed(from, a) as u64,
        UnaryOp::Zext | UnaryOp::Trunc => a,
    };
    value & to.mask()
}

/// Whether a comparison of two values of `ty` holds.
pub(in super::super) fn compare(cond: Cond, ty: Type, a: u64, b: u64) -> bool {
    let (sa, sb) = (signed(ty, a), signed(ty, b));
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Ult => a < b,
        Cond::Ule => a <= b,
        Cond::Ugt => a > b,
        Cond::Uge => a >= b,
        Cond::Slt => sa < sb,
        Cond::Sle => sa <= sb,
        Cond::Sgt => sa > sb,
        Cond::Sge => sa >= sb,
    }
}

fn signed(ty: Type, value: u64) -> i64 {
    match ty {
        Type::I32 => i64::from(value as u32 as i32),
        Type::I64 => value as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_of_division_and_shifts() {
        assert_eq!(binary(BinaryOp::UDiv, Type::I64, 7, 0), 0);
        assert_eq!(binary(BinaryOp::SRem, Type::I32, 7, 0), 7);
        let min = 0x8000_0000;
        assert_eq!(binary(BinaryOp::SDiv, Type::I32, min, 0xffff_ffff), min);
        assert_eq!(binary(BinaryOp::Shl, Type::I32, 1, 33), 2);
        assert_eq!(binary(BinaryOp::AShr, Type::I32, min, 31), 0xffff_ffff);
    }
}
