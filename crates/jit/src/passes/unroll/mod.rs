//! Unrolls small loops with a known number of rounds into as many copies of their body.
//!
//! Rounds are followed with their constants: a counter, all values computed from it, and the
//! branches that it decides. If a round can't come back to the loop's head, the number of rounds is
//! known, and so is the size of the unrolled code. In a copy the counter is a constant: stack bytes
//! at an index get a fixed offset, calls a constant argument.

mod close;
mod rounds;

use std::collections::BTreeSet;

use super::copy::Copy;
use super::{Context, blocks, definitions, fold, params};
use crate::xir::{Block, Dominators, Function, Inst, Terminator};
use rounds::Rounds;

/// Largest number of rounds of a loop that is unrolled.
const ROUNDS_MAX: usize = 40;
/// Largest number of instructions that remain of all rounds.
const SIZE_MAX: usize = 250;
/// Largest number of instructions that are written for a loop, including those that are folded.
const WRITTEN_MAX: usize = 4_000;
/// Largest number of nested loops that are unrolled.
const DEPTH_MAX: usize = 8;
/// Largest number of blocks of the grown function.
const BLOCKS_MAX: usize = 4_000;

pub(super) fn unroll(function: &mut Function, context: Context<'_>) {
    let mut refused = BTreeSet::new();
    // Innermost loops first: once they are unrolled, the loops around them may be small enough.
    for _ in 0..DEPTH_MAX {
        if !unroll_innermost(function, &mut refused) {
            return;
        }
        // Twice: values that each round computes again are equal after the loop once they are
        // folded.
        for _ in 0..2 {
            params::remove_redundant(function, context);
            fold::run(function, context);
        }
        blocks::simplify(function, context);
    }
}

/// Unrolls innermost loops; gives whether there was one.
fn unroll_innermost(function: &mut Function, refused: &mut BTreeSet<Block>) -> bool {
    let dominators = Dominators::new(function);
    let bodies = innermost(&dominators, refused);
    if bodies.is_empty() {
        return false;
    }
    let mut shape = Shape::of(function, dominators);
    let mut changed = false;
    for body in bodies {
        if function.blocks.len() > BLOCKS_MAX {
            break;
        }
        match rounds(function, &shape, &body) {
            None => {
                refused.insert(body.blocks[0]);
            }
            Some(rounds) => {
                write(function, &shape.dominators, &body, rounds);
                shape = Shape::of(function, Dominators::new(function));
                changed = true;
            }
        }
    }
    changed
}

/// Analyses of a function in its current form.
struct Shape {
    dominators: Dominators,
    definitions: Vec<Option<Inst>>,
}

impl Shape {
    fn of(function: &Function, dominators: Dominators) -> Shape {
        Shape { definitions: definitions(function, &dominators), dominators }
    }
}

/// A loop without inner loops.
#[derive(Debug)]
struct Body {
    /// Its head, which alone is reached from outside, then the other blocks, predecessors first.
    blocks: Vec<Block>,
    /// The same blocks, as a set.
    members: BTreeSet<Block>,
}

impl Body {
    fn has(&self, block: Block) -> bool {
        self.members.contains(&block)
    }
}

/// Loops that were not refused and contain no refused one. They share no block.
fn innermost(dominators: &Dominators, refused: &BTreeSet<Block>) -> Vec<Body> {
    let order = dominators.order().iter().copied();
    let heads: BTreeSet<Block> =
        order.filter(|&head| dominators.latches(head).next().is_some()).collect();
    let candidates = heads.iter().filter(|head| !refused.contains(head));
    candidates
        .filter_map(|&head| body(dominators, head))
        .filter(|body| body.blocks[1..].iter().all(|block| !heads.contains(block)))
        .collect()
}

/// Blocks from which a loop's head is reached again; `None` if they have another entry.
fn body(dominators: &Dominators, head: Block) -> Option<Body> {
    let mut found = BTreeSet::from([head]);
    let mut open: Vec<Block> = dominators.latches(head).collect();
    while let Some(block) = open.pop() {
        if !dominators.dominates(head, block) {
            return None;
        }
        if found.insert(block) {
            open.extend(dominators.predecessors(block));
        }
    }
    let order = dominators.order().iter().copied();
    let blocks = order.filter(|block| found.contains(block)).collect();
    Some(Body { blocks, members: found })
}

/// Number of rounds of a loop, if it is known and unrolling pays.
fn rounds(function: &Function, shape: &Shape, body: &Body) -> Option<usize> {
    let written: usize = body.blocks.iter().map(|&block| function.block(block).insts.len()).sum();
    let mut rounds = Rounds::new(function, shape, body);
    let mut size = 0;
    for round in 1..=ROUNDS_MAX {
        let (left, comes_back) = rounds.follow();
        size += left;
        if size > SIZE_MAX || round * written > WRITTEN_MAX {
            return None;
        }
        if !comes_back {
            return Some(round);
        }
    }
    None
}

/// Writes the rounds one after the other. The loop itself is the first.
fn write(function: &mut Function, dominators: &Dominators, body: &Body, rounds: usize) {
    close::pass_on(function, dominators, body);
    let head = body.blocks[0];
    let from = function.clone();
    // No code follows the last round.
    let none = function.add_block();
    let mut next = none;
    for _ in 1..rounds {
        let mut copy = Copy::new(function, &from, &body.blocks);
        for &block in &body.blocks {
            let new = copy.block(block);
            copy.insts(block, new, |_| ());
            let mut end = copy.end(block);
            go_on(&mut end, copy.block(head), next, none);
            copy.into.block_mut(new).end = end;
        }
        next = copy.block(head);
    }
    for &block in &body.blocks {
        go_on(&mut function.block_mut(block).end, head, next, none);
    }
}

/// Redirects jumps from a round's start to the next round's; `none` stands for no further round.
fn go_on(end: &mut Terminator, head: Block, next: Block, none: Block) {
    for jump in end.jumps_mut().filter(|jump| jump.target == head) {
        jump.target = next;
        if next == none {
            jump.args.clear();
        }
    }
}
