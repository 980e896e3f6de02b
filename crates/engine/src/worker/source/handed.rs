//! Lanes as sources: frames that other workers hand over.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use towpath_xdp::Frame;
use towpath_xdp::frame::RxInfo;

use crate::counters::DropReason;
use crate::hook::HookSpec;
use crate::lane::{CpuEntry, Errand, Lane};
use crate::numbers::PortId;
use crate::options::BURST;
use crate::snapshot::{Port, Snapshot};
use crate::target::{Owner, Side};
use crate::worker::flush::flush;
use crate::worker::graph::Graph;
use crate::worker::hook::HookRunner;
use crate::worker::inbox::Inbox;
use crate::worker::nodes::Nodes;

/// The lanes to a worker.
#[derive(Default)]
pub(crate) struct Lanes {
    known: Vec<Arc<Lane>>,
    /// Index of the lane polled last.
    last: usize,
    /// Buffer for a burst that is split.
    mixed: Vec<Frame>,
    hooks: EntryHooks,
}

/// The programs of cpumap entries, by the port of first arrival. A hook is made once for each
/// configuration: all workers share the count of references to its chain.
#[derive(Default)]
struct EntryHooks(HashMap<(PortId, u32), HookSpec>);

impl Lanes {
    /// Updates the list of lanes.
    pub(crate) fn see(&mut self, inbox: &Inbox) {
        inbox.see_lanes(&mut self.known);
    }

    /// Forgets what belongs to the configuration before.
    pub(crate) fn adopt(&mut self) {
        self.hooks.0.clear();
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Processes up to a burst of frames of one lane; returns their number. `frames` is a buffer.
    pub(crate) fn poll(
        &mut self,
        snapshot: &Snapshot,
        frames: &mut Vec<Frame>,
        nodes: &mut Nodes,
        runner: &mut HookRunner,
    ) -> usize {
        let count = self.known.len();
        for _ in 0..count {
            // The next poll starts with the next lane.
            self.last = (self.last + 1) % count;
            if self.known[self.last].has_frames() {
                return self.work(snapshot, frames, nodes, runner);
            }
        }
        0
    }

    #[inline(never)]
    fn work(
        &mut self,
        snapshot: &Snapshot,
        frames: &mut Vec<Frame>,
        nodes: &mut Nodes,
        runner: &mut HookRunner,
    ) -> usize {
        nodes.graph.shared.load.is_elsewhere();
        let lane = &self.known[self.last];
        let count = lane.take(frames, BURST);
        match lane.errand {
            Errand::Entry(entry) => {
                std::mem::swap(&mut self.mixed, frames);
                let (mixed, hooks) = (&mut self.mixed, &mut self.hooks);
                run_entry(snapshot, (entry, hooks), mixed, frames, nodes, runner);
            }
            Errand::Arrive => run_arrived(snapshot, frames, nodes, runner),
        }
        lane.finish();
        count
    }

    /// Drops all frames when the worker stops.
    pub(crate) fn drop_all(&self, snapshot: &Snapshot, graph: &mut Graph) {
        let mut frames = Vec::new();
        for lane in &self.known {
            while lane.take(&mut frames, BURST) > 0 {
                graph.counters().taken_over.add(frames.len() as u64);
                graph.drop_removed(snapshot, &mut frames);
            }
            lane.finish();
        }
    }
}

impl EntryHooks {
    /// The hook of an entry's program, if the entry has one and it exists, for frames of a port.
    fn hook(&mut self, snapshot: &Snapshot, port: &Port, program: u32) -> Option<&HookSpec> {
        match self.0.entry((port.id, program)) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(new) => {
                let chain = snapshot.entry_programs.get(&program);
                if chain.is_none() && program != 0 {
                    return None;
                }
                Some(new.insert(HookSpec::cpumap(&port.rx, chain.map(Arc::clone))))
            }
        }
    }
}

/// Processes a burst that was handed over for an entry of a cpumap (`cpu_map_kthread_run`);
/// `frames` is a buffer for a part of it.
fn run_entry(
    snapshot: &Snapshot,
    (entry, hooks): (CpuEntry, &mut EntryHooks),
    burst: &mut Vec<Frame>,
    frames: &mut Vec<Frame>,
    nodes: &mut Nodes,
    runner: &mut HookRunner,
) {
    // Verdicts lead to the targets of each frame's ingress port.
    let mut rest = burst.drain(..).peekable();
    while let Some(first) = rest.peek() {
        let ifindex = first.rx.ifindex;
        let is_same = |frame: &Frame| frame.rx.ifindex == ifindex;
        frames.extend(std::iter::from_fn(|| rest.next_if(is_same)));
        // The rest of the burst still counts as handed over.
        nodes.graph.counters().taken_over.add(frames.len() as u64);
        frames.iter_mut().for_each(|frame| {
            frame.arrive(ifindex, 0);
        });
        let Some(port) = snapshot.port_of_ifindex(ifindex) else {
            nodes.graph.drop_removed(snapshot, frames);
            continue;
        };
        let Some(hook) = hooks.hook(snapshot, port, entry.program) else {
            let why = DropReason::BadTarget;
            nodes.graph.drop_all(snapshot, Owner::of(port.id), Side::Rx, why, frames);
            continue;
        };
        runner.run(snapshot, hook, frames, None, nodes);
        flush(snapshot, nodes, runner, false);
    }
}

/// Processes a burst that another worker received.
fn run_arrived(
    snapshot: &Snapshot,
    frames: &mut Vec<Frame>,
    nodes: &mut Nodes,
    runner: &mut HookRunner,
) {
    let count = frames.len();
    nodes.graph.counters().taken_over.add(count as u64);
    // A lane belongs to one receive queue, so that all its frames have the same ingress.
    let Some(RxInfo { ifindex, queue_index, .. }) = frames.first().map(|frame| frame.rx) else {
        return;
    };
    // The frames are in another core's cache; touching them in one loop overlaps the misses.
    frames.iter_mut().for_each(|frame| {
        frame.arrive(ifindex, queue_index);
    });
    match snapshot.port_of_ifindex(ifindex) {
        Some(port) => runner.judge(snapshot, port, frames, None, nodes),
        None => nodes.graph.drop_removed(snapshot, frames),
    }
    flush(snapshot, nodes, runner, count == BURST);
}
