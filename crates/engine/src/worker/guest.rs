//! Frames that a guest's program sent back: they arrive at the guest's port.
//!
//! The port's program may send them to the guest again, whose program may send them back again, and
//! so on. So this goes in waves, of which a burst has a bounded number; what goes to and fro for
//! longer is dropped.

use towpath_xdp::Frame;

use super::hook::HookRunner;
use super::nodes::Nodes;
use crate::counters::DropReason;
use crate::offload::complete_checksums;
use crate::snapshot::{Port, Snapshot};
use crate::target::{Side, TargetId};

/// Has the frames of one queue arrive, unless they did too often.
pub(super) fn flush_arrival(
    snapshot: &Snapshot,
    nodes: &mut Nodes,
    runner: &mut HookRunner,
    queue: TargetId,
    is_loop: bool,
) {
    let graph = &mut nodes.graph;
    let owner = graph.target(queue).owner;
    graph.mark_clean(queue);
    let mut frames = graph.take(queue);
    match owner.port().and_then(|port| snapshot.port(port)) {
        Some(port) if !is_loop => {
            arrive(port, graph.number(), &mut frames);
            runner.run(snapshot, &port.rx, &mut frames, None, nodes);
        }
        Some(_) => graph.drop_all(snapshot, owner, Side::Rx, DropReason::Loop, &mut frames),
        None => graph.drop_all(snapshot, owner, Side::Rx, DropReason::Removed, &mut frames),
    }
    nodes.graph.put_back(queue, frames);
}

/// As if the guest had sent them, by its first queue.
fn arrive(port: &Port, worker: usize, frames: &mut [Frame]) {
    let bytes: usize = frames.iter_mut().map(|frame| frame.arrive(port.ifindex, 0)).sum();
    let counters = &port.opened.counters[worker];
    counters.rx_packets.add(frames.len() as u64);
    counters.rx_bytes.add(bytes as u64);
    if port.features.rx_checksum && port.rx_hook.is_some() {
        complete_checksums(frames);
    }
}

/// How often a frame may go from a guest's program to its port and back within a burst.
pub(super) const WAVES_MAX: usize = 4;
