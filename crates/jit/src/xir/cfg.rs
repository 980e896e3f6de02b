//! Control flow of a function: predecessors, an order in which definitions come before uses,
//! dominators.
//!
//! The algorithm is that of Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm"
//! (2001).

use super::function::Function;
use super::ir::Block;

/// Dominator tree of the blocks that the entry reaches.
#[derive(Debug, Clone)]
pub struct Dominators {
    /// Reachable blocks, each before those that it dominates.
    order: Vec<Block>,
    /// Position in `order`, by block; `None` for unreachable blocks.
    position: Vec<Option<u32>>,
    /// Immediate dominator by position; the entry's is itself.
    idom: Vec<u32>,
    /// By position, first and last index in a walk over the tree: the blocks that a block dominates
    /// lie between its own two.
    spans: Vec<(u32, u32)>,
    /// Predecessors by block, reachable ones only; a block that jumps twice is listed twice.
    preds: Vec<Vec<Block>>,
}

impl Dominators {
    /// Computes the dominators of the function in its current form.
    pub fn new(function: &Function) -> Self {
        let order = reverse_postorder(function);
        let mut position = vec![None; function.blocks.len()];
        for (index, block) in order.iter().enumerate() {
            position[block.0 as usize] = Some(index as u32);
        }
        let mut preds = vec![Vec::new(); function.blocks.len()];
        for &block in &order {
            for jump in function.block(block).end.jumps() {
                preds[jump.target.0 as usize].push(block);
            }
        }
        let idom = immediate_dominators(&order, &position, &preds);
        let spans = spans(&idom);
        Dominators { order, position, idom, spans, preds }
    }

    /// Reachable blocks in reverse postorder: a block comes after its dominators, and after all its
    /// predecessors except those of back edges.
    pub fn order(&self) -> &[Block] {
        &self.order
    }

    /// Position of a reachable block in [`Dominators::order`].
    pub fn position(&self, block: Block) -> Option<u32> {
        self.position[block.0 as usize]
    }

    /// Whether the entry reaches the block.
    pub fn is_reachable(&self, block: Block) -> bool {
        self.position[block.0 as usize].is_some()
    }

    /// Reachable predecessors.
    pub fn predecessors(&self, block: Block) -> &[Block] {
        &self.preds[block.0 as usize]
    }

    /// Predecessors that do not come before the block: ends of rounds of its loop.
    pub fn latches(&self, block: Block) -> impl Iterator<Item = Block> {
        let preds = self.preds[block.0 as usize].iter().copied();
        preds.filter(move |&pred| self.position(pred) >= self.position(block))
    }

    /// The closest other block on all paths to this one; `None` for the entry and unreachable ones.
    pub fn immediate(&self, block: Block) -> Option<Block> {
        let position = self.position[block.0 as usize]?;
        let dominator = self.idom[position as usize];
        (dominator != position).then(|| self.order[dominator as usize])
    }

    /// Whether every path to `b` passes `a` (true for `a == b`). False if either is unreachable.
    pub fn dominates(&self, a: Block, b: Block) -> bool {
        let (Some(a), Some(b)) = (self.position[a.0 as usize], self.position[b.0 as usize]) else {
            return false;
        };
        let (first, last) = self.spans[a as usize];
        (first..=last).contains(&self.spans[b as usize].0)
    }
}

/// Indices in a walk over the dominator tree, parents before children.
fn spans(idom: &[u32]) -> Vec<(u32, u32)> {
    // Blocks come after their dominators, so one walk from the back counts those that each
    // dominates.
    let mut sizes = vec![1u32; idom.len()];
    for index in (1..idom.len()).rev() {
        sizes[idom[index] as usize] += sizes[index];
    }
    let mut spans = vec![(0, 0); idom.len()];
    // Index of the next child of each block.
    let mut next = vec![1u32; idom.len()];
    for index in 0..idom.len() {
        let parent = idom[index] as usize;
        let first = if index == 0 { 0 } else { next[parent] };
        if index != 0 {
            next[parent] += sizes[index];
        }
        next[index] = first + 1;
        spans[index] = (first, first + sizes[index] - 1);
    }
    spans
}

fn reverse_postorder(function: &Function) -> Vec<Block> {
    let mut order = Vec::with_capacity(function.blocks.len());
    let mut seen = vec![false; function.blocks.len()];
    // Depth first without recursion: (block, successors already visited).
    let mut path = vec![(Function::ENTRY, 0)];
    if function.blocks.is_empty() {
        return order;
    }
    seen[0] = true;
    while let Some((block, visited)) = path.pop() {
        match function.block(block).end.jumps().nth(visited) {
            Some(jump) => {
                path.push((block, visited + 1));
                if !std::mem::replace(&mut seen[jump.target.0 as usize], true) {
                    path.push((jump.target, 0));
                }
            }
            None => order.push(block),
        }
    }
    order.reverse();
    order
}

fn immediate_dominators(
    order: &[Block],
    position: &[Option<u32>],
    preds: &[Vec<Block>],
) -> Vec<u32> {
    let mut idom: Vec<Option<u32>> = vec![None; order.len()];
    if let Some(entry) = idom.first_mut() {
        *entry = Some(0);
    }
    let mut changed = true;
    while changed {
        changed = false;
        for (index, block) in order.iter().enumerate().skip(1) {
            let known = preds[block.0 as usize]
                .iter()
                .filter_map(|pred| position[pred.0 as usize])
                .filter(|&pred| idom[pred as usize].is_some());
            let new = known.reduce(|a, b| common_dominator(&idom, a, b));
            if new.is_some() && idom[index] != new {
                idom[index] = new;
                changed = true;
            }
        }
    }
    // Every reachable block has a processed predecessor, so only positions of an empty order lack
    // one.
    idom.into_iter().map(|dominator| dominator.unwrap_or(0)).collect()
}

fn common_dominator(idom: &[Option<u32>], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        if a > b {
            a = idom[a as usize].unwrap_or(0);
        } else {
            b = idom[b as usize].unwrap_or(0);
        }
    }
    a
}

#[cfg(test)]
mod tests {
    use super::super::ir::{Jump, Op, Terminator, Type};
    use super::*;

    fn jump(target: Block) -> Jump {
        Jump { target, args: vec![] }
    }

    #[test]
    fn a_diamond_with_a_loop_behind_it() {
        let mut f = Function::new("f");
        let blocks: Vec<Block> = (0..6).map(|_| f.add_block()).collect();
        let c = f.push(blocks[0], 0, Type::I32, Op::Const(1));
        f.block_mut(blocks[0]).end = Terminator::Branch(c, jump(blocks[1]), jump(blocks[2]));
        f.block_mut(blocks[1]).end = Terminator::Jump(jump(blocks[3]));
        f.block_mut(blocks[2]).end = Terminator::Jump(jump(blocks[3]));
        f.block_mut(blocks[3]).end = Terminator::Branch(c, jump(blocks[3]), jump(blocks[4]));
        f.block_mut(blocks[4]).end = Terminator::Unreachable;
        let dominators = Dominators::new(&f);
        assert_eq!(dominators.immediate(blocks[3]), Some(blocks[0]));
        assert!(dominators.dominates(blocks[3], blocks[4]));
        assert!(!dominators.dominates(blocks[1], blocks[3]));
        assert!(!dominators.is_reachable(blocks[5]));
        assert_eq!(dominators.predecessors(blocks[3]).len(), 3);
    }
}
