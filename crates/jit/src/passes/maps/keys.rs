//! Keys as words: the bytes a call would read, in registers.

use super::Lowering;
use crate::xir::{Alias, Arg, BinaryOp, Op, Place, StackRange, Type, Value, Width};

impl Lowering<'_> {
    /// `size` bytes as little-endian 64-bit words, the last one filled up with zeroes.
    pub(super) fn words(&mut self, bytes: &Arg, size: u32) -> Vec<Value> {
        (0..size).step_by(8).map(|at| self.word(bytes, at, (size - at).min(8))).collect()
    }

    /// A word of `len` bytes at an offset, in as few loads as there are powers of two.
    fn word(&mut self, bytes: &Arg, offset: u32, len: u32) -> Value {
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

    /// One load of a call's bytes.
    pub(super) fn load_part(&mut self, bytes: &Arg, offset: u32, width: Width) -> Value {
        let op = match bytes {
            Arg::StackRead(range) | Arg::StackReadWrite(range) => {
                let offset = range.offset + offset as i16;
                Op::StackLoad(StackRange { offset, len: width.bytes() as u16 })
            }
            Arg::Value(base) => {
                let (base, offset) = (*base, offset as i32);
                let place = Place { base, offset, width, alias: Alias::Other };
                Op::Load { place, probe: false }
            }
        };
        self.value(width.value_type(), op)
    }
}
