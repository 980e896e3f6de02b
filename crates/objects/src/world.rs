//! Objects that maps of targets may name: devices, CPUs, programs and sockets.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use towpath_bpf::Errno;
use towpath_bpf::program::MapType;
use towpath_maps::Environment;

use crate::attach::Attachments;

/// The environment of all maps. Programs and sockets are resolved from the caller's descriptors
/// before a map sees the value, in which a number of ours stands for them.
pub(crate) struct World {
    attachments: Arc<Attachments>,
    cpus: u32,
    tickets: Mutex<Tickets>,
}

#[derive(Default)]
struct Tickets {
    last: u32,
    sockets: HashMap<u32, (u32, u32)>,
}

/// In a value: the descriptor names nothing that may be used there.
pub(crate) const UNUSABLE_PROGRAM: u32 = i32::MAX as u32;

impl World {
    pub(crate) fn new(attachments: Arc<Attachments>, cpus: u32) -> World {
        World { attachments, cpus, tickets: Mutex::default() }
    }

    /// A number that stands for a socket until it is redeemed.
    pub(crate) fn ticket(&self, socket: (u32, u32)) -> u32 {
        let mut tickets = self.tickets.lock();
        tickets.last = tickets.last.wrapping_add(1);
        let ticket = tickets.last;
        tickets.sockets.insert(ticket, socket);
        ticket
    }

    /// The number stands for nothing any more.
    pub(crate) fn redeem(&self, ticket: u32) {
        self.tickets.lock().sockets.remove(&ticket);
    }
}

impl Environment for World {
    fn has_device(&self, ifindex: u32) -> bool {
        self.attachments.has_device(ifindex)
    }

    fn has_cpu(&self, cpu: u32) -> bool {
        cpu < self.cpus
    }

    fn program(&self, number: u32, _kind: MapType) -> Result<u32, Errno> {
        if number == UNUSABLE_PROGRAM { Err(Errno::EINVAL) } else { Ok(number) }
    }

    fn socket(&self, number: u32) -> Result<(u32, u32), Errno> {
        self.tickets.lock().sockets.get(&number).copied().ok_or(Errno::EBADF)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}
