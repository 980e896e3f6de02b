//! Copies of blocks: of a function in place of a call, of a loop's rounds.

use crate::xir::{Block, Function, Op, Terminator, Value};

/// Copies blocks of one function into another, or into a later form of the same one.
///
/// Definitions in the copied blocks get new names in the copy; all other values keep theirs.
pub(super) struct Copy<'a> {
    pub(super) into: &'a mut Function,
    from: &'a Function,
    blocks: Vec<Option<Block>>,
    values: Vec<Option<Value>>,
}

impl<'a> Copy<'a> {
    /// Makes an empty block for each of `blocks`.
    pub(super) fn new(into: &'a mut Function, from: &'a Function, blocks: &[Block]) -> Self {
        let mut copy = Copy {
            blocks: vec![None; from.blocks.len()],
            values: vec![None; from.values.len()],
            into,
            from,
        };
        for &block in blocks {
            for value in from.defined_in(block) {
                copy.values[value.0 as usize] = Some(copy.into.add_value(from.ty(value)));
            }
            let new = copy.into.add_block();
            let params = from.block(block).params.iter().map(|&param| copy.value(param)).collect();
            copy.into.block_mut(new).params = params;
            copy.blocks[block.0 as usize] = Some(new);
        }
        copy
    }

    /// Replaces a value by another one in the copy.
    pub(super) fn set(&mut self, value: Value, other: Value) {
        self.values[value.0 as usize] = Some(other);
    }

    /// Name of a value in the copy.
    pub(super) fn value(&self, value: Value) -> Value {
        self.values[value.0 as usize].unwrap_or(value)
    }

    /// The copy of a block, or the block itself.
    pub(super) fn block(&self, block: Block) -> Block {
        self.blocks[block.0 as usize].unwrap_or(block)
    }

    /// Appends a block's instructions to another one; `edit` changes each, its values renamed.
    pub(super) fn insts(&mut self, block: Block, to: Block, mut edit: impl FnMut(&mut Op)) {
        let from = self.from;
        for &inst in &from.block(block).insts {
            let mut data = from.inst(inst).clone();
            data.result = data.result.map(|result| self.value(result));
            data.op.for_each_operand_mut(|value| *value = self.value(*value));
            edit(&mut data.op);
            let inst = self.into.add_inst(data);
            self.into.block_mut(to).insts.push(inst);
        }
    }

    /// The terminator of a block, with the copy's names.
    pub(super) fn end(&self, block: Block) -> Terminator {
        let mut end = self.from.block(block).end.clone();
        end.for_each_operand_mut(|value| *value = self.value(*value));
        end.jumps_mut().for_each(|jump| jump.target = self.block(jump.target));
        end
    }
}
