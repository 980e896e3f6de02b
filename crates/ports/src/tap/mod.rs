//! `tap`: an interface of the host whose other end is this port. Frames that the host's stack sends
//! through it arrive here, and frames that leave by the port are received by the host's stack.
//!
//! Each frame is exchanged with a virtio-net header (`IFF_VNET_HDR`), so that checksums and
//! segmentation (GSO) are left to do in both directions: between two taps no packet is segmented or
//! checksummed.

mod device_unsafe;
mod rx;
mod tx;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use towpath_engine::port::{Device, Features, Rx, Tx};
use towpath_xdp::Arena;

use crate::error::failed;
use crate::host::{self, Interface};
use crate::{Error, vnet};
use device_unsafe::Offloads;

/// Options of a tap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Name of the interface, 1 to 15 bytes. An existing interface is used if it is a tap.
    pub name: String,
    /// MTU, 68 to 65521 bytes.
    pub mtu: u32,
    /// Address of the interface; by default the kernel chooses one.
    pub mac: Option<[u8; 6]>,
    /// Queues, 1 to 256: the host's stack spreads flows over them.
    pub queues: u32,
    /// The network namespace it is in: a name that `ip netns` knows, or a path.
    pub netns: Option<String>,
    /// Keeps the interface when the port is removed.
    pub persist: bool,
    /// Lets the host's stack leave checksums and segmentation to the next sender.
    pub offloads: bool,
}

impl Options {
    /// Default options: one queue, an MTU of 1500 bytes, offloads, removed with the port.
    pub fn new(name: &str) -> Options {
        Options {
            name: name.to_owned(),
            mtu: 1500,
            mac: None,
            queues: 1,
            netns: None,
            persist: false,
            offloads: true,
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
        range("mtu", self.mtu, 68, MTU_MAX)?;
        range("queues", self.queues, 1, QUEUES_MAX)
    }
}

/// A tap. The interface is removed when this and all its queues are dropped, also when the process
/// is killed.
#[derive(Debug)]
pub struct Tap {
    queues: Vec<Arc<OwnedFd>>,
    interface: Interface,
    mac: [u8; 6],
    mtu: u32,
    ifindex: Option<u32>,
    offloads: Offloads,
}

impl Tap {
    /// Makes the interface and sets it up.
    pub fn new(options: &Options) -> Result<Tap, Error> {
        options.check()?;
        let is_foreign = host::is_foreign(options.netns.as_deref());
        host::within(options.netns.as_deref(), || Tap::new_here(options, is_foreign))
    }

    fn new_here(options: &Options, is_foreign: bool) -> Result<Tap, Error> {
        let name = &options.name;
        let failed = |step| failed(name, step);
        // A tap that no process has open has no carrier.
        if Interface::new(name).is_ok_and(|there| there.has_link()) {
            return Err(Error::InUse { interface: name.clone() });
        }
        let mut queues = Vec::new();
        let mut offloads = Offloads::NONE;
        for _ in 0..options.queues {
            let queue = device_unsafe::open().map_err(|source| Error::Tun { source })?;
            let queue = device_unsafe::join(queue, name).map_err(failed("opening a tap"))?;
            device_unsafe::set_header(&queue, vnet::BYTES_WITH_BUFFERS)
                .map_err(failed("setting the size of headers"))?;
            offloads = match options.offloads {
                true => device_unsafe::set_offloads(&queue).map_err(failed("offloads"))?,
                false => Offloads::NONE,
            };
            queues.push(Arc::new(queue));
        }
        if let Some(queue) = queues.first() {
            device_unsafe::set_persist(queue, options.persist).map_err(failed("persist"))?;
        }
        let interface = Interface::new(name).map_err(failed("opening a socket"))?;
        interface.set_mtu(options.mtu).map_err(failed("setting its MTU"))?;
        if let Some(mac) = options.mac {
            interface.set_mac(mac).map_err(failed("setting its address"))?;
        }
        interface.set_up().map_err(failed("setting it up"))?;
        let index = interface.index().map_err(failed("asking for its index"))?;
        let mac = interface.mac().map_err(failed("asking for its address"))?;
        let ifindex = (!is_foreign).then_some(index);
        Ok(Tap { queues, interface, mac, mtu: options.mtu, ifindex, offloads })
    }
}

impl Device for Tap {
    fn kind(&self) -> &'static str {
        "tap"
    }

    fn queues(&self) -> u32 {
        self.queues.len() as u32
    }

    fn look(&self) {
        self.interface.look_at_mtu();
    }

    /// The kernel accepts all offloads, whatever it may leave to this end.
    fn features(&self) -> Features {
        Features {
            rx_frags: true,
            tx_frags: true,
            tx_checksum: true,
            tx_tso: true,
            tx_uso: self.offloads.uso,
            rx_offloads: self.offloads.checksum,
            ..Features::default()
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
        self.interface.mtu().unwrap_or(self.mtu)
    }

    fn link(&self) -> bool {
        self.interface.has_link()
    }

    fn open_rx(&self, queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        let queue = &self.queues[queue as usize];
        Ok(Box::new(rx::Queue::new(queue)))
    }

    /// Workers without a queue of their own share one: the kernel takes a frame at a time.
    fn open_tx(&self, worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        let queue = &self.queues[worker as usize % self.queues.len()];
        Ok(Box::new(tx::Transmitter::new(queue)))
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let Offloads { checksum, tso, uso } = self.offloads;
        let offloads = [(checksum, "checksum"), (tso, "tso"), (uso, "uso")];
        let offloads: Vec<&str> =
            offloads.iter().filter(|(is_on, _)| *is_on).map(|(_, name)| *name).collect();
        vec![("offloads", offloads.join(" "))]
    }
}

/// `65535 - ETH_HLEN`
const MTU_MAX: u64 = 65521;
const _: () =
    assert!(MTU_MAX + 14 == u16::MAX as u64, "tun_net_init: IP_MAX_MTU less the Ethernet header");
/// `MAX_TAP_QUEUES`
const QUEUES_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use towpath_xdp::Pool;

    use super::*;

    #[test]
    fn a_tap_has_one_process() {
        let options = Options::new(&format!("tpuse{}", std::process::id() % 100_000));
        let first = match Tap::new(&options) {
            Ok(tap) => tap,
            Err(why) => return println!("skipped: {why}"),
        };
        let wait_for = |what: &str, is_so: &dyn Fn() -> bool| {
            let start = std::time::Instant::now();
            while !is_so() {
                assert!(start.elapsed() < std::time::Duration::from_secs(10), "{what}");
                std::thread::yield_now();
            }
        };
        wait_for("it has a carrier", &|| first.link());
        let second = Tap::new(&options).expect_err("it is in use");
        assert!(matches!(second, Error::InUse { .. }), "{second}");
        drop(first);
        // A child process of another test may hold its descriptor until it calls `exec`.
        wait_for("nobody has it any more", &|| Tap::new(&options).is_ok());
    }

    /// Ports share the frames of an engine: a thousand taps that kept some would hold all of them.
    #[test]
    fn a_queue_without_packets_keeps_no_memory() {
        let options = Options::new(&format!("tpkeep{}", std::process::id() % 100_000));
        let tap = match Tap::new(&options) {
            Ok(tap) => tap,
            Err(why) => return println!("skipped: {why}"),
        };
        let arena = Arena::new(256).expect("there is memory");
        let (mut pool, mut frames) = (Pool::new(&arena), Vec::new());
        let mut rx = tap.open_rx(0, &arena).expect("it is open");
        // The host's stack may have sent frames by itself.
        while rx.receive(&mut pool, &mut frames, 64).expect("it is there") > 0 {
            pool.give_all(&mut frames);
        }
        assert_eq!(pool.take_many(256, &mut frames), 256);
    }
}
