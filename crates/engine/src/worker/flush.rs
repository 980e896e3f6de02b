//! The end of a burst: what waits goes on, and then away.
//!
//! Inner targets are first: hooks, and bonds, which push again. Then what guests sent back arrives,
//! in waves. Then the leaves are drained.

use super::guest::{self, WAVES_MAX};
use super::hook::HookRunner;
use super::nodes::Nodes;
use crate::offload::complete_checksums;
use crate::snapshot::Snapshot;
use crate::target::{Kind, TargetId};

/// Everything that waits goes. Where another full burst is expected, transmitters may wait for it.
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
    assert_eq!(graph.counters().in_hand(), 0, "every frame is accounted for");
}

#[inline]
fn flush_all_inner(snapshot: &Snapshot, nodes: &mut Nodes, runner: &mut HookRunner) {
    while let Some(queue) = nodes.graph.inner.pop() {
        flush_inner(snapshot, nodes, runner, queue);
    }
}

/// Has frames go on.
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
        // As in the guest: a program sees packets whose checksums are right.
        Kind::GuestHook if has_work => complete_checksums(&mut frames),
        _ => {}
    }
    runner.run(snapshot, hook, &mut frames, None, nodes);
    nodes.graph.put_back(queue, frames);
}

/// Has all frames arrive that wait for that, and everything go on that comes of it.
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
