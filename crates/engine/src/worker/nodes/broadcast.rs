//! Redirects to all entries of a devmap.

use towpath_maps::Map;

use crate::hook::HookSpec;
use crate::numbers::PortId;
use crate::snapshot::Snapshot;
use crate::target::{Owner, TargetId};

/// The targets of the broadcast that was resolved last.
pub(super) struct Broadcast {
    pub(super) targets: Vec<TargetId>,
    /// The port that counts a drop if no target takes a frame.
    pub(super) owner: Owner,
}

impl Default for Broadcast {
    fn default() -> Broadcast {
        Broadcast { targets: Vec::new(), owner: Owner::NOBODY }
    }
}

impl Broadcast {
    /// Stores all targets, in the order of the map's entries; `device` returns the target of a port
    /// and a program.
    pub(super) fn note(
        &mut self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        map: &Map,
        without: Option<PortId>,
        mut device: impl FnMut(PortId, u32) -> TargetId,
    ) {
        let ports = hook.ports(&snapshot.by_ifindex);
        let ingress = without.and_then(|port| snapshot.port(port));
        self.targets.clear();
        map.for_each_target(&mut |_, entry| {
            let Some(to) = ports.get(entry.number) else { return };
            if !ingress.is_some_and(|ingress| snapshot.is_around(to, ingress)) {
                self.targets.push(device(to, entry.id));
            }
        });
        self.owner = hook.owner;
    }
}
