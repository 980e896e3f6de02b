//! Programs of devmap entries, on the way to a port.

use std::sync::Arc;

use crate::hook::HookSpec;
use crate::numbers::PortId;
use crate::snapshot::Snapshot;
use crate::target::{Exit, TargetId};
use crate::targets;
use crate::worker::graph::Graph;

/// The entries' programs that redirects named since the last configuration.
#[derive(Default)]
pub(crate) struct Entries {
    hooks: Vec<EntryHook>,
}

struct EntryHook {
    to: PortId,
    program: u32,
    target: TargetId,
    hook: Arc<HookSpec>,
}

impl Entries {
    /// The port of an entry, by way of the entry's program if it has one.
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
        let known = self.hooks.iter().find(|it| it.to == to && it.program == program);
        if let Some(known) = known {
            return known.target;
        }
        let (Some(port), Some(chain)) = (snapshot.port(to), snapshot.entry_programs.get(&program))
        else {
            return Exit::NoEntryProgram.at(to);
        };
        let number = self.hooks.len() as u32;
        let target = graph.add(|id| targets::entry(id, port, number));
        let hook = Arc::new(HookSpec::devmap(to, port.ifindex, Arc::clone(chain)));
        self.hooks.push(EntryHook { to, program, target, hook });
        target
    }

    /// What becomes of frames there.
    pub(crate) fn hook(&self, number: u32) -> Arc<HookSpec> {
        Arc::clone(&self.hooks[number as usize].hook)
    }

    pub(super) fn clear(&mut self) {
        self.hooks.clear();
    }
}
