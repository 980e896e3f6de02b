//! Receiving into an application's memory (`XDP_ZEROCOPY`).
//!
//! While the only socket of a queue lends its memory, and nothing but checked programs look at
//! packets before it gets them (`Slot::borrows`), the queue's port receives into frames in the
//! socket's chunks. Frames that do not go to a socket are copied before anybody else sees them, as
//! the kernel does (`xdp_convert_zc_to_xdp_frame`): their application could write to them.

use std::sync::Arc;

use towpath_xdp::{Action, Burst, Frame, Pool};

use super::outbox::Outboxes;
use super::sockets::socket_of;
use super::{BURST, Worker};
use crate::snapshot::Slot;
use crate::sockets::Served;

/// A socket that lends, and frames in its chunks for the next burst.
pub(super) struct Lender {
    served: Arc<Served>,
    frames: Vec<Frame>,
}

impl Lender {
    /// The lender of a queue, if it has one.
    pub(super) fn of(slot: &Slot, queue: u32) -> Option<Lender> {
        let sole = slot.sole.get(queue as usize)?.as_ref()?;
        let served = (slot.borrows && sole.socket.lends()).then(|| Arc::clone(sole))?;
        Some(Lender { served, frames: Vec::with_capacity(BURST) })
    }

    /// From here on the pool has frames in the socket's chunks.
    pub(super) fn enter(&mut self, pool: &mut Pool) {
        if self.frames.len() < BURST {
            self.served.socket.lend(&mut self.frames, BURST);
        }
        pool.lend(&mut self.frames);
    }

    /// From here on it has none.
    pub(super) fn leave(&mut self, pool: &mut Pool) {
        pool.recall(&mut self.frames);
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.served.socket.take_back(&mut self.frames);
    }
}

impl Worker {
    /// Queues have the lenders of the current configuration.
    pub(super) fn adopt_lenders(&mut self) {
        let Self { polls, snapshot, .. } = self;
        for poll in polls {
            let next = snapshot.port(poll.port).and_then(|slot| Lender::of(slot, poll.queue));
            let stays = match (&poll.lender, &next) {
                (Some(lender), Some(next)) => Arc::ptr_eq(&lender.served, &next.served),
                (None, None) => true,
                _ => false,
            };
            if !stays {
                poll.lender = next;
            }
        }
    }
}

impl Outboxes {
    /// Copies a frame that is in an application's memory.
    pub(super) fn own(&mut self, frame: &mut Frame) {
        self.pool.own(frame);
    }

    /// Copies frames that are in an application's memory, unless they are dropped or go to a
    /// socket. `burst` says where they go; without one, they pass.
    pub(super) fn own_all(&mut self, frames: &mut [Frame], burst: Option<&Burst>) {
        // Where the last redirect led: most lead to the same place.
        let mut last = None;
        let mut leads_to_socket = |burst: &Burst, index| match last {
            Some((before, answer)) if burst.lead_alike(before, index) => answer,
            _ => {
                let answer = burst.destination(index).and_then(socket_of).is_some();
                last = Some((index, answer));
                answer
            }
        };
        for (index, frame) in frames.iter_mut().enumerate() {
            let stays = burst.is_some_and(|burst| match burst.action(index) {
                Action::Drop | Action::Aborted => true,
                Action::Redirect => leads_to_socket(burst, index),
                Action::Pass | Action::Tx => false,
            });
            // What is left to do to a packet is done by code that reads it.
            if !stays || frame.offload().is_some() {
                self.pool.own(frame);
            }
        }
    }
}
