//! `XDP_REDIRECT`: which target a frame's own verdict names (`xdp_do_redirect`), and frames that go
//! to several.

use std::sync::Arc;

use towpath_bpf::program::MapType;
use towpath_maps::Map;
use towpath_xdp::{Action, Burst, Frame, KNOWN_TARGETS, KnownTargets, RedirectTarget};

use super::graph::{EntryHook, Graph};
use crate::counters::DropReason;
use crate::hook::HookSpec;
use crate::lane::CpuEntry;
use crate::numbers::PortId;
use crate::snapshot::Snapshot;
use crate::target::{Exit, Owner, Side, Target, TargetId};
use crate::targets;

/// Where the last redirected frames of a burst went that differ: most others go there too, and need
/// no look at maps and tables.
pub(super) struct Resolved<'a> {
    hook: &'a HookSpec,
    known: KnownTargets,
    /// Where each of the known goes: its place in `targets`.
    ways: [u8; KNOWN_TARGETS],
    /// Targets so far.
    targets: [TargetId; WAYS],
    count: usize,
    /// Whether targets were forgotten: they were too many, or what one means is another thing now.
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

    /// All targets so far, if none was forgotten.
    pub(super) fn targets(&self) -> Option<&[TargetId]> {
        (!self.has_forgotten).then_some(&self.targets[..self.count])
    }

    /// Where a frame of a burst goes by its verdict.
    #[inline]
    pub(super) fn target(
        &mut self,
        snapshot: &Snapshot,
        burst: &Burst,
        index: usize,
        graph: &mut Graph,
    ) -> TargetId {
        let to = self.hook.target(burst.action(index));
        if to != TargetId::AS_FRAME_SAYS {
            return to;
        }
        self.targets[usize::from(self.way(snapshot, burst, index, graph))]
    }

    /// Where a redirected frame goes: a place in [`Resolved::targets`].
    #[inline]
    pub(super) fn way(
        &mut self,
        snapshot: &Snapshot,
        burst: &Burst,
        index: usize,
        graph: &mut Graph,
    ) -> u8 {
        let known = self.known.place_of(burst, index);
        let place = known.unwrap_or_else(|| self.look_up(snapshot, burst, index, graph));
        self.ways[place]
    }

    #[cold]
    fn look_up(
        &mut self,
        snapshot: &Snapshot,
        burst: &Burst,
        index: usize,
        graph: &mut Graph,
    ) -> usize {
        let to = graph.resolve(snapshot, self.hook, burst.last_redirect(index));
        let way = self.targets[..self.count].iter().position(|known| *known == to);
        // What a broadcast means was just noted, over what it meant for others.
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

    /// Where all frames of a burst go, if that is one target.
    #[inline]
    pub(super) fn common(
        &mut self,
        snapshot: &Snapshot,
        burst: &Burst,
        graph: &mut Graph,
    ) -> Option<TargetId> {
        let to = self.hook.target(Action::from_returned(burst.unanimous()?));
        if to == TargetId::AS_FRAME_SAYS && !burst.lead_to_one() {
            return None;
        }
        Some(self.target(snapshot, burst, 0, graph))
    }
}

impl Graph {
    /// The target that a redirect names.
    fn resolve(
        &mut self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        named: Option<RedirectTarget<&Map>>,
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
                    self.cpu(CpuEntry::new(map, key, entry)).ok_or(drops(DropReason::BadTarget))
                }
                MapType::PifoXdp => self.queue(snapshot, map).ok_or(drops(DropReason::BadTarget)),
                MapType::Xskmap => {
                    snapshot.socket_target(entry.id).ok_or(drops(DropReason::NoSocket))
                }
                _ => port(entry.number).map(|to| self.device(snapshot, to, entry.id)),
            },
            Some(RedirectTarget::Broadcast { map, exclude_ingress }) => {
                let without = if exclude_ingress { hook.owner.port() } else { None };
                self.fan_out(snapshot, hook, map, without);
                Ok(TargetId::BROADCAST)
            }
        };
        resolved.unwrap_or_else(|drops| drops)
    }

    /// The port of a devmap's entry, by way of the entry's program if it has one.
    fn device(&mut self, snapshot: &Snapshot, to: PortId, program: u32) -> TargetId {
        if program == 0 {
            return Exit::Redirect.at(to);
        }
        let known = self.entry_hooks.iter().find(|it| it.to == to && it.program == program);
        if let Some(known) = known {
            return known.target;
        }
        let (Some(port), Some(chain)) = (snapshot.port(to), snapshot.entry_programs.get(&program))
        else {
            return Exit::NoEntryProgram.at(to);
        };
        let number = self.entry_hooks.len() as u32;
        let target = self.add(|id| targets::entry(id, port, number));
        let hook = Arc::new(HookSpec::devmap(to, port.ifindex, Arc::clone(chain)));
        self.entry_hooks.push(EntryHook { to, program, target, hook });
        target
    }

    /// Notes all targets of a broadcast, in the order of the map's entries.
    fn fan_out(
        &mut self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        map: &Map,
        without: Option<PortId>,
    ) {
        let ports = hook.ports(&snapshot.by_ifindex);
        let mut targets = std::mem::take(&mut self.broadcast.targets);
        targets.clear();
        let ingress = without.and_then(|port| snapshot.port(port));
        map.for_each_target(&mut |_, entry| {
            let Some(to) = ports.get(entry.number) else { return };
            if !ingress.is_some_and(|ingress| snapshot.is_around(to, ingress)) {
                targets.push(self.device(snapshot, to, entry.id));
            }
        });
        self.broadcast.targets = targets;
        self.broadcast.owner = hook.owner;
    }

    /// A copy for each target of a broadcast that takes the frame (`dev_map_enqueue_multi`).
    pub(super) fn broadcast(&mut self, snapshot: &Snapshot, frame: Frame) {
        let targets = std::mem::take(&mut self.broadcast.targets);
        let takes =
            |target: &Target, frame: &Frame| targets::admit(target, snapshot, frame).is_ok();
        let owner = self.broadcast.owner;
        self.copies(snapshot, frame, &targets, takes, (owner, DropReason::BadTarget));
        self.broadcast.targets = targets;
    }

    /// A copy for each of these targets that `takes` the frame but the last, which gets the frame
    /// itself. Where none does it is dropped for that reason.
    pub(super) fn copies(
        &mut self,
        snapshot: &Snapshot,
        frame: Frame,
        targets: &[TargetId],
        takes: impl Fn(&Target, &Frame) -> bool,
        (owner, nobody): (Owner, DropReason),
    ) {
        let mut last = None;
        for &to in targets {
            if !takes(&self.targets[to.index()], &frame) {
                continue;
            }
            let Some(to) = last.replace(to) else { continue };
            self.shared.counters.created.add(1);
            match self.pool.copy(&frame) {
                Some(copy) => self.push(snapshot, to, copy),
                // The copy was to be a frame of its own.
                None => self.count_dropped(snapshot, owner, Side::Rx, DropReason::NoMemory, 1),
            }
        }
        match last {
            Some(to) => self.push(snapshot, to, frame),
            None => self.drop(snapshot, owner, Side::Rx, nobody, frame),
        }
    }
}

/// Targets of a burst's redirected frames.
pub(super) const WAYS: usize = 8;
