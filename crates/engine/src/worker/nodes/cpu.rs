//! cpumap: frames handed to another worker.

use std::sync::Arc;

use towpath_xdp::Frame;

use crate::counters::DropReason;
use crate::lane::{CpuEntry, Errand, Mark};
use crate::snapshot::Snapshot;
use crate::target::{Kind, Owner, Target, TargetId};
use crate::worker::graph::Graph;
use crate::worker::shared::WorkerShared;
use crate::worker::way::Way;

/// The workers that entries of cpumaps named since the last configuration.
pub(crate) struct Cpus {
    workers: Arc<[Arc<WorkerShared>]>,
    queues: Vec<CpuQueue>,
    /// Lanes to the workers that these name.
    ways: Vec<Way>,
}

/// The target of an entry of a cpumap.
struct CpuQueue {
    entry: CpuEntry,
    target: TargetId,
    /// Its place in [`Cpus::ways`].
    way: usize,
}

impl Cpus {
    pub(super) fn new(workers: &Arc<[Arc<WorkerShared>]>) -> Cpus {
        Cpus { workers: Arc::clone(workers), queues: Vec::new(), ways: Vec::new() }
    }

    /// The worker that an entry names, as a target, if there is one (`cpu_map_enqueue`).
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

    /// Forgets which entries there are. Lanes stay that may be used again, or have frames.
    pub(super) fn clear(&mut self) {
        self.queues.clear();
        self.ways.retain_mut(|way| std::mem::take(&mut way.is_used) || way.lane.has_frames());
    }

    /// What was given away so far.
    pub(crate) fn marks(&self) -> impl Iterator<Item = Mark> {
        self.ways.iter().map(|way| way.lane.mark())
    }

    /// Gives another worker what waits for it; what that has no room for is dropped where it
    /// arrived.
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
