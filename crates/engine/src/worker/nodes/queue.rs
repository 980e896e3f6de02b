//! Queues of maps, in which frames wait for a dequeue program.

use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_maps::Map;
use towpath_xdp::queue::Reclaim;
use towpath_xdp::{Frame, FrameQueue};

use crate::counters::DropReason;
use crate::dequeue::{Reclaimer, Schedule, monotonic_ns};
use crate::snapshot::Snapshot;
use crate::target::{Kind, Owner, Target, TargetId};
use crate::worker::graph::Graph;
use crate::worker::shared::WorkerShared;

/// Targets for queues, added at first use since the last change of configuration.
pub(super) struct Queues {
    workers: Arc<[Arc<WorkerShared>]>,
    /// Receiver of frames left in queues that are deleted.
    reclaimer: Arc<Reclaimer>,
    known: Vec<QueueTarget>,
    /// Buffer for frames that queues refuse.
    refused: Vec<(Frame, Errno)>,
}

/// A queue that programs of this worker redirect to.
struct QueueTarget {
    queue: Arc<FrameQueue>,
    target: TargetId,
    /// Schedules of dequeue programs that use the queue, with the workers that run them.
    readers: Vec<(Arc<Schedule>, usize)>,
}

impl Queues {
    pub(super) fn new(workers: &Arc<[Arc<WorkerShared>]>, reclaimer: &Arc<Reclaimer>) -> Queues {
        Queues {
            workers: Arc::clone(workers),
            reclaimer: Arc::clone(reclaimer),
            known: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// The target for a map's queue; `None` if the map has none.
    pub(super) fn target(
        &mut self,
        graph: &mut Graph,
        snapshot: &Snapshot,
        map: &Map,
    ) -> Option<TargetId> {
        let queue = FrameQueue::of(map)?;
        let known = self.known.iter().find(|known| std::ptr::eq(&*known.queue, queue));
        if let Some(known) = known {
            return Some(known.target);
        }
        self.add(graph, snapshot, map)
    }

    #[cold]
    fn add(&mut self, graph: &mut Graph, snapshot: &Snapshot, map: &Map) -> Option<TargetId> {
        let queue = FrameQueue::shared(map)?;
        queue.set_reclaimer(&(Arc::clone(&self.reclaimer) as Arc<dyn Reclaim>));
        let hooks = snapshot.ports.iter().flatten().filter_map(|port| port.dequeue.as_ref());
        let readers = hooks.filter(|hook| hook.knows(map));
        let readers = readers.map(|hook| (Arc::clone(&hook.schedule), hook.worker)).collect();
        let kind = Kind::Queue(self.known.len() as u32);
        let target = graph.add(|id| Target::open(id, Owner::NOBODY, kind));
        self.known.push(QueueTarget { queue, target, readers });
        Some(target)
    }

    /// Forgets all queues.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// Puts frames into a queue; refused frames are dropped and counted at their ingress port.
    pub(super) fn put(
        &mut self,
        graph: &mut Graph,
        snapshot: &Snapshot,
        number: usize,
        frames: &mut Vec<Frame>,
    ) {
        let Some(QueueTarget { queue, readers, .. }) = self.known.get(number) else { return };
        let count = frames.len();
        queue.push_all(frames, monotonic_ns(), &mut self.refused);
        graph.counters().handed_over.add((count - self.refused.len()) as u64);
        for (schedule, worker) in readers {
            schedule.want();
            if *worker != graph.number() {
                self.workers[*worker].waker.wake();
            }
        }
        for (frame, errno) in self.refused.drain(..) {
            let is_full = errno == Errno::EOVERFLOW;
            let why = if is_full { DropReason::QueueFull } else { DropReason::QueueRank };
            graph.drop_arrived(snapshot, why, frame);
        }
    }
}
