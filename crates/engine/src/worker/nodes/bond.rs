//! Bonds on the packet path: chooses members for frames to send, and shows passing frames to the
//! control plane.

use std::sync::Arc;

use towpath_xdp::Frame;

use super::next::Next;
use crate::bond::control::Found;
use crate::bond::{Turn, View, is_neighbour_message};
use crate::counters::DropReason;
use crate::numbers::PortId;
use crate::opened::Opened;
use crate::snapshot::Snapshot;
use crate::target::{Exit, Side, TargetId};

/// A worker's state of bonds.
#[derive(Default)]
pub(super) struct Bonds {
    /// By port number; `None` for ports that are not bonds.
    turns: Vec<Option<BondTurn>>,
    /// Buffers for a burst's frames, by egress member.
    lanes: Vec<Vec<Frame>>,
}

/// Round-robin state of a bond.
struct BondTurn {
    /// The bond's device; with a different device, the state starts afresh.
    opened: Arc<Opened>,
    turn: Turn,
}

/// A burst dealt to the members of a bond.
pub(super) enum Dealt<'a> {
    /// All frames leave by this member; they are still in the burst.
    ToOne(PortId),
    /// The frames of each member are in the lane with its index.
    ToEach(&'a [PortId], Vec<Vec<Frame>>),
}

impl Bonds {
    /// Adopts the bonds of a configuration.
    pub(super) fn adopt(&mut self, snapshot: &Snapshot, worker: usize) {
        let mut before = std::mem::take(&mut self.turns).into_iter();
        for port in &snapshot.ports {
            let before = before.next().flatten();
            let bond = port.as_ref().filter(|port| port.bond.is_some());
            self.turns.push(bond.map(|bond| {
                let is_same = |known: &BondTurn| Arc::ptr_eq(&known.opened, &bond.opened);
                before.filter(is_same).unwrap_or_else(|| BondTurn {
                    opened: Arc::clone(&bond.opened),
                    turn: Turn::new(worker),
                })
            }));
        }
    }

    /// Chooses members for a burst. Frames without a usable member stay in `frames`.
    #[inline]
    pub(super) fn deal<'a>(
        &mut self,
        snapshot: &'a Snapshot,
        bond: PortId,
        frames: &mut Vec<Frame>,
    ) -> Option<Dealt<'a>> {
        let view = view_of(snapshot, bond)?;
        let turn = turn_of(&mut self.turns, bond)?;
        if let Some(only) = view.only {
            view.skip(frames.len(), turn);
            return Some(Dealt::ToOne(only));
        }
        let mut lanes = std::mem::take(&mut self.lanes);
        let members = view.spread(frames, turn, &mut lanes);
        Some(Dealt::ToEach(members, lanes))
    }

    /// Returns the emptied lanes, which keep their memory.
    pub(super) fn put_back(&mut self, lanes: Vec<Vec<Frame>>) {
        debug_assert!(lanes.iter().all(Vec::is_empty), "all frames went on");
        self.lanes = lanes;
    }

    /// `XDP_TX` of a bond's program for one frame (`xdp_master_redirect`): the frame leaves by the
    /// member that the bond chooses, as if redirected there, or by the ingress member if none is
    /// usable.
    pub(super) fn send_back(
        &mut self,
        snapshot: &Snapshot,
        from: PortId,
        bond: PortId,
        frame: &Frame,
    ) -> Next<'static> {
        let known = view_of(snapshot, bond).zip(turn_of(&mut self.turns, bond));
        let Some((view, turn)) = known else { return Next::Drop(Side::Rx, DropReason::Removed) };
        Next::To(sent_back(from, view.select(frame, turn).unwrap_or(from)))
    }
}

/// The round-robin state of a bond.
fn turn_of(turns: &mut [Option<BondTurn>], bond: PortId) -> Option<&mut Turn> {
    let known = turns.get_mut(bond.0 as usize)?.as_mut();
    known.map(|known| &mut known.turn)
}

/// The target of `XDP_TX` by `member`: unchecked for the ingress member; another member must admit
/// the frame.
#[inline]
pub(super) fn sent_back(from: PortId, member: PortId) -> TargetId {
    if member == from { Exit::Send.at(from) } else { Exit::Redirect.at(member) }
}

/// Shows a frame that passed on a member to the bond's control plane, if that wants it
/// (`bond_handle_frame`).
pub(super) fn pass_member(
    snapshot: &Snapshot,
    member: PortId,
    bond: PortId,
    then: TargetId,
    frame: &Frame,
) -> Next<'static> {
    if let Some(view) = view_of(snapshot, bond)
        && let Some(found) = frame.with_linear(|packet| view.taps.find(packet))
    {
        frame.with_linear(|packet| view.mailbox.put(member, packet));
        if found == Found::Consumed {
            return Next::Delivered;
        }
    }
    Next::To(then)
}

/// Takes the frames that a bond's control plane wants to see out of a burst; `None` if there is no
/// such bond.
pub(crate) fn take_control<'a>(
    snapshot: &'a Snapshot,
    bond: PortId,
    frames: &'a mut Vec<Frame>,
) -> Option<impl Iterator<Item = Frame> + 'a> {
    let view = view_of(snapshot, bond)?;
    let is_control =
        |frame: &mut Frame| frame.with_linear(|packet| view.taps.find(packet)).is_some();
    Some(frames.extract_if(.., is_control))
}

/// Takes ARP and IPv6 neighbour messages out of a burst (`bond_should_broadcast_neighbor`).
pub(super) fn take_neighbours(frames: &mut Vec<Frame>) -> impl Iterator<Item = Frame> {
    frames.extract_if(.., |frame| frame.with_linear(is_neighbour_message))
}

/// The workers' view of a bond.
#[inline]
pub(super) fn view_of(snapshot: &Snapshot, bond: PortId) -> Option<&View> {
    snapshot.port(bond)?.bond.as_deref()
}
