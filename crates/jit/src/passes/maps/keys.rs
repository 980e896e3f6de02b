//! Keys as words: the bytes that a call would read, in registers.

use super::Emitter;
use crate::xir::{Arg, BinaryOp, Op, Type, Value, Width};

impl Emitter<'_> {
    /// `size` bytes as little-endian 64-bit words, the last one padded with zeroes.
    pub(super) fn words(&mut self, bytes: &Arg, size: u32) -> Vec<Value> {
        (0..size).step_by(8).map(|at| self.word(bytes, at, (size - at).min(8))).collect()
    }

    /// A word of `len` bytes at an offset, in one load for each power of two in `len`.
    pub(in crate::passes) fn word(&mut self, bytes: &Arg, offset: u32, len: u32) -> Value {
        let mut whole = None;
        let mut done = 0;
        for width in [Width::W64, Width::W32, Width::W16, Width::W8] {
            if len & width.bytes() == 0 {
                continue;
            }
            let part = self.load_part(bytes, offset + done, width);
            let part = if width == Width::W64 { part } else { self.zext(part) };
            whole = Some(match whole {
                None => part,
                Some(low) => {
                    let count = self.constant(Type::I64, u64::from(done) * 8);
                    let high = self.value(Type::I64, Op::Binary(BinaryOp::Shl, part, count));
                    self.value(Type::I64, Op::Binary(BinaryOp::Or, low, high))
                }
            });
            done += width.bytes();
        }
        whole.unwrap_or_else(|| self.constant(Type::I64, 0))
    }
}
