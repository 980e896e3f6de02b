//! The targets as one worker uses them: a queue for each, filled during a burst, emptied at its
//! end.
//!
//! ```text
//! push (admit, prepare) -> queue -> flush: inner targets first, which push again; then the leaves
//! ```
//!
//! What a leaf has no room for comes back; here, at the edge, it is dropped and counted.

use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_xdp::{Frame, Pool};

use super::cpu::CpuQueue;
use super::dequeue::QueueTarget;
use super::hook::HookRunner;
use super::launch::Launches;
use super::port_tx::PortTx;
use super::tx_ring::arrived_at;
use super::way::Way;
use super::{BURST, WorkerShared};
use crate::counters::DropReason;
use crate::dequeue::Reclaimer;
use crate::hook::HookSpec;
use crate::numbers::PortId;
use crate::offload::{self, complete_checksums};
use crate::port::{Features, LINGER_ROUNDS, RxHints};
use crate::snapshot::{Port, Snapshot};
use crate::target::{Kind, Owner, Prepare, Side, Target, TargetId};
use crate::targets;

/// Frames that wait for the end of the burst: the queue of every target.
#[derive(Default)]
pub(super) struct TxBulk {
    pub(super) frames: Vec<Frame>,
    /// Bytes of those.
    pub(super) bytes: usize,
    /// It is in the list of those to flush.
    pub(super) is_dirty: bool,
    /// Somebody wants to know when some of them leave.
    pub(super) has_requests: bool,
    /// Something is left to do to some of them.
    has_work: bool,
}

/// What is known of a burst as a whole, so that its frames need no second look.
#[derive(Debug, Clone, Copy)]
pub(super) struct BurstSummary {
    /// All are nothing but linear, and nothing is left to do to them.
    pub(super) is_plain: bool,
    /// Bytes of the longest.
    pub(super) longest: usize,
    /// Bytes of all.
    pub(super) bytes: usize,
}

impl BurstSummary {
    /// Of no frames.
    pub(super) const NOTHING: BurstSummary = BurstSummary { is_plain: true, longest: 0, bytes: 0 };

    /// One more frame, of so many bytes.
    #[inline]
    pub(super) fn and(self, frame: &Frame, bytes: usize) -> BurstSummary {
        BurstSummary {
            is_plain: self.is_plain & frame.is_plain(),
            longest: self.longest.max(bytes),
            bytes: self.bytes + bytes,
        }
    }
}

/// Everything a worker can send frames to, and the memory it sends from.
pub(super) struct Graph {
    pub(super) shared: Arc<WorkerShared>,
    pub(super) workers: Arc<[Arc<WorkerShared>]>,
    pub(super) pool: Pool,
    /// Those of the configuration, then those that map entries named since.
    pub(super) targets: Vec<Target>,
    /// By target, though many share another one's.
    pub(super) queues: Vec<TxBulk>,
    /// Programs of devmap entries, by the ports they lead to.
    pub(super) entry_hooks: Vec<EntryHook>,
    pub(super) cpus: Vec<CpuQueue>,
    /// Lanes to the workers that these name.
    pub(super) ways: Vec<Way>,
    /// Queues that programs redirect to, who gets what is left in them, and room for what they
    /// refuse.
    pub(super) pifos: Vec<QueueTarget>,
    pub(super) reclaimer: Arc<Reclaimer>,
    pub(super) refused: Vec<(Frame, Errno)>,
    /// Frames that wait for their launch times.
    pub(super) launches: Launches,
    /// Transmitters by port number.
    pub(super) ports: Vec<Option<PortTx>>,
    /// Targets whose frames go on to others, and targets where they end, that have some.
    inner: Vec<TargetId>,
    leaves: Vec<TargetId>,
    /// Ports at which frames arrive that guests' programs sent back.
    pub(super) arrivals: Vec<TargetId>,
    /// Whether another full burst is expected, so that transmitters may wait for it.
    pub(super) expects_more: bool,
    /// Ports that do.
    lingering: Vec<PortId>,
    /// For how many rounds.
    lingered: u32,
    /// Who gets copies of a redirected frame.
    pub(super) broadcast: Broadcast,
    pub(super) scratch: Vec<Frame>,
    /// Room for a frame that is sent by itself.
    pub(super) alone: Vec<Frame>,
    /// Room for a burst's frames by the member of a bond that they leave by.
    pub(super) lanes: Vec<Vec<Frame>>,
    /// Milliseconds on the bridges' clock; `None` until a burst has looked at it.
    pub(super) now_ms: Option<u64>,
}

/// A devmap entry's program on the way to a port.
pub(super) struct EntryHook {
    pub(super) to: PortId,
    pub(super) program: u32,
    pub(super) target: TargetId,
    pub(super) hook: Arc<HookSpec>,
}

/// The targets of one frame that goes to several.
pub(super) struct Broadcast {
    pub(super) targets: Vec<TargetId>,
    /// The port that a drop is counted for when none of them takes it.
    pub(super) owner: Owner,
}

impl Graph {
    pub(super) fn new(
        shared: &Arc<WorkerShared>,
        workers: &Arc<[Arc<WorkerShared>]>,
        reclaimer: &Arc<Reclaimer>,
        pool: Pool,
    ) -> Graph {
        Graph {
            shared: Arc::clone(shared),
            workers: Arc::clone(workers),
            pool,
            targets: Vec::new(),
            queues: Vec::new(),
            entry_hooks: Vec::new(),
            cpus: Vec::new(),
            ways: Vec::new(),
            pifos: Vec::new(),
            reclaimer: Arc::clone(reclaimer),
            refused: Vec::new(),
            launches: Launches::default(),
            ports: Vec::new(),
            inner: Vec::new(),
            leaves: Vec::new(),
            arrivals: Vec::new(),
            expects_more: false,
            lingering: Vec::new(),
            lingered: 0,
            broadcast: Broadcast { targets: Vec::new(), owner: Owner::NOBODY },
            scratch: Vec::new(),
            alone: Vec::new(),
            lanes: Vec::new(),
            now_ms: None,
        }
    }

    pub(super) fn number(&self) -> usize {
        self.shared.number
    }

    /// Takes over the targets of a configuration; what map entries named is found again. Nothing
    /// waits in any queue.
    pub(super) fn adopt(&mut self, snapshot: &Snapshot) {
        debug_assert!(self.queues.iter().all(|bulk| bulk.frames.is_empty()), "all is flushed");
        self.entry_hooks.clear();
        self.forget_cpus();
        self.pifos.clear();
        self.targets.clear();
        self.targets.extend_from_slice(&snapshot.targets);
        self.queues.resize_with(self.targets.len(), TxBulk::default);
        for (target, bulk) in self.targets.iter().zip(&mut self.queues) {
            if matches!(target.kind, Kind::Wire | Kind::Socket(_)) {
                bulk.frames.reserve(2 * BURST);
            }
        }
    }

    /// Adds a target that a map entry names.
    pub(super) fn add(&mut self, target: impl FnOnce(TargetId) -> Target) -> TargetId {
        let id = TargetId(self.targets.len() as u32);
        self.targets.push(target(id));
        self.queues.push(TxBulk::default());
        debug_assert_eq!(self.targets.len(), self.queues.len(), "a queue for each");
        id
    }

    /// A frame's way to a target: it waits there, or goes on.
    #[inline]
    pub(super) fn push(&mut self, snapshot: &Snapshot, to: TargetId, frame: Frame) {
        let target = &self.targets[to.index()];
        if frame.is_plain() && frame.linear_len() <= target.plain_max as usize {
            let queue = target.queue;
            return self.enqueue(snapshot, queue, frame);
        }
        self.push_checked(snapshot, to, frame);
    }

    /// A whole burst's way to a target: in one piece where nothing is to be done to any frame.
    /// Somebody may know of the frames already, as they are now.
    #[inline]
    pub(super) fn push_all(
        &mut self,
        snapshot: &Snapshot,
        to: TargetId,
        frames: &mut Vec<Frame>,
        known: Option<BurstSummary>,
    ) {
        let target = &self.targets[to.index()];
        if let Kind::Drop(why, side) = target.kind {
            return self.drop_all(snapshot, target.owner, side, why, frames);
        }
        let (queue, longest) = (target.queue, target.plain_max);
        if longest == 0 {
            return self.push_each(snapshot, to, frames);
        }
        let bulk = &mut self.queues[queue.index()];
        // Only wires count bytes, and most others look at no length.
        let (is_plain, bytes) = match (target.kind, longest, known) {
            (.., Some(all)) => (all.is_plain && all.longest <= longest as usize, all.bytes),
            (Kind::Wire, ANY, None) => scan::<false>(frames, longest),
            (_, ANY, None) => (frames.iter().fold(true, |all, frame| all & frame.is_plain()), 0),
            _ => scan::<true>(frames, longest),
        };
        if !is_plain || !bulk.frames.is_empty() {
            return self.push_each(snapshot, to, frames);
        }
        std::mem::swap(&mut bulk.frames, frames);
        bulk.bytes = bytes;
        self.mark_dirty(queue);
    }

    /// A burst where frames have to be looked at one by one.
    #[inline(never)]
    fn push_each(&mut self, snapshot: &Snapshot, to: TargetId, frames: &mut Vec<Frame>) {
        let target = &self.targets[to.index()];
        if let (Kind::BondTx { bond }, Some(member)) = (target.kind, target.owner.port()) {
            self.send_back_all(snapshot, member, bond, frames);
        }
        let mut burst = std::mem::take(frames);
        burst.drain(..).for_each(|frame| self.push(snapshot, to, frame));
        *frames = burst;
    }

    /// A frame that is not plain, or whose target has something to do for each.
    #[inline(never)]
    fn push_checked(&mut self, snapshot: &Snapshot, to: TargetId, mut frame: Frame) {
        let target = self.targets[to.index()];
        match (target.kind, target.owner.port()) {
            (Kind::Broadcast, _) => return self.broadcast(snapshot, frame),
            (Kind::Bridge(number), Some(port)) => {
                return self.bridge(snapshot, port, number as usize, frame);
            }
            (Kind::Member { bond, then }, Some(port)) => {
                return self.pass_member(snapshot, port, bond, then, frame);
            }
            (Kind::BondTx { bond }, Some(member)) => {
                return self.send_back(snapshot, member, bond, frame);
            }
            _ => {}
        }
        if let Err(why) = targets::admit(&target, snapshot, &frame) {
            return self.drop(snapshot, target.owner, Side::Tx, why, frame);
        }
        let port = target.owner.port().and_then(|port| snapshot.port(port));
        let features = match (target.prepare, port) {
            (Prepare::Port, Some(port)) => port.features,
            (Prepare::Socket, _) => AS_ON_A_WIRE,
            _ => return self.enqueue_or_hold(snapshot, &target, frame),
        };
        if frame.offload().is_some() {
            return self.prepare_xmit(snapshot, &target, &features, frame);
        }
        if frame.has_frags() && !features.tx_frags {
            self.pool.linearize(&mut frame);
        }
        self.enqueue_or_hold(snapshot, &target, frame);
    }

    /// Has a frame wait for the end of the burst, or for its launch time.
    fn enqueue_or_hold(&mut self, snapshot: &Snapshot, target: &Target, frame: Frame) {
        let is_wire = self.targets[target.queue.index()].kind == Kind::Wire;
        match (frame.launch_time(), target.owner.port()) {
            (Some(time_ns), Some(port)) if is_wire => self.hold(snapshot, port, time_ns, frame),
            _ => {
                let bulk = &mut self.queues[target.queue.index()];
                bulk.has_requests |= frame.has_tx_request();
                bulk.has_work |= frame.offload().is_some();
                self.enqueue(snapshot, target.queue, frame);
            }
        }
    }

    /// Does what is left to do to a frame before it can leave as it is ([`offload::prepare_xmit`]).
    #[cold]
    fn prepare_xmit(
        &mut self,
        snapshot: &Snapshot,
        target: &Target,
        features: &Features,
        frame: Frame,
    ) {
        let mut pieces = std::mem::take(&mut self.scratch);
        debug_assert!(pieces.is_empty(), "nobody else is at it");
        match offload::prepare_xmit(frame, features, &mut self.pool, &mut pieces) {
            Ok(false) => {}
            Ok(true) => {
                self.shared.counters.created.add(pieces.len() as u64);
                self.shared.counters.freed.add(1);
            }
            Err((frame, why)) if target.prepare == Prepare::Socket => {
                let owner = arrived_at(snapshot, frame.rx.ifindex);
                self.drop(snapshot, owner, Side::Rx, why, frame);
            }
            Err((frame, why)) => self.drop(snapshot, target.owner, Side::Tx, why, frame),
        }
        for mut piece in pieces.drain(..) {
            if target.prepare == Prepare::Socket {
                piece.set_offload(None);
            }
            self.enqueue_or_hold(snapshot, target, piece);
        }
        self.scratch = pieces;
    }

    /// Has a frame wait for the end of the burst.
    #[inline]
    fn enqueue(&mut self, snapshot: &Snapshot, queue: TargetId, frame: Frame) {
        let bulk = &mut self.queues[queue.index()];
        bulk.bytes += frame.len();
        bulk.frames.push(frame);
        let count = bulk.frames.len();
        if !bulk.is_dirty {
            self.mark_dirty(queue);
        }
        if count >= 2 * BURST {
            self.overflow(snapshot, queue);
        }
    }

    /// Has a target flushed at the end of the burst.
    #[inline]
    pub(super) fn mark_dirty(&mut self, queue: TargetId) {
        if !std::mem::replace(&mut self.queues[queue.index()].is_dirty, true) {
            match self.targets[queue.index()].kind {
                kind if kind.is_inner() => &mut self.inner,
                Kind::Arrive => &mut self.arrivals,
                _ => &mut self.leaves,
            }
            .push(queue);
        }
    }

    /// A queue is long before the end of the burst: frames go where no program is to see them.
    #[cold]
    fn overflow(&mut self, snapshot: &Snapshot, queue: TargetId) {
        match self.targets[queue.index()].kind {
            Kind::TxHook | Kind::GuestHook | Kind::Arrive | Kind::RxHook | Kind::EntryHook(_) => {}
            Kind::Bond => self.spread(snapshot, queue),
            _ => self.drain(snapshot, queue),
        }
    }

    /// The end of a burst: everything that waits goes.
    #[inline]
    pub(super) fn flush(&mut self, snapshot: &Snapshot, runner: &mut HookRunner) {
        self.flush_all_inner(snapshot, runner);
        if !self.arrivals.is_empty() {
            self.flush_arrivals(snapshot, runner);
        }
        while let Some(queue) = self.leaves.pop() {
            self.queues[queue.index()].is_dirty = false;
            self.drain(snapshot, queue);
            let target = &self.targets[queue.index()];
            if let (Kind::Wire, Some(port)) = (target.kind, target.owner.port()) {
                self.flush_port(port);
            }
        }
        if self.targets.len() > snapshot.targets.len() + ENTRIES_MAX {
            self.adopt(snapshot);
        }
        self.now_ms = None;
        debug_assert!(self.inner.is_empty() && self.leaves.is_empty(), "nothing waits");
        debug_assert_eq!(self.shared.counters.in_hand(), 0, "every frame is accounted for");
    }

    #[inline]
    pub(super) fn flush_all_inner(&mut self, snapshot: &Snapshot, runner: &mut HookRunner) {
        while let Some(queue) = self.inner.pop() {
            self.flush_inner(snapshot, runner, queue);
        }
    }

    /// Has frames go on.
    #[cold]
    fn flush_inner(&mut self, snapshot: &Snapshot, runner: &mut HookRunner, queue: TargetId) {
        let target = &self.targets[queue.index()];
        let bulk = &mut self.queues[queue.index()];
        bulk.is_dirty = false;
        let has_work = std::mem::take(&mut bulk.has_work);
        let entry;
        let hook = match target.kind {
            Kind::EntryHook(number) => {
                entry = Arc::clone(&self.entry_hooks[number as usize].hook);
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
            _ => return self.spread(snapshot, queue),
        };
        let Some(hook) = hook else { return self.drain(snapshot, queue) };
        let mut frames = self.take(queue);
        match self.targets[queue.index()].kind {
            Kind::EntryHook(_) => frames.iter_mut().for_each(|frame| frame.rx.queue_index = 0),
            // As in the guest: a program sees packets whose checksums are right.
            Kind::GuestHook if has_work => complete_checksums(&mut frames),
            _ => {}
        }
        runner.run(snapshot, hook, &mut frames, None, self);
        self.put_back(queue, frames);
    }

    /// What waits in a queue, to be worked on.
    #[inline]
    pub(super) fn take(&mut self, queue: TargetId) -> Vec<Frame> {
        let bulk = &mut self.queues[queue.index()];
        bulk.bytes = 0;
        std::mem::take(&mut bulk.frames)
    }

    /// The empty queue keeps its memory.
    #[inline]
    pub(super) fn put_back(&mut self, queue: TargetId, frames: Vec<Frame>) {
        debug_assert!(frames.is_empty(), "all frames went on");
        let bulk = &mut self.queues[queue.index()];
        if bulk.frames.is_empty() {
            bulk.frames = frames;
        }
    }

    /// Gives a leaf what waits for it.
    fn drain(&mut self, snapshot: &Snapshot, queue: TargetId) {
        let target = self.targets[queue.index()];
        let bulk = &mut self.queues[queue.index()];
        let (bytes, has_requests) = (bulk.bytes, std::mem::take(&mut bulk.has_requests));
        let mut frames = self.take(queue);
        match (target.kind, target.owner.port()) {
            (Kind::Wire, Some(port)) if has_requests => {
                self.transmit_and_tell(snapshot, port, &mut frames);
            }
            (Kind::Wire, Some(port)) => _ = self.transmit(snapshot, port, &mut frames, bytes),
            (Kind::Socket(place), _) => self.deliver(snapshot, place, &mut frames),
            (Kind::Cpu(number), _) => self.hand_over(snapshot, number as usize, &mut frames),
            (Kind::Queue(number), _) => {
                self.put_into_queue(snapshot, number as usize, &mut frames);
            }
            (Kind::Drop(why, side), _) => {
                self.drop_all(snapshot, target.owner, side, why, &mut frames);
            }
            _ => {
                let why = DropReason::Removed;
                self.drop_all(snapshot, target.owner, Side::Tx, why, &mut frames);
            }
        }
        self.put_back(queue, frames);
    }

    #[inline]
    fn flush_port(&mut self, port: PortId) {
        let Some(Some(to)) = self.ports.get_mut(port.0 as usize) else { return };
        if !self.expects_more {
            return to.flush(&mut self.pool);
        }
        if to.flush_some(&mut self.pool) && !self.lingering.contains(&port) {
            self.lingering.push(port);
        }
    }

    /// The end of a round that brought a full burst, or not: what lingers goes if it has to.
    #[inline]
    pub(super) fn end_round(&mut self, is_full: bool) {
        if self.lingering.is_empty() {
            return;
        }
        self.lingered += 1;
        if !is_full || self.lingered >= LINGER_ROUNDS {
            self.flush_lingering();
        }
    }

    pub(super) fn flush_lingering(&mut self) {
        self.lingered = 0;
        while let Some(port) = self.lingering.pop() {
            if let Some(Some(to)) = self.ports.get_mut(port.0 as usize) {
                to.flush(&mut self.pool);
            }
        }
    }

    /// Whether what goes there is dropped.
    #[inline]
    pub(super) fn is_drop(&self, to: TargetId) -> bool {
        self.targets.get(to.index()).is_some_and(|target| matches!(target.kind, Kind::Drop(..)))
    }

    /// Drops a frame.
    pub(super) fn drop(
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
    pub(super) fn drop_all(
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

    /// Every drop has a reason; where a port is charged, it shows there.
    #[inline]
    pub(super) fn count_dropped(
        &self,
        snapshot: &Snapshot,
        owner: Owner,
        side: Side,
        why: DropReason,
        count: u64,
    ) {
        if let Some(port) = owner.port().and_then(|port| snapshot.port(port)) {
            let counters = port.counters(self.shared.number);
            let drops = if side == Side::Rx { &counters.drops } else { &counters.tx_drops };
            drops[why as usize].add(count);
        }
        self.shared.counters.dropped[why as usize].add(count);
    }

    /// Makes frames of several buffers linear, as the kernel does for programs without frags
    /// support (`skb_linearize`).
    pub(super) fn linearize(&mut self, frames: &mut [Frame]) {
        for frame in frames.iter_mut().filter(|frame| frame.has_frags()) {
            self.pool.linearize(frame);
        }
    }

    /// Lets transmitters take back memory before the worker sleeps; gives whether one of them
    /// still waits for something.
    pub(super) fn reap(&mut self) -> bool {
        let Self { ports, pool, .. } = self;
        ports.iter_mut().flatten().fold(false, |waits, port| waits | port.reap(pool))
    }
}

impl Port {
    #[inline]
    fn counters(&self, worker: usize) -> &crate::counters::PortCounters {
        &self.opened.counters[worker]
    }
}

/// Whether all frames are nothing but linear, and no longer than that if it is `LIMITED`; and their
/// bytes.
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

/// [`Target::plain_max`] of what takes frames of any length.
const ANY: u32 = u32::MAX;
/// What sockets can do with a frame: applications know chains of buffers, and nothing else.
const AS_ON_A_WIRE: Features = Features {
    rx_frags: true,
    tx_frags: true,
    tx_checksum: false,
    tx_tso: false,
    tx_uso: false,
    rx_checksum: false,
    zero_copy: false,
    rx_hints: RxHints::NONE,
    rx_offloads: false,
};
/// Targets of map entries that a worker remembers.
const ENTRIES_MAX: usize = 256;
