//! Taking over a new configuration between two bursts.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use towpath_xdp::host::Bridges;

use super::idle::REAP_PERIOD;
use super::port_tx::PortTx;
use super::ready::Watch;
use super::scheduler::Scheduler;
use super::shared::marks;
use super::spread::FlowSpread;
use super::zero_copy::UmemPool;
use super::{RxQueue, Worker};
use crate::lane::Fence;
use crate::numbers::PortId;
use crate::snapshot::{Port, Snapshot};

impl Worker {
    /// Lives by `next` from now on. Devices that are in both configurations keep their state;
    /// what the worker has of others is parked where it came from.
    #[cold]
    pub(super) fn adopt(&mut self, next: Arc<Snapshot>) {
        let number = self.shared.number;
        self.graph.flush(&Arc::clone(&self.snapshot), &mut self.runner);
        self.graph.flush_lingering();
        self.park_queues(&next, number);
        self.adopt_ports(&next, number);
        self.graph.adopt(&next);
        let bridges = (!next.bridges.is_empty()).then(|| Arc::clone(&next) as Arc<dyn Bridges>);
        self.runner.xdp.set_bridges(bridges);
        self.runner.forget_bursts();
        let workers = Arc::clone(&self.graph.workers);
        let scheduler = Scheduler { snapshot: Arc::clone(&next), workers };
        self.runner.xdp.set_schedules(Some(Arc::new(scheduler)));
        let before = std::mem::replace(&mut self.snapshot, next);
        self.adopt_dequeues(&before);
        self.drop_stranded(&before);
        // Whoever waits for this closes what was in it.
        drop(before);
        self.claim_awaited();
        self.adopt_umem();
        self.adopt_tx_rings();
        self.collect_domains();
        self.idle.spin_again();
        self.shared.note_adopted(self.snapshot.generation);
    }

    /// Like a configuration without ports: everything open is parked, everything held sent. What
    /// devices have not sent yet, they get a moment for.
    #[cold]
    pub(super) fn finish(&mut self) {
        self.drain_inbox();
        self.tasks.clear();
        self.graph.flush_lingering();
        let start = Instant::now();
        while self.graph.reap() && start.elapsed() < SEND_TIME_MAX {
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
            // Before another worker has the queue.
            self.ready.forget(&mut queue);
            drop(queue.umem);
            // The queue is received from again when all frames that it brought have been worked on.
            let spread = queue.spread.iter().flat_map(|spread| spread.marks());
            let ways = self.graph.ways.iter().map(|way| way.lane.mark());
            queue.parked.put_behind(queue.rx, Fence::new(spread.chain(ways)));
        }
        let has: HashSet<(PortId, u32)> = kept.iter().map(|it| (it.port, it.queue)).collect();
        self.awaited = polls.iter().filter(|id| !has.contains(id)).copied().collect();
        self.queues = kept;
        if !gone.is_empty() {
            self.wake_for(next, &gone);
            // Others have moved up.
            self.ready.adopt(&mut self.queues);
        }
    }

    /// Wakes workers that are to poll these queues now, and may sleep since they could not yet.
    fn wake_for(&self, next: &Snapshot, gone: &HashSet<(PortId, u32)>) {
        for (worker, polls) in self.graph.workers.iter().zip(&next.polls) {
            if worker.number != self.shared.number && polls.iter().any(|it| gone.contains(it)) {
                worker.waker.wake();
            }
        }
    }

    /// Takes the queues that it should poll and that nobody holds any more.
    pub(super) fn claim_awaited(&mut self) {
        let Self { awaited, queues, snapshot, shared, graph, ready, .. } = self;
        let before = queues.len();
        awaited.retain(|&(port, queue)| {
            let Some(view) = snapshot.port(port) else { return false };
            let Some(parked) = view.opened.rx(queue) else { return false };
            let Some(mut rx) = parked.take_behind(|| marks(&graph.workers)) else { return true };
            rx.set_waker(&shared.waker);
            let opened = Arc::clone(&view.opened);
            let is_finished = opened.failed.load(Ordering::Relaxed);
            let umem = UmemPool::of(view, queue);
            let spread = FlowSpread::of(view, shared.number, &graph.workers).map(Box::new);
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

    fn adopt_ports(&mut self, next: &Snapshot, number: usize) {
        let old = std::mem::take(&mut self.graph.ports);
        let count = old.len().max(next.ports.len());
        let mut old = old.into_iter();
        for index in 0..count {
            let before = old.next().flatten();
            let opened = next.port(PortId(index as u32)).map(|port| &port.opened);
            let port = match (before, opened) {
                (Some(port), Some(opened)) if Arc::ptr_eq(&port.opened, opened) => Some(port),
                (before, opened) => {
                    if let Some(port) = before {
                        port.park(number, &mut self.graph.pool);
                    }
                    opened.map(|opened| PortTx::new(opened, number))
                }
            };
            self.graph.ports.push(port);
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

/// A device that has not sent what it was given by then keeps nobody from stopping.
const SEND_TIME_MAX: Duration = Duration::from_millis(50);
