//! The loops being explored, and the paths that ended at an earlier state of theirs.

use std::collections::HashMap;

use super::state::{State, StateId};

/// Which loop, entered through which calls (`struct bpf_scc_callchain`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LoopKey {
    pub(crate) callsites: Vec<usize>,
    pub(crate) scc: u32,
}

/// One exploration of a loop.
#[derive(Debug, Default)]
pub(crate) struct LoopVisit {
    /// The first state inside the loop; the visit is over when all its paths are.
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
