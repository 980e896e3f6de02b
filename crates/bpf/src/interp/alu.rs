//! Arithmetic of RFC 9669 section 4, as functions of two values.
//!
//! All values are 64-bit register contents. The 32-bit forms use the low halves and zero the upper
//! half of the result. No operation can trap: division by zero gives 0, remainder by zero gives the
//! dividend, and the one overflowing division wraps.

use crate::insn::{
    BPF_ADD, BPF_ALU64, BPF_AND, BPF_ARSH, BPF_DIV, BPF_LSH, BPF_MOD, BPF_MOV, BPF_MUL, BPF_NEG,
    BPF_OR, BPF_RSH, BPF_SUB, BPF_XOR, Insn,
};

/// Result of any arithmetic instruction except [`crate::insn::BPF_END`]; `None` for an unknown one.
#[inline]
pub(super) fn alu(insn: Insn, dst: u64, src: u64) -> Option<u64> {
    if insn.class() == BPF_ALU64 {
        alu64(insn.op(), insn.off, dst, src)
    } else {
        alu32(insn.op(), insn.off, dst as u32, src as u32).map(u64::from)
    }
}

fn alu64(op: u8, off: i16, dst: u64, src: u64) -> Option<u64> {
    let shift = src as u32 & 63;
    Some(match (op, off) {
        (BPF_ADD, 0) => dst.wrapping_add(src),
        (BPF_SUB, 0) => dst.wrapping_sub(src),
        (BPF_MUL, 0) => dst.wrapping_mul(src),
        (BPF_DIV, 0) => dst.checked_div(src).unwrap_or(0),
        (BPF_DIV, SIGNED) if src == 0 => 0,
        (BPF_DIV, SIGNED) => (dst as i64).wrapping_div(src as i64) as u64,
        (BPF_MOD, 0) => dst.checked_rem(src).unwrap_or(dst),
        (BPF_MOD, SIGNED) if src == 0 => dst,
        (BPF_MOD, SIGNED) => (dst as i64).wrapping_rem(src as i64) as u64,
        (BPF_OR, 0) => dst | src,
        (BPF_AND, 0) => dst & src,
        (BPF_XOR, 0) => dst ^ src,
        (BPF_LSH, 0) => dst << shift,
        (BPF_RSH, 0) => dst >> shift,
        (BPF_ARSH, 0) => (dst as i64 >> shift) as u64,
        (BPF_NEG, 0) => dst.wrapping_neg(),
        (BPF_MOV, 0) => src,
        (BPF_MOV, 8) => i64::from(src as i8) as u64,
        (BPF_MOV, 16) => i64::from(src as i16) as u64,
        (BPF_MOV, 32) => i64::from(src as i32) as u64,
        _ => return None,
    })
}

fn alu32(op: u8, off: i16, dst: u32, src: u32) -> Option<u32> {
    let shift = src & 31;
    Some(match (op, off) {
        (BPF_ADD, 0) => dst.wrapping_add(src),
        (BPF_SUB, 0) => dst.wrapping_sub(src),
        (BPF_MUL, 0) => dst.wrapping_mul(src),
        (BPF_DIV, 0) => dst.checked_div(src).unwrap_or(0),
        (BPF_DIV, SIGNED) if src == 0 => 0,
        (BPF_DIV, SIGNED) => (dst as i32).wrapping_div(src as i32) as u32,
        (BPF_MOD, 0) => dst.checked_rem(src).unwrap_or(dst),
        (BPF_MOD, SIGNED) if src == 0 => dst,
        (BPF_MOD, SIGNED) => (dst as i32).wrapping_rem(src as i32) as u32,
        (BPF_OR, 0) => dst | src,
        (BPF_AND, 0) => dst & src,
        (BPF_XOR, 0) => dst ^ src,
        (BPF_LSH, 0) => dst << shift,
        (BPF_RSH, 0) => dst >> shift,
        (BPF_ARSH, 0) => (dst as i32 >> shift) as u32,
        (BPF_NEG, 0) => dst.wrapping_neg(),
        (BPF_MOV, 0) => src,
        (BPF_MOV, 8) => i32::from(src as i8) as u32,
        (BPF_MOV, 16) => i32::from(src as i16) as u32,
        _ => return None,
    })
}

/// Byte swaps (section 4.2). Class ALU with `BPF_K` means "to little endian", which only cuts the
/// value on the little-endian machine that a program sees; with `BPF_X` "to big endian"; class
/// ALU64 swaps on any machine.
#[inline]
pub(super) fn swap(insn: Insn, dst: u64) -> Option<u64> {
    let swaps = insn.class() == BPF_ALU64 || insn.is_reg_operand();
    if insn.class() == BPF_ALU64 && insn.is_reg_operand() {
        return None;
    }
    Some(match (insn.imm, swaps) {
        (16, false) => u64::from(dst as u16),
        (32, false) => u64::from(dst as u32),
        (64, false) => dst,
        (16, true) => u64::from((dst as u16).swap_bytes()),
        (32, true) => u64::from((dst as u32).swap_bytes()),
        (64, true) => dst.swap_bytes(),
        _ => return None,
    })
}

/// In the offset field of a division or remainder: operands are signed (section 4.1).
const SIGNED: i16 = 1;
