//! Bridges on the packet path: forwards frames to one port, or to all others.

use towpath_xdp::Frame;

use super::next::Next;
use crate::bridge::{Forward, now_ms};
use crate::counters::DropReason;
use crate::numbers::PortId;
use crate::snapshot::Snapshot;
use crate::target::{Exit, Side};

/// State of bridges for the present burst.
#[derive(Default)]
pub(super) struct Bridges {
    /// Time on the bridges' clock in milliseconds; `None` until the burst has read it.
    now_ms: Option<u64>,
}

impl Bridges {
    /// Forwards a frame that passed on port `from` of bridge `number` (`br_handle_frame`).
    pub(super) fn forward<'a>(
        &mut self,
        snapshot: &'a Snapshot,
        from: PortId,
        number: usize,
        frame: &Frame,
    ) -> Next<'a> {
        let Some(view) = snapshot.bridges.get(number) else {
            return Next::Drop(Side::Rx, DropReason::Removed);
        };
        let now_ms = *self.now_ms.get_or_insert_with(now_ms);
        match frame.with_linear(|packet| view.bridge.forward(packet, from, now_ms)) {
            Forward::To(to) if snapshot.port(to).is_some() => Next::To(Exit::Forward.at(to)),
            Forward::To(_) | Forward::Nowhere => Next::Drop(Side::Rx, DropReason::Bridge),
            Forward::Flood => Next::Flood(&view.targets),
        }
    }

    /// Ends a burst: the next one reads the clock again.
    #[inline]
    pub(super) fn end_burst(&mut self) {
        self.now_ms = None;
    }
}
