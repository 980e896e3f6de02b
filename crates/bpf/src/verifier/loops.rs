//! Loops being explored, and the paths that ended at an earlier state inside their loop.

use std::collections::HashMap;

use super::state::{State, StateId};

/// Identity of a loop: its component, and the calls it was entered through (`struct
/// bpf_scc_callchain`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LoopKey {
    pub(crate) callsites: Vec<usize>,
    pub(crate) scc: u32,
}

/// One exploration of a loop.
#[derive(Debug, Default)]
pub(crate) struct LoopVisit {
    /// The first state inside the loop; the visit ends when all paths from it have ended.
    pub(crate) entry: Option<StateId>,
    pub(crate) backedges: Vec<Backedge>,
}

/// A path that ended in a state equal to an unfinished one.
#[derive(Debug)]
pub(crate) struct Backedge {
    pub(crate) state: State,
    pub(crate) equal: StateId,
}

/// Loops being explored.
#[derive(Debug, Default)]
pub(crate) struct Loops {
    pub(crate) visits: HashMap<LoopKey, LoopVisit>,
    /// Back edges of all visits.
    pub(crate) open: usize,
}
