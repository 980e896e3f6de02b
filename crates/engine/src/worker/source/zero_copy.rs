//! Receiving into an application's memory (`XDP_ZEROCOPY`).
//!
//! While the only socket of a queue lends its memory, and nothing but checked programs look at
//! packets before it gets them (`Port::zero_copy_sockets`), the queue's port receives into frames
//! in the socket's chunks. Frames that do not go to a socket are copied before anybody else sees
//! them, as the kernel does (`xdp_convert_zc_to_xdp_frame`): their application could write to them.

use std::sync::Arc;

use towpath_xdp::{Frame, Pool};

use crate::options::BURST;
use crate::snapshot::Port;
use crate::sockets::Served;

/// A socket's chunks to receive into, as frames for the next burst.
pub(crate) struct UmemPool {
    served: Arc<Served>,
    frames: Vec<Frame>,
}

impl UmemPool {
    /// That of a queue, if it has one.
    pub(crate) fn of(port: &Port, queue: u32) -> Option<UmemPool> {
        let served = Arc::clone(port.zero_copy_sockets.get(queue as usize)?.as_ref()?);
        Some(UmemPool { served, frames: Vec::with_capacity(BURST) })
    }

    /// Whether it is the same socket's.
    pub(super) fn is_same(&self, other: &UmemPool) -> bool {
        Arc::ptr_eq(&self.served, &other.served)
    }

    /// From here on the pool has frames in the socket's chunks.
    pub(crate) fn enter(&mut self, pool: &mut Pool) {
        if self.frames.len() < BURST {
            self.served.socket.lend(&mut self.frames, BURST);
        }
        pool.put_external(&mut self.frames);
    }

    /// From here on it has none.
    pub(crate) fn leave(&mut self, pool: &mut Pool) {
        pool.take_external(&mut self.frames);
    }
}

impl Drop for UmemPool {
    fn drop(&mut self) {
        self.served.socket.take_back(&mut self.frames);
    }
}
