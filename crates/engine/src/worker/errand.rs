//! Errands: what control code has a worker do between two bursts, a piece at a time, as itself:
//! nobody else may run programs under its number.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use towpath_maps::Domain;

use super::judge::Judge;
use super::outbox::Outboxes;
use super::{Seat, Worker};
use crate::snapshot::Snapshot;

/// Something to be done by a worker.
pub trait Errand: Send + 'static {
    /// The readers' group of the maps that it looks at.
    fn domain(&self) -> &Arc<Domain>;

    /// Does a piece of it. Traffic waits for that: it should take microseconds. Gives whether
    /// nothing is left to do.
    fn step(&mut self, desk: &mut Desk<'_>) -> bool;
}

/// What of a worker an errand may use.
pub struct Desk<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) judge: &'a mut Judge,
    pub(super) out: &'a mut Outboxes,
}

impl Desk<'_> {
    /// What programs are run with.
    pub fn worker(&mut self) -> &mut towpath_xdp::Worker {
        &mut self.judge.xdp
    }
}

impl fmt::Debug for Desk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

/// An errand of any kind, and who waits for its end.
pub(crate) trait Entrusted: Send {
    fn domain(&self) -> Option<Arc<Domain>>;

    fn step(&mut self, desk: &mut Desk<'_>) -> bool;
}

struct Task<T> {
    errand: Option<T>,
    reply: SyncSender<T>,
}

impl<T: Errand> Entrusted for Task<T> {
    fn domain(&self) -> Option<Arc<Domain>> {
        self.errand.as_ref().map(|errand| Arc::clone(errand.domain()))
    }

    fn step(&mut self, desk: &mut Desk<'_>) -> bool {
        if !self.errand.as_mut().is_none_or(|errand| errand.step(desk)) {
            return false;
        }
        if let Some(errand) = self.errand.take() {
            // Whoever does not wait any more does not want it.
            let _unwanted = self.reply.send(errand);
        }
        true
    }
}

impl fmt::Debug for dyn Entrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Errand")
    }
}

impl Seat {
    /// Has the worker do something; what it made of it comes out of the receiver, or nothing does
    /// when the worker stops before.
    pub(crate) fn entrust<T: Errand>(&self, errand: T) -> Receiver<T> {
        let (reply, receiver) = sync_channel(1);
        self.inbox.entrust(Box::new(Task { errand: Some(errand), reply }));
        self.waker.wake();
        receiver
    }
}

impl Worker {
    /// Does a piece of each errand; gives their number.
    #[cold]
    pub(super) fn run_errands(&mut self) -> usize {
        let Self { snapshot, judge, out, domains, errands, seat, .. } = self;
        let mut desk = Desk { snapshot, judge, out };
        let count = errands.len();
        errands.retain_mut(|errand| {
            let is_known = |domain: &Arc<Domain>| domains.iter().any(|it| Arc::ptr_eq(it, domain));
            let visited = errand.domain().filter(|domain| !is_known(domain));
            if let Some(domain) = &visited {
                domain.quiesce(seat.number);
            }
            let is_done = errand.step(&mut desk);
            if let Some(domain) = &visited {
                domain.offline(seat.number);
            }
            !is_done
        });
        count
    }
}
