//! Targets for cpumap entries, which hand frames to other workers.
//!
//! The entry's program runs on the worker that gets the frames, in `source/handed.rs`; what its
//! verdicts mean is in [`HookSpec::cpumap`](crate::hook::HookSpec::cpumap).

use std::sync::Arc;

use towpath_xdp::Frame;

use crate::counters::DropReason;
use crate::lane::{CpuEntry, Errand, Mark};
use crate::snapshot::Snapshot;
use crate::target::{Kind, Owner, Target, TargetId};
use crate::worker::graph::Graph;
use crate::worker::shared::WorkerShared;
use crate::worker::way::Way;

/// Targets for entries of cpumaps, added at first use since the last change of configuration.
pub(crate) struct Cpus {
    workers: Arc<[Arc<WorkerShared>]>,
    queues: Vec<CpuQueue>,
    /// Lanes to the entries' workers.
    ways: Vec<Way>,
}

/// The target of an entry of a cpumap.
struct CpuQueue {
    entry: CpuEntry,
    target: TargetId,
    /// Index in [`Cpus::ways`].
    way: usize,
}

impl Cpus {
    pub(super) fn new(workers: &Arc<[Arc<WorkerShared>]>) -> Cpus {
        Cpus { workers: Arc::clone(workers), queues: Vec::new(), ways: Vec::new() }
    }

    /// The target for an entry's worker, if that exists (`cpu_map_enqueue`).
    pub(super) fn target(&mut self, graph: &mut Graph, entry: CpuEntry) -> Option<TargetId> {
        if let Some(known) = self.queues.iter().find(|known| known.entry == entry) {
            return Some(known.target);
        }
        let worker = self.workers.get(entry.key as usize)?;
        let errand = Errand::Entry(entry);
        let way = self.ways.iter().position(|way| way.lane.errand == errand);
        let way = way.unwrap_or_else(|| {
            self.ways.push(Way::open(worker, errand, entry.limit));
            self.ways.len() - 1
        });
        self.ways[way].is_used = true;
        let kind = Kind::Cpu(self.queues.len() as u32);
        let target = graph.add(|id| Target::open(id, Owner::NOBODY, kind));
        self.queues.push(CpuQueue { entry, target, way });
        Some(target)
    }

    /// Forgets all entries. Lanes that were used recently or have frames are kept.
    pub(super) fn clear(&mut self) {
        self.queues.clear();
        self.ways.retain_mut(|way| std::mem::take(&mut way.is_used) || way.lane.has_frames());
    }

    /// Marks behind all frames handed over so far.
    pub(crate) fn marks(&self) -> impl Iterator<Item = Mark> {
        self.ways.iter().map(|way| way.lane.mark())
    }

    /// Hands frames to another worker; frames beyond its room are dropped and counted at their
    /// ingress port.
    pub(super) fn hand_over(
        &mut self,
        graph: &mut Graph,
        snapshot: &Snapshot,
        number: usize,
        frames: &mut Vec<Frame>,
    ) {
        let Some(&CpuQueue { way, .. }) = self.queues.get(number) else { return };
        let count = self.ways[way].give(graph.number(), frames);
        graph.counters().handed_over.add(count as u64);
        for frame in frames.drain(..) {
            graph.drop_arrived(snapshot, DropReason::RingFull, frame);
        }
    }
}
