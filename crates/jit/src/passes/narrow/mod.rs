//! Computes 64-bit arithmetic in 32 bits if only 32 bits matter, and finds rotations.
//!
//! BPF before `-mcpu=v3` has no 32-bit operations, and clang prefers 64-bit ones anyway: a hash
//! function over `u32` becomes multiplications, masks and pairs of shifts on 64 bits. Knowledge of
//! used bits flows backwards, of possible bits forwards.

mod bits;
mod rotate;

use super::assemble::Assembler;
use super::{Context, definitions};
use crate::xir::{BinaryOp, Dominators, Function, Inst, Op, Type, UnaryOp, Value};
use bits::Bits;

const LOW: u64 = u32::MAX as u64;

pub(super) fn narrow(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    let Some(bits) = Bits::of(function, &dominators) else { return };
    for &block in dominators.order() {
        let insts = std::mem::take(&mut function.block_mut(block).insts);
        let mut assembler = Assembler::new(function, 0);
        for inst in insts {
            narrow_inst(&mut assembler, inst, &bits);
        }
        let insts = assembler.insts;
        function.block_mut(block).insts = insts;
    }
}

/// Finds rotations; runs after folding has cleaned up behind [`narrow`].
pub(super) fn find_rotations(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    let definitions = definitions(function, &dominators);
    rotate::find(function, &dominators, &definitions);
}

fn narrow_inst(assembler: &mut Assembler<'_>, inst: Inst, bits: &Bits) {
    let data = assembler.function.inst(inst);
    assembler.origin = data.origin;
    if let (Some(result), Op::Binary(op, a, b)) = (data.result, &data.op) {
        let (op, a, b) = (*op, *a, *b);
        let is_wide = assembler.function.ty(result) == Type::I64;
        if is_wide && bits.demanded(result) & !LOW == 0 && is_narrow(op, a, b, bits) {
            let a = assembler.resized(a, Type::I32);
            let b = assembler.resized(b, Type::I32);
            let narrow = assembler.value(Type::I32, Op::Binary(op, a, b));
            assembler.function.inst_mut(inst).op = Op::Unary(UnaryOp::Zext, narrow);
        }
    }
    assembler.insts.push(inst);
}

/// Whether the low half of the result can be computed from low halves.
fn is_narrow(op: BinaryOp, a: Value, b: Value, bits: &Bits) -> bool {
    match op {
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor => true,
        BinaryOp::Shl => bits.constant(b).is_some_and(|count| count < 32),
        BinaryOp::LShr => {
            bits.constant(b).is_some_and(|count| count < 32) && bits.possible(a) & !LOW == 0
        }
        _ => false,
    }
}
