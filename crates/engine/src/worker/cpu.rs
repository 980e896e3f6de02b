//! cpumap: frames handed to another worker.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use towpath_maps::{Map, TargetEntry};
use towpath_xdp::Frame;

use super::graph::Graph;
use super::task::Task;
use super::tx_ring::arrived_at;
use super::{BURST, Worker};
use crate::config::Gone;
use crate::counters::DropReason;
use crate::hook::HookSpec;
use crate::snapshot::{PortId, Snapshot};
use crate::target::{Door, Kind, Owner, Side, Target, TargetId};

/// An entry of a cpumap: what has a queue of its own at the worker it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuEntry {
    map: usize,
    /// The worker.
    key: u32,
    /// Most frames that wait in its queue (`cpumap_val::qsize`).
    limit: usize,
    /// The program to run there; 0 for none.
    program: u32,
}

/// The target of such an entry.
pub(super) struct CpuQueue {
    entry: CpuEntry,
    target: TargetId,
}

/// Frames that other workers handed over.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    queues: Mutex<Vec<Queue>>,
    /// Packets that control code wants to be sent.
    injected: Mutex<VecDeque<(PortId, Box<[u8]>)>>,
    /// What control code wants to be done.
    tasks: Mutex<Vec<Box<dyn Task>>>,
    waiting: AtomicUsize,
    /// Nobody works on anything any more; read under the lock of what is added.
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct Queue {
    entry: CpuEntry,
    frames: VecDeque<Frame>,
}

impl CpuEntry {
    pub(super) fn new(map: &Map, key: u32, value: TargetEntry) -> CpuEntry {
        let map = std::ptr::from_ref(map).addr();
        CpuEntry { map, key, limit: value.number as usize, program: value.id }
    }
}

impl Inbox {
    /// Appends what there is credit for; the rest stays.
    fn push(&self, entry: CpuEntry, frames: &mut Vec<Frame>) -> usize {
        let mut queues = self.queues.lock();
        let known = queues.iter().position(|queue| queue.entry == entry);
        let index = known.unwrap_or_else(|| {
            queues.retain(|queue| !queue.frames.is_empty());
            queues.push(Queue { entry, frames: VecDeque::new() });
            queues.len() - 1
        });
        let queue = &mut queues[index].frames;
        let limit = if self.is_closed() { 0 } else { entry.limit };
        let credit = limit.saturating_sub(queue.len());
        let fits = frames.len().min(credit);
        queue.extend(frames.drain(..fits));
        debug_assert!(fits == 0 || queue.len() <= entry.limit, "credit is never exceeded");
        self.waiting.fetch_add(fits, Ordering::Release);
        fits
    }

    /// Whether frames were ever handed over.
    pub(crate) fn is_used(&self) -> bool {
        !self.queues.lock().is_empty()
    }

    /// Whether something waits that is to be done before that goes.
    pub(crate) fn holds(&self, gone: &Gone) -> bool {
        let queues = self.queues.lock();
        queues.iter().any(|Queue { entry, frames }| {
            frames.iter().any(|frame| gone.has(frame.rx.ifindex, entry.program))
        })
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Has a packet sent, unless too many wait for that.
    pub(crate) fn inject(&self, port: PortId, packet: &[u8]) -> bool {
        let mut injected = self.injected.lock();
        let fits = injected.len() < INJECTED_MAX;
        if fits {
            injected.push_back((port, packet.into()));
            self.waiting.fetch_add(1, Ordering::Release);
        }
        fits
    }

    fn take_injected(&self) -> VecDeque<(PortId, Box<[u8]>)> {
        let mut injected = self.injected.lock();
        self.waiting.fetch_sub(injected.len(), Ordering::Release);
        std::mem::take(&mut injected)
    }

    /// Has something done. Who is gone forgets it, and whoever waits for it learns that.
    pub(crate) fn submit(&self, task: Box<dyn Task>) {
        let mut tasks = self.tasks.lock();
        if !self.is_closed() {
            tasks.push(task);
            self.waiting.fetch_add(1, Ordering::Release);
        }
    }

    fn take_tasks(&self) -> Vec<Box<dyn Task>> {
        let mut tasks = self.tasks.lock();
        self.waiting.fetch_sub(tasks.len(), Ordering::Release);
        std::mem::take(&mut tasks)
    }

    /// Nothing will be done any more that is not here yet.
    pub(crate) fn close(&self) {
        // Who adds something now does it before, or sees it.
        let queues = self.queues.lock();
        let mut tasks = self.tasks.lock();
        self.is_closed.store(true, Ordering::Relaxed);
        let gone = std::mem::take(&mut *tasks);
        drop((queues, tasks));
        drop(gone);
    }

    fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Takes up to a burst of frames of one entry.
    fn pop(&self, out: &mut Vec<Frame>) -> Option<CpuEntry> {
        let mut queues = self.queues.lock();
        let index = queues.iter().position(|queue| !queue.frames.is_empty())?;
        let queue = &mut queues[index];
        let count = queue.frames.len().min(BURST);
        out.extend(queue.frames.drain(..count));
        let entry = queue.entry;
        // The next one first, next time.
        queues[index..].rotate_left(1);
        self.waiting.fetch_sub(count, Ordering::Release);
        Some(entry)
    }
}

impl Graph {
    /// The worker that an entry of a cpumap names, as a target, if there is one
    /// (`cpu_map_enqueue`).
    pub(super) fn cpu(&mut self, entry: CpuEntry) -> Option<TargetId> {
        if let Some(known) = self.cpus.iter().find(|known| known.entry == entry) {
            return Some(known.target);
        }
        self.workers.get(entry.key as usize)?;
        let kind = Kind::Cpu(self.cpus.len() as u32);
        let target = self.add(|id| Target::open(id, Owner::NOBODY, kind));
        self.cpus.push(CpuQueue { entry, target });
        Some(target)
    }

    /// Gives another worker what waits for it; what that has no room for is dropped where it
    /// arrived.
    pub(super) fn hand_over(
        &mut self,
        snapshot: &Snapshot,
        number: usize,
        frames: &mut Vec<Frame>,
    ) {
        let Some(&CpuQueue { entry, .. }) = self.cpus.get(number) else { return };
        let Some(worker) = self.workers.get(entry.key as usize) else { return };
        let count = worker.inbox.push(entry, frames);
        self.shared.counters.handed_over.add(count as u64);
        if worker.number != self.shared.number {
            worker.waker.wake();
        }
        for frame in frames.drain(..) {
            let owner = arrived_at(snapshot, frame.rx.ifindex);
            self.drop(snapshot, owner, Side::Rx, DropReason::RingFull, frame);
        }
    }

    /// Sends what control code wants to be sent; gives the number of packets.
    fn send_injected(&mut self, snapshot: &Snapshot) -> usize {
        let injected = self.shared.inbox.take_injected();
        let count = injected.len();
        for (port, packet) in injected {
            if snapshot.port(port).is_none() {
                continue;
            }
            // What is no frame, or finds no memory, is lost as on a wire.
            if let Ok(Some(frame)) = self.pool.frame(&packet) {
                self.shared.counters.created.add(1);
                self.push(snapshot, Door::Forward.at(port), frame);
            }
        }
        count
    }
}

impl Worker {
    /// Works on a burst that was handed over; gives its length (`cpu_map_kthread_run`).
    #[inline]
    pub(super) fn take_inbox(&mut self) -> usize {
        if self.shared.inbox.is_empty() { 0 } else { self.work_inbox() }
    }

    #[cold]
    fn work_inbox(&mut self) -> usize {
        let Self { shared, snapshot, frames, batch, runner, graph, tasks, .. } = self;
        shared.load.is_elsewhere();
        let known = tasks.len();
        tasks.extend(shared.inbox.take_tasks());
        let asked = graph.send_injected(snapshot) + tasks.len() - known;
        graph.flush(snapshot, runner);
        let Some(entry) = shared.inbox.pop(frames) else { return asked };
        let count = frames.len();
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
            runner.run(snapshot, &HookSpec::cpumap(port, chain), frames, None, graph);
            graph.flush(snapshot, runner);
        }
        count
    }

    /// Drops what nobody will work on any more.
    pub(super) fn drain_inbox(&mut self) {
        let Self { shared, snapshot, frames, graph, .. } = self;
        shared.inbox.close();
        shared.inbox.take_injected();
        while shared.inbox.pop(frames).is_some() {
            shared.counters.taken_over.add(frames.len() as u64);
            let (nobody, why) = (Owner::NOBODY, DropReason::Removed);
            graph.drop_all(snapshot, nobody, Side::Rx, why, frames);
        }
    }
}

/// Packets of control code that wait for a worker.
const INJECTED_MAX: usize = 1024;
