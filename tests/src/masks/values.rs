//! What is known of a register's value, and of the way that led to an instruction.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use iced_x86::ConditionCode;

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
    /// What so many of the branches say that no state is known to be computed from yet.
    Prior(usize),
    /// 0 where a branch was foreseen wrongly.
    Masked,
}

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) kind: Kind,
    /// Equal only for equal values.
    pub(super) id: u64,
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
        /// In order: what was compared, and what of it is true on this way.
        branches: Vec<(u64, ConditionCode)>,
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
    pub(super) flags: u64,
    /// Only the runtime's own numbers were compared.
    pub(super) is_own_comparison: bool,
    pub(super) flow: Flow,
}

pub(super) fn id(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Kind {
    /// How often what is read through it is the runtime's own, if it is that itself.
    pub(super) fn level(self) -> Option<u8> {
        match self {
            Kind::Const(_) => Some(LEVEL_MAX),
            Kind::Fixed(level) => Some(level),
            _ => None,
        }
    }

    /// What a sum of values is, and other things that are computed of them.
    pub(super) fn of_all(kinds: impl Iterator<Item = Kind>) -> Kind {
        let levels: Option<Vec<u8>> = kinds.map(Kind::level).collect();
        levels
            .map_or(Kind::Any, |levels| Kind::Fixed(levels.into_iter().min().unwrap_or(LEVEL_MAX)))
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
            // One of two numbers of the program's is no number of the runtime's.
            (Const(_), Const(_)) => Kind::Fixed(LEVEL_MAX - 1),
            (a, b) if a.level().is_some() && b.level().is_some() => {
                Kind::of_all([a, b].into_iter())
            }
            (Masked, b) if b.level().is_some() => Masked,
            (a, Masked) if a.level().is_some() => Masked,
            _ => Kind::Any,
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
        branches.push((self.flags, holds));
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
        let places: Vec<Place> = self.cells.keys().chain(other.cells.keys()).copied().collect();
        for at in places {
            let (a, b) = (self.get(at), other.get(at));
            let kind = a.kind.joined(clean, b.kind, other_clean);
            let id = if a.id == b.id { a.id } else { id((place, at)) };
            self.cells.insert(at, Cell { kind, id });
        }
        if self.flags != other.flags {
            self.flags = id((place, "flags"));
        }
        self.is_own_comparison &= other.is_own_comparison;
        match (&self.flow, &other.flow) {
            (a, b) if a == b => {}
            (Flow::Clean | Flow::Tracked, Flow::Clean | Flow::Tracked) => self.flow = Flow::Tracked,
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
