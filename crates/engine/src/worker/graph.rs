//! The queues of a worker's targets, their order, and the memory of its frames.
//!
//! Frames wait in the queue of their target until the end of the burst.
//! [`Nodes`](super::nodes::Nodes) processes them then; this module queues, counts and drops them.

use std::sync::Arc;

use towpath_xdp::{Frame, Pool};

use super::shared::WorkerShared;
use crate::counters::{DropReason, FrameCounters};
use crate::options::BURST;
use crate::snapshot::Snapshot;
use crate::target::{Kind, Owner, Side, Target, TargetId};

/// The queue of a target: frames that wait for the end of the burst.
#[derive(Default)]
pub(crate) struct TxBulk {
    pub(crate) frames: Vec<Frame>,
    /// Total bytes of these frames; counted for wires only.
    pub(crate) bytes: usize,
    /// The target is in the list of targets to flush.
    is_dirty: bool,
    /// Some frames have a TX timestamp request.
    pub(crate) has_requests: bool,
    /// Some frames need offload work.
    pub(crate) has_work: bool,
}

/// Summary of a burst, so that its frames need not be inspected again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BurstSummary {
    /// All frames are plain: linear, without offload work.
    pub(crate) is_plain: bool,
    /// Length of the longest frame, in bytes.
    pub(crate) longest: usize,
    /// Total length in bytes.
    pub(crate) bytes: usize,
}

impl BurstSummary {
    /// The summary of an empty burst.
    pub(crate) const NOTHING: BurstSummary = BurstSummary { is_plain: true, longest: 0, bytes: 0 };

    /// The summary with one more frame of `bytes` bytes.
    #[inline]
    pub(crate) fn and(self, frame: &Frame, bytes: usize) -> BurstSummary {
        BurstSummary {
            is_plain: self.is_plain & frame.is_plain(),
            longest: self.longest.max(bytes),
            bytes: self.bytes + bytes,
        }
    }
}

/// The targets' queues, and the pool that the worker allocates from.
pub(crate) struct Graph {
    pub(crate) shared: Arc<WorkerShared>,
    pub(crate) pool: Pool,
    /// Targets of the configuration, then those of map entries, added at first use.
    targets: Vec<Target>,
    /// Queues by target; many targets share another target's queue.
    queues: Vec<TxBulk>,
    /// Inner and leaf targets with queued frames: frames of inner ones go on to other targets.
    pub(crate) inner: Vec<TargetId>,
    pub(crate) leaves: Vec<TargetId>,
    /// Targets with frames that guests' programs sent back, which arrive at ports.
    pub(crate) arrivals: Vec<TargetId>,
}

impl Graph {
    pub(crate) fn new(shared: &Arc<WorkerShared>, pool: Pool) -> Graph {
        Graph {
            shared: Arc::clone(shared),
            pool,
            targets: Vec::new(),
            queues: Vec::new(),
            inner: Vec::new(),
            leaves: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    pub(crate) fn number(&self) -> usize {
        self.shared.number
    }

    pub(crate) fn counters(&self) -> &FrameCounters {
        &self.shared.counters
    }

    /// Adopts the targets of a configuration. All queues must be empty.
    pub(crate) fn adopt(&mut self, targets: &[Target]) {
        debug_assert!(self.queues.iter().all(|bulk| bulk.frames.is_empty()), "all is flushed");
        self.targets.clear();
        self.targets.extend_from_slice(targets);
        self.queues.resize_with(self.targets.len(), TxBulk::default);
        for (target, bulk) in self.targets.iter().zip(&mut self.queues) {
            if matches!(target.kind, Kind::Wire | Kind::Socket(_)) {
                bulk.frames.reserve(2 * BURST);
            }
        }
    }

    /// Adds a target for a map entry.
    pub(crate) fn add(&mut self, target: impl FnOnce(TargetId) -> Target) -> TargetId {
        let id = TargetId(self.targets.len() as u32);
        self.targets.push(target(id));
        self.queues.push(TxBulk::default());
        assert_eq!(self.targets.len(), self.queues.len(), "a queue for each");
        id
    }

    /// Whether more than [`ENTRIES_MAX`] targets were added to the configuration's `targets`.
    #[inline]
    pub(crate) fn has_grown(&self, targets: usize) -> bool {
        self.targets.len() > targets + ENTRIES_MAX
    }

    #[inline]
    pub(crate) fn target(&self, id: TargetId) -> &Target {
        &self.targets[id.index()]
    }

    #[inline]
    pub(crate) fn queue(&mut self, id: TargetId) -> &mut TxBulk {
        &mut self.queues[id.index()]
    }

    /// Whether frames to this target are dropped.
    #[inline]
    pub(crate) fn is_drop(&self, to: TargetId) -> bool {
        self.targets.get(to.index()).is_some_and(|target| matches!(target.kind, Kind::Drop(..)))
    }

    /// Whether the target is a queue, whose frames need a rank.
    #[inline]
    pub(crate) fn is_queue(&self, to: TargetId) -> bool {
        matches!(self.target(to).kind, Kind::Queue(_))
    }

    /// Queues a frame until the end of the burst. Returns whether the queue is full and must be
    /// flushed.
    #[inline]
    pub(crate) fn enqueue(&mut self, queue: TargetId, frame: Frame) -> bool {
        let bulk = &mut self.queues[queue.index()];
        bulk.bytes += frame.len();
        bulk.frames.push(frame);
        let count = bulk.frames.len();
        if !bulk.is_dirty {
            self.mark_dirty(queue);
        }
        count >= 2 * BURST
    }

    /// Queues or drops a burst in one piece if no frame needs checks or work; otherwise returns
    /// `false` and leaves the frames. `known` is the burst's summary, if the caller has it.
    #[inline]
    pub(crate) fn enqueue_all(
        &mut self,
        snapshot: &Snapshot,
        to: TargetId,
        frames: &mut Vec<Frame>,
        known: Option<BurstSummary>,
    ) -> bool {
        let target = &self.targets[to.index()];
        if let Kind::Drop(why, side) = target.kind {
            self.drop_all(snapshot, target.owner, side, why, frames);
            return true;
        }
        let (queue, longest) = (target.queue, target.plain_max);
        if longest == 0 {
            return false;
        }
        let bulk = &mut self.queues[queue.index()];
        // Only wires count bytes, and most other targets do not limit the length.
        let (is_plain, bytes) = match (target.kind, longest, known) {
            (.., Some(all)) => (all.is_plain && all.longest <= longest as usize, all.bytes),
            (Kind::Wire, ANY, None) => scan::<false>(frames, longest),
            (_, ANY, None) => (frames.iter().fold(true, |all, frame| all & frame.is_plain()), 0),
            _ => scan::<true>(frames, longest),
        };
        if !is_plain || !bulk.frames.is_empty() {
            return false;
        }
        std::mem::swap(&mut bulk.frames, frames);
        bulk.bytes = bytes;
        self.mark_dirty(queue);
        true
    }

    /// Adds a target to the list of those to flush at the end of the burst.
    #[inline]
    fn mark_dirty(&mut self, queue: TargetId) {
        if !std::mem::replace(&mut self.queues[queue.index()].is_dirty, true) {
            match self.targets[queue.index()].kind {
                kind if kind.is_inner() => &mut self.inner,
                Kind::Arrive => &mut self.arrivals,
                _ => &mut self.leaves,
            }
            .push(queue);
        }
    }

    /// Notes that a target is being flushed.
    #[inline]
    pub(crate) fn mark_clean(&mut self, queue: TargetId) {
        self.queues[queue.index()].is_dirty = false;
    }

    /// Takes all frames of a queue.
    #[inline]
    pub(crate) fn take(&mut self, queue: TargetId) -> Vec<Frame> {
        let bulk = &mut self.queues[queue.index()];
        bulk.bytes = 0;
        std::mem::take(&mut bulk.frames)
    }

    /// Returns the emptied vector to its queue, which keeps the memory.
    #[inline]
    pub(crate) fn put_back(&mut self, queue: TargetId, frames: Vec<Frame>) {
        assert!(frames.is_empty(), "all frames went on");
        let bulk = &mut self.queues[queue.index()];
        if bulk.frames.is_empty() {
            bulk.frames = frames;
        }
    }

    /// Drops a frame.
    pub(crate) fn drop(
        &mut self,
        snapshot: &Snapshot,
        owner: Owner,
        side: Side,
        why: DropReason,
        frame: Frame,
    ) {
        self.count_dropped(snapshot, owner, side, why, 1);
        self.pool.give(frame);
    }

    /// Drops frames.
    #[inline]
    pub(crate) fn drop_all(
        &mut self,
        snapshot: &Snapshot,
        owner: Owner,
        side: Side,
        why: DropReason,
        frames: &mut Vec<Frame>,
    ) {
        self.count_dropped(snapshot, owner, side, why, frames.len() as u64);
        self.pool.give_all(frames);
    }

    /// Drops a frame, counted at the port where it arrived.
    pub(crate) fn drop_arrived(&mut self, snapshot: &Snapshot, why: DropReason, frame: Frame) {
        let owner = arrived_at(snapshot, frame.rx.ifindex);
        self.drop(snapshot, owner, Side::Rx, why, frame);
    }

    /// Drops frames whose port is gone.
    pub(crate) fn drop_removed(&mut self, snapshot: &Snapshot, frames: &mut Vec<Frame>) {
        self.drop_all(snapshot, Owner::NOBODY, Side::Rx, DropReason::Removed, frames);
    }

    /// Counts dropped frames by reason, in total and at the owner port, if any.
    #[inline]
    pub(crate) fn count_dropped(
        &self,
        snapshot: &Snapshot,
        owner: Owner,
        side: Side,
        why: DropReason,
        count: u64,
    ) {
        if let Some(port) = owner.port().and_then(|port| snapshot.port(port)) {
            let counters = &port.opened.counters[self.shared.number];
            let drops = if side == Side::Rx { &counters.drops } else { &counters.tx_drops };
            drops[why as usize].add(count);
        }
        self.shared.counters.dropped[why as usize].add(count);
    }

    /// Makes frames of several buffers linear, as the kernel does for programs without frags
    /// support (`skb_linearize`).
    pub(crate) fn linearize(&mut self, frames: &mut [Frame]) {
        for frame in frames.iter_mut().filter(|frame| frame.has_frags()) {
            self.pool.linearize(frame);
        }
    }

    /// Copies a frame out of an application's memory, unless its target accepts lent frames and the
    /// frame needs no offload work, which reads the packet.
    pub(crate) fn own(&mut self, to: TargetId, frame: &mut Frame) {
        if !self.target(to).takes_lent() || frame.offload().is_some() {
            self.pool.own(frame);
        }
    }
}

/// The owner for frames that arrived at the port with this ifindex.
pub(crate) fn arrived_at(snapshot: &Snapshot, ifindex: u32) -> Owner {
    snapshot.by_ifindex.get(ifindex).map_or(Owner::NOBODY, Owner::of)
}

/// Whether all frames are plain and, if `LIMITED`, no longer than `longest`; and their total bytes.
#[inline(always)]
fn scan<const LIMITED: bool>(frames: &[Frame], longest: u32) -> (bool, usize) {
    let (mut is_plain, mut bytes) = (true, 0);
    for frame in frames {
        let len = frame.linear_len();
        is_plain &= frame.is_plain() & (!LIMITED || len <= longest as usize);
        bytes += len;
    }
    (is_plain, bytes)
}

/// [`Target::plain_max`] of targets that take frames of any length.
const ANY: u32 = u32::MAX;
/// Most targets of map entries that a worker keeps.
const ENTRIES_MAX: usize = 4096;
const _: () = assert!(ENTRIES_MAX >= BURST, "one burst's entries find room");
