//! What is known of a register's value, and of the way that led to an instruction.

use iced_x86::ConditionCode;
use std::collections::{BTreeMap, BTreeSet};

use super::identity::{Flags, Id, Truth, chain, id};

/// What kind of value it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// It may be what a program wants it to be.
    Any,
    /// The runtime's own: an address of a record, or a number out of one. What is read through it
    /// is the runtime's own, too, so many times.
    Fixed(u8),
    Const(i64),
    /// All ones where every branch was foreseen rightly, else 0.
    State,
    /// All ones where all that holds, else 0: computed ahead of the branches that ask for it.
    Says(u64),
    /// What so many of the branches say that no state is known to be computed from yet.
    Prior(usize),
    /// 0 where a branch was foreseen wrongly.
    Masked,
    /// 0 where not all that holds: masked ahead of the branches that ask for it.
    MaskedBy(u64),
}

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) kind: Kind,
    pub(super) id: Id,
}

/// What lies between an instruction and the last barrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flow {
    /// No branch.
    Clean,
    /// Branches, and [`Kind::State`] is what all of them say.
    Tracked,
    /// More branches than that.
    Branched {
        /// In order, what is true on this way.
        branches: Vec<Truth>,
        /// Before the first of them, there was none.
        was_clean: bool,
    },
    /// Branches that no value is known to be computed from.
    Lost,
}

/// Where a value is: a register by number, or a slot of the native stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Place {
    Register(usize),
    Slot { by_frame: bool, offset: i64 },
}

/// All that is known at an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) cells: BTreeMap<Place, Cell>,
    pub(super) flags: Flags,
    /// Only the runtime's own numbers were compared.
    pub(super) is_own_comparison: bool,
    pub(super) flow: Flow,
}

impl Kind {
    /// How often what is read through it is the runtime's own, if it is that itself.
    ///
    /// What is computed of the program's constants alone, as the counter of a loop, is no choice
    /// of what runs, but no number of the runtime's either.
    pub(super) fn level(self) -> Option<u8> {
        match self {
            Kind::Const(_) => Some(LEVEL_MAX - 1),
            Kind::Fixed(level) => Some(level),
            _ => None,
        }
    }

    /// What a sum of values is, and other things that are computed of them.
    pub(super) fn of_all(kinds: impl Iterator<Item = Kind>) -> Kind {
        let (mut level, mut is_own) = (LEVEL_MAX, false);
        for kind in kinds {
            match kind {
                Kind::Const(_) => {}
                Kind::Fixed(of_this) => (level, is_own) = (level.min(of_this), true),
                _ => return Kind::Any,
            }
        }
        Kind::Fixed(if is_own { level } else { LEVEL_MAX - 1 })
    }

    /// What a value is that comes on two ways; `clean`: no branch was on the one it came by.
    fn joined(self, clean: bool, other: Kind, other_clean: bool) -> Kind {
        use Kind::{Const, Masked, State};
        let is_state = |kind, clean| match kind {
            State | Const(0) => true,
            Const(ALL_ONES) => clean,
            _ => false,
        };
        match (self, other) {
            (a, b) if a == b => a,
            (a, b) if is_state(a, clean) && is_state(b, other_clean) => State,
            (Masked, b) if b.level().is_some() => Masked,
            (a, Masked) if a.level().is_some() => Masked,
            (a, b) => match (a.level(), b.level()) {
                (Some(a), Some(b)) => Kind::Fixed(a.min(b)),
                _ => Kind::Any,
            },
        }
    }

    /// What a value is behind one more branch, of which `before` are not in the state yet.
    fn behind_branch(self, before: usize) -> Kind {
        match self {
            Kind::State => Kind::Prior(before),
            Kind::Masked => Kind::Any,
            other => other,
        }
    }

    /// What a value is where nothing is left of the branches that it is computed from.
    fn forgotten(self) -> Kind {
        match self {
            Kind::State | Kind::Prior(_) | Kind::Masked => Kind::Any,
            other => other,
        }
    }
}

impl Known {
    pub(super) fn get(&self, place: Place) -> Cell {
        self.cells.get(&place).copied().unwrap_or(Cell { kind: Kind::Any, id: id(place) })
    }

    pub(super) fn is_clean(&self) -> bool {
        self.flow == Flow::Clean
    }

    /// On a way behind a branch on which `holds` is true.
    pub(super) fn behind(&self, holds: ConditionCode) -> Known {
        let mut known = self.clone();
        let (mut branches, was_clean) = match &self.flow {
            _ if self.is_own_comparison => (Vec::new(), true),
            Flow::Clean => (Vec::new(), true),
            Flow::Tracked => (Vec::new(), false),
            Flow::Branched { branches, was_clean } => (branches.clone(), *was_clean),
            Flow::Lost => return known.lost(),
        };
        if branches.len() >= BRANCHES_MAX {
            return known.lost();
        }
        let before = branches.len();
        branches.push(self.flags.truth(holds));
        known.flow = Flow::Branched { branches, was_clean };
        for cell in known.cells.values_mut() {
            cell.kind = match self.is_own_comparison {
                true => cell.kind.forgotten(),
                false => cell.kind.behind_branch(before),
            };
        }
        known
    }

    fn lost(mut self) -> Known {
        self.flow = Flow::Lost;
        for cell in self.cells.values_mut() {
            cell.kind = cell.kind.forgotten();
        }
        self
    }

    /// A value, where what was computed ahead of the branches is the state behind them.
    fn settled(&self, kind: Kind) -> Kind {
        match kind {
            Kind::Says(_) if self.is_state(kind) => Kind::State,
            Kind::MaskedBy(_) if self.is_masked(kind) => Kind::Masked,
            _ => kind,
        }
    }

    /// The way that led here, where some value says all of it.
    fn settle_flow(&mut self) {
        let says = |cell: &Cell| matches!(cell.kind, Kind::Says(_)) && self.is_state(cell.kind);
        if self.cells.values().any(says) {
            self.is_followed();
        }
    }

    /// Whether it is 0 where any branch was foreseen wrongly.
    pub(super) fn is_masked(&self, kind: Kind) -> bool {
        match kind {
            Kind::MaskedBy(all) => self.is_state(Kind::Says(all)),
            _ => kind == Kind::Masked,
        }
    }

    /// Whether it is what all branches so far say.
    pub(super) fn is_state(&self, kind: Kind) -> bool {
        match (kind, &self.flow) {
            (Kind::State, flow) => *flow == Flow::Tracked,
            (Kind::Const(ALL_ONES), flow) => *flow == Flow::Clean,
            (Kind::Says(all), Flow::Branched { branches, was_clean: true }) => {
                chain(branches) == all
            }
            _ => false,
        }
    }

    /// Of how many of the branches a value says whether they went that way.
    pub(super) fn said(&self, kind: Kind) -> Option<usize> {
        let Flow::Branched { branches, was_clean } = &self.flow else { return None };
        match kind {
            Kind::Prior(count) => Some(count),
            Kind::Const(ALL_ONES) if *was_clean => Some(0),
            Kind::Says(all) if *was_clean => {
                (1..=branches.len()).find(|count| chain(&branches[..*count]) == all)
            }
            _ => None,
        }
    }

    /// Behind a barrier, all branches went the way that the program takes.
    pub(super) fn is_clear(&mut self) {
        self.flow = Flow::Clean;
        for cell in self.cells.values_mut() {
            if let Kind::Prior(_) = cell.kind {
                cell.kind = Kind::State;
            }
        }
    }

    /// The state is what all branches so far say.
    pub(super) fn is_followed(&mut self) {
        self.flow = Flow::Tracked;
        for cell in self.cells.values_mut() {
            if let Kind::Prior(_) = cell.kind {
                cell.kind = Kind::Any;
            }
        }
    }

    /// Adds what is known on another way to the same place.
    pub(super) fn join(&mut self, other: &Known, place: u64) {
        let (clean, other_clean) = (self.is_clean(), other.is_clean());
        let places: BTreeSet<Place> =
            self.cells.keys().chain(other.cells.keys()).copied().collect();
        // What is the same on each way is the same behind them.
        let mut joined: BTreeMap<(Id, Id), Id> = BTreeMap::new();
        let mut cells = BTreeMap::new();
        for at in places {
            let (a, b) = (self.get(at), other.get(at));
            let kind = if a.kind == b.kind {
                a.kind
            } else {
                self.settled(a.kind).joined(clean, other.settled(b.kind), other_clean)
            };
            let id = if a.id == b.id {
                a.id
            } else {
                *joined.entry((a.id, b.id)).or_insert_with(|| id((place, at)))
            };
            cells.insert(at, Cell { kind, id });
        }
        self.join_flows(other.clone(), cells);
        if self.flags != other.flags {
            self.flags = Flags::of((place, "flags"));
        }
        self.is_own_comparison &= other.is_own_comparison;
    }

    /// Joins the ways themselves; `cells` is what is known behind them.
    fn join_flows(&mut self, mut other: Known, cells: BTreeMap<Place, Cell>) {
        let is_same = self.flow == other.flow;
        if !is_same {
            self.settle_flow();
            other.settle_flow();
        }
        self.cells = cells;
        match (&self.flow, &other.flow) {
            _ if is_same => {}
            (Flow::Clean | Flow::Tracked, Flow::Clean | Flow::Tracked) => self.is_followed(),
            _ => *self = self.clone().lost(),
        }
    }
}

/// Records of the runtime, and those they lead to.
pub(super) const LEVEL_MAX: u8 = 2;
/// Branches that no state is known to be computed from, at most.
const BRANCHES_MAX: usize = 16;
/// The word on the way that the program takes.
pub(super) const ALL_ONES: i64 = -1;
