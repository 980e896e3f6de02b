//! Sources of frames: a port of each kind, and the way in which packets reach it.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use towpath_engine::port::{Device, Tx};
use towpath_ports::afxdp::{self, Afxdp, RxHintsFrom};
use towpath_ports::generator::{self, Change, Field, Generator};
use towpath_ports::packet::{self, Packet};
use towpath_ports::pair::{self, Pair};
use towpath_ports::pcap::{self, Pcap, Timing};
use towpath_ports::rss;
use towpath_ports::tap::{self, Tap};
use towpath_ports::vhost_user::{self, VhostUser};
use towpath_ports::wrap::Wrapped;
use towpath_ports::wrap::hint::Hint;
use towpath_workload::virtio::{Guest, GuestOptions};
use towpath_xdp::frame::rx_metadata::{RxMetadata, VlanTag};
use towpath_xdp::{Arena, Frame, Pool};

use crate::packets::{self, NUMBER_AT, Packets};

/// A port and what feeds it.
pub(crate) struct Source {
    pub(crate) device: Box<dyn Device>,
    pub(crate) feed: Feed,
    pub(crate) hints: Expected,
}

pub(crate) enum Feed {
    /// The port has all packets.
    Itself,
    /// They are sent to it.
    Far(Far),
    /// A guest sends them, which comes when there is something to send.
    Guest(PathBuf, Option<Box<Guest>>),
}

impl Feed {
    /// Sends packets; gives the number of the first that there was no room for.
    pub(crate) fn send(&mut self, packets: &Packets, numbers: Range<usize>) -> usize {
        match self {
            Feed::Itself => numbers.end,
            Feed::Far(far) => far.send(packets, numbers),
            Feed::Guest(path, guest) => {
                let guest = guest.get_or_insert_with(|| {
                    Box::new(Guest::connect(path, GuestOptions::default()).unwrap())
                });
                let sent =
                    packets.range(numbers.clone()).take_while(|it| guest.send(0, &[0; 12], it));
                numbers.start + sent.count()
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if let Feed::Guest(path, _) = self {
            let _gone = std::fs::remove_file(path);
        }
    }
}

/// The expected hints of a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// Every third frame had a tag.
    tags: bool,
    /// Hashes are ours; else they are the kernel's.
    toeplitz: bool,
}

impl Expected {
    pub(crate) fn check(self, _packets: &Packets, number: usize, known: &RxMetadata) {
        let frame = Frame::new(&packets::packet(number, None)).unwrap();
        assert!(known.timestamp_ns.is_some_and(|ns| ns > 0), "frame {number}: {known:?}");
        match self.toeplitz {
            true => assert_eq!(known.hash, rss::hash(&frame), "frame {number}"),
            false => assert!(known.hash.is_some(), "frame {number}: {known:?}"),
        }
        let tag = Packets::tag(number).filter(|_| self.tags);
        assert_eq!(known.vlan, tag.map(|tci| VlanTag { protocol: 0x8100, tci }), "frame {number}");
    }
}

/// The other end of a wire.
pub(crate) struct Far {
    tx: Box<dyn Tx>,
    pool: Pool,
    frames: Vec<Frame>,
    _device: Box<dyn Device>,
}

impl Far {
    fn feed(device: Box<dyn Device>) -> Feed {
        let arena = Arena::new(4096).unwrap();
        let tx = device.open_tx(0, &arena).unwrap();
        Feed::Far(Far { tx, pool: Pool::new(&arena), frames: Vec::new(), _device: device })
    }

    /// Sends packets; gives the number of the first that there was no room for.
    pub(crate) fn send(&mut self, packets: &Packets, numbers: Range<usize>) -> usize {
        // Frames that cross over to the engine are the engine's.
        let frames = packets.range(numbers.clone()).map(|packet| {
            let pooled = self.pool.frame(&packet).unwrap();
            pooled.unwrap_or_else(|| Frame::new(&packet).unwrap())
        });
        self.frames.extend(frames.take(64));
        let count = self.frames.len();
        self.tx.transmit(&mut self.frames, &mut self.pool).unwrap();
        self.tx.flush(&mut self.pool).unwrap();
        let sent = count - self.frames.len();
        self.pool.give_all(&mut self.frames);
        numbers.start + sent
    }
}

fn hinting(device: impl Device + 'static) -> Box<dyn Device> {
    let hint = Hint { hash: true, timestamp: true, vlan: true };
    Box::new(Wrapped::new(Box::new(device), Arc::new(hint)))
}

impl Source {
    pub(crate) fn pair(_packets: &Packets) -> Source {
        let (near, far) = Pair::new(pair::Options::default());
        let hints = Expected { tags: true, toeplitz: true };
        Source { device: hinting(near), feed: Far::feed(Box::new(far)), hints }
    }

    pub(crate) fn generator(packets: &Packets) -> Source {
        let field = |offset, width, min, max| Field {
            offset,
            width,
            min,
            max,
            change: Change::Count,
            checksum: None,
        };
        let last = packets.count as u64 - 1;
        let options = generator::Options {
            fields: vec![field(NUMBER_AT, 8, 0, last), field(34, 2, 0, 0xffff)],
            count: Some(packets.count as u64),
            ..generator::Options::new(packets::packet(0, None))
        };
        let device = hinting(Generator::new(options).unwrap());
        Source { device, feed: Feed::Itself, hints: Expected { tags: false, toeplitz: true } }
    }

    /// A capture that another port of the kind has written.
    pub(crate) fn pcap(packets: &Packets) -> Source {
        let path =
            std::env::temp_dir().join(format!("towpath-hints-{}.pcapng", std::process::id()));
        let output = Some(path.clone());
        let written = Pcap::new(pcap::Options { output, ..pcap::Options::default() }).unwrap();
        let mut feed = Far::feed(Box::new(written));
        let Feed::Far(far) = &mut feed else { unreachable!("it is fed") };
        let mut sent = 0;
        while sent < packets.count {
            sent = far.send(packets, sent..packets.count);
        }
        drop(feed);
        let input = Some(path.clone());
        let timing = Timing::Unlimited;
        let read = Pcap::new(pcap::Options { input, timing, ..pcap::Options::default() }).unwrap();
        let hints = Expected { tags: true, toeplitz: true };
        Source { device: hinting(Kept(read, path)), feed: Feed::Itself, hints }
    }

    pub(crate) fn vhost_user(_packets: &Packets) -> Source {
        let name = format!("towpath-hints-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let device = VhostUser::new(vhost_user::Options::new(path.clone())).unwrap();
        let hints = Expected { tags: true, toeplitz: true };
        Source { device: hinting(device), feed: Feed::Guest(path, None), hints }
    }

    pub(crate) fn tap(_packets: &Packets) -> Source {
        Source::enter_namespace();
        let tap = Tap::new(&tap::Options::new("hint0")).unwrap();
        let hints = Expected { tags: true, toeplitz: true };
        Source { device: hinting(tap), feed: Source::packet_far("hint0"), hints }
    }

    pub(crate) fn packet(_packets: &Packets) -> Source {
        Source::enter_namespace().run(VETH).unwrap();
        Source::set_up();
        let options = packet::Options { promiscuous: true, ..packet::Options::new("hint0") };
        let hints = Expected { tags: true, toeplitz: true };
        let device = hinting(Packet::new(&options).unwrap());
        Source { device, feed: Source::packet_far("hint1"), hints }
    }

    /// Hash and timestamp are the kernel's, as far as veth has them.
    pub(crate) fn afxdp(_packets: &Packets) -> Source {
        Source::enter_namespace().run(VETH).unwrap();
        Source::set_up();
        let options =
            afxdp::Options { rx_hints: RxHintsFrom::Driver, ..afxdp::Options::new("hint0") };
        let hints = Expected { tags: true, toeplitz: false };
        let device = hinting(Afxdp::new(&options).unwrap());
        Source { device, feed: Source::packet_far("hint1"), hints }
    }

    fn packet_far(name: &str) -> Feed {
        Far::feed(Box::new(Packet::new(&packet::Options::new(name)).unwrap()))
    }

    /// Enters a network namespace in which the stack sends nothing by itself.
    fn enter_namespace() -> towpath_kernel::Namespace {
        let namespace = towpath_kernel::Namespace::new().unwrap();
        namespace.enter().unwrap();
        namespace.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1").unwrap();
        namespace
    }

    fn set_up() {
        for name in ["hint0", "hint1"] {
            let up = std::process::Command::new("ip").args(["link", "set", name, "up"]).status();
            assert!(up.unwrap().success());
        }
    }
}

/// A capture that goes with its port.
#[derive(Debug)]
struct Kept(Pcap, PathBuf);

impl Drop for Kept {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.1);
    }
}

impl Device for Kept {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn queues(&self) -> u32 {
        self.0.queues()
    }

    fn features(&self) -> towpath_engine::port::Features {
        self.0.features()
    }

    fn open_rx(
        &self,
        queue: u32,
        arena: &Arc<Arena>,
    ) -> std::io::Result<Box<dyn towpath_engine::port::Rx>> {
        self.0.open_rx(queue, arena)
    }

    fn open_tx(&self, worker: u32, arena: &Arc<Arena>) -> std::io::Result<Box<dyn Tx>> {
        self.0.open_tx(worker, arena)
    }
}

const VETH: &str = "ip link add hint0 type veth peer name hint1";
