//! Receiving into an application's memory (`XDP_ZEROCOPY`).
//!
//! While the only socket of a queue lends its memory, and nothing but checked programs look at
//! packets before it gets them (`Port::zero_copy_sockets`), the queue's port receives into frames
//! in the socket's chunks. Frames that do not go to a socket are copied before anybody else sees
//! them, as the kernel does (`xdp_convert_zc_to_xdp_frame`): their application could write to them.

use std::sync::Arc;

use towpath_xdp::{Frame, Pool};

use super::graph::Graph;
use super::{BURST, Worker};
use crate::snapshot::Port;
use crate::sockets::Served;
use crate::target::TargetId;

/// A socket's chunks to receive into, as frames for the next burst.
pub(super) struct UmemPool {
    served: Arc<Served>,
    frames: Vec<Frame>,
}

impl UmemPool {
    /// That of a queue, if it has one.
    pub(super) fn of(port: &Port, queue: u32) -> Option<UmemPool> {
        let served = Arc::clone(port.zero_copy_sockets.get(queue as usize)?.as_ref()?);
        Some(UmemPool { served, frames: Vec::with_capacity(BURST) })
    }

    /// From here on the pool has frames in the socket's chunks.
    pub(super) fn enter(&mut self, pool: &mut Pool) {
        if self.frames.len() < BURST {
            self.served.socket.lend(&mut self.frames, BURST);
        }
        pool.put_external(&mut self.frames);
    }

    /// From here on it has none.
    pub(super) fn leave(&mut self, pool: &mut Pool) {
        pool.take_external(&mut self.frames);
    }
}

impl Drop for UmemPool {
    fn drop(&mut self) {
        self.served.socket.take_back(&mut self.frames);
    }
}

impl Worker {
    /// Queues receive into the memory that the current configuration says.
    pub(super) fn adopt_umem(&mut self) {
        let Self { queues, snapshot, .. } = self;
        for queue in queues {
            let port = snapshot.port(queue.port);
            let next = port.and_then(|port| UmemPool::of(port, queue.queue));
            let stays = match (&queue.umem, &next) {
                (Some(umem), Some(next)) => Arc::ptr_eq(&umem.served, &next.served),
                (None, None) => true,
                _ => false,
            };
            if !stays {
                queue.umem = next;
            }
        }
    }
}

impl Graph {
    /// Copies a frame that is in an application's memory, unless its target keeps it there. What
    /// is left to do to a packet is done by code that reads it.
    pub(super) fn own(&mut self, to: TargetId, frame: &mut Frame) {
        if !self.targets[to.index()].takes_lent() || frame.offload().is_some() {
            self.pool.own(frame);
        }
    }
}
