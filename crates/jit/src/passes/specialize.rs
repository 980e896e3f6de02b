//! Copies the code after a join for edges that bring many constants.
//!
//! Where a parser's paths for IPv4 and IPv6 meet, the first brings zeroes for most of the address,
//! the protocol's number and absent fields. Behind the join all of that is unknown, takes
//! registers, and is hashed, compared and put into keys word by word. In a copy for the first path
//! it is folded. Blocks behind the join that other paths reach are not copied: both versions lead
//! there.

use std::collections::{BTreeSet, HashMap};

use super::constants::{Constants, Known, agreed, merged};
use super::copy::Copy;
use super::{Context, blocks, definitions, fold, params};
use crate::xir::{Block, Dominators, Function, Inst, Jump};

/// Largest number of copies in one function.
const COPIES_MAX: usize = 4;
/// Largest number of edges to a join that are considered.
const WAYS_MAX: usize = 16;
/// Smallest number of constants that edges must share.
const CONSTANTS_MIN: usize = 4;
/// Smallest number of instructions that a copy must save.
const GAIN_MIN: usize = 24;
/// Largest number of a copy's instructions for each one that it saves.
const SIZE_PER_GAIN: usize = 64;
/// Largest number of instructions of the grown function, including those that are removed later.
const SIZE_MAX: usize = 5_000;
/// Largest number of instructions that are followed to find one copy.
const FOLLOWED_MAX: usize = 50_000;

pub(super) fn specialize(function: &mut Function, context: Context<'_>) {
    for _ in 0..COPIES_MAX {
        let dominators = Dominators::new(function);
        let definitions = definitions(function, &dominators);
        let finder = Finder { function, dominators: &dominators, definitions: &definitions };
        let Some(found) = finder.best() else { return };
        write(function, &found);
        for _ in 0..2 {
            params::remove_redundant(function, context);
            fold::run(function, context);
        }
        blocks::simplify(function, context);
    }
}

/// A copy that is worth making.
struct Found {
    /// The join, and the blocks that it dominates.
    region: Vec<Block>,
    /// Jumps to the join that go to the copy: block, and index of the jump in it.
    ways: Vec<(Block, usize)>,
    /// Number of instructions saved on all of these jumps.
    gain: usize,
}

struct Finder<'a> {
    function: &'a Function,
    dominators: &'a Dominators,
    definitions: &'a [Option<Inst>],
}

/// A jump to a join, and the constants that it brings.
struct Way {
    from: (Block, usize),
    brings: Known,
}

impl Finder<'_> {
    fn best(&self) -> Option<Found> {
        let mut time = FOLLOWED_MAX;
        let joins = self.dominators.order().iter().skip(1).filter(|&&block| self.is_join(block));
        joins.filter_map(|&join| self.at(join, &mut time)).max_by_key(|found| found.gain)
    }

    /// Whether several edges meet in a block that is not the head of a loop.
    fn is_join(&self, block: Block) -> bool {
        self.dominators.predecessors(block).len() > 1
            && !self.function.block(block).params.is_empty()
            && self.dominators.latches(block).next().is_none()
    }

    /// The region to copy, and the edges to a join that use the copy.
    fn at(&self, join: Block, time: &mut usize) -> Option<Found> {
        let ways = self.ways(join);
        let sets = shared(&ways);
        if sets.is_empty() {
            return None;
        }
        let order = self.dominators.order().iter().copied();
        let region: Vec<Block> =
            order.filter(|&block| self.dominators.dominates(join, block)).collect();
        *time = time.checked_sub(self.len(&region) * (sets.len() + 1))?;
        let written = self.len(self.dominators.order());
        let mut follower = Follower::new(self, &region);
        let mut best: Option<Found> = None;
        for set in sets {
            let (gain, left) = follower.follow(&set);
            let ways: Vec<_> =
                ways.iter().filter(|way| brings(way, &set)).map(|way| way.from).collect();
            let total = gain * ways.len();
            let pays = gain >= GAIN_MIN && left <= gain * SIZE_PER_GAIN;
            if pays
                && written + left <= SIZE_MAX
                && best.as_ref().is_none_or(|best| total > best.gain)
            {
                best = Some(Found { region: region.clone(), ways, gain: total });
            }
        }
        best
    }

    fn len(&self, blocks: &[Block]) -> usize {
        blocks.iter().map(|&block| self.function.block(block).insts.len()).sum()
    }

    fn ways(&self, join: Block) -> Vec<Way> {
        let none = Constants::new(self.function, self.definitions);
        let mut preds = self.dominators.predecessors(join).to_vec();
        preds.dedup();
        let jumps = |pred: Block| {
            self.function.block(pred).end.jumps().enumerate().map(move |at| (pred, at))
        };
        preds
            .into_iter()
            .flat_map(jumps)
            .filter(|(_, (_, jump))| jump.target == join)
            .map(|(pred, (index, jump))| Way { from: (pred, index), brings: none.args(jump) })
            .collect()
    }
}

/// Sets of constants to try: those of each edge, and those that each two edges share.
fn shared(ways: &[Way]) -> BTreeSet<Known> {
    if ways.len() > WAYS_MAX {
        return BTreeSet::new();
    }
    let is_worth = |known: &Known| known.iter().flatten().count() >= CONSTANTS_MIN;
    let pairs = ways.iter().enumerate().flat_map(|(index, a)| {
        ways[index..].iter().map(|b| agreed(a.brings.clone(), b.brings.clone()))
    });
    let differ = |known: &Known| ways.iter().any(|way| !brings(way, known));
    pairs.filter(|known| is_worth(known) && differ(known)).collect()
}

fn brings(way: &Way, wanted: &Known) -> bool {
    way.brings.iter().zip(wanted).all(|(brought, wanted)| wanted.is_none() || brought == wanted)
}

/// Computes the gain from constants.
struct Follower<'a> {
    function: &'a Function,
    dominators: &'a Dominators,
    region: &'a [Block],
    constants: Constants<'a>,
    /// Number of instructions of each block without the constants.
    plain: HashMap<Block, usize>,
}

impl<'a> Follower<'a> {
    fn new(finder: &'a Finder<'_>, region: &'a [Block]) -> Self {
        let (function, dominators) = (finder.function, finder.dominators);
        let mut constants = Constants::new(function, finder.definitions);
        let plain = |&block: &Block| (block, constants.block(block, &Known::new()));
        let plain = region.iter().map(plain).collect();
        Follower { function, dominators, region, constants, plain }
    }

    /// Number of instructions that are saved in reached blocks if the join's parameters are known,
    /// and number of those that remain.
    fn follow(&mut self, params: &Known) -> (usize, usize) {
        self.constants.clear();
        let mut reached: HashMap<Block, Known> = HashMap::from([(self.region[0], params.clone())]);
        let (mut gain, mut size) = (0, 0);
        for &block in self.region {
            let Some(mut params) = reached.remove(&block) else { continue };
            if self.dominators.latches(block).next().is_some() {
                // Further rounds bring other values.
                params.fill(None);
            }
            let left = self.constants.block(block, &params);
            gain += self.plain.get(&block).map_or(0, |plain| plain - left);
            size += left;
            for jump in self.constants.taken(&self.function.block(block).end) {
                let before = reached.remove(&jump.target);
                reached.insert(jump.target, merged(before, self.constants.args(jump)));
            }
        }
        (gain, size)
    }
}

fn write(function: &mut Function, found: &Found) {
    let from = function.clone();
    let mut copy = Copy::new(function, &from, &found.region);
    for &block in &found.region {
        let new = copy.block(block);
        copy.insts(block, new, |_| ());
        let end = copy.end(block);
        copy.into.block_mut(new).end = end;
    }
    let start = copy.block(found.region[0]);
    for &(block, index) in &found.ways {
        let jump: Option<&mut Jump> = copy.into.block_mut(block).end.jumps_mut().nth(index);
        if let Some(jump) = jump {
            jump.target = start;
        }
    }
}
