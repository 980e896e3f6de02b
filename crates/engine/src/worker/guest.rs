//! Frames that a guest's program sent back, which arrive at the guest's port.
//!
//! The port's program may send them to the guest again, whose program may send them back again, and
//! so on. They are processed in waves; a burst has a bounded number of them, and frames that loop
//! longer are dropped.

use towpath_xdp::Frame;

use super::hook::HookRunner;
use super::nodes::Nodes;
use crate::counters::DropReason;
use crate::offload::complete_checksums;
use crate::snapshot::{Port, Snapshot};
use crate::target::{Side, TargetId};

/// Processes the arrival of one queue's frames, or drops them if `is_loop`.
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

/// Marks and counts the frames as received from the guest's first queue.
fn arrive(port: &Port, worker: usize, frames: &mut [Frame]) {
    let bytes: usize = frames.iter_mut().map(|frame| frame.arrive(port.ifindex, 0)).sum();
    let counters = &port.opened.counters[worker];
    counters.rx_packets.add(frames.len() as u64);
    counters.rx_bytes.add(bytes as u64);
    if port.features.rx_checksum && port.rx_hook.is_some() {
        complete_checksums(frames);
    }
}

/// Most waves of a burst, each from a guest's program to its port and back.
pub(super) const WAVES_MAX: usize = 4;
