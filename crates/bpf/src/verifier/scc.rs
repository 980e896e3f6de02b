//! Loops: strongly connected components of the control flow, and their visits during exploration.
//!
//! A path that ends at an earlier state of its own loop ends there before that state's precision
//! and liveness marks are final. Such ends are remembered as back edges of the loop's visit, and
//! the marks are transferred over them once the loop has been explored (`propagate_backedges`).

use super::env::Verifier;
use super::loops::{Backedge, LoopKey};
use super::state::{State, StateId};

/// Number of rounds of transferring marks over back edges before everything is marked
/// (`MAX_BACKEDGE_ITERS`).
const ROUNDS_MAX: u32 = 64;

impl Verifier<'_> {
    /// The outermost loop that contains a state (`compute_scc_callchain`).
    pub(crate) fn loop_key(&self, state: &State) -> Option<LoopKey> {
        let mut callsites = Vec::new();
        for frame in 0..state.frames.len() {
            let idx = state.frame_insn(frame);
            let scc = self.learned.aux.get(idx)?.scc;
            if scc != 0 {
                return Some(LoopKey { callsites, scc });
            }
            callsites.push(idx);
        }
        None
    }

    /// Begins a visit if a kept state is the first one of its loop.
    pub(crate) fn maybe_enter_loop(&mut self, id: StateId) {
        let Some(key) = self.loop_key(self.search.arena.state(id)) else { return };
        let visit = self.search.loops.visits.entry(key).or_default();
        visit.entry.get_or_insert(id);
    }

    /// Ends a visit if a kept state, whose paths have all ended, was the first one of its loop.
    /// True if the states that waited for the loop's marks were freed.
    pub(crate) fn maybe_exit_loop(&mut self, id: StateId) -> bool {
        let Some(key) = self.loop_key(self.search.arena.state(id)) else { return false };
        let Some(visit) = self.search.loops.visits.get_mut(&key) else { return false };
        if visit.entry != Some(id) {
            return false;
        }
        visit.entry = None;
        let backedges = std::mem::take(&mut visit.backedges);
        self.search.loops.open -= backedges.len();
        if backedges.is_empty() {
            return false;
        }
        self.propagate_backedges(backedges);
        self.free_retired();
        true
    }

    /// Whether the marks of a state are not final (`incomplete_read_marks`).
    pub(crate) fn marks_incomplete(&self, state: &State) -> bool {
        if self.search.loops.open == 0 {
            return false;
        }
        let Some(key) = self.loop_key(state) else { return false };
        self.search.loops.visits.get(&key).is_some_and(|visit| !visit.backedges.is_empty())
    }

    /// Remembers that a copy of the current state ended in `equal`. False if it is in no loop.
    pub(crate) fn add_backedge(&mut self, equal: StateId, state: State) -> bool {
        let Some(key) = self.loop_key(self.search.arena.state(equal)) else { return false };
        let Some(visit) = self.search.loops.visits.get_mut(&key) else { return false };
        visit.backedges.push(Backedge { state, equal });
        self.search.loops.open += 1;
        true
    }

    fn propagate_backedges(&mut self, mut backedges: Vec<Backedge>) {
        for round in 0.. {
            if round >= ROUNDS_MAX {
                for backedge in &mut backedges {
                    self.mark_all_scalars_precise(&mut backedge.state);
                }
                return;
            }
            let mut changed = false;
            for backedge in &mut backedges {
                changed |= self.propagate_liveness(backedge.equal, &backedge.state);
                changed |= self.propagate_precision(backedge.equal, &mut backedge.state);
            }
            if !changed {
                return;
            }
        }
    }

    /// Numbers the strongly connected components of each function (Tarjan, without recursion).
    pub(crate) fn compute_scc(&mut self) {
        let mut search = Tarjan::new(self.input.prog.insns.len());
        for root in 0..self.input.prog.insns.len() {
            if search.order[root] == 0 {
                self.search_from(&mut search, root);
            }
        }
    }

    fn search_from(&mut self, search: &mut Tarjan, root: usize) {
        search.visit(root);
        while let Some(&mut (idx, ref mut next)) = search.calls.last_mut() {
            let successors = self.successors(idx);
            if let Some(&target) = successors.as_slice().get(*next) {
                *next += 1;
                if target >= search.order.len() {
                    continue;
                }
                if search.order[target] == 0 {
                    search.visit(target);
                } else if search.on_stack[target] {
                    search.low[idx] = search.low[idx].min(search.order[target]);
                }
                continue;
            }
            search.calls.pop();
            if let Some(&(caller, _)) = search.calls.last() {
                search.low[caller] = search.low[caller].min(search.low[idx]);
            }
            if search.low[idx] == search.order[idx] {
                self.close_component(search, idx);
            }
        }
    }

    fn close_component(&mut self, search: &mut Tarjan, root: usize) {
        let from = search.stack.iter().rposition(|&idx| idx == root).unwrap_or(0);
        let members = search.stack.split_off(from);
        // A call that calls back is a loop of one instruction.
        let is_loop = members.len() > 1
            || self.learned.aux[root].calls_callback
            || self.successors(root).as_slice().contains(&root);
        if is_loop {
            search.components += 1;
        }
        for idx in members {
            search.on_stack[idx] = false;
            if is_loop {
                self.learned.aux[idx].scc = search.components;
            }
        }
    }
}

/// State of Tarjan's algorithm.
struct Tarjan {
    /// Order of discovery, from 1.
    order: Vec<u32>,
    low: Vec<u32>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    /// Stack of visits: instruction, and index of its next successor.
    calls: Vec<(usize, usize)>,
    discovered: u32,
    components: u32,
}

impl Tarjan {
    fn new(count: usize) -> Self {
        Tarjan {
            order: vec![0; count],
            low: vec![0; count],
            on_stack: vec![false; count],
            stack: Vec::new(),
            calls: Vec::new(),
            discovered: 0,
            components: 0,
        }
    }

    fn visit(&mut self, idx: usize) {
        self.discovered += 1;
        self.order[idx] = self.discovered;
        self.low[idx] = self.discovered;
        self.on_stack[idx] = true;
        self.stack.push(idx);
        self.calls.push((idx, 0));
    }
}
