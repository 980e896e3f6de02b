//! cpumap: frames handed to another worker.

use std::sync::Arc;

use towpath_xdp::Frame;

use super::Worker;
use super::graph::Graph;
use super::tx_ring::arrived_at;
use super::way::Way;
use crate::counters::DropReason;
use crate::hook::HookSpec;
use crate::lane::{CpuEntry, Errand};
use crate::snapshot::Snapshot;
use crate::target::{Kind, Owner, Side, Target, TargetId};

/// The target of an entry of a cpumap.
pub(super) struct CpuQueue {
    entry: CpuEntry,
    target: TargetId,
    /// Its place in [`Graph::ways`].
    way: usize,
}

impl Graph {
    /// The worker that an entry of a cpumap names, as a target, if there is one
    /// (`cpu_map_enqueue`).
    pub(super) fn cpu(&mut self, entry: CpuEntry) -> Option<TargetId> {
        if let Some(known) = self.cpus.iter().find(|known| known.entry == entry) {
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
        let kind = Kind::Cpu(self.cpus.len() as u32);
        let target = self.add(|id| Target::open(id, Owner::NOBODY, kind));
        self.cpus.push(CpuQueue { entry, target, way });
        Some(target)
    }

    /// Forgets which entries there are. Lanes stay that may be used again, or have frames.
    pub(super) fn forget_cpus(&mut self) {
        self.cpus.clear();
        self.ways.retain_mut(|way| std::mem::take(&mut way.is_used) || way.lane.has_frames());
    }

    /// Gives another worker what waits for it; what that has no room for is dropped where it
    /// arrived.
    pub(super) fn hand_over(
        &mut self,
        snapshot: &Snapshot,
        number: usize,
        frames: &mut Vec<Frame>,
    ) {
        let Some(&CpuQueue { way, .. }) = self.cpus.get(number) else { return };
        let count = self.ways[way].give(self.shared.number, frames);
        self.shared.counters.handed_over.add(count as u64);
        for frame in frames.drain(..) {
            let owner = arrived_at(snapshot, frame.rx.ifindex);
            self.drop(snapshot, owner, Side::Rx, DropReason::RingFull, frame);
        }
    }
}

impl Worker {
    /// Works on a burst that was handed over for an entry (`cpu_map_kthread_run`).
    pub(super) fn run_entry(&mut self, entry: CpuEntry) {
        let Self { shared, snapshot, frames, batch, runner, graph, .. } = self;
        // Verdicts mean what they mean where a frame arrived.
        std::mem::swap(batch, frames);
        let mut rest = batch.drain(..).peekable();
        while let Some(first) = rest.peek() {
            let ifindex = first.rx.ifindex;
            let is_same = |frame: &Frame| frame.rx.ifindex == ifindex;
            frames.extend(std::iter::from_fn(|| rest.next_if(is_same)));
            // The rest of the burst is still on its way.
            shared.counters.taken_over.add(frames.len() as u64);
            frames.iter_mut().for_each(|frame| {
                frame.arrive(ifindex, 0);
            });
            let Some(port) = snapshot.port_of_ifindex(ifindex) else {
                let (nobody, why) = (Owner::NOBODY, DropReason::Removed);
                graph.drop_all(snapshot, nobody, Side::Rx, why, frames);
                continue;
            };
            let chain = snapshot.entry_programs.get(&entry.program);
            if chain.is_none() && entry.program != 0 {
                let why = DropReason::BadTarget;
                graph.drop_all(snapshot, Owner::of(port.id), Side::Rx, why, frames);
                continue;
            }
            let chain = chain.map(Arc::clone);
            runner.run(snapshot, &HookSpec::cpumap(&port.rx, chain), frames, None, graph);
            graph.flush(snapshot, runner);
        }
    }
}
