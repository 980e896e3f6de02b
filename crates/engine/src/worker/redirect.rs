//! `XDP_REDIRECT`: resolves a frame's own redirect to a target (`xdp_do_redirect`).
//!
//! Whether the target takes the frame (up, MTU: `xdp_ok_fwd_dev`; frags: `__xdp_enqueue`) is
//! decided by [`crate::admit::admit`].

use towpath_bpf::program::MapType;
use towpath_maps::Map;
use towpath_xdp::{Action, Burst, KNOWN_TARGETS, KnownTargets, RedirectTarget};

use super::nodes::Nodes;
use super::scatter::WAYS;
use crate::counters::DropReason;
use crate::hook::HookSpec;
use crate::lane::CpuEntry;
use crate::snapshot::Snapshot;
use crate::target::{Exit, TargetId};

/// A cache of the redirects of a burst that were resolved last: most frames repeat one of them, and
/// need no lookup in maps and tables.
pub(super) struct Resolved<'a> {
    hook: &'a HookSpec,
    known: KnownTargets,
    /// For each known redirect: its index in `targets`.
    ways: [u8; KNOWN_TARGETS],
    /// The distinct targets so far.
    targets: [TargetId; WAYS],
    count: usize,
    /// Whether targets were discarded because there were too many, or because another broadcast
    /// took the place of one.
    has_forgotten: bool,
}

impl<'a> Resolved<'a> {
    pub(super) fn new(hook: &'a HookSpec) -> Resolved<'a> {
        Resolved {
            hook,
            known: KnownTargets::default(),
            ways: [0; KNOWN_TARGETS],
            targets: [TargetId::AS_FRAME_SAYS; WAYS],
            count: 0,
            has_forgotten: false,
        }
    }

    /// All targets so far, if none was discarded.
    pub(super) fn targets(&self) -> Option<&[TargetId]> {
        (!self.has_forgotten).then_some(&self.targets[..self.count])
    }

    /// The target of a frame of a burst.
    #[inline]
    pub(super) fn target(
        &mut self,
        snapshot: &Snapshot,
        burst: &Burst,
        index: usize,
        nodes: &mut Nodes,
    ) -> TargetId {
        let to = self.hook.target(burst.action(index));
        if to != TargetId::AS_FRAME_SAYS {
            return to;
        }
        self.targets[usize::from(self.way(snapshot, burst, index, nodes))]
    }

    /// The target of a redirected frame, as an index in [`Resolved::targets`].
    #[inline]
    pub(super) fn way(
        &mut self,
        snapshot: &Snapshot,
        burst: &Burst,
        index: usize,
        nodes: &mut Nodes,
    ) -> u8 {
        let known = self.known.place_of(burst, index);
        let place = known.unwrap_or_else(|| self.look_up(snapshot, burst, index, nodes));
        self.ways[place]
    }

    #[cold]
    fn look_up(
        &mut self,
        snapshot: &Snapshot,
        burst: &Burst,
        index: usize,
        nodes: &mut Nodes,
    ) -> usize {
        let to = resolve(snapshot, self.hook, burst.last_redirect(index), nodes);
        let way = self.targets[..self.count].iter().position(|known| *known == to);
        // The lookup of a broadcast replaced the target list of earlier broadcasts.
        if to == TargetId::BROADCAST || way.is_none() && self.count == WAYS {
            *self = Resolved { has_forgotten: true, ..Resolved::new(self.hook) };
        }
        let way = way.filter(|_| self.count > 0).unwrap_or_else(|| {
            self.targets[self.count] = to;
            self.count += 1;
            self.count - 1
        });
        let place = self.known.keep(burst, index);
        self.ways[place] = way as u8;
        place
    }

    /// The common target of all frames of a burst, if there is one.
    #[inline]
    pub(super) fn common(
        &mut self,
        snapshot: &Snapshot,
        burst: &Burst,
        nodes: &mut Nodes,
    ) -> Option<TargetId> {
        let to = self.hook.target(Action::from_returned(burst.unanimous()?));
        if to == TargetId::AS_FRAME_SAYS && !burst.lead_to_one() {
            return None;
        }
        Some(self.target(snapshot, burst, 0, nodes))
    }
}

/// The target that a redirect names.
fn resolve(
    snapshot: &Snapshot,
    hook: &HookSpec,
    named: Option<RedirectTarget<&Map>>,
    nodes: &mut Nodes,
) -> TargetId {
    let drops = |why| hook.owner.drops(why);
    let ports = hook.ports(&snapshot.by_ifindex);
    let port = |ifindex| ports.get(ifindex).ok_or(drops(DropReason::BadTarget));
    let resolved = match named {
        None => Err(drops(DropReason::NoTarget)),
        Some(RedirectTarget::Interface { ifindex }) => {
            port(ifindex).map(|to| Exit::Redirect.at(to))
        }
        Some(RedirectTarget::Entry { map, key, entry }) => match map.kind() {
            MapType::Cpumap => {
                nodes.cpu(CpuEntry::new(map, key, entry)).ok_or(drops(DropReason::BadTarget))
            }
            MapType::PifoXdp => nodes.queue(snapshot, map).ok_or(drops(DropReason::BadTarget)),
            MapType::Xskmap => snapshot.socket_target(entry.id).ok_or(drops(DropReason::NoSocket)),
            _ => port(entry.number).map(|to| nodes.device(snapshot, to, entry.id)),
        },
        Some(RedirectTarget::Broadcast { map, exclude_ingress }) => {
            let without = if exclude_ingress { hook.owner.port() } else { None };
            Ok(nodes.all_devices(snapshot, hook, map, without))
        }
    };
    resolved.unwrap_or_else(|drops| drops)
}
