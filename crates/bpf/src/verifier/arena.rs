//! Explored states: later paths are compared with them, and precision is marked in them.
//!
//! States refer to their parents by index, so that a mark can travel up a path while all states
//! stay in one place.

use std::collections::HashMap;

use super::state::{State, StateId};

/// A kept state, and its use so far.
#[derive(Debug)]
pub(crate) struct Explored {
    pub(crate) state: State,
    pub(crate) hits: u32,
    pub(crate) misses: u32,
    /// Whether it is no longer compared with, and kept for its children only.
    pub(crate) evicted: bool,
}

/// All kept states.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    items: Vec<Option<Box<Explored>>>,
    free: Vec<StateId>,
    /// States by instruction, the newest last.
    by_insn: HashMap<usize, Vec<StateId>>,
    live: usize,
    /// States that are evicted but not yet freed.
    retired: Vec<StateId>,
}

impl Arena {
    /// Keeps a state; it is compared with at its `insn_idx` from now on.
    pub(crate) fn insert(&mut self, state: State) -> StateId {
        let insn_idx = state.insn_idx;
        let item = Some(Box::new(Explored { state, hits: 0, misses: 0, evicted: false }));
        let id = match self.free.pop() {
            Some(id) => {
                self.items[id] = item;
                id
            }
            None => {
                self.items.push(item);
                self.items.len() - 1
            }
        };
        self.by_insn.entry(insn_idx).or_default().push(id);
        self.live += 1;
        id
    }

    /// The states to compare with at an instruction, newest first.
    pub(crate) fn at_insn(&self, insn_idx: usize) -> Vec<StateId> {
        self.by_insn
            .get(&insn_idx)
            .map(|ids| ids.iter().rev().copied().collect())
            .unwrap_or_default()
    }

    /// A state by id. Ids come from this arena and their states live as long as they have children.
    pub(crate) fn get(&self, id: StateId) -> &Explored {
        self.items[id].as_deref().expect("a state outlives the ids that refer to it")
    }

    /// As [`Arena::get`], mutable.
    pub(crate) fn get_mut(&mut self, id: StateId) -> &mut Explored {
        self.items[id].as_deref_mut().expect("a state outlives the ids that refer to it")
    }

    /// The state itself.
    pub(crate) fn state(&self, id: StateId) -> &State {
        &self.get(id).state
    }

    /// As [`Arena::state`], mutable.
    pub(crate) fn state_mut(&mut self, id: StateId) -> &mut State {
        &mut self.get_mut(id).state
    }

    /// Stops comparing with a state.
    pub(crate) fn retire(&mut self, id: StateId) {
        let insn_idx = self.state(id).insn_idx;
        if let Some(ids) = self.by_insn.get_mut(&insn_idx) {
            ids.retain(|&other| other != id);
        }
        self.get_mut(id).evicted = true;
        self.retired.push(id);
    }

    /// States that are retired but still have references.
    pub(crate) fn retired(&self) -> Vec<StateId> {
        self.retired.clone()
    }

    /// Frees a retired state without references.
    pub(crate) fn free(&mut self, id: StateId) {
        self.items[id] = None;
        self.retired.retain(|&other| other != id);
        self.free.push(id);
        self.live -= 1;
    }

    /// States kept at this moment.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Forgets everything (between functions verified on their own).
    pub(crate) fn clear(&mut self) {
        *self = Arena::default();
    }
}
