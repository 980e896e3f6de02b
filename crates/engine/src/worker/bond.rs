//! Bonds at work: members for frames that leave, the bond's upper for frames that pass.

use towpath_xdp::frame::deal;
use towpath_xdp::{Action, Burst, Frame};

use super::deliver::{accepts, bytes_max};
use super::outbox::Outboxes;
use crate::bond::control::Found;
use crate::bond::{Choice, Turn, View, is_neighbour_message};
use crate::counters::Drop;
use crate::snapshot::{Membership, PortId, Slot, Snapshot};

/// How `XDP_TX` leaves.
type SendBack = fn(&mut Outboxes, &Snapshot, &Slot, Frame);
/// How frames get to a member.
type SendLane = fn(&mut Outboxes, &Snapshot, &Slot, PortId, &mut Vec<Frame>);

impl Outboxes {
    /// Queues what was sent to a bond for its members, a member chosen for each frame
    /// (`bond_xdp_xmit`), and in bulk for each member.
    #[cold]
    pub(super) fn spread(&mut self, snapshot: &Snapshot, slot: &Slot, view: &View) {
        let Some(Some(outlet)) = self.outlets.get_mut(slot.id.0 as usize) else { return };
        let mut frames = outlet.take_frames();
        let mut turn = outlet.turn;
        if let Some(all) = &view.neighbours {
            self.copy_neighbours(snapshot, slot, all, &mut frames);
        }
        match &view.choice {
            Choice::Nobody => {
                frames.drain(..).for_each(|frame| self.drop_out(slot, frame, Drop::NoMember));
            }
            Choice::All(members) if view.only.is_none() => {
                for frame in frames.drain(..) {
                    let members = members.iter().map(|&member| (member, 0));
                    self.copies(snapshot, slot, frame, members, Drop::NoMember);
                }
            }
            _ => {
                let frames = &mut frames;
                let way = (snapshot, slot, view);
                self.choose_lanes(way, &mut turn, frames, |_| false, Outboxes::spread_lane);
            }
        }
        if let Some(Some(outlet)) = self.outlets.get_mut(slot.id.0 as usize) {
            (outlet.frames, outlet.turn) = (frames, turn);
        }
    }

    /// Queues frames that were sent to a bond for one of its members.
    fn spread_lane(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        member: PortId,
        frames: &mut Vec<Frame>,
    ) {
        match snapshot.port(member) {
            Some(to) if self.forward_all(to, frames) => {}
            Some(to) => frames.drain(..).for_each(|frame| self.send_checked(snapshot, to, frame)),
            None => frames.drain(..).for_each(|frame| self.drop_out(slot, frame, Drop::Removed)),
        }
    }

    /// Sends ARP and neighbour messages by all members (`bond_should_broadcast_neighbor`).
    #[cold]
    fn copy_neighbours(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        members: &[PortId],
        frames: &mut Vec<Frame>,
    ) {
        if !frames.iter().any(|frame| is_neighbour_message(frame.linear())) {
            return;
        }
        for frame in std::mem::take(frames) {
            if is_neighbour_message(frame.linear()) {
                let members = members.iter().map(|&member| (member, 0));
                self.copies(snapshot, slot, frame, members, Drop::NoMember);
            } else {
                frames.push(frame);
            }
        }
    }

    /// Delivers a burst that arrived on a member and was judged by its bond's program, which sent
    /// some of it back.
    pub(super) fn dispatch_delegated(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        frames: &mut Vec<Frame>,
        burst: &Burst,
        is_all_tx: bool,
    ) {
        let Some((bond, view)) = bond_of(snapshot, slot) else {
            return frames.drain(..).for_each(|frame| self.drop_at(slot, frame, Drop::Removed));
        };
        let mut turn = self.turn(bond.id);
        if is_all_tx && bond.up {
            self.send_all_back(snapshot, slot, view, &mut turn, frames);
        }
        let mut judged = std::mem::take(frames);
        for (index, frame) in judged.drain(..).enumerate() {
            match burst.action(index) {
                Action::Tx => self.send_back(snapshot, slot, (bond, view), &mut turn, frame),
                Action::Redirect => {
                    self.redirect(snapshot, slot, frame, burst.destination(index));
                }
                action => self.deliver(snapshot, slot, frame, action, None),
            }
        }
        *frames = judged;
        self.set_turn(bond.id, turn);
    }

    /// `XDP_TX` of a bond's program for a whole burst, in one piece for each member. What there is
    /// no member for stays.
    fn send_all_back(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        view: &View,
        turn: &mut Turn,
        frames: &mut Vec<Frame>,
    ) {
        // `XDP_TX` of the member it arrived on asks for nothing.
        let is_here = |to: &Slot| to.id == slot.id;
        self.choose_lanes((snapshot, slot, view), turn, frames, is_here, Outboxes::send_lane);
    }

    /// Chooses a member for each frame, and hands them on in one piece for each member: to its
    /// queue where a frame can go there as it is or `goes_anyway`, else by `send`. What there is no
    /// member for stays.
    #[inline]
    fn choose_lanes(
        &mut self,
        (snapshot, slot, view): (&Snapshot, &Slot, &View),
        turn: &mut Turn,
        frames: &mut Vec<Frame>,
        goes_anyway: impl Fn(&Slot) -> bool,
        send: SendLane,
    ) {
        if let Some(only) = view.only {
            view.skip(frames.len(), turn);
            return send(self, snapshot, slot, only, frames);
        }
        let mut places = std::mem::take(&mut self.places);
        let (members, shape) = view.choose(frames, turn, &mut places);
        let goes = |to: &Slot| goes_anyway(to) || to.is_target && shape.longest <= bytes_max(to);
        if shape.is_odd || !self.deal_out(snapshot, members, frames, &places, goes) {
            let mut lanes = self.deal_lanes(members, frames, &places);
            for (&member, lane) in members.iter().zip(&mut lanes) {
                send(self, snapshot, slot, member, lane);
            }
            self.lanes = lanes;
        }
        self.places = places;
    }

    /// Queues frames for the members at their places, if all `go` there as they are. Otherwise
    /// they stay.
    #[inline]
    fn deal_out(
        &mut self,
        snapshot: &Snapshot,
        members: &[PortId],
        frames: &mut Vec<Frame>,
        places: &[u8],
        goes: impl Fn(&Slot) -> bool,
    ) -> bool {
        let is_free = |&member: &PortId| {
            let outlet = self.outlets.get(member.0 as usize).and_then(Option::as_ref);
            outlet.is_some_and(|outlet| outlet.frames.is_empty())
                && snapshot.port(member).is_some_and(|to| goes(to))
        };
        if members.is_empty() || !members.iter().all(is_free) {
            return false;
        }
        let mut queues = std::mem::take(&mut self.queues);
        queues.extend(members.iter().map(|&member| self.lend_queue(member)));
        deal(frames, places, &mut queues);
        for (&member, queue) in members.iter().zip(queues.drain(..)) {
            self.put_queue(member, queue);
        }
        self.queues = queues;
        true
    }

    /// The frames for each of these members.
    #[cold]
    fn deal_lanes(
        &mut self,
        members: &[PortId],
        frames: &mut Vec<Frame>,
        places: &[u8],
    ) -> Vec<Vec<Frame>> {
        let mut lanes = std::mem::take(&mut self.lanes);
        lanes.resize_with(lanes.len().max(members.len()), Vec::new);
        if !members.is_empty() {
            deal(frames, places, &mut lanes[..members.len()]);
        }
        lanes
    }

    /// Frames that arrived on `slot` leave by a member: as by `XDP_TX` if it is the same, else as
    /// if redirected.
    #[inline]
    fn send_lane(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        member: PortId,
        frames: &mut Vec<Frame>,
    ) {
        match snapshot.port(member) {
            _ if member == slot.id => self.tx_all(snapshot, slot, frames),
            Some(to) => self.redirect_all(snapshot, to, frames),
            None => frames.drain(..).for_each(|frame| self.drop_at(slot, frame, Drop::Removed)),
        }
    }

    /// How `XDP_TX` leaves that port: found out once for a burst.
    pub(super) fn tx_of(&self, slot: &Slot) -> SendBack {
        match slot.member {
            Some(Membership { is_delegate: true, .. }) => Outboxes::tx_delegated,
            _ => Outboxes::tx,
        }
    }

    fn tx_delegated(&mut self, snapshot: &Snapshot, slot: &Slot, frame: Frame) {
        let Some((bond, view)) = bond_of(snapshot, slot) else {
            return self.drop_at(slot, frame, Drop::Removed);
        };
        let mut turn = self.turn(bond.id);
        self.send_back(snapshot, slot, (bond, view), &mut turn, frame);
        self.set_turn(bond.id, turn);
    }

    /// `XDP_TX` of a bond's program (`xdp_master_redirect`): out of the member that the bond
    /// chooses, as if redirected there; out of the receiving one when there is none to choose.
    #[inline]
    fn send_back(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        (bond, view): (&Slot, &View),
        turn: &mut Turn,
        frame: Frame,
    ) {
        if !bond.up {
            return self.drop_at(slot, frame, Drop::Aborted);
        }
        let to = match view.select(&frame, turn) {
            None => return self.send(snapshot, slot, frame),
            Some(to) if to == slot.id => return self.send(snapshot, slot, frame),
            Some(to) => snapshot.port(to),
        };
        match to.map(|to| (to, accepts(to, &frame))) {
            Some((to, Ok(()))) => self.send(snapshot, to, frame),
            Some((to, Err(why))) => self.drop_out(to, frame, why),
            None => self.drop_at(slot, frame, Drop::Removed),
        }
    }

    /// Frames that passed on a member go where its bond's frames go (`bond_handle_frame`).
    pub(super) fn pass_all_up(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        bond: PortId,
        frames: &mut Vec<Frame>,
    ) {
        let is_inactive = slot.member.is_some_and(|member| member.is_inactive);
        if let Some(bond) = snapshot.port(bond)
            && let Some(view) = &bond.bond
            && bond.up
            && !is_inactive
            && (view.taps.is_empty()
                || frames.iter().all(|frame| view.taps.find(frame.linear()).is_none()))
        {
            return self.pass_all(snapshot, bond, frames);
        }
        for frame in frames.drain(..) {
            self.pass_up(snapshot, slot, bond, frame);
        }
    }

    /// A frame that passed on a member.
    pub(super) fn pass_up(&mut self, snapshot: &Snapshot, slot: &Slot, bond: PortId, frame: Frame) {
        let Some((bond, view)) = snapshot.port(bond).and_then(|it| Some((it, it.bond.as_ref()?)))
        else {
            return self.drop_at(slot, frame, Drop::Removed);
        };
        let found = view.taps.find(frame.linear());
        if found.is_some() {
            view.mailbox.put(slot.id, frame.linear());
        }
        if found == Some(Found::Consumed) {
            self.seat.counters.delivered.add(1);
            return self.pool.give(frame);
        }
        if slot.member.is_some_and(|member| member.is_inactive) {
            return self.drop_at(slot, frame, Drop::Inactive);
        }
        if !bond.up {
            return self.drop_at(slot, frame, Drop::Down);
        }
        self.pass(snapshot, bond, frame);
    }

    /// Lets control frames pass before a program sees them.
    #[cold]
    pub(super) fn take_control(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        frames: &mut Vec<Frame>,
    ) {
        let Some((_, view)) = bond_of(snapshot, slot) else { return };
        let is_control = |frame: &Frame| view.taps.find(frame.linear()).is_some();
        if !frames.iter().any(is_control) {
            return;
        }
        for frame in std::mem::take(frames) {
            if is_control(&frame) {
                slot.opened.counters[self.number()].actions[Action::Pass as usize].add(1);
                self.pass(snapshot, slot, frame);
            } else {
                frames.push(frame);
            }
        }
    }

    fn turn(&self, bond: PortId) -> Turn {
        let outlet = self.outlets.get(bond.0 as usize).and_then(Option::as_ref);
        outlet.map_or(Turn::new(self.number()), |outlet| outlet.turn)
    }

    fn set_turn(&mut self, bond: PortId, turn: Turn) {
        if let Some(Some(outlet)) = self.outlets.get_mut(bond.0 as usize) {
            outlet.turn = turn;
        }
    }
}

/// The bond that a port is a member of.
#[inline]
fn bond_of<'a>(snapshot: &'a Snapshot, slot: &Slot) -> Option<(&'a Slot, &'a View)> {
    let bond = snapshot.port(slot.member?.bond)?;
    Some((bond, bond.bond.as_deref()?))
}
