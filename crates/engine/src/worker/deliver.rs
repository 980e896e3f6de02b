//! Where a judged frame goes: the four ways out of a hook.

use towpath_bpf::program::MapType;
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

    /// All frames of a burst pass.
    pub(super) fn pass_all(&mut self, snapshot: &Snapshot, slot: &Slot, frames: &mut Vec<Frame>) {
        if let Upper::Port(to) = slot.upper
            && let Some(to) = snapshot.port(to)
            && frames.iter().all(|frame| accepts(to, frame).is_ok())
        {
            return self.send_all(snapshot, to, frames);
        }
        for frame in frames.drain(..) {
            self.pass(snapshot, slot, frame);
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
            Some(Destination::Interface { ifindex }) => {
                self.redirect_to(snapshot, slot, frame, ifindex, 0);
            }
            Some(Destination::Entry { map, key, entry }) => match map.kind() {
                MapType::Cpumap => self.hand_to_cpu(slot, frame, map, key, entry),
                MapType::Xskmap => self.drop_at(slot, frame, Drop::NoSocket),
                _ => self.redirect_to(snapshot, slot, frame, entry.number, entry.id),
            },
            Some(Destination::Broadcast { map, exclude_ingress }) => {
                let targets = map.targets();
                let targets = targets.iter().filter_map(|(_, target)| {
                    let to = snapshot.port_of_ifindex(target.number)?;
                    (!(exclude_ingress && to.id == slot.id) && accepts(to, &frame).is_ok())
                        .then_some((to.id, target.id))
                });
                let targets: Vec<(PortId, u32)> = targets.collect();
                self.copies(snapshot, slot, frame, targets.into_iter(), Drop::BadTarget);
            }
        }
    }

    /// To a port by ifindex, through the program of a devmap entry if that has one (not 0).
    #[inline]
    fn redirect_to(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        frame: Frame,
        ifindex: u32,
        program: u32,
    ) {
        let Some(to) = snapshot.port_of_ifindex(ifindex) else {
            return self.drop_at(slot, frame, Drop::BadTarget);
        };
        match accepts(to, &frame) {
            Err(why) => self.drop_out(to, frame, why),
            Ok(()) if program != 0 => self.push_entry(to.id, program, frame),
            Ok(()) => self.send(snapshot, to, frame),
        }
    }

    /// A copy to each target but the last, which gets the frame itself. Without any it is dropped.
    fn copies(
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
    fn send_checked(&mut self, snapshot: &Snapshot, to: &Slot, frame: Frame) {
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

/// Whether a port takes a redirected frame (`xdp_ok_fwd_dev`, `__xdp_enqueue`).
#[inline]
fn accepts(to: &Slot, frame: &Frame) -> Result<(), Drop> {
    if !to.up {
        return Err(Drop::Down);
    }
    let is_gso = frame.offload().is_some_and(|offload| offload.gso.is_some());
    if frame.len() > to.mtu as usize + ETH_HLEN + VLAN_HLEN && !is_gso {
        return Err(Drop::TooLong);
    }
    if frame.has_frags() && !to.features.tx_frags && !is_gso {
        return Err(Drop::Unsupported);
    }
    Ok(())
}

const ETH_HLEN: usize = 14;
const VLAN_HLEN: usize = 4;
