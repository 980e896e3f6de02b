//! Taking over a new configuration between two bursts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use towpath_xdp::host::Bridges;

use super::lender::Lender;
use super::outbox::Outlet;
use super::{Poll, Worker};
use crate::snapshot::{Opened, PortId, Slot, Snapshot};

impl Worker {
    /// Lives by `next` from now on. Devices that are in both configurations keep their state;
    /// what the worker has of others is parked where it came from.
    #[cold]
    pub(super) fn adopt(&mut self, next: Arc<Snapshot>) {
        let number = self.seat.number;
        self.count_missed();
        self.out.flush(&Arc::clone(&self.snapshot), &mut self.judge);
        self.out.flush_lingering();
        self.park_polls(&next, number);
        self.adopt_outlets(&next, number);
        let bridges = (!next.bridges.is_empty()).then(|| Arc::clone(&next) as Arc<dyn Bridges>);
        self.judge.xdp.set_bridges(bridges);
        self.judge.forget_bursts();
        self.snapshot = next;
        self.claim_awaited();
        self.adopt_lenders();
        self.adopt_sockets();
        self.collect_domains();
        self.idle = super::Idle::default();
        self.seat.note_adopted(self.snapshot.generation);
    }

    fn park_polls(&mut self, next: &Snapshot, number: usize) {
        let mine = next.polls.get(number).map_or(&[][..], |polls| polls);
        let (kept, parked): (Vec<Poll>, Vec<Poll>) = self.polls.drain(..).partition(|poll| {
            let same = |slot: &Arc<Slot>| Arc::ptr_eq(&slot.opened, &poll.opened);
            mine.contains(&(poll.port, poll.queue)) && next.port(poll.port).is_some_and(same)
        });
        for poll in parked {
            // Before another worker has the queue.
            drop(poll.lender);
            poll.opened.rx[poll.queue as usize].put(poll.rx);
        }
        let has = |id: &(PortId, u32)| kept.iter().any(|poll| (poll.port, poll.queue) == *id);
        self.awaited = mine.iter().filter(|id| !has(id)).copied().collect();
        self.polls = kept;
    }

    /// Takes the queues that it should poll and that nobody holds any more.
    pub(super) fn claim_awaited(&mut self) {
        let Self { awaited, polls, snapshot, seat, .. } = self;
        awaited.retain(|&(port, queue)| {
            let Some(slot) = snapshot.port(port) else { return false };
            let Some(parked) = slot.opened.rx.get(queue as usize) else { return false };
            let Some(mut rx) = parked.take() else { return true };
            rx.set_waker(&seat.waker);
            let opened = Arc::clone(&slot.opened);
            let is_finished = opened.failed.load(Ordering::Relaxed);
            let lender = Lender::of(slot, queue);
            polls.push(Poll { port, queue, rx, opened, is_finished, lender });
            false
        });
    }

    fn adopt_outlets(&mut self, next: &Snapshot, number: usize) {
        let old = std::mem::take(&mut self.out.outlets);
        let count = old.len().max(next.ports.len());
        let mut old = old.into_iter();
        for index in 0..count {
            let before = old.next().flatten();
            let opened = next.port(PortId(index as u32)).map(|slot| &slot.opened);
            let outlet = match (before, opened) {
                (Some(outlet), Some(opened)) if Arc::ptr_eq(&outlet.opened, opened) => Some(outlet),
                (before, opened) => {
                    if let Some(outlet) = before {
                        self.park(outlet, number);
                    }
                    opened.map(|opened| Outlet::new(opened, take_tx(opened, number), number))
                }
            };
            self.out.outlets.push(outlet);
        }
    }

    fn park(&mut self, outlet: Outlet, number: usize) {
        let Outlet { opened, tx: Some(mut tx), .. } = outlet else { return };
        // What the device has not sent yet is its own affair; our memory comes back with it.
        let _waiting = tx.reap(&mut self.out.pool);
        opened.tx[number].put(tx);
    }

    fn collect_domains(&mut self) {
        let snapshot = &self.snapshot;
        for domain in &self.domains {
            domain.offline(self.seat.number);
        }
        self.domains.clear();
        let slots = snapshot.ports.iter().flatten();
        let hooks = slots.flat_map(|slot| slot.rx_hook.iter().chain(&slot.tx_hook));
        let links = hooks.flat_map(|chain| chain.links()).map(|link| &link.program);
        for program in links.chain(snapshot.entry_programs.values()) {
            let domain = program.maps().domain();
            if !self.domains.iter().any(|known| Arc::ptr_eq(known, domain)) {
                self.domains.push(Arc::clone(domain));
            }
        }
        self.quiesce();
    }
}

fn take_tx(opened: &Opened, number: usize) -> Option<Box<dyn crate::port::Tx>> {
    opened.tx.get(number)?.take()
}
