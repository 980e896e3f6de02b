//! What an AF_XDP socket is to workers.
//!
//! `towpath-xsk` has the sockets; this is the side that workers use. A socket is bound to one
//! receive queue of one port and gets frames from there only.

use std::fmt;

use towpath_xdp::{Frame, Pool};

use crate::port::Wake;

/// A queue of a port, by the numbers that programs see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId {
    /// The port's ifindex.
    pub ifindex: u32,
    /// Its queue.
    pub queue: u32,
}

/// A socket. Any worker may use it at any time; calls for one socket wait for each other, so what
/// belongs together comes in one call: a burst.
pub trait Socket: fmt::Debug + Send + Sync {
    /// Its number in XSKMAPs (`towpath_maps::TargetEntry::id`); never 0.
    fn id(&self) -> u32;

    /// Where it is bound; `None` before that, and when its port is gone.
    fn bound_to(&self) -> Option<QueueId>;

    /// Whether frames can be delivered to it: it has an rx ring.
    fn receives(&self) -> bool;

    /// Whether packets may be received into its application's memory (`XDP_ZEROCOPY`).
    fn lends(&self) -> bool {
        false
    }

    /// Appends frames in chunks of its application's ([`towpath_xdp::frame::external`]) until there
    /// are `count`, or it has no more. Its [`Socket::deliver`] hands these over without a copy.
    fn lend(&self, _frames: &mut Vec<Frame>, _count: usize) {}

    /// Takes back frames that it lent and that were not used.
    fn take_back(&self, frames: &mut Vec<Frame>) {
        frames.clear();
    }

    /// Whether it has a tx ring to poll.
    fn transmits(&self) -> bool;

    /// Delivers frames that arrived at `from`, in order and each whole or not at all (`xsk_rcv`);
    /// gives how many. The others are dropped, and counted by the socket. Either way the frames
    /// are gone from `frames`. The application sees them after [`Socket::flush`].
    fn deliver(&self, from: QueueId, frames: &mut Vec<Frame>, pool: &mut Pool) -> usize;

    /// Shows the application what was delivered and wakes it (`xsk_flush`). Called at the end of
    /// each burst that had frames for it.
    fn flush(&self);

    /// [`Socket::deliver`] and [`Socket::flush`], for a burst that is all there is.
    fn deliver_all(&self, from: QueueId, frames: &mut Vec<Frame>, pool: &mut Pool) -> usize {
        let delivered = self.deliver(from, frames, pool);
        self.flush();
        delivered
    }

    /// Whether there is something to [`Socket::collect`]: asked before a port is asked for room,
    /// which may be a system call. A socket that can't tell says yes.
    fn has_packets(&self) -> bool {
        true
    }

    /// Appends copies of up to `limit` packets that the application wants to send; gives their
    /// number. They stay in its ring until [`Socket::sent`]. Room for their completion is there.
    fn collect(&self, pool: &mut Pool, frames: &mut Vec<Frame>, limit: usize) -> usize;

    /// The first `count` packets of those collected last are on their way, or dropped for good:
    /// the application gets their memory back. The others will be collected again (`-EAGAIN`).
    fn sent(&self, count: usize);

    /// Prepares for the worker's sleep: what is to wake it for the sake of what the application
    /// sends. Asks the application to say so (`XDP_RING_NEED_WAKEUP`).
    fn arm(&self) -> Wake<'_>;

    /// What [`Socket::arm`] said is readable, or its other end is gone.
    fn rang(&self, _is_gone: bool) {}

    /// The worker is awake and polls the tx ring.
    fn disarm(&self);
}
