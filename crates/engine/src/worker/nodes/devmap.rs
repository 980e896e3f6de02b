//! Programs of devmap entries, on the way to a port.
//!
//! The targets of their verdicts (a passed frame is sent, every other one is dropped:
//! `dev_map_bpf_prog_run`) are the row of [`HookSpec::devmap`].

use std::sync::Arc;

use crate::hook::HookSpec;
use crate::numbers::PortId;
use crate::snapshot::Snapshot;
use crate::target::{Exit, TargetId};
use crate::targets;
use crate::worker::graph::Graph;

/// Hooks for programs of devmap entries, added at first use since the last change of configuration.
#[derive(Default)]
pub(crate) struct Entries {
    hooks: Vec<EntryHook>,
    /// By port: the last of its hooks, if it has any.
    last: Vec<Option<usize>>,
}

struct EntryHook {
    program: u32,
    target: TargetId,
    hook: Arc<HookSpec>,
    /// The hook of the same port before it.
    before: Option<usize>,
}

impl Entries {
    /// The target for an entry: the port, through the entry's program if it has one.
    pub(super) fn target(
        &mut self,
        graph: &mut Graph,
        snapshot: &Snapshot,
        to: PortId,
        program: u32,
    ) -> TargetId {
        if program == 0 {
            return Exit::Redirect.at(to);
        }
        if let Some(known) = self.of_port(to).find(|it| it.program == program) {
            return known.target;
        }
        let (Some(port), Some(chain)) = (snapshot.port(to), snapshot.entry_programs.get(&program))
        else {
            return Exit::NoEntryProgram.at(to);
        };
        let number = self.hooks.len();
        let target = graph.add(|id| targets::entry(id, port, number as u32));
        let hook = Arc::new(HookSpec::devmap(to, port.ifindex, Arc::clone(chain)));
        let place = to.0 as usize;
        self.last.resize(self.last.len().max(place + 1), None);
        let before = self.last[place].replace(number);
        self.hooks.push(EntryHook { program, target, hook, before });
        target
    }

    /// The hooks of a port: one, unless entries of several maps lead to it.
    fn of_port(&self, to: PortId) -> impl Iterator<Item = &EntryHook> {
        let last = self.last.get(to.0 as usize).copied().flatten();
        let hook = |place: usize| &self.hooks[place];
        std::iter::successors(last.map(hook), move |it| it.before.map(hook))
    }

    /// The entry hook with this number.
    pub(crate) fn hook(&self, number: u32) -> Arc<HookSpec> {
        Arc::clone(&self.hooks[number as usize].hook)
    }

    pub(super) fn clear(&mut self) {
        self.hooks.clear();
        self.last.clear();
    }
}
