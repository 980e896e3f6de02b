//! The AF_XDP sockets of a snapshot, and lookups among them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::numbers::{Numbers, PortId};
use crate::socket::Socket;

/// A socket that workers serve.
#[derive(Debug)]
pub struct Served {
    /// The socket's id.
    pub id: u32,
    /// The socket.
    pub socket: Arc<dyn Socket>,
    /// A worker is between [`Socket::collect`] and [`Socket::sent`].
    is_collected: AtomicBool,
}

/// A socket, with the port that sends its packets.
#[derive(Debug, Clone)]
pub struct Collect {
    /// The port.
    pub port: PortId,
    /// The socket.
    pub served: Arc<Served>,
}

/// All sockets of a snapshot.
#[derive(Debug, Default)]
pub struct Sockets {
    by_id: Numbers<u32>,
    list: Vec<Arc<Served>>,
}

impl Served {
    pub(crate) fn new(socket: Arc<dyn Socket>) -> Served {
        Served { id: socket.id(), socket, is_collected: AtomicBool::new(false) }
    }

    /// Claims the right to collect packets, which one worker has at a time. Returns `false` if
    /// another worker has it, which may happen briefly when a queue moves between workers.
    pub(crate) fn claim(&self) -> bool {
        !self.is_collected.swap(true, Ordering::Acquire)
    }

    /// Ends the claim.
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

    /// The socket with this id.
    pub fn get(&self, id: u32) -> Option<&Arc<Served>> {
        self.at(self.place(id)?)
    }

    /// The index of the socket with this id.
    #[inline]
    pub(crate) fn place(&self, id: u32) -> Option<u32> {
        self.by_id.get(id)
    }

    #[inline]
    pub(crate) fn at(&self, place: u32) -> Option<&Arc<Served>> {
        self.list.get(place as usize)
    }
}
