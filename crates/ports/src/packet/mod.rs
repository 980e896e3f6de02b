//! `packet`: an existing interface of the host (a veth, eth0), through packet sockets (`AF_PACKET`,
//! packet(7)). The port gets a copy of the frames that arrive at the interface, and its frames
//! leave by the interface.
//!
//! Frames are exchanged with a virtio-net header, as with a tap: it states checksums and
//! segmentation that the sender left to do.

mod batch_unsafe;
mod ring_unsafe;
mod rx;
mod socket_unsafe;
mod tx;

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use towpath_engine::port::{Device, Features, Rx, RxHints, Speed, Tx};
use towpath_xdp::Arena;

use crate::Error;
use crate::error::failed;
use crate::host::{self, ETHTOOL_GTSO, Interface};
use ring_unsafe::Ring;
use socket_unsafe::Socket;

/// Options of a packet port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Name of the interface, which must exist.
    #[serde(rename = "interface")]
    pub name: String,
    /// The network namespace it is in: a name that `ip netns` knows, or a path.
    pub netns: Option<String>,
    /// Receive queues, 1 to 256: the kernel spreads frames over them.
    pub queues: u32,
    /// How the kernel spreads them.
    pub fanout: Fanout,
    /// Size in bytes of each queue's receive ring; 512 KiB to 1 GiB.
    pub ring_bytes: u32,
    /// Hands frames to the driver without the interface's queueing discipline (`tc qdisc`).
    pub qdisc_bypass: bool,
    /// Also receives frames for addresses other than the interface's.
    pub promiscuous: bool,
}

/// How the kernel chooses a queue (`PACKET_FANOUT_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fanout {
    /// By flow; the two directions of a connection may go to different queues.
    #[default]
    Hash,
    /// In turn.
    RoundRobin,
    /// By the CPU that the frame arrived on.
    Cpu,
    /// The first queue until it is full, then the next.
    Rollover,
    /// At random.
    Random,
    /// By the interface's own receive queue.
    Queue,
}

/// Default options, without an interface name.
impl Default for Options {
    fn default() -> Options {
        Options::new("")
    }
}

impl Options {
    /// Default options for an interface: one queue of 8 MiB.
    pub fn new(name: &str) -> Options {
        Options {
            name: name.to_owned(),
            netns: None,
            queues: 1,
            fanout: Fanout::Hash,
            ring_bytes: 8 << 20,
            qdisc_bypass: true,
            promiscuous: false,
        }
    }

    fn check(&self) -> Result<(), Error> {
        host::check_name(&self.name)?;
        let range = |what, value: u32, min, max| {
            let (value, interface) = (u64::from(value), self.name.clone());
            match (min..=max).contains(&value) {
                true => Ok(()),
                false => Err(Error::Range { interface, what, value, min, max }),
            }
        };
        range("queues", self.queues, 1, 256)?;
        range("ring_bytes", self.ring_bytes, 2 * u64::from(BLOCK_BYTES), 1 << 30)
    }
}

/// A port on an interface of the host.
#[derive(Debug)]
pub struct Packet {
    interface: Arc<Interface>,
    options: Options,
    index: u32,
    mac: [u8; 6],
    ifindex: Option<u32>,
    has_tso: bool,
    /// Receivers that were not opened yet; all are made together, because they form one fanout
    /// group.
    queues: Mutex<Vec<Option<Ring>>>,
}

impl Packet {
    /// Opens the interface, which must be up.
    pub fn new(options: &Options) -> Result<Packet, Error> {
        options.check()?;
        let is_foreign = host::is_foreign(options.netns.as_deref());
        host::within(options.netns.as_deref(), || Packet::new_here(options, is_foreign))
    }

    fn new_here(options: &Options, is_foreign: bool) -> Result<Packet, Error> {
        let name = &options.name;
        let failed = |step| failed(name, step);
        let interface = Interface::new(name).map_err(failed("opening a socket"))?;
        let index = interface.index().map_err(failed("looking for it"))?;
        let flags = interface.flags().map_err(failed("asking whether it is up"))?;
        if flags & libc::IFF_UP == 0 {
            let down = io::Error::from_raw_os_error(libc::ENETDOWN);
            return Err(failed("receiving from it")(down));
        }
        let mac = interface.mac().map_err(failed("asking for its address"))?;
        interface.look_at_mtu();
        let has_tso = interface.ethtool(ETHTOOL_GTSO).unwrap_or(false);
        let mut queues = Vec::new();
        let mut group = None;
        for _ in 0..options.queues {
            let socket = Socket::new().map_err(failed("opening a packet socket"))?;
            let blocks = options.ring_bytes / BLOCK_BYTES;
            let ring = Ring::new(socket, BLOCK_BYTES, blocks).map_err(failed("a receive ring"))?;
            let socket = ring.socket();
            socket.ignore_outgoing().map_err(failed("leaving out what it sends"))?;
            if options.promiscuous {
                socket.set_promiscuous(index).map_err(failed("promiscuous mode"))?;
            }
            socket.bind(index, socket_unsafe::ETH_P_ALL).map_err(failed("binding"))?;
            if options.queues > 1 {
                let joined = socket.join(group, options.fanout);
                group = Some(joined.map_err(failed("spreading over queues"))?);
            }
            queues.push(Some(ring));
        }
        Ok(Packet {
            interface: Arc::new(interface),
            options: options.clone(),
            index,
            mac,
            ifindex: (!is_foreign).then_some(index),
            has_tso,
            queues: Mutex::new(queues),
        })
    }
}

impl Device for Packet {
    fn kind(&self) -> &'static str {
        "packet"
    }

    fn queues(&self) -> u32 {
        self.options.queues
    }

    fn look(&self) {
        self.interface.look_at_mtu();
    }

    /// The kernel segments and checksums frames if the driver cannot. Frames that bypass the
    /// queueing discipline must be segmented already, or by the driver (`__dev_direct_xmit`).
    fn features(&self) -> Features {
        Features {
            rx_frags: true,
            tx_frags: true,
            tx_checksum: true,
            tx_tso: self.has_tso || !self.options.qdisc_bypass,
            tx_uso: !self.options.qdisc_bypass,
            rx_checksum: false,
            zero_copy: true,
            rx_hints: RxHints { timestamp: true, ..RxHints::default() },
            rx_offloads: true,
        }
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// `None` in another namespace, whose ifindexes are different.
    fn ifindex(&self) -> Option<u32> {
        self.ifindex
    }

    fn mtu(&self) -> u32 {
        self.interface.mtu().unwrap_or(1500)
    }

    fn link(&self) -> bool {
        self.interface.has_link()
    }

    fn speed(&self) -> Speed {
        self.interface.speed().unwrap_or_default()
    }

    fn open_rx(&self, queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        let mut queues = self.queues.lock();
        let ring = queues.get_mut(queue as usize).and_then(Option::take);
        let ring = ring.ok_or_else(|| io::Error::other("the queue is open already"))?;
        Ok(Box::new(rx::Queue::new(ring, &self.interface, self.index)))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        let open = || {
            let opening = failed(&self.options.name, "opening a socket to send");
            let open = || {
                let socket = Socket::new()?;
                socket.set_header()?;
                socket.set_send_buffer()?;
                if self.options.qdisc_bypass {
                    socket.bypass_qdisc()?;
                }
                // Bound without a protocol, the socket receives nothing.
                socket.bind(self.index, 0)?;
                Ok(socket)
            };
            open().map_err(opening)
        };
        let socket = host::within(self.options.netns.as_deref(), open).map_err(io::Error::other)?;
        Ok(Box::new(tx::Transmitter::new(socket)))
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let tso = if self.has_tso { "the driver's" } else { "in software" };
        vec![("interface", self.options.name.clone()), ("segmentation", tso.to_owned())]
    }
}

/// Bytes of a block, which holds the frames of about a millisecond; several frames of 64 KiB fit.
const BLOCK_BYTES: u32 = 256 << 10;
const _: () = assert!(BLOCK_BYTES.is_multiple_of(4096), "blocks are pages");
