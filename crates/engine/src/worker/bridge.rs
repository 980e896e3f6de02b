//! Frames that go to a bridge: on to one of its ports, or to all others.

use towpath_xdp::Frame;

use super::graph::Graph;
use crate::bridge::{Forward, now_ms};
use crate::counters::DropReason;
use crate::numbers::PortId;
use crate::snapshot::Snapshot;
use crate::target::{Exit, Owner, Side, Target};

impl Graph {
    /// A frame that passed on a port of a bridge (`br_handle_frame`).
    pub(super) fn bridge(
        &mut self,
        snapshot: &Snapshot,
        from: PortId,
        number: usize,
        frame: Frame,
    ) {
        let owner = Owner::of(from);
        let Some(view) = snapshot.bridges.get(number) else {
            return self.drop(snapshot, owner, Side::Rx, DropReason::Removed, frame);
        };
        let now_ms = *self.now_ms.get_or_insert_with(now_ms);
        match frame.with_linear(|packet| view.bridge.forward(packet, from, now_ms)) {
            Forward::To(to) if snapshot.port(to).is_some() => {
                self.push(snapshot, Exit::Forward.at(to), frame);
            }
            Forward::To(_) | Forward::Nowhere => {
                self.drop(snapshot, owner, Side::Rx, DropReason::Bridge, frame);
            }
            Forward::Flood => {
                let is_other = |target: &Target, _: &Frame| target.owner != owner;
                let nobody = (owner, DropReason::Bridge);
                self.copies(snapshot, frame, &view.targets, is_other, nobody);
            }
        }
    }
}
