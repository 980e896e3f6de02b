//! Checks made on every path to a point: valid ranges around addresses.

use std::collections::HashMap;

use super::pointers::Pointers;
use crate::xir::{Block, Cond, Dominators, Function, Op, Terminator, Value};

/// Memory without holes: all bytes between two valid places are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Area {
    /// The frame's metadata and linear bytes.
    Packet,
    /// Values of a map.
    Map(u32),
    /// The function's own frame.
    Stack,
    /// Memory around an address that is not null.
    NotNull,
    /// One unknown object, until the next call, which may end it.
    Any {
        /// Whether the memory may be written.
        write: bool,
    },
}

impl Area {
    /// Whether readable memory of this kind is also writable.
    pub(super) fn is_all_writable(self) -> bool {
        !matches!(self, Area::Any { .. })
    }
}

/// Bytes around an address: offsets of the first and of one past the last.
pub(super) type Range = (i64, i64);

/// Valid ranges by block.
pub(super) struct Facts {
    known: Vec<HashMap<(Value, Area), Range>>,
    /// Blocks behind which no fact about the packet holds.
    moved: Vec<bool>,
    /// Blocks with a call: no fact about objects holds behind it.
    called: Vec<bool>,
    /// Blocks that may be entered after the packet was moved.
    behind: Vec<bool>,
}

impl Facts {
    /// No facts, for a function in which the `moving` blocks move the packet.
    pub(super) fn new(function: &Function, dominators: &Dominators, moving: &[bool]) -> Self {
        let none = vec![false; moving.len()];
        let behind = behind(function, dominators, moving);
        Facts {
            known: vec![HashMap::new(); moving.len()],
            moved: none.clone(),
            called: none,
            behind,
        }
    }

    /// Whether the packet may have been moved before the current instruction of a block.
    pub(super) fn may_have_moved(&self, block: Block) -> bool {
        self.behind[block.0 as usize] || self.moved[block.0 as usize]
    }

    /// The valid range of an address here: one range, from all checks on the path.
    pub(super) fn find(
        &self,
        dominators: &Dominators,
        block: Block,
        root: Value,
        area: Area,
    ) -> Option<Range> {
        let mut found: Option<Range> = None;
        let mut at = block;
        for _ in 0..ANCESTORS_MAX {
            if let Some(&(low, high)) = self.known[at.0 as usize].get(&(root, area)) {
                found = Some(joined(area, found, (low, high)));
            }
            let Some(above) = dominators.immediate(at) else { break };
            // Whether facts end in this block, and whether they may end on another path to it.
            let (ends, can_end) = match area {
                Area::Any { .. } => (self.called[at.0 as usize], true),
                Area::Packet => (self.moved[at.0 as usize], self.behind[at.0 as usize]),
                _ => (false, false),
            };
            if ends || (can_end && dominators.predecessors(at) != [above]) {
                break;
            }
            at = above;
        }
        found
    }

    pub(super) fn add(&mut self, block: Block, root: Value, area: Area, range: Range) {
        let known = self.known[block.0 as usize].entry((root, area)).or_insert(range);
        *known = joined(area, Some(*known), range);
    }

    /// Records a call; the packet's bounds may change if it `moves` them.
    pub(super) fn called(&mut self, block: Block, moves: bool) {
        self.known[block.0 as usize].retain(|(_, area), _| match area {
            Area::Any { .. } => false,
            Area::Packet => !moves,
            _ => true,
        });
        self.moved[block.0 as usize] |= moves;
        self.called[block.0 as usize] = true;
    }

    /// Records the condition of the branch that leads to a block.
    pub(super) fn enter(
        &mut self,
        function: &Function,
        dominators: &Dominators,
        pointers: &Pointers<'_>,
        block: Block,
    ) {
        let [only] = dominators.predecessors(block) else { return };
        let Terminator::Branch(condition, yes, no) = &function.block(*only).end else { return };
        let taken = yes.target == block;
        if taken == (no.target == block) {
            return;
        }
        let Some(Op::Compare(cond, a, b)) = pointers.op(*condition) else { return };
        let cond = if taken { *cond } else { cond.negated() };
        self.not_null(pointers, block, cond, (*a, *b));
        // If the program moved the packet, `end` may be an old one.
        if self.behind[block.0 as usize] {
            return;
        }
        // All comparisons are brought into the form `low <= high` or `low < high`.
        let (low, high, beyond) = match cond {
            Cond::Ule => (*a, *b, 0),
            Cond::Ult => (*a, *b, 1),
            Cond::Uge => (*b, *a, 0),
            Cond::Ugt => (*b, *a, 1),
            _ => return,
        };
        if !pointers.is_end(high) {
            return;
        }
        let (root, offset) = pointers.root(low);
        if pointers.is_behind_start(root) && offset + beyond >= 0 {
            self.add(block, root, Area::Packet, (0, offset + beyond));
        }
    }

    fn not_null(
        &mut self,
        pointers: &Pointers<'_>,
        block: Block,
        cond: Cond,
        (a, b): (Value, Value),
    ) {
        if cond == Cond::Ne && pointers.constant(b) == Some(0) {
            self.add(block, a, Area::NotNull, (i64::MIN, i64::MAX));
        }
    }
}

/// Blocks that are reachable through one that moves the packet.
fn behind(function: &Function, dominators: &Dominators, moving: &[bool]) -> Vec<bool> {
    let mut behind = vec![false; moving.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for &block in dominators.order() {
            if !behind[block.0 as usize] && !moving[block.0 as usize] {
                continue;
            }
            for jump in function.block(block).end.jumps() {
                changed |= !std::mem::replace(&mut behind[jump.target.0 as usize], true);
            }
        }
    }
    behind
}

/// The range that two checks give together.
fn joined(area: Area, known: Option<Range>, other: Range) -> Range {
    match (area, known) {
        (_, None) => other,
        // The ranges may be of different objects.
        (Area::Any { .. }, Some(known)) => {
            if other.1 - other.0 > known.1 - known.0 {
                other
            } else {
                known
            }
        }
        (_, Some(known)) => (known.0.min(other.0), known.1.max(other.1)),
    }
}

/// Largest number of blocks to search for facts.
const ANCESTORS_MAX: usize = 100;
