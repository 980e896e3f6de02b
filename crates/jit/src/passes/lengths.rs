//! Turns `data + 14 > data_end` into a test whether the packet has fewer than 14 bytes: the length
//! is computed once, and comparisons with constants need no address.
//!
//! Not for guests: their checks recognise the comparison by its first form.

use super::emit::Emitter;
use super::{Context, emit};
use crate::trust::Trust;
use crate::xir::{BinaryOp, Cond, CtxField, Function, Op, Type, Value};

/// Headers lie in the first bytes. Addresses this close to the packet never wrap.
const BYTES_MAX: u64 = 0xffff;

pub(super) fn compare(function: &mut Function, context: Context<'_>) {
    if context.trust == Trust::Guest {
        return;
    }
    emit::rewrite(function, context, |emitter, op| match *op {
        Op::Compare(cond, address, end) => {
            // A pointer loaded after a call that moves the packet may be below an earlier address:
            // the length is a signed number.
            let cond = match cond {
                Cond::Ugt => Cond::Slt,
                Cond::Ule => Cond::Sge,
                _ => return None,
            };
            let (data, bytes) = ends(emitter, end, address).filter(|(_, b)| *b <= BYTES_MAX)?;
            let length = emitter.binary(BinaryOp::Sub, end, data);
            let bytes = emitter.constant(Type::I64, bytes);
            Some(Op::Compare(cond, length, bytes))
        }
        // The number of bytes behind a header.
        Op::Binary(BinaryOp::Sub, end, address) => {
            let (data, bytes) = ends(emitter, end, address)?;
            let length = emitter.binary(BinaryOp::Sub, end, data);
            let bytes = emitter.constant(Type::I64, bytes.wrapping_neg());
            Some(Op::Binary(BinaryOp::Add, length, bytes))
        }
        _ => None,
    });
}

/// The packet's start, and the offset of an address from it, if `end` is the packet's end.
fn ends(emitter: &Emitter<'_>, end: Value, address: Value) -> Option<(Value, u64)> {
    let Op::CtxLoad(CtxField::DataEnd) = emitter.definition(end)? else { return None };
    let Op::Binary(BinaryOp::Add, data, bytes) = *emitter.definition(address)? else {
        return None;
    };
    let Op::CtxLoad(CtxField::Data) = emitter.definition(data)? else { return None };
    let &Op::Const(bytes) = emitter.definition(bytes)? else { return None };
    Some((data, bytes))
}
