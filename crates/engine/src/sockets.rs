//! AF_XDP sockets in a configuration, as workers find them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::snapshot::{Numbers, PortId};
use crate::socket::Socket;

/// A socket that workers serve.
#[derive(Debug)]
pub struct Served {
    /// Its number.
    pub id: u32,
    /// The socket.
    pub socket: Arc<dyn Socket>,
    /// A worker is between `collect` and `sent`.
    is_collected: AtomicBool,
}

/// A socket whose packets leave by a port.
#[derive(Debug, Clone)]
pub struct Collect {
    /// The port.
    pub port: PortId,
    /// The socket.
    pub served: Arc<Served>,
}

/// How frames that programs redirect to sockets get there. To everybody but the clock all ways are
/// the same: the slower ones are there to be measured, and compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// Each frame alone, by the table of sockets, as in the kernel (`xdp_do_redirect`).
    General,
    /// By the table of sockets as well, and collected for each socket until the end of the burst.
    Collected,
    /// Each frame alone; without the table where a whole burst leads to the queue's only socket.
    Direct,
    /// A whole burst in one call where it leads to one socket, without the table where that is the
    /// queue's only one. Other bursts are collected.
    #[default]
    Batched,
}

/// All sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    pub(crate) delivery: Delivery,
    by_id: Numbers<u32>,
    list: Vec<Arc<Served>>,
}

impl Served {
    pub(crate) fn new(socket: Arc<dyn Socket>) -> Served {
        Served { id: socket.id(), socket, is_collected: AtomicBool::new(false) }
    }

    /// Does something that only one worker may do at a time; `None` when another is at it, as may
    /// be for a moment when a queue goes from one worker to another.
    #[inline]
    pub(crate) fn in_turn<T>(&self, work: impl FnOnce(&dyn Socket) -> T) -> Option<T> {
        if self.is_collected.swap(true, Ordering::Acquire) {
            return None;
        }
        let result = work(&*self.socket);
        self.is_collected.store(false, Ordering::Release);
        Some(result)
    }
}

impl Sockets {
    pub(crate) fn new(list: &[Arc<Served>], delivery: Delivery) -> Sockets {
        let numbers: Vec<_> = list.iter().map(|served| served.id).zip(0..).collect();
        Sockets { delivery, by_id: Numbers::new(&numbers), list: list.to_vec() }
    }

    /// The socket of that number.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Arc<Served>> {
        self.list.get(self.by_id.get(id)? as usize)
    }
}
