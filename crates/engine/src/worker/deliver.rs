//! Where a judged frame goes: the four ways out of a hook.

use std::sync::Arc;

use towpath_bpf::program::MapType;
use towpath_maps::Target;
use towpath_xdp::{Destination, Frame};

use super::outbox::Outboxes;
use crate::bridge::Forward;
use crate::counters::Drop;
use crate::snapshot::{PortId, Slot, Snapshot, Upper};

impl Outboxes {
    /// `XDP_TX`: back out of the port it came from.
    #[inline]
    pub(super) fn tx(&mut self, snapshot: &Snapshot, slot: &Slot, frame: Frame) {
        self.send(snapshot, slot, frame);
    }

    /// `XDP_TX` for a whole burst.
    pub(super) fn tx_all(&mut self, snapshot: &Snapshot, slot: &Slot, frames: &mut Vec<Frame>) {
        if !self.send_all(slot, frames, usize::MAX) {
            frames.drain(..).for_each(|frame| self.tx(snapshot, slot, frame));
        }
    }

    /// All frames of a burst pass.
    pub(super) fn pass_all(&mut self, snapshot: &Snapshot, slot: &Slot, frames: &mut Vec<Frame>) {
        if let Upper::Bond(bond) = slot.upper {
            return self.pass_all_up(snapshot, slot, bond, frames);
        }
        let to = match slot.upper {
            Upper::Port(to) => snapshot.port(to),
            _ => None,
        };
        if !to.is_some_and(|to| self.forward_all(to, frames)) {
            frames.drain(..).for_each(|frame| self.pass(snapshot, slot, frame));
        }
    }

    /// `XDP_PASS`: on to the port's upper.
    #[inline]
    pub(super) fn pass(&mut self, snapshot: &Snapshot, slot: &Slot, frame: Frame) {
        match &slot.upper {
            Upper::None => self.drop_at(slot, frame, Drop::NoUpper),
            Upper::Port(to) => match snapshot.port(*to) {
                Some(to) => self.send_checked(snapshot, to, frame),
                None => self.drop_at(slot, frame, Drop::Removed),
            },
            Upper::Bridge(index) => self.bridge(snapshot, slot, *index, frame),
            Upper::Bond(bond) => self.pass_up(snapshot, slot, *bond, frame),
        }
    }

    fn bridge(&mut self, snapshot: &Snapshot, slot: &Slot, index: usize, frame: Frame) {
        let Some(view) = snapshot.bridges.get(index) else {
            return self.drop_at(slot, frame, Drop::Removed);
        };
        match view.bridge.forward(frame.linear(), slot.id) {
            Forward::Nowhere => self.drop_at(slot, frame, Drop::Bridge),
            Forward::To(to) => match snapshot.port(to) {
                Some(to) => self.send_checked(snapshot, to, frame),
                None => self.drop_at(slot, frame, Drop::Bridge),
            },
            Forward::Flood => {
                let others = view.members.iter().filter(|&&id| id != slot.id);
                self.copies(snapshot, slot, frame, others.copied().map(|id| (id, 0)), Drop::Bridge);
            }
        }
    }

    /// `XDP_REDIRECT` (`xdp_do_redirect`).
    #[inline]
    pub(super) fn redirect(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        frame: Frame,
        destination: Option<Destination<'_>>,
    ) {
        match destination {
            None => self.drop_at(slot, frame, Drop::NoTarget),
            Some(Destination::Interface { ifindex }) => match snapshot.port_of_ifindex(ifindex) {
                Some(to) => self.redirect_to(snapshot, to, frame),
                None => self.drop_at(slot, frame, Drop::BadTarget),
            },
            Some(Destination::Entry { map, key, entry }) => match map.kind() {
                MapType::Cpumap => self.hand_to_cpu(slot, frame, map, key, entry),
                MapType::Xskmap => self.socket_one(snapshot, slot, frame, entry.id),
                _ => self.redirect_through(snapshot, slot, frame, entry),
            },
            Some(Destination::Broadcast { map, exclude_ingress }) => {
                let targets = map.targets();
                let targets = targets.iter().filter_map(|(_, target)| {
                    let to = snapshot.port_of_ifindex(target.number)?;
                    (!(exclude_ingress && snapshot.is_around(to.id, slot))
                        && accepts(to, &frame).is_ok())
                    .then_some((to.id, target.id))
                });
                let targets: Vec<(PortId, u32)> = targets.collect();
                self.copies(snapshot, slot, frame, targets.into_iter(), Drop::BadTarget);
            }
        }
    }

    /// To the port of a devmap entry, through the entry's program if it has one.
    fn redirect_through(&mut self, snapshot: &Snapshot, slot: &Slot, frame: Frame, entry: Target) {
        let Some(to) = snapshot.port_of_ifindex(entry.number) else {
            return self.drop_at(slot, frame, Drop::BadTarget);
        };
        match accepts(to, &frame) {
            Err(why) => self.drop_out(to, frame, why),
            Ok(()) if entry.id != 0 => self.push_entry(to.id, entry.id, frame),
            Ok(()) => self.send(snapshot, to, frame),
        }
    }

    /// To a port, if that takes it.
    #[inline]
    pub(super) fn redirect_to(&mut self, snapshot: &Snapshot, to: &Slot, frame: Frame) {
        match accepts(to, &frame) {
            Err(why) => self.drop_out(to, frame, why),
            Ok(()) => self.send(snapshot, to, frame),
        }
    }

    /// A whole burst to a port.
    pub(super) fn redirect_all(&mut self, snapshot: &Snapshot, to: &Slot, frames: &mut Vec<Frame>) {
        if !self.forward_all(to, frames) {
            frames.drain(..).for_each(|frame| self.redirect_to(snapshot, to, frame));
        }
    }

    /// A whole burst to a port, if that takes all of it as it is; otherwise it stays.
    #[inline]
    pub(super) fn forward_all(&mut self, to: &Slot, frames: &mut Vec<Frame>) -> bool {
        to.is_target && self.send_all(to, frames, bytes_max(to))
    }

    /// A copy to each target but the last, which gets the frame itself. Without any it is dropped.
    pub(super) fn copies(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        frame: Frame,
        targets: impl Iterator<Item = (PortId, u32)>,
        nobody: Drop,
    ) {
        let mut targets = targets.peekable();
        if targets.peek().is_none() {
            return self.drop_at(slot, frame, nobody);
        }
        while let Some((to, program)) = targets.next() {
            if targets.peek().is_none() {
                return self.send_entry(snapshot, to, program, frame);
            }
            match self.pool.copy(&frame) {
                Some(copy) => {
                    self.seat.counters.created.add(1);
                    self.send_entry(snapshot, to, program, copy);
                }
                None => {
                    slot.opened.counters[self.number()].drops[Drop::NoMemory as usize].add(1);
                    // The copy was to be a frame of its own.
                    self.seat.counters.created.add(1);
                    self.seat.counters.dropped.add(1);
                }
            }
        }
    }

    fn send_entry(&mut self, snapshot: &Snapshot, to: PortId, program: u32, frame: Frame) {
        match snapshot.port(to) {
            Some(_) if program != 0 => self.push_entry(to, program, frame),
            Some(to) => self.send_checked(snapshot, to, frame),
            None => {
                self.seat.counters.dropped.add(1);
                self.pool.give(frame);
            }
        }
    }

    /// Sends to a port that is no target of a redirect: frames it cannot take as they are, are made
    /// so that it can.
    pub(super) fn send_checked(&mut self, snapshot: &Snapshot, to: &Slot, frame: Frame) {
        match accepts(to, &frame) {
            Ok(()) | Err(Drop::Unsupported) => self.send(snapshot, to, frame),
            Err(why) => self.drop_out(to, frame, why),
        }
    }

    /// Queues a frame for a port after doing what is left to do to it.
    #[inline]
    pub(super) fn send(&mut self, snapshot: &Snapshot, to: &Slot, mut frame: Frame) {
        if frame.is_plain() {
            return self.push(snapshot, to.id, frame);
        }
        if frame.offload().is_some() {
            return self.settle(snapshot, to, frame);
        }
        if frame.has_frags() && !to.features.tx_frags {
            self.pool.linearize(&mut frame);
        }
        self.push(snapshot, to.id, frame);
    }
}

/// The port that a redirect leads to, when nothing but the port is to see the frame on its way.
#[inline]
pub(super) fn plain_port<'a>(
    snapshot: &'a Snapshot,
    destination: Destination<'_>,
) -> Option<&'a Arc<Slot>> {
    match destination {
        Destination::Interface { ifindex } => snapshot.port_of_ifindex(ifindex),
        Destination::Entry { map, entry, .. } => match map.kind() {
            MapType::Cpumap | MapType::Xskmap => None,
            _ if entry.id != 0 => None,
            _ => snapshot.port_of_ifindex(entry.number),
        },
        Destination::Broadcast { .. } => None,
    }
}

/// Whether a port takes a redirected frame (`xdp_ok_fwd_dev`, `__xdp_enqueue`).
#[inline]
pub(super) fn accepts(to: &Slot, frame: &Frame) -> Result<(), Drop> {
    if !to.is_target && !to.up {
        return Err(Drop::Down);
    }
    let is_gso = frame.offload().is_some_and(|offload| offload.gso.is_some());
    if frame.len() > bytes_max(to) && !is_gso {
        return Err(Drop::TooLong);
    }
    if !to.is_target || frame.has_frags() && !to.features.tx_frags && !is_gso {
        return Err(Drop::Unsupported);
    }
    Ok(())
}

/// Bytes of the longest frame a port sends.
#[inline]
pub(super) fn bytes_max(to: &Slot) -> usize {
    to.mtu as usize + ETH_HLEN + VLAN_HLEN
}

const ETH_HLEN: usize = 14;
const VLAN_HLEN: usize = 4;
