//! Snapshots of the configuration: each port with the target of each verdict.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Config, PortConfig};
use crate::bond::control::Taps;
use crate::chain::Hook;
use crate::counters::DropReason;
use crate::dequeue::DequeueHook;
use crate::hook::{GuestChain, HookSpec};
use crate::numbers::{Numbers, PortId};
use crate::options::UpperName;
use crate::snapshot::{BridgeView, Membership, Port, Snapshot, Upper};
use crate::sockets::Sockets;
use crate::target::{Exit, Owner, TargetId};
use crate::targets;

/// Ports, by ifindex, and programs of map entries that a change removes.
#[derive(Debug)]
pub(crate) struct Gone {
    ifindexes: BTreeSet<u32>,
    programs: BTreeSet<u32>,
}

impl Gone {
    pub(crate) fn is_empty(&self) -> bool {
        self.ifindexes.is_empty() && self.programs.is_empty()
    }

    /// Whether the port with this ifindex is removed.
    fn has(&self, ifindex: u32) -> bool {
        self.ifindexes.contains(&ifindex)
    }
}

impl Config {
    /// Makes a snapshot of the configuration.
    pub(crate) fn snapshot(&self, before: &Snapshot) -> Snapshot {
        let last = self.ports.keys().next_back().map_or(0, |id| id.0 as usize + 1);
        let mut ports = vec![None; last];
        let mut by_ifindex = Vec::new();
        let mut polls = vec![Vec::new(); self.workers];
        for (&id, port) in &self.ports {
            ports[id.0 as usize] = Some(Arc::new(self.port_view(id, port)));
            by_ifindex.push((port.ifindex, id));
            if !port.is_up() {
                continue;
            }
            for queue in port.opened.open_queues() {
                polls[self.worker_of(port, queue)].push((id, queue));
            }
        }
        let bridges = self.bridges.iter().map(|bridge| {
            let members: Vec<PortId> = self.index.below(bridge.name()).collect();
            let targets = members.iter().map(|&member| Exit::Forward.at(member)).collect();
            BridgeView { bridge: Arc::clone(bridge), members, targets }
        });
        let mut snapshot = Snapshot {
            generation: before.generation + 1,
            ports,
            by_ifindex: Numbers::new(&by_ifindex),
            polls,
            bridges: bridges.collect(),
            entry_programs: Arc::new(self.entry_programs.clone()),
            sockets: Sockets::new(&self.sockets),
            collects: self.collects(),
            targets: Box::default(),
            chains: Box::default(),
        };
        snapshot.targets = targets::table(&snapshot, self.sockets.len());
        snapshot.chains = snapshot.find_chains().cloned().collect();
        snapshot
    }

    /// Makes a snapshot for the time while `gone` is drained: its ports are not polled any more.
    pub(crate) fn draining(&self, before: &Snapshot, gone: &Gone) -> Snapshot {
        let mut snapshot = self.snapshot(before);
        let Snapshot { ports, polls, collects, .. } = &mut snapshot;
        let stays = |id: PortId| {
            let port = ports.get(id.0 as usize).and_then(Option::as_ref);
            port.is_some_and(|port| !gone.has(port.ifindex))
        };
        polls.iter_mut().for_each(|polls| polls.retain(|(port, _)| stays(*port)));
        collects.iter_mut().for_each(|all| all.retain(|collect| stays(collect.port)));
        snapshot
    }

    /// The ports and programs that `next` no longer has.
    pub(crate) fn gone(&self, next: &Config) -> Gone {
        let ifindexes =
            |of: &Config| -> BTreeSet<u32> { of.ports.values().map(|port| port.ifindex).collect() };
        let programs =
            |of: &Config| -> BTreeSet<u32> { of.entry_programs.keys().copied().collect() };
        Gone {
            ifindexes: &ifindexes(self) - &ifindexes(next),
            programs: &programs(self) - &programs(next),
        }
    }

    fn port_view(&self, id: PortId, port: &PortConfig) -> Port {
        // First, because it updates the values a bond's device reports. All devices learn whether
        // they are up.
        let bond = self.bond_view(port);
        port.opened.device.set_up(port.is_up());
        let rx_hook = self.chain(id, port).filter(|_| !port.is_shut);
        let member = self.membership(id, port);
        let zero_copy_sockets = self.zero_copy_sockets(id, port);
        let (pass, passed) = (self.above(id, port), self.passed(id, port));
        let rx = HookSpec {
            counts: Some(Arc::clone(&port.opened.counters)),
            taps: port.taps_on(Hook::Rx),
            linearize: port.options.linearize
                && rx_hook.as_ref().is_some_and(|chain| !chain.has_frags()),
            zero_copy: !zero_copy_sockets.is_empty(),
            control: member.filter(|member| member.protects).map(|member| member.bond),
            ..HookSpec::rx(id, rx_hook.clone(), pass, self.sent_back(id, member))
        };
        let chain = port.hook(Hook::Tx).map(|chain| Arc::new(chain.in_a_row()));
        let taps = port.taps_on(Hook::Tx);
        let is_watched = chain.is_some() || !taps.is_empty();
        let guest = |at: Hook, hook: fn(PortId, GuestChain) -> HookSpec| {
            let chain = Arc::clone(port.hook(at)?);
            let linearize = port.options.linearize && !chain.has_frags();
            let scope = self.guest_scope(port);
            Some(HookSpec { linearize, ..hook(id, GuestChain { chain, scope }) })
        };
        let tx = is_watched.then(|| HookSpec { taps, ..HookSpec::tx(id, port.ifindex, chain) });
        Port {
            id,
            name: port.options.name.as_str().into(),
            ifindex: port.ifindex,
            mtu: port.mtu(),
            up: port.is_up(),
            is_target: port.is_up() && !port.is_shut && self.is_target(port),
            is_shut: port.is_shut,
            features: self.features(port),
            upper: self.upper_of(id, port),
            linearize: port.options.linearize,
            rx_hook,
            tx_hook: port.hook(Hook::Tx).cloned(),
            dequeue: self.dequeue(port),
            member,
            bond,
            zero_copy_sockets,
            spread: self.spread_of(port),
            rx,
            tx,
            guest_rx: guest(Hook::GuestRx, HookSpec::guest_rx),
            guest_tx: guest(Hook::GuestTx, HookSpec::guest_tx),
            passed,
            opened: Arc::clone(&port.opened),
        }
    }

    /// The ports that programs of a port's guest may redirect to, by the guest's numbers.
    fn guest_scope(&self, port: &PortConfig) -> Arc<Numbers<PortId>> {
        let there = port.guest_targets.iter().filter_map(|(number, name)| {
            let id = self.named(name)?;
            Some((*number, id))
        });
        Arc::new(Numbers::new(&there.collect::<Vec<_>>()))
    }

    /// The port's dequeue hook. One worker alone runs the program, so that packets leave in its
    /// order: the port's home ([`Config::home_of`]).
    fn dequeue(&self, port: &PortConfig) -> Option<DequeueHook> {
        let chain = Arc::clone(port.hook(Hook::Dequeue)?);
        let schedule = Arc::clone(&port.schedule);
        Some(DequeueHook { chain, schedule, worker: self.home_of(port) })
    }

    /// The upper of a port.
    fn upper_of(&self, id: PortId, port: &PortConfig) -> Upper {
        let UpperName::Named(name) = &port.upper else {
            return self.upper_of_member(id).unwrap_or_default();
        };
        match self.bridges.iter().position(|bridge| bridge.name() == name) {
            Some(index) => Upper::Bridge(index),
            None => self.named(name).map_or(Upper::None, Upper::Port),
        }
    }

    /// The target of frames that passed at a port: through all bonds around it at once, unless one
    /// of them wants to see them (`bond_handle_frame`).
    fn passed(&self, id: PortId, port: &PortConfig) -> TargetId {
        let drops = |why| Owner::of(id).drops(why);
        match self.upper_of(id, port) {
            _ if port.is_shut => drops(DropReason::NoProgram),
            Upper::None => drops(DropReason::NoUpper),
            Upper::Port(to) => Exit::Forward.at(to),
            Upper::Bridge(_) => Exit::Upper.at(id),
            Upper::Bond(bond) => match (self.membership(id, port), self.ports.get(&bond)) {
                (Some(member), _) if member.is_inactive => drops(DropReason::Inactive),
                (_, Some(around)) if !around.is_up() => drops(DropReason::Down),
                (_, Some(around)) if around.is_shut => drops(DropReason::NoProgram),
                (_, Some(around)) => self.above(bond, around),
                (_, None) => drops(DropReason::Removed),
            },
        }
    }

    /// The target of frames that pass at a port: its bond's control plane, if that wants to see
    /// them.
    fn above(&self, id: PortId, port: &PortConfig) -> TargetId {
        let sees_passed = self.control_of(id).is_some_and(|taps| !taps.is_empty());
        if sees_passed { Exit::Upper.at(id) } else { self.passed(id, port) }
    }

    /// The frames that the control plane of a port's bond wants to see.
    fn control_of(&self, id: PortId) -> Option<Taps> {
        let bond = self.ports.get(&self.master(id)?)?.bond.as_ref()?;
        Some(bond.options.taps)
    }

    /// The target of `XDP_TX` at a port. For a bond's program, the bond chooses the member
    /// (`xdp_master_redirect`).
    fn sent_back(&self, id: PortId, member: Option<Membership>) -> TargetId {
        let Some(member) = member.filter(|member| member.is_delegate) else {
            return Exit::Send.at(id);
        };
        let is_up = self.ports.get(&member.bond).is_some_and(|port| port.is_up());
        if is_up { Exit::BondTx.at(id) } else { Owner::of(id).drops(DropReason::Aborted) }
    }
}
