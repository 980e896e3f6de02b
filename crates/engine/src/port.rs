//! The interface between the engine and port kinds: a device that control code opens, and its
//! queues, which workers poll.
//!
//! A port kind implements three traits. [`Device`] is the configured side. It opens the other two,
//! which live on worker threads: an [`Rx`] for each receive queue, and a [`Tx`] for each worker, so
//! that workers never share a transmitter.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use towpath_xdp::host::Esp;
use towpath_xdp::{Arena, Frame, Pool};

use crate::waker::Waker;

/// A device of some kind: a tap, a NIC, a capture, ...
pub trait Device: fmt::Debug + Send + Sync {
    /// The kind's name in configuration, e.g. `tap`.
    fn kind(&self) -> &'static str;

    /// Number of its receive queues, 0 for a port that only sends.
    fn queues(&self) -> u32;

    /// Refreshes values that others may change while the device is open: its number of queues
    /// (`ethtool -L`) and its MTU. Between calls the device reports the values seen last.
    fn look(&self) {}

    /// Announces that the device will be closed soon. It may release resources that take the kernel
    /// long to free and that no frame needs.
    fn closes_soon(&self) {}

    /// The device's features.
    fn features(&self) -> Features;

    /// Its Ethernet address; all zeros when it has none.
    fn mac(&self) -> [u8; 6] {
        [0; 6]
    }

    /// The ifindex of the host's interface behind it, if there is one.
    fn ifindex(&self) -> Option<u32> {
        None
    }

    /// Largest payload of a frame it sends and receives, in bytes, without the Ethernet header.
    fn mtu(&self) -> u32 {
        1500
    }

    /// Bytes by which frames sent to it may exceed the MTU: headers that the device itself removes.
    fn mtu_excess(&self) -> u32 {
        0
    }

    /// Its security associations, for programs of one worker that use them without sending frames
    /// to the port.
    fn esp(&self) -> Option<Box<dyn Esp>> {
        None
    }

    /// Whether frames can leave and arrive now (`IFF_LOWER_UP`).
    fn link(&self) -> bool {
        true
    }

    /// Learns whether its port is up: once before any frame, then with each change of the engine's
    /// configuration.
    fn set_up(&self, _up: bool) {}

    /// The link's speed; by default that of a veth in the kernel, 10 Gbit/s full duplex.
    fn speed(&self) -> Speed {
        Speed::default()
    }

    /// Opens receive queue `queue`. Called at most once at a time for each.
    fn open_rx(&self, queue: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>>;

    /// Opens a transmitter for a worker, numbered from 0. Called at most once at a time for each.
    fn open_tx(&self, worker: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>>;

    /// Human-readable list of parts that failed although frames still flow.
    fn failures(&self) -> Vec<String> {
        Vec::new()
    }

    /// Human-readable list of settings that are probably unintended.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Number of times the peer restarted so far: a guest was reset or replaced. State kept for the
    /// previous peer is void.
    fn restarts(&self) -> u64 {
        0
    }

    /// State of the peer, for kinds whose peer connects and disconnects.
    fn peer(&self) -> Option<Peer> {
        None
    }

    /// Further human-readable details: names and values.
    fn details(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Connection state of a device's peer, such as the monitor of a virtual machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// The peer is connected now.
    pub is_there: bool,
    /// Number of connections so far.
    pub comings: u64,
    /// Number of connections refused for invalid messages.
    pub refusals: u64,
    /// Reason of the last refusal.
    pub refusal: Option<String>,
}

/// A receive queue. Polled by one worker at a time.
pub trait Rx: Send {
    /// Appends up to `limit` frames, taken from `pool`, and returns their number. Sets each frame's
    /// offload; the engine sets its ingress. Returns at once if the queue is empty. If `pool` runs
    /// out, packets stay in the queue where the device allows it.
    ///
    /// # Errors
    ///
    /// Fails if the queue is unusable from now on, e.g. because its interface is gone.
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize>;

    /// Prepares the queue for the worker's sleep and returns the event that is to end it.
    fn arm(&mut self) -> Wake<'_>;

    /// For queues where an empty [`Rx::receive`] costs a system call: a descriptor that is readable
    /// (`EPOLLIN`) while the queue has frames, the same one at each call. A worker with many such
    /// queues polls only the readable ones, and does not arm them.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Sets the waker to call when a thread of this process makes frames available.
    fn set_waker(&mut self, _waker: &Arc<Waker>) {}

    /// Whether no more frames will ever arrive: the end of a capture.
    fn is_finished(&self) -> bool {
        false
    }

    /// Frames that were lost before they could be received, since the last call.
    fn take_missed(&mut self) -> u64 {
        0
    }
}

/// The event that ends a worker's sleep on behalf of a queue.
#[derive(Debug)]
pub enum Wake<'a> {
    /// Frames are or may be available: the worker must not sleep.
    Now,
    /// The descriptor becomes readable.
    Readable(BorrowedFd<'a>),
    /// The time is reached.
    At(Instant),
    /// Another thread of this process calls the worker's [`Waker`].
    Waker,
}

/// A transmitter of one worker.
pub trait Tx: Send {
    /// Takes frames from the front of `frames`, in order. Frames it leaves there do not fit now,
    /// and the caller drops them. The transmitter may keep frames it took until [`Tx::flush`] or
    /// longer; it returns their memory to a `pool` later.
    ///
    /// # Errors
    ///
    /// An error concerns the first frame left in `frames`; at least one is left. The caller drops
    /// that frame and tries the rest again.
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()>;

    /// Sends the frames that [`Tx::transmit`] took. Called at the end of each burst that had any.
    fn flush(&mut self, _pool: &mut Pool) -> io::Result<()> {
        Ok(())
    }

    /// Called instead of [`Tx::flush`] after a full burst, when the next one is imminent. A
    /// transmitter with a high cost per flush may wait for more frames and return `true`. Then
    /// [`Tx::flush`] follows within [`LINGER_ROUNDS`] rounds of the worker, or as soon as a round
    /// has less than a full burst.
    fn flush_some(&mut self, pool: &mut Pool) -> io::Result<bool> {
        self.flush(pool).map(|()| false)
    }

    /// Credit: the number of single-buffer frames of MTU size that [`Tx::transmit`] takes now
    /// without leaving one. Sources that can wait ask for it and send no more than that. The value
    /// holds until the next call of either method, unless another worker's transmitter sends into
    /// the same queue. A device that takes frames only to report each as failed still has credit.
    /// The answer must usually need no system call, because idle sources ask, too.
    fn credit(&mut self) -> usize;

    /// Reclaims the memory of frames sent meanwhile, for a worker that is about to sleep. Returns
    /// whether more is outstanding.
    fn reap(&mut self, _pool: &mut Pool) -> bool {
        false
    }
}

/// Most rounds of a worker for which a transmitter may keep frames while it waits for more.
pub const LINGER_ROUNDS: u32 = 4;

/// A link's speed and duplex mode (as in `ethtool`), ordered by speed, then by duplex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Speed {
    /// Mbit/s in each direction.
    pub mbps: u32,
    /// Full duplex: frames leave and arrive at the same time.
    pub is_full_duplex: bool,
}

impl Default for Speed {
    fn default() -> Speed {
        Speed { mbps: 10_000, is_full_duplex: true }
    }
}

/// A port's features: the kernel's flags (`NETDEV_XDP_ACT_*`), and offloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Frames of several buffers arrive (`RX_SG`).
    pub rx_frags: bool,
    /// Frames of several buffers can be sent (`NDO_XMIT_SG`).
    pub tx_frags: bool,
    /// The port completes checksums on transmit.
    pub tx_checksum: bool,
    /// The port segments large TCP packets (TSO), or hands them on whole.
    pub tx_tso: bool,
    /// The port segments large UDP packets (USO).
    pub tx_uso: bool,
    /// Missing checksums of received frames are completed before a program sees the frame. Without
    /// this feature, programs see the pseudo-header sum in the checksum field, as on a veth.
    pub rx_checksum: bool,
    /// AF_XDP sockets get frames without a copy: the port receives into frames of the pool it is
    /// given ([`Rx::receive`]), sends nothing but their bytes, and inspects none.
    pub zero_copy: bool,
    /// RX hints that the port provides.
    pub rx_hints: RxHints,
    /// Received frames carry the offloads their senders requested: checksums, large packets.
    pub rx_offloads: bool,
}

/// RX hints that a port provides for at least some received frames (`NETDEV_XDP_RX_METADATA_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxHints {
    /// The receive timestamp.
    pub timestamp: bool,
    /// The RSS hash.
    pub hash: bool,
    /// The VLAN tag that was stripped.
    pub vlan_tag: bool,
    /// The result of checksum validation.
    pub checksum: bool,
}

impl RxHints {
    /// No hints.
    pub const NONE: RxHints =
        RxHints { timestamp: false, hash: false, vlan_tag: false, checksum: false };
    /// Hints of a port that receives frames from another port of this process, with that port's
    /// hints.
    pub const PASSED_ON: RxHints =
        RxHints { timestamp: true, hash: true, vlan_tag: true, checksum: true };

    fn and(self, other: RxHints) -> RxHints {
        RxHints {
            timestamp: self.timestamp & other.timestamp,
            hash: self.hash & other.hash,
            vlan_tag: self.vlan_tag & other.vlan_tag,
            checksum: self.checksum & other.checksum,
        }
    }
}

impl Features {
    /// Features of a port inside this process: frames that stay in the process need no offload
    /// work.
    pub const IN_PROCESS: Features = Features {
        rx_frags: true,
        tx_frags: true,
        tx_checksum: true,
        tx_tso: true,
        tx_uso: true,
        rx_checksum: false,
        zero_copy: false,
        rx_hints: RxHints::NONE,
        rx_offloads: false,
    };

    /// Features that both ports have.
    pub fn and(self, other: Features) -> Features {
        Features {
            rx_frags: self.rx_frags & other.rx_frags,
            tx_frags: self.tx_frags & other.tx_frags,
            tx_checksum: self.tx_checksum & other.tx_checksum,
            tx_tso: self.tx_tso & other.tx_tso,
            tx_uso: self.tx_uso & other.tx_uso,
            rx_checksum: self.rx_checksum & other.rx_checksum,
            zero_copy: self.zero_copy & other.zero_copy,
            rx_hints: self.rx_hints.and(other.rx_hints),
            rx_offloads: self.rx_offloads & other.rx_offloads,
        }
    }
}
