//! Bonds at work: members for frames that leave, the bond's control side for frames that pass.

use towpath_xdp::{Action, Frame};

use super::graph::Graph;
use crate::bond::control::Found;
use crate::bond::{Choice, Turn, View, is_neighbour_message};
use crate::counters::DropReason;
use crate::hook::HookSpec;
use crate::numbers::PortId;
use crate::snapshot::Snapshot;
use crate::target::{Exit, Owner, Side, Target, TargetId};

impl Graph {
    /// Has what was sent to a bond leave by its members, one chosen for each frame
    /// (`bond_xdp_xmit`), and in bulk for each member.
    #[cold]
    pub(super) fn spread(&mut self, snapshot: &Snapshot, queue: TargetId) {
        let owner = self.targets[queue.index()].owner;
        let mut frames = self.take(queue);
        let Some((bond, view)) =
            owner.port().and_then(|bond| Some((bond, view_of(snapshot, bond)?)))
        else {
            let why = DropReason::Removed;
            self.drop_all(snapshot, owner, Side::Tx, why, &mut frames);
            return self.put_back(queue, frames);
        };
        if let Some(all) = &view.neighbours {
            self.copy_neighbours(snapshot, owner, all, &mut frames);
        }
        match &view.choice {
            Choice::Nobody => {
                let why = DropReason::NoMember;
                self.drop_all(snapshot, owner, Side::Tx, why, &mut frames);
            }
            Choice::All(members) if view.only.is_none() => {
                frames
                    .drain(..)
                    .for_each(|frame| self.copy_to_all(snapshot, owner, members, frame));
            }
            _ => {
                let mut turn = self.turn(bond);
                let exit = |member| Exit::Forward.at(member);
                self.choose(snapshot, view, &mut turn, &mut frames, exit);
                self.set_turn(bond, turn);
            }
        }
        self.put_back(queue, frames);
    }

    /// A copy for each of these members.
    fn copy_to_all(&mut self, snapshot: &Snapshot, owner: Owner, members: &[PortId], frame: Frame) {
        let mut targets = std::mem::take(&mut self.broadcast.targets);
        targets.clear();
        targets.extend(members.iter().map(|&member| Exit::Forward.at(member)));
        let takes_any = |_: &Target, _: &Frame| true;
        let nobody = (owner, DropReason::NoMember);
        self.copies(snapshot, frame, &targets, takes_any, nobody);
        self.broadcast.targets = targets;
    }

    /// Sends ARP and neighbour messages by all members (`bond_should_broadcast_neighbor`).
    #[cold]
    fn copy_neighbours(
        &mut self,
        snapshot: &Snapshot,
        owner: Owner,
        members: &[PortId],
        frames: &mut Vec<Frame>,
    ) {
        let is_for_all = |frame: &mut Frame| frame.with_linear(is_neighbour_message);
        for frame in frames.extract_if(.., is_for_all) {
            self.copy_to_all(snapshot, owner, members, frame);
        }
    }

    /// `XDP_TX` of a bond's program for a whole burst, in one piece for each member. What there is
    /// no member for stays.
    pub(super) fn send_back_all(
        &mut self,
        snapshot: &Snapshot,
        from: PortId,
        bond: PortId,
        frames: &mut Vec<Frame>,
    ) {
        let Some(view) = view_of(snapshot, bond) else { return };
        let mut turn = self.turn(bond);
        self.choose(snapshot, view, &mut turn, frames, |member| sent_back(from, member));
        self.set_turn(bond, turn);
    }

    /// The same for one frame (`xdp_master_redirect`): out of the member that the bond chooses, as
    /// if redirected there; out of the receiving one when there is none to choose.
    pub(super) fn send_back(
        &mut self,
        snapshot: &Snapshot,
        from: PortId,
        bond: PortId,
        frame: Frame,
    ) {
        let Some(view) = view_of(snapshot, bond) else {
            return self.drop(snapshot, Owner::of(from), Side::Rx, DropReason::Removed, frame);
        };
        let mut turn = self.turn(bond);
        let member = view.select(&frame, &mut turn).unwrap_or(from);
        self.set_turn(bond, turn);
        self.push(snapshot, sent_back(from, member), frame);
    }

    /// Chooses a member for each frame, and hands them on in one piece for each member. What there
    /// is no member for stays.
    #[inline]
    fn choose(
        &mut self,
        snapshot: &Snapshot,
        view: &View,
        turn: &mut Turn,
        frames: &mut Vec<Frame>,
        exit: impl Fn(PortId) -> TargetId,
    ) {
        if let Some(only) = view.only {
            view.skip(frames.len(), turn);
            return self.push_all(snapshot, exit(only), frames, None);
        }
        let mut lanes = std::mem::take(&mut self.lanes);
        let members = view.spread(frames, turn, &mut lanes);
        for (&member, lane) in members.iter().zip(&mut lanes) {
            self.push_all(snapshot, exit(member), lane, None);
        }
        debug_assert!(lanes.iter().all(Vec::is_empty), "all frames went on");
        self.lanes = lanes;
    }

    /// A frame that passed on a member, whose bond's control side wants to see some
    /// (`bond_handle_frame`).
    pub(super) fn pass_member(
        &mut self,
        snapshot: &Snapshot,
        member: PortId,
        bond: PortId,
        then: TargetId,
        frame: Frame,
    ) {
        if let Some(view) = view_of(snapshot, bond)
            && let Some(found) = frame.with_linear(|packet| view.taps.find(packet))
        {
            frame.with_linear(|packet| view.mailbox.put(member, packet));
            if found == Found::Consumed {
                self.shared.counters.delivered.add(1);
                return self.pool.give(frame);
            }
        }
        self.push(snapshot, then, frame);
    }

    /// Lets control frames pass before a program sees them.
    #[cold]
    pub(super) fn take_control(
        &mut self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        frames: &mut Vec<Frame>,
    ) {
        let Some(view) = hook.control.and_then(|bond| view_of(snapshot, bond)) else { return };
        let is_control =
            |frame: &mut Frame| frame.with_linear(|packet| view.taps.find(packet)).is_some();
        for frame in frames.extract_if(.., is_control) {
            if let Some(verdicts) = hook.verdicts(self.number()) {
                verdicts[Action::Pass as usize].add(1);
            }
            self.push(snapshot, hook.target(Action::Pass), frame);
        }
    }

    fn turn(&self, bond: PortId) -> Turn {
        let known = self.ports.get(bond.0 as usize).and_then(Option::as_ref);
        known.map_or(Turn::new(self.number()), |bond| bond.turn.clone())
    }

    fn set_turn(&mut self, bond: PortId, turn: Turn) {
        if let Some(Some(bond)) = self.ports.get_mut(bond.0 as usize) {
            bond.turn = turn;
        }
    }
}

/// `XDP_TX` of the member it arrived on asks for nothing; another one must take it.
#[inline]
fn sent_back(from: PortId, member: PortId) -> TargetId {
    if member == from { Exit::Send.at(from) } else { Exit::Redirect.at(member) }
}

#[inline]
fn view_of(snapshot: &Snapshot, bond: PortId) -> Option<&View> {
    snapshot.port(bond)?.bond.as_deref()
}
