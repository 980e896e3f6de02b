//! Evaluation of a loop's rounds with their constants.

use std::collections::HashMap;

use super::super::constants::{Constants, Known, agreed, merged};
use super::{Body, Shape};
use crate::xir::{Block, Function};

pub(super) struct Rounds<'a> {
    function: &'a Function,
    body: &'a Body,
    /// Constants at the start of the next round.
    start: Known,
    /// Constants of this round; those of earlier rounds were forgotten.
    constants: Constants<'a>,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(function: &'a Function, shape: &'a Shape, body: &'a Body) -> Self {
        let constants = Constants::new(function, &shape.definitions);
        let head = body.blocks[0];
        let outside = shape.dominators.predecessors(head).iter().filter(|&&pred| !body.has(pred));
        let jumps = outside.flat_map(|&pred| function.block(pred).end.jumps());
        let into = jumps.filter(|jump| jump.target == head).map(|jump| constants.args(jump));
        let start = into.reduce(agreed).unwrap_or_default();
        Rounds { function, body, start, constants }
    }

    /// Evaluates the next round: gives the number of its remaining instructions, and whether
    /// another round may follow.
    pub(super) fn follow(&mut self) -> (usize, bool) {
        self.constants.clear();
        let head = self.body.blocks[0];
        let mut reached: HashMap<Block, Known> = HashMap::from([(head, self.start.clone())]);
        let mut back: Option<Known> = None;
        let mut size = 0;
        for &block in &self.body.blocks {
            let Some(params) = reached.remove(&block) else { continue };
            size += self.constants.block(block, &params);
            for jump in self.constants.taken(&self.function.block(block).end) {
                let args = self.constants.args(jump);
                if jump.target == head {
                    back = Some(merged(back, args));
                } else if self.body.has(jump.target) {
                    let before = reached.remove(&jump.target);
                    reached.insert(jump.target, merged(before, args));
                }
            }
        }
        let comes_back = back.is_some();
        self.start = back.unwrap_or_default();
        (size, comes_back)
    }
}
