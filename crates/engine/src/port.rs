//! What a port is to the engine: a device that control code opens, and its queues, which workers
//! poll.
//!
//! A port kind implements three traits. [`Device`] is the side that is configured; it hands out the
//! two others, which live on worker threads: an [`Rx`] for each receive queue, and a [`Tx`] for
//! each worker, so that workers never share a transmitter.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use towpath_xdp::{Arena, Frame, Pool};

use crate::waker::Waker;

/// A device of some kind: a tap, a NIC, a capture, ...
pub trait Device: fmt::Debug + Send + Sync {
    /// The kind's name in configuration, e.g. `tap`.
    fn kind(&self) -> &'static str;

    /// Number of its receive queues, 0 for a port that only sends.
    fn queues(&self) -> u32;

    /// Looks again at what others change while it is open: how many queues it has (`ethtool -L`),
    /// its MTU. It tells what it saw last in between.
    fn look(&self) {}

    /// Takes off what the kernel needs time for, and no frame needs: it will be closed at once.
    fn closes_soon(&self) {}

    /// What it can do.
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

    /// Whether frames can leave and arrive now (`IFF_LOWER_UP`).
    fn link(&self) -> bool {
        true
    }

    /// Learns whether its port is up: once before any frame, then with each change of the engine's
    /// configuration.
    fn set_up(&self, _up: bool) {}

    /// How fast that is. A kind that does not know says what the kernel says of a veth.
    fn speed(&self) -> Speed {
        Speed::default()
    }

    /// Opens receive queue `queue`. Called at most once at a time for each.
    fn open_rx(&self, queue: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>>;

    /// Opens a transmitter for a worker, numbered from 0. Called at most once at a time for each.
    fn open_tx(&self, worker: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>>;

    /// What of it does not work any more although frames go on, for people.
    fn failures(&self) -> Vec<String> {
        Vec::new()
    }

    /// What of it is probably not what was meant, for people.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// How often who is at the other end began anew so far: a guest that was reset, or another one.
    /// What was done for the one before means nothing to it.
    fn restarts(&self) -> u64 {
        0
    }

    /// Who is at the other end, where somebody comes and goes.
    fn peer(&self) -> Option<Peer> {
        None
    }

    /// What else there is to say about it, for people: names and values.
    fn details(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Somebody at the other end of a device who comes and goes: the monitor of a virtual machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// Somebody is there now.
    pub is_there: bool,
    /// How often somebody came.
    pub comings: u64,
    /// How often what came made no sense.
    pub refusals: u64,
    /// Why, the last time.
    pub refusal: Option<String>,
}

/// A receive queue. Polled by one worker at a time.
pub trait Rx: Send {
    /// Appends up to `limit` frames, which it takes from `pool`, and gives their number. Sets each
    /// frame's offload; the engine sets where it arrived. Returns at once when nothing is there.
    /// What cannot be received for lack of frames stays where it is, if it can.
    ///
    /// An error says that the queue is of no more use, e.g. because its interface is gone.
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize>;

    /// Prepares for the worker's sleep: what is to wake it.
    fn arm(&mut self) -> Wake<'_>;

    /// Where a [`Rx::receive`] that finds nothing costs a system call: a descriptor that is
    /// readable (`EPOLLIN`) as long as it would find something, always the same one. A worker with
    /// many of these queues asks only those that are readable, and does not arm them.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Tells who must be woken by what happens inside this process.
    fn set_waker(&mut self, _waker: &Arc<Waker>) {}

    /// Whether nothing will ever come again: the end of a capture.
    fn is_finished(&self) -> bool {
        false
    }

    /// Frames that were lost before they could be received, since the last call.
    fn take_missed(&mut self) -> u64 {
        0
    }
}

/// What ends a worker's sleep on behalf of a queue.
#[derive(Debug)]
pub enum Wake<'a> {
    /// Frames are there, or may be: don't sleep.
    Now,
    /// This descriptor becomes readable.
    Readable(BorrowedFd<'a>),
    /// It is time.
    At(Instant),
    /// Somebody in this process uses the worker's [`Waker`].
    Waker,
}

/// A transmitter of one worker.
pub trait Tx: Send {
    /// Takes frames from the front of `frames`, in order. What it leaves there does not fit now
    /// and will be dropped. It may hold on to frames it took until [`Tx::flush`] and later; their
    /// memory goes back to a `pool` some time.
    ///
    /// An error is about the first frame that is left, and there is one. It is dropped, and the
    /// rest tried again.
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()>;

    /// Sends on their way what [`Tx::transmit`] took. Called at the end of each burst that had any.
    fn flush(&mut self, _pool: &mut Pool) -> io::Result<()> {
        Ok(())
    }

    /// Called instead of [`Tx::flush`] behind a full burst, when the next one is at hand: a
    /// transmitter for which sending a few frames is dear may wait for more, and says so. Then
    /// [`Tx::flush`] follows within [`LINGER_ROUNDS`] rounds of the worker, or as soon as a round
    /// brings less than a burst.
    fn flush_some(&mut self, pool: &mut Pool) -> io::Result<bool> {
        self.flush(pool).map(|()| false)
    }

    /// Credit: how many frames of one buffer, as long as its MTU allows, [`Tx::transmit`] takes now
    /// without leaving one. Sources that can wait ask for it, and give no more. It holds until the
    /// next call of either, unless another worker's transmitter sends into the same queue; a device
    /// that takes frames only to say that each failed still takes them. Most of the time the answer
    /// must be known without a system call: idle sources ask, too.
    fn credit(&mut self) -> usize;

    /// Takes back the memory of what was sent in the meantime, for a worker that is about to sleep.
    /// Gives whether there is more to come.
    fn reap(&mut self, _pool: &mut Pool) -> bool {
        false
    }
}

/// Most rounds of a worker for which a transmitter may keep frames in the hope of more.
pub const LINGER_ROUNDS: u32 = 4;

/// How fast a link is (`ethtool`'s speed and duplex). More is better; of equals full duplex is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Speed {
    /// Mbit/s in each direction.
    pub mbps: u32,
    /// Frames leave and arrive at the same time.
    pub is_full_duplex: bool,
}

impl Default for Speed {
    fn default() -> Speed {
        Speed { mbps: 10_000, is_full_duplex: true }
    }
}

/// What a port can do: the kernel's feature flags (`NETDEV_XDP_ACT_*`), and what is offloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Frames of several buffers arrive (`RX_SG`).
    pub rx_frags: bool,
    /// Frames of several buffers can be sent (`NDO_XMIT_SG`).
    pub tx_frags: bool,
    /// It completes checksums.
    pub tx_checksum: bool,
    /// It takes large TCP packets apart, or hands them on whole.
    pub tx_tso: bool,
    /// It takes large UDP packets apart (USO).
    pub tx_uso: bool,
    /// Checksums that its frames arrive without are completed before a program sees them. Without
    /// it, programs see the sum of the pseudo header in their place, as on a veth.
    pub rx_checksum: bool,
    /// AF_XDP sockets get frames without a copy: it receives into frames of the pool it is given
    /// ([`Rx::receive`]), nothing but their bytes leave by it, and it looks at none.
    pub zero_copy: bool,
    /// What it tells of frames that arrive.
    pub rx_hints: RxHints,
    /// What their senders left to do arrives with that said: checksums, large packets.
    pub rx_offloads: bool,
}

/// What a port tells of frames that arrive (`NETDEV_XDP_RX_METADATA_*`): of some at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxHints {
    /// When they arrived.
    pub timestamp: bool,
    /// Their hash.
    pub hash: bool,
    /// The tag that was taken off.
    pub vlan_tag: bool,
    /// Whether their checksum was right.
    pub checksum: bool,
}

impl RxHints {
    /// Nothing.
    pub const NONE: RxHints =
        RxHints { timestamp: false, hash: false, vlan_tag: false, checksum: false };
    /// Of a port that gets frames from another one in this process, with what that one told.
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
    /// Everything that a port inside of this process can do: nothing needs to be done to a frame
    /// that stays here.
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

    /// What two ports can both do.
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
