//! The end of a burst: processing of all queued frames.
//!
//! Inner targets (hooks and bonds) come first, as they push frames to other targets. Then frames
//! that guests' programs sent back arrive, in waves. Then the leaf targets are drained.

use super::guest::{self, WAVES_MAX};
use super::hook::HookRunner;
use super::nodes::Nodes;
use crate::offload::complete_checksums;
use crate::snapshot::Snapshot;
use crate::target::{Kind, TargetId};

/// Processes all queued frames. If another full burst is expected, transmitters may wait for it.
#[inline]
pub(super) fn flush(
    snapshot: &Snapshot,
    nodes: &mut Nodes,
    runner: &mut HookRunner,
    expects_more: bool,
) {
    flush_all_inner(snapshot, nodes, runner);
    if !nodes.graph.arrivals.is_empty() {
        flush_arrivals(snapshot, nodes, runner);
    }
    while let Some(queue) = nodes.graph.leaves.pop() {
        nodes.graph.mark_clean(queue);
        nodes.flush_leaf(snapshot, queue);
        let target = nodes.graph.target(queue);
        if let (Kind::Wire, Some(port)) = (target.kind, target.owner.port()) {
            nodes.wires.flush(port, &mut nodes.graph.pool, expects_more);
        }
    }
    nodes.end_burst(snapshot);
    let graph = &nodes.graph;
    assert!(graph.inner.is_empty() && graph.leaves.is_empty(), "nothing waits");
    debug_assert_eq!(graph.counters().in_hand(), 0, "every frame is accounted for");
}

#[inline]
fn flush_all_inner(snapshot: &Snapshot, nodes: &mut Nodes, runner: &mut HookRunner) {
    while let Some(queue) = nodes.graph.inner.pop() {
        flush_inner(snapshot, nodes, runner, queue);
    }
}

/// Processes the queue of an inner target.
#[cold]
fn flush_inner(snapshot: &Snapshot, nodes: &mut Nodes, runner: &mut HookRunner, queue: TargetId) {
    nodes.graph.mark_clean(queue);
    let target = *nodes.graph.target(queue);
    let has_work = std::mem::take(&mut nodes.graph.queue(queue).has_work);
    let entry;
    let hook = match target.kind {
        Kind::EntryHook(number) => {
            entry = nodes.entries.hook(number);
            Some(&*entry)
        }
        Kind::TxHook | Kind::GuestHook | Kind::RxHook => {
            let port = target.owner.port().and_then(|port| snapshot.port(port));
            port.and_then(|port| match target.kind {
                Kind::TxHook => port.tx.as_ref(),
                Kind::GuestHook => port.guest_rx.as_ref(),
                _ => Some(&port.rx),
            })
        }
        _ => return nodes.flush_bond(snapshot, queue),
    };
    let Some(hook) = hook else { return nodes.flush_leaf(snapshot, queue) };
    let mut frames = nodes.graph.take(queue);
    match target.kind {
        Kind::EntryHook(_) => frames.iter_mut().for_each(|frame| frame.rx.queue_index = 0),
        // As in the guest, a program sees packets with complete checksums.
        Kind::GuestHook if has_work => complete_checksums(&mut frames),
        _ => {}
    }
    runner.run(snapshot, hook, &mut frames, None, nodes);
    nodes.graph.put_back(queue, frames);
}

/// Processes the frames that wait to arrive at ports, wave by wave, until none are left.
#[cold]
fn flush_arrivals(snapshot: &Snapshot, nodes: &mut Nodes, runner: &mut HookRunner) {
    let mut waves = 0;
    while !nodes.graph.arrivals.is_empty() {
        waves += 1;
        let mut wave = std::mem::take(&mut nodes.graph.arrivals);
        for &queue in &wave {
            guest::flush_arrival(snapshot, nodes, runner, queue, waves > WAVES_MAX);
        }
        wave.clear();
        flush_all_inner(snapshot, nodes, runner);
        if nodes.graph.arrivals.is_empty() {
            // The list keeps its memory.
            nodes.graph.arrivals = wave;
        }
    }
}
