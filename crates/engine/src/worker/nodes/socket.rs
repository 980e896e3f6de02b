//! AF_XDP sockets that frames are delivered to.

use towpath_xdp::Frame;

use crate::counters::DropReason;
use crate::snapshot::Snapshot;
use crate::socket::QueueId;
use crate::sockets::Served;
use crate::target::Side;
use crate::worker::graph::{Graph, arrived_at};

/// Room for frames of a burst that arrived at one place.
#[derive(Default)]
pub(super) struct Sockets {
    run: Vec<Frame>,
}

impl Sockets {
    /// All that a burst has for a socket (`__xsk_map_redirect`). What the socket does not take is
    /// dropped, whatever fallback its redirect named (`xsk_rcv`).
    #[inline]
    pub(super) fn deliver(
        &mut self,
        graph: &mut Graph,
        snapshot: &Snapshot,
        place: u32,
        frames: &mut Vec<Frame>,
    ) {
        let Some(served) = snapshot.sockets.at(place) else { return };
        let Some(from) = frames.first().map(arrival) else { return };
        if frames.iter().all(|frame| arrival(frame) == from) {
            deliver_run(graph, snapshot, served, from, frames);
        } else {
            self.deliver_mixed(graph, snapshot, served, frames);
        }
    }

    /// Frames that arrived at several places, as when programs of two guests answer what was
    /// flooded to both. A socket takes only what arrived where it is bound (`xsk_rcv_check`).
    #[cold]
    fn deliver_mixed(
        &mut self,
        graph: &mut Graph,
        snapshot: &Snapshot,
        served: &Served,
        frames: &mut Vec<Frame>,
    ) {
        let mut rest = frames.drain(..).peekable();
        while let Some(from) = rest.peek().map(arrival) {
            self.run.extend(std::iter::from_fn(|| rest.next_if(|frame| arrival(frame) == from)));
            deliver_run(graph, snapshot, served, from, &mut self.run);
        }
    }
}

/// Frames that arrived at one place.
#[inline]
fn deliver_run(
    graph: &mut Graph,
    snapshot: &Snapshot,
    served: &Served,
    from: QueueId,
    frames: &mut Vec<Frame>,
) {
    let count = frames.len();
    let delivered = served.socket.deliver_all(from, frames, &mut graph.pool);
    assert!(delivered <= count && frames.is_empty(), "a socket takes or drops all");
    graph.counters().delivered.add(delivered as u64);
    if delivered < count {
        let (owner, why) = (arrived_at(snapshot, from.ifindex), refusal(served, from));
        graph.count_dropped(snapshot, owner, Side::Rx, why, (count - delivered) as u64);
    }
}

/// Why a socket did not take a frame.
#[cold]
fn refusal(served: &Served, from: QueueId) -> DropReason {
    let is_here = served.socket.receives() && served.socket.bound_to() == Some(from);
    if is_here { DropReason::SocketFull } else { DropReason::NoSocket }
}

#[inline]
fn arrival(frame: &Frame) -> QueueId {
    QueueId { ifindex: frame.rx.ifindex, queue: frame.rx.queue_index }
}
