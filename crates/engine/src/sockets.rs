//! AF_XDP sockets in a configuration, as workers find them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::numbers::{Numbers, PortId};
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

/// All sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    by_id: Numbers<u32>,
    list: Vec<Arc<Served>>,
}

impl Served {
    pub(crate) fn new(socket: Arc<dyn Socket>) -> Served {
        Served { id: socket.id(), socket, is_collected: AtomicBool::new(false) }
    }

    /// Begins something that only one worker may do at a time; `false` when another is at it, as
    /// may be for a moment when a queue goes from one worker to another.
    pub(crate) fn claim(&self) -> bool {
        !self.is_collected.swap(true, Ordering::Acquire)
    }

    /// Ends it.
    pub(crate) fn release(&self) {
        let was_claimed = self.is_collected.swap(false, Ordering::Release);
        assert!(was_claimed, "one worker collects");
    }
}

impl Sockets {
    pub(crate) fn new(list: &[Arc<Served>]) -> Sockets {
        let numbers: Vec<_> = list.iter().map(|served| served.id).zip(0..).collect();
        Sockets { by_id: Numbers::new(&numbers), list: list.to_vec() }
    }

    /// The socket of that number.
    pub fn get(&self, id: u32) -> Option<&Arc<Served>> {
        self.at(self.place(id)?)
    }

    /// Where it is among all sockets.
    #[inline]
    pub(crate) fn place(&self, id: u32) -> Option<u32> {
        self.by_id.get(id)
    }

    #[inline]
    pub(crate) fn at(&self, place: u32) -> Option<&Arc<Served>> {
        self.list.get(place as usize)
    }
}
