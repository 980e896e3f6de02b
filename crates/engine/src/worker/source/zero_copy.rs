//! Reception into an application's memory (`XDP_ZEROCOPY`).
//!
//! While the only socket of a queue lends its memory, and only programs that check each access see
//! packets before the socket gets them (`Port::zero_copy_sockets`), the queue's port receives into
//! frames in the socket's chunks. Frames that do not go to a socket are copied before any other
//! code sees them, as in the kernel (`xdp_convert_zc_to_xdp_frame`), because the application could
//! write to them.

use std::sync::Arc;

use towpath_xdp::{Frame, Pool};

use crate::options::BURST;
use crate::snapshot::Port;
use crate::sockets::Served;

/// Frames in a socket's chunks, to receive the next burst into.
pub(crate) struct UmemPool {
    served: Arc<Served>,
    frames: Vec<Frame>,
}

impl UmemPool {
    /// The pool of a queue, if a socket lends it memory.
    pub(crate) fn of(port: &Port, queue: u32) -> Option<UmemPool> {
        let served = Arc::clone(port.zero_copy_sockets.get(queue as usize)?.as_ref()?);
        Some(UmemPool { served, frames: Vec::with_capacity(BURST) })
    }

    /// Whether both belong to the same socket.
    pub(super) fn is_same(&self, other: &UmemPool) -> bool {
        Arc::ptr_eq(&self.served, &other.served)
    }

    /// Puts the socket's frames into the worker's pool.
    pub(crate) fn enter(&mut self, pool: &mut Pool) {
        if self.frames.len() < BURST {
            self.served.socket.lend(&mut self.frames, BURST);
        }
        pool.put_external(&mut self.frames);
    }

    /// Takes the socket's frames back out of the worker's pool.
    pub(crate) fn leave(&mut self, pool: &mut Pool) {
        pool.take_external(&mut self.frames);
    }
}

impl Drop for UmemPool {
    fn drop(&mut self) {
        self.served.socket.take_back(&mut self.frames);
    }
}
