//! Adoption of a new configuration between two bursts.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use towpath_xdp::host::Bridges;

use super::Worker;
use super::flush::flush;
use super::nodes::wire::REAP_PERIOD;
use super::scheduler::Scheduler;
use super::shared::marks;
use super::source::ready::Watch;
use super::source::rx::RxQueue;
use super::source::spread::FlowSpread;
use super::source::zero_copy::UmemPool;
use super::source::{dequeue, tx_ring};
use crate::lane::Fence;
use crate::numbers::PortId;
use crate::snapshot::{Port, Snapshot};

impl Worker {
    /// Adopts `next`. Devices that are in both configurations keep their state; receivers and
    /// transmitters of others are parked.
    #[cold]
    pub(super) fn adopt(&mut self, next: Arc<Snapshot>) {
        let number = self.shared.number;
        let Self { snapshot, nodes, runner, .. } = self;
        flush(snapshot, nodes, runner, false);
        nodes.wires.flush_lingering(&mut nodes.graph.pool);
        self.park_queues(&next, number);
        self.nodes.adopt(&next);
        self.lanes.adopt();
        let bridges = (!next.bridges.is_empty()).then(|| Arc::clone(&next) as Arc<dyn Bridges>);
        self.runner.xdp.set_bridges(bridges);
        self.runner.xdp.set_esp(next.esp());
        self.runner.forget_bursts();
        let workers = Arc::clone(&self.workers);
        let scheduler = Scheduler { snapshot: Arc::clone(&next), workers };
        self.runner.xdp.set_schedules(Some(Arc::new(scheduler)));
        let before = std::mem::replace(&mut self.snapshot, next);
        let Self { snapshot, nodes, runner, dequeues, .. } = self;
        dequeue::adopt(dequeues, (&before, snapshot), nodes, runner);
        nodes.launches.drop_stranded(&mut nodes.graph, &before, snapshot);
        // The caller that waits for the adoption drops the last reference and closes removed
        // devices.
        drop(before);
        self.claim_awaited();
        self.queues.iter_mut().for_each(|queue| queue.adopt_umem(&self.snapshot));
        let collects = self.snapshot.collects.get(number).map_or(&[][..], |next| next);
        tx_ring::adopt(&mut self.tx_rings, collects);
        self.collect_domains();
        self.idle.spin_again();
        self.shared.note_adopted(self.snapshot.generation);
    }

    /// Ends the worker's work by adopting a configuration without ports: everything open is parked,
    /// and held frames are sent. Devices get up to [`SEND_TIME_MAX`] to finish sending.
    #[cold]
    pub(super) fn finish(&mut self) {
        self.drain_inbox();
        self.tasks.clear();
        let Self { nodes, .. } = self;
        nodes.wires.flush_lingering(&mut nodes.graph.pool);
        let start = Instant::now();
        while nodes.wires.reap(&mut nodes.graph.pool) && start.elapsed() < SEND_TIME_MAX {
            std::thread::sleep(REAP_PERIOD);
        }
        self.adopt(Arc::default());
    }

    fn park_queues(&mut self, next: &Snapshot, number: usize) {
        let polls = next.polls.get(number).map_or(&[][..], |polls| polls);
        let mine: HashSet<(PortId, u32)> = polls.iter().copied().collect();
        let (kept, parked): (Vec<RxQueue>, Vec<RxQueue>) = self.queues.drain(..).partition(|it| {
            let same = |port: &Arc<Port>| {
                Arc::ptr_eq(&port.opened, &it.opened)
                    && FlowSpread::is_as(it.spread.as_deref(), port)
            };
            mine.contains(&(it.port, it.queue)) && next.port(it.port).is_some_and(same)
        });
        let gone: HashSet<(PortId, u32)> = parked.iter().map(|it| (it.port, it.queue)).collect();
        for mut queue in parked {
            queue.count_missed(number);
            // Must happen before another worker takes the queue.
            self.ready.forget(&mut queue);
            drop(queue.umem);
            // The queue is polled again only after all frames received from it have been processed.
            let spread = queue.spread.iter().flat_map(|spread| spread.marks());
            let marks = spread.chain(self.nodes.cpus.marks());
            queue.parked.put_behind(queue.rx, Fence::new(marks));
        }
        let has: HashSet<(PortId, u32)> = kept.iter().map(|it| (it.port, it.queue)).collect();
        self.awaited = polls.iter().filter(|id| !has.contains(id)).copied().collect();
        self.queues = kept;
        if !gone.is_empty() {
            self.wake_for(next, &gone);
            // The indexes of the remaining queues changed.
            self.ready.adopt(&mut self.queues);
        }
    }

    /// Wakes workers that now poll these queues; they may sleep, because the queues were not free
    /// yet.
    fn wake_for(&self, next: &Snapshot, gone: &HashSet<(PortId, u32)>) {
        for (worker, polls) in self.workers.iter().zip(&next.polls) {
            if worker.number != self.shared.number && polls.iter().any(|it| gone.contains(it)) {
                worker.waker.wake();
            }
        }
    }

    /// Takes the awaited queues that their previous worker has released.
    pub(super) fn claim_awaited(&mut self) {
        let Self { awaited, queues, snapshot, shared, workers, ready, .. } = self;
        let before = queues.len();
        awaited.retain(|&(port, queue)| {
            let Some(view) = snapshot.port(port) else { return false };
            let Some(parked) = view.opened.rx(queue) else { return false };
            let Some(mut rx) = parked.take_behind(|| marks(workers)) else { return true };
            rx.set_waker(&shared.waker);
            let opened = Arc::clone(&view.opened);
            let is_finished = opened.failed.load(Ordering::Relaxed);
            let umem = UmemPool::of(view, queue);
            let spread = FlowSpread::of(view, shared.number, workers).map(Box::new);
            let watch = Watch::default();
            queues.push(RxQueue {
                port,
                queue,
                rx,
                parked,
                opened,
                is_finished,
                watch,
                umem,
                spread,
            });
            false
        });
        if queues.len() > before {
            ready.adopt(queues);
        }
    }

    fn collect_domains(&mut self) {
        for domain in &self.domains {
            domain.offline(self.shared.number);
        }
        self.domains.clear();
        for link in self.snapshot.chains().flat_map(|chain| chain.links()) {
            let domain = link.program.maps().domain();
            if !self.domains.iter().any(|known| Arc::ptr_eq(known, domain)) {
                self.domains.push(Arc::clone(domain));
            }
        }
        self.quiesce();
    }
}

/// Longest wait for devices to finish sending when the worker stops.
const SEND_TIME_MAX: Duration = Duration::from_millis(50);
