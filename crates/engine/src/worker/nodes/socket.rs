//! Delivery of frames to AF_XDP sockets. The socket compares a frame's port and queue with its own
//! (`deliver` in `socket/rx.rs` of `towpath-xsk`).

use towpath_xdp::Frame;

use crate::counters::DropReason;
use crate::snapshot::Snapshot;
use crate::socket::QueueId;
use crate::sockets::Served;
use crate::target::Side;
use crate::worker::graph::{Graph, arrived_at};

/// Buffer for frames of a burst that arrived at one queue.
#[derive(Default)]
pub(super) struct Sockets {
    run: Vec<Frame>,
}

impl Sockets {
    /// Delivers all frames of a burst for a socket (`__xsk_map_redirect`). Frames that the socket
    /// does not take are dropped, whatever fallback the redirect named (`xsk_rcv`).
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

    /// Delivers frames that arrived at several queues, as when programs of two guests answer frames
    /// flooded to both. A socket takes only frames from the queue it is bound to (`xsk_rcv_check`).
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

/// Delivers frames that arrived at one queue.
#[inline]
fn deliver_run(
    graph: &mut Graph,
    snapshot: &Snapshot,
    served: &Served,
    from: QueueId,
    frames: &mut Vec<Frame>,
) {
    let count = frames.len();
    let place = match served.socket.bound_to() {
        Some(bound) if bound.ifindex != from.ifindex => at_bond(snapshot, from, bound),
        _ => from,
    };
    let delivered = served.socket.deliver_all(place, frames, &mut graph.pool);
    assert!(delivered <= count && frames.is_empty(), "a socket takes or drops all");
    graph.counters().delivered.add(delivered as u64);
    if delivered < count {
        let (owner, why) = (arrived_at(snapshot, from.ifindex), refusal(served, place));
        graph.count_dropped(snapshot, owner, Side::Rx, why, (count - delivered) as u64);
    }
}

/// The queue at which frames arrived, for a socket that is bound to another port: frames of a
/// member arrive at the same queue of its bond. In the kernel, a socket on a bond gets none.
#[cold]
fn at_bond(snapshot: &Snapshot, from: QueueId, bound: QueueId) -> QueueId {
    let [member, bond] = [from, bound].map(|place| snapshot.port_of_ifindex(place.ifindex));
    let is_member = member.zip(bond).is_some_and(|(it, bond)| snapshot.is_around(bond.id, it));
    if is_member { QueueId { ifindex: bound.ifindex, ..from } } else { from }
}

/// The reason why a socket did not take a frame.
#[cold]
fn refusal(served: &Served, from: QueueId) -> DropReason {
    let is_here = served.socket.receives() && served.socket.bound_to() == Some(from);
    if is_here { DropReason::SocketFull } else { DropReason::NoSocket }
}

#[inline]
fn arrival(frame: &Frame) -> QueueId {
    QueueId { ifindex: frame.rx.ifindex, queue: frame.rx.queue_index }
}
