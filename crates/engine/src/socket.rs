//! The workers' interface to AF_XDP sockets.
//!
//! `towpath-xsk` implements the sockets. A socket is bound to one receive queue of one port and
//! gets frames from that queue only.

use std::fmt;

use towpath_xdp::{Frame, Pool};

use crate::port::Wake;

/// A queue of a port, by ifindex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId {
    /// The port's ifindex.
    pub ifindex: u32,
    /// The queue's number.
    pub queue: u32,
}

/// An AF_XDP socket. Any worker may use it at any time. Calls on one socket are serialised, so each
/// handles a whole burst.
pub trait Socket: fmt::Debug + Send + Sync {
    /// The socket's id in XSKMAPs (`towpath_maps::TargetEntry::id`); never 0.
    fn id(&self) -> u32;

    /// The queue that the socket is bound to; `None` before binding, and when its port is gone.
    fn bound_to(&self) -> Option<QueueId>;

    /// Whether the socket has an RX ring, so that frames can be delivered to it.
    fn receives(&self) -> bool;

    /// Whether packets may be received into its application's memory (`XDP_ZEROCOPY`).
    fn lends(&self) -> bool {
        false
    }

    /// Appends frames in chunks of the application's memory ([`towpath_xdp::frame::external`])
    /// until there are `count`, or the socket has no more. [`Socket::deliver`] of this socket hands
    /// them over without a copy.
    fn lend(&self, _frames: &mut Vec<Frame>, _count: usize) {}

    /// Takes back unused frames from [`Socket::lend`].
    fn take_back(&self, frames: &mut Vec<Frame>) {
        frames.clear();
    }

    /// Whether the socket has a TX ring to poll.
    fn transmits(&self) -> bool;

    /// Delivers frames that arrived at `from`, in order and each whole or not at all (`xsk_rcv`);
    /// returns their number. The socket drops and counts the others. `frames` is empty afterwards.
    /// The application sees the frames after [`Socket::flush`].
    fn deliver(&self, from: QueueId, frames: &mut Vec<Frame>, pool: &mut Pool) -> usize;

    /// Publishes delivered frames to the application and wakes it (`xsk_flush`). Called at the end
    /// of each burst that had frames for the socket.
    fn flush(&self);

    /// Calls [`Socket::deliver`] and [`Socket::flush`], for a single burst.
    fn deliver_all(&self, from: QueueId, frames: &mut Vec<Frame>, pool: &mut Pool) -> usize {
        let delivered = self.deliver(from, frames, pool);
        self.flush();
        delivered
    }

    /// Whether [`Socket::collect`] would find packets. Called before the port is asked for credit,
    /// which may be a system call. A socket that does not know returns `true`.
    fn has_packets(&self) -> bool {
        true
    }

    /// Appends copies of up to `limit` packets from the TX ring; returns their number. The packets
    /// stay in the ring until [`Socket::sent`]. Room for their completions is reserved.
    fn collect(&self, pool: &mut Pool, frames: &mut Vec<Frame>, limit: usize) -> usize;

    /// Completes the first `count` packets of the last [`Socket::collect`], which are sent or
    /// dropped for good: the application gets their memory back. The others will be collected again
    /// (`-EAGAIN`).
    fn sent(&self, count: usize);

    /// Prepares for the worker's sleep; returns the event that is to end it when the application
    /// sends. Asks the application to signal new packets (`XDP_RING_NEED_WAKEUP`).
    fn arm(&self) -> Wake<'_>;

    /// Notes that the descriptor from [`Socket::arm`] is readable, or that its peer is gone.
    fn rang(&self, _is_gone: bool) {}

    /// Notes that the worker is awake and polls the TX ring.
    fn disarm(&self);
}
