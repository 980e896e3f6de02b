//! Turns a select that waits for a long chain of others back into a branch.
//!
//! A select needs all of its operands: both values, and the condition. A processor continues behind
//! a branch before any of these is known, and usually predicts the target correctly. One or two
//! selects cost less than a misprediction; if each of many waits for the one before it, their times
//! add up, and a branch in between cuts the chain.

use super::Context;
use crate::xir::{Block, BlockData, Dominators, Function, Inst, Jump, Op, Terminator, Value};

/// Largest number of selects in a chain.
const CHAIN_MAX: u8 = 3;

pub(super) fn cut_chains(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    let mut chains = Chains { depths: vec![0; function.values.len()] };
    for &block in dominators.order() {
        // A loop that may be vectorized stays one block.
        let is_whole = function.counted.contains(&block);
        let mut rest = Some(block);
        while let Some(block) = rest {
            rest = match chains.first_to_cut(function, block) {
                Some(at) if !is_whole => Some(chains.cut(function, block, at)),
                _ => None,
            };
            if rest.is_none() {
                chains.hand_on(function, block);
            }
        }
    }
}

/// Number of selects that each value waits for, one after the other.
struct Chains {
    depths: Vec<u8>,
}

impl Chains {
    /// Walks over a block to the first select in a chain that is too long; gives its position.
    fn first_to_cut(&mut self, function: &Function, block: Block) -> Option<usize> {
        let insts = &function.block(block).insts;
        for (at, data) in insts.iter().map(|&inst| function.inst(inst)).enumerate() {
            let Some(result) = data.result else { continue };
            let mut depth = 0;
            data.op.for_each_operand(|value| depth = depth.max(self.depth(value)));
            if matches!(data.op, Op::Select(..)) {
                if depth >= CHAIN_MAX {
                    return Some(at);
                }
                depth += 1;
            }
            self.depths[result.0 as usize] = depth;
        }
        None
    }

    /// Makes a branch of the selects with the same condition at a position in a block; gives the
    /// block that continues behind it.
    fn cut(&mut self, function: &mut Function, block: Block, at: usize) -> Block {
        let behind = function.add_block();
        let data = function.block_mut(block);
        let mut rest: Vec<Inst> = data.insts.split_off(at);
        let end = std::mem::replace(&mut data.end, Terminator::Unreachable);
        let choices = choices(function, &rest);
        rest.drain(..choices.len());
        let way = |value: fn(&Choice) -> Value| Jump {
            target: behind,
            args: choices.iter().map(value).collect(),
        };
        if let Some(first) = choices.first() {
            let (yes, no) = (way(|choice| choice.yes), way(|choice| choice.no));
            function.block_mut(block).end = Terminator::Branch(first.condition, yes, no);
        }
        for choice in &choices {
            let depth = self.depth(choice.yes).max(self.depth(choice.no));
            self.depths[choice.result.0 as usize] = depth;
        }
        let params = choices.iter().map(|choice| choice.result).collect();
        *function.block_mut(behind) = BlockData { params, insts: rest, end };
        behind
    }

    /// Sets the chains of parameters to those of their arguments.
    fn hand_on(&mut self, function: &Function, block: Block) {
        for jump in function.block(block).end.jumps() {
            let params = &function.block(jump.target).params;
            for (param, &arg) in params.iter().zip(&jump.args) {
                let depth = self.depth(arg).max(self.depth(*param));
                self.depths[param.0 as usize] = depth;
            }
        }
    }

    fn depth(&self, value: Value) -> u8 {
        self.depths[value.0 as usize]
    }
}

/// A select.
struct Choice {
    result: Value,
    condition: Value,
    yes: Value,
    no: Value,
}

/// The first of these instructions that are selects by one condition; none uses another's result.
fn choices(function: &Function, insts: &[Inst]) -> Vec<Choice> {
    let mut choices: Vec<Choice> = Vec::new();
    for data in insts.iter().map(|&inst| function.inst(inst)) {
        let (&Op::Select(condition, yes, no), Some(result)) = (&data.op, data.result) else {
            break;
        };
        let is_other =
            |choice: &Choice| choice.condition != condition || [yes, no].contains(&choice.result);
        if choices.iter().any(is_other) {
            break;
        }
        choices.push(Choice { result, condition, yes, no });
    }
    choices
}
