//! Folding and value numbering in one walk: each instruction is simplified knowing the simplified
//! forms of its operands, then merged with an equal one that dominates it.

pub(super) mod constant;
mod hash;
mod params;
mod pieces;
mod rules;
mod truth;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;

use super::replace::Replacements;
use super::{Context, definition, definitions};
use crate::xir::{Block, Dominators, Function, Inst, InstData, Jump, Op, Terminator, Type, Value};
use hash::Hasher;

pub(super) fn run(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    let mut folder = Folder {
        replacements: Replacements::new(function),
        definitions: definitions(function, &dominators),
        numbered: Numbered::default(),
        param_bits: Vec::new(),
        function,
    };
    folder.find_param_bits(&dominators);
    for &block in dominators.order() {
        folder.block(block, &dominators);
    }
    let Folder { replacements, function, .. } = folder;
    replacements.apply(function);
}

struct Folder<'a> {
    function: &'a mut Function,
    replacements: Replacements,
    /// Instruction that defines a value; `None` for parameters.
    definitions: Vec<Option<Inst>>,
    /// Pure computations seen so far and where.
    numbered: Numbered,
    /// For each block parameter: bits that may be 1.
    param_bits: Vec<u64>,
}

/// Block and value of each computation.
type Numbered = HashMap<(Op, Type), (Block, Value), BuildHasherDefault<Hasher>>;

/// Simpler form of an instruction.
enum Simpler {
    /// Another instruction, of the same type.
    Op(Op),
    /// A value that exists.
    Value(Value),
}

impl Folder<'_> {
    fn block(&mut self, block: Block, dominators: &Dominators) {
        let insts = std::mem::take(&mut self.function.block_mut(block).insts);
        let mut kept = Vec::with_capacity(insts.len());
        for inst in insts {
            let replacements = &self.replacements;
            let data = self.function.inst_mut(inst);
            data.op.for_each_operand_mut(|value| *value = replacements.resolve(*value));
            if self.simplify(block, inst, &mut kept) && !self.is_known(block, inst, dominators) {
                kept.push(inst);
            }
        }
        self.function.block_mut(block).insts = kept;
        let replacements = &self.replacements;
        let end = &mut self.function.block_mut(block).end;
        end.for_each_operand_mut(|value| *value = replacements.resolve(*value));
        if let Some(jump) = self.known_branch(block) {
            self.function.block_mut(block).end = Terminator::Jump(jump);
        }
    }

    /// The jump that a branch always takes, because its condition is constant or both edges agree.
    fn known_branch(&self, block: Block) -> Option<Jump> {
        let Terminator::Branch(condition, yes, no) = &self.function.block(block).end else {
            return None;
        };
        match self.constant(*condition) {
            Some(0) => Some(no.clone()),
            Some(_) => Some(yes.clone()),
            None => (yes == no).then(|| yes.clone()),
        }
    }

    /// Simplifies as long as a rule applies; false if an existing value replaces the instruction.
    fn simplify(&mut self, block: Block, inst: Inst, kept: &mut Vec<Inst>) -> bool {
        // Each rule makes the instruction simpler; the bound is for rules that would undo each
        // other.
        for _ in 0..8 {
            let data = self.function.inst(inst).clone();
            match rules::simplify(self, block, &data, kept) {
                None => return true,
                Some(Simpler::Op(op)) => self.function.inst_mut(inst).op = op,
                Some(Simpler::Value(value)) => {
                    if let Some(result) = data.result {
                        self.replacements.set(result, value);
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Merges with an equal computation that dominates this one.
    fn is_known(&mut self, block: Block, inst: Inst, dominators: &Dominators) -> bool {
        let data = self.function.inst(inst);
        let Some(result) = data.result.filter(|_| data.op.is_pure()) else { return false };
        let key = (data.op.clone(), self.function.ty(result));
        match self.numbered.entry(key) {
            Entry::Occupied(seen) if dominators.dominates(seen.get().0, block) => {
                let (_, same) = *seen.get();
                self.replacements.set(result, same);
                return true;
            }
            // If several are on different paths, the last one is kept: blocks that it dominates are
            // likely to come next.
            Entry::Occupied(mut seen) => {
                seen.insert((block, result));
            }
            Entry::Vacant(free) => {
                free.insert((block, result));
            }
        }
        false
    }

    /// The operation that defines a value.
    fn op(&self, value: Value) -> Option<&Op> {
        definition(self.function, &self.definitions, value)
    }

    fn constant(&self, value: Value) -> Option<u64> {
        match self.op(value) {
            Some(Op::Const(constant)) => Some(*constant),
            _ => None,
        }
    }

    /// A new instruction in front of the one being simplified.
    fn insert(&mut self, origin: u32, ty: Type, op: Op, kept: &mut Vec<Inst>) -> Value {
        let result = self.function.add_value(ty);
        let inst = self.function.add_inst(InstData { op, result: Some(result), origin });
        self.definitions.resize(self.function.values.len(), None);
        self.definitions[result.0 as usize] = Some(inst);
        kept.push(inst);
        result
    }
}
