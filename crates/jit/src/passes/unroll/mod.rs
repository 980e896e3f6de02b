//! Loops whose number of rounds is known, and small, become that many copies of their body.
//!
//! Rounds are followed with what is constant in them: a counter, whatever is computed from it, and
//! the branches it decides. When a round can't come back to the loop's start, the rounds are known,
//! and so is how much they leave to do. In a copy the counter is a number: stack bytes at an index
//! get a place of their own, calls a constant argument.

mod close;
mod rounds;

use std::collections::BTreeSet;

use super::copy::Copy;
use super::{Context, blocks, definitions, fold, params};
use crate::xir::{Block, Dominators, Function, Inst, Terminator};
use rounds::Rounds;

/// Rounds of a loop that is unrolled, at most.
const ROUNDS_MAX: usize = 40;
/// What all rounds of one may leave to do, in instructions.
const SIZE_MAX: usize = 250;
/// Instructions that are written for a loop, those included that fold away.
const WRITTEN_MAX: usize = 4_000;
/// Loops around one another that are unrolled, at most.
const DEPTH_MAX: usize = 8;
/// Blocks of a function up to which it grows.
const BLOCKS_MAX: usize = 4_000;

pub(super) fn unroll(function: &mut Function, context: Context<'_>) {
    let mut refused = BTreeSet::new();
    // Innermost loops first: without them, those around may be small enough.
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

/// Whether there was anything to do.
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

/// What is known of a function as it is.
struct Shape {
    dominators: Dominators,
    definitions: Vec<Option<Inst>>,
}

impl Shape {
    fn of(function: &Function, dominators: Dominators) -> Shape {
        Shape { definitions: definitions(function, &dominators), dominators }
    }
}

/// A loop without another one in it.
#[derive(Debug)]
struct Body {
    /// Its first block, which alone is reached from outside, then the others in an order in which
    /// predecessors come first.
    blocks: Vec<Block>,
    /// The same.
    members: BTreeSet<Block>,
}

impl Body {
    fn has(&self, block: Block) -> bool {
        self.members.contains(&block)
    }
}

/// The loops that were not refused, nor are around one that was. They share no block.
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

/// The blocks from which a loop's start is reached again; `None` where they are entered elsewhere.
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

/// How many rounds a loop takes, where that is known and they are worth writing down.
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
    // Nothing goes on behind the last round.
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

/// Turns jumps to a round's start into jumps to the next one's, which `none` is not.
fn go_on(end: &mut Terminator, head: Block, next: Block, none: Block) {
    for jump in end.jumps_mut().filter(|jump| jump.target == head) {
        jump.target = next;
        if next == none {
            jump.args.clear();
        }
    }
}
