//! Run-time checks for programs whose proof is not trusted, and a limit on their time.
//!
//! Each access is compared with its allowed memory: the packet with the frame's current bounds, map
//! values with the map's memory, the stack with the function's frame. If the quick comparison
//! fails, the runtime makes the interpreter's check, and ends the run or lets it continue. Facts
//! from an earlier check, or from the program's own comparison with `data_end`, are not checked
//! again; facts that only the verifier has, are.
//!
//! It runs behind every other pass: none may move an access above its check.

mod accesses;
mod budget;
mod calls;
mod facts;
mod pointers;

use super::Context;
use crate::xir::{
    Block, Function, Inst, InstData, Jump, Module, Need, Op, Terminator, Type, Value,
};

pub(super) fn insert(module: &mut Module, context: Context<'_>, budget: u32) {
    let functions = module.functions.iter_mut().enumerate();
    let all = functions.map(|(index, function)| (index == 0, function));
    for (is_entry, function) in all.chain(module.own.as_mut().map(|own| (true, own))) {
        calls::check_arguments(function);
        accesses::check(function, context);
        budget::limit(function, is_entry, budget);
    }
}

/// Rewrites a block, and splits it where a check may lead to another block.
struct Writer<'a> {
    function: &'a mut Function,
    /// The block being written.
    block: Block,
    insts: Vec<Inst>,
    origin: u32,
}

impl<'a> Writer<'a> {
    /// Clears a block to rewrite it; gives its old instructions.
    fn new(function: &'a mut Function, block: Block) -> (Self, Vec<Inst>) {
        let old = std::mem::take(&mut function.block_mut(block).insts);
        (Writer { function, block, insts: Vec::with_capacity(old.len()), origin: 0 }, old)
    }

    /// Ends the last block as the original one ended.
    fn finish(self, end: Terminator) {
        let data = self.function.block_mut(self.block);
        (data.insts, data.end) = (self.insts, end);
    }

    fn value(&mut self, ty: Type, op: Op) -> Value {
        let result = self.function.add_value(ty);
        self.push(Some(result), op);
        result
    }

    fn constant(&mut self, value: u64) -> Value {
        self.value(Type::I64, Op::Const(value))
    }

    fn push(&mut self, result: Option<Value>, op: Op) {
        let inst = self.function.add_inst(InstData { op, result, origin: self.origin });
        self.insts.push(inst);
    }

    /// Continues at once if `fine` is not 0, else after a check by the runtime.
    fn guard(&mut self, fine: Value, address: Value, bytes: u32, need: Need) {
        let (cold, next) = (self.function.add_block(), self.function.add_block());
        let jump = |target| Jump { target, args: Vec::new() };
        let data = self.function.block_mut(self.block);
        data.insts = std::mem::take(&mut self.insts);
        data.end = Terminator::Branch(fine, jump(next), jump(cold));
        let guard = Op::Guard { address, bytes, need };
        self.function.push_effect(cold, self.origin, guard);
        self.function.block_mut(cold).end = Terminator::Jump(jump(next));
        self.block = next;
    }
}
