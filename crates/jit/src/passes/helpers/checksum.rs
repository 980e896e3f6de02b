//! `bpf_csum_diff` of buffers of constant sizes, as sums of their words.
//!
//! The order of operations is the kernel's (see the helper in `crates/xdp`): it decides between the
//! two zeroes of ones' complement.

use super::Emitter;
use crate::xir::{Alias, Arg, BinaryOp, Op, Place, Type, UnaryOp, Value, Width};

/// Largest size in bytes of a buffer whose words are added inline.
const BYTES_MAX: u64 = 64;

impl Emitter<'_> {
    pub(super) fn csum_diff(
        &mut self,
        from: &Arg,
        from_size: Option<u64>,
        to: &Arg,
        to_size: Option<u64>,
        seed: &Arg,
    ) -> Option<Op> {
        // The helper takes sizes and seed as 32-bit numbers.
        let in_place = |size: Option<u64>| Some(size? as u32).filter(|&s| s <= BYTES_MAX as u32);
        let (from_size, to_size) = (in_place(from_size)?, in_place(to_size)?);
        let Arg::Value(seed) = seed else { return None };
        let seed = self.binary_const(BinaryOp::And, *seed, LOW);
        let sum = match (from_size, to_size) {
            (0, 0) => seed,
            (0, size) => self.partial(to, size, seed),
            (size, 0) => {
                let seed = self.complement(seed);
                let sum = self.partial(from, size, seed);
                self.complement(sum)
            }
            (from_size, to_size) => {
                let added = self.partial(to, to_size, seed);
                let zero = self.constant(Type::I64, 0);
                let taken = self.partial(from, from_size, zero);
                let taken = self.complement(taken);
                let sum = self.binary(BinaryOp::Add, added, taken);
                self.fold(sum)
            }
        };
        // `csum_from32to16`: both halves of the 32-bit sum, added with the carry between them.
        let sum = self.value(Type::I32, Op::Unary(UnaryOp::Trunc, sum));
        let high = self.binary_const(BinaryOp::LShr, sum, 16);
        let low = self.binary_const(BinaryOp::Shl, sum, 16);
        let turned = self.binary(BinaryOp::Or, high, low);
        let sum = self.binary(BinaryOp::Add, sum, turned);
        let sum = self.binary_const(BinaryOp::LShr, sum, 16);
        Some(Op::Unary(UnaryOp::Zext, sum))
    }

    /// `csum_partial`: the 32-bit ones' complement sum of the bytes and `sum`.
    fn partial(&mut self, bytes: &Arg, size: u32, sum: Value) -> Value {
        let mut total = sum;
        for offset in (0..size - size % 4).step_by(4) {
            if self.was_written_narrowly(bytes, offset) {
                // Two halves: one wide load would wait for the narrow store.
                for (half, shift) in [(offset, 0), (offset + 2, 16)] {
                    let part = self.load_part(bytes, half, Width::W16);
                    let part = self.zext(part);
                    let part = self.binary_const(BinaryOp::Shl, part, shift);
                    total = self.binary(BinaryOp::Add, total, part);
                }
            } else {
                let part = self.load_part(bytes, offset, Width::W32);
                let part = self.zext(part);
                total = self.binary(BinaryOp::Add, total, part);
            }
        }
        if !size.is_multiple_of(4) {
            let rest = self.word(bytes, size - size % 4, size % 4);
            total = self.binary(BinaryOp::Add, total, rest);
        }
        self.fold(total)
    }

    /// Whether the last store to 4 bytes, in this block, wrote only some of them.
    fn was_written_narrowly(&self, bytes: &Arg, offset: u32) -> bool {
        let Arg::Value(address) = bytes else { return false };
        let word = self.place(*address, offset, Width::W32);
        let last = self.insts.iter().rev().find_map(|&inst| match self.function.inst(inst).op {
            Op::Store { place, .. } if overlap(place, word) => Some(place.width),
            _ => None,
        });
        matches!(last, Some(Width::W8 | Width::W16))
    }

    /// Adds the carries of a sum of 32-bit words back in.
    fn fold(&mut self, mut sum: Value) -> Value {
        for _ in 0..2 {
            let low = self.binary_const(BinaryOp::And, sum, LOW);
            let carries = self.binary_const(BinaryOp::LShr, sum, 32);
            sum = self.binary(BinaryOp::Add, low, carries);
        }
        sum
    }

    /// Inverts all 32 bits.
    fn complement(&mut self, value: Value) -> Value {
        self.binary_const(BinaryOp::Xor, value, LOW)
    }
}

/// The low 32 bits.
const LOW: u64 = 0xffff_ffff;

fn overlap(a: Place, b: Place) -> bool {
    let end = |place: Place| i64::from(place.offset) + i64::from(place.width.bytes());
    let same = a.base == b.base && (a.alias == b.alias || b.alias == Alias::Other);
    same && i64::from(a.offset) < end(b) && i64::from(b.offset) < end(a)
}
