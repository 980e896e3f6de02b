//! Port kinds under test: how each gets at a host's stack.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towpath_engine::port::{Device, Features, Rx, Tx};
use towpath_ports::afxdp::{self, Afxdp, Attach, PeerOffloads};
use towpath_ports::packet::{self, Packet};
use towpath_ports::tap::{self, Tap};
use towpath_xdp::Arena;

use crate::namespace::{Background, Namespace};

/// The connection of a host.
#[derive(Debug, Clone)]
pub(crate) struct Plug {
    /// Name of the interface that the host sees.
    pub(crate) name: String,
    pub(crate) mtu: u32,
    pub(crate) queues: u32,
}

/// A port kind that can stand before a host's stack.
pub(crate) trait Kind: Sync {
    fn name(&self) -> &'static str;

    /// Makes an interface in `host` and the port that its frames come from. `wires` is where the
    /// calling thread is: for what else it takes, e.g. the other end of a veth.
    fn plug(&self, host: &Namespace, wires: &Namespace, plug: &Plug) -> Box<dyn Device>;
}

/// All kinds.
pub(crate) const ALL: &[&dyn Kind] = &[
    &TapKind,
    &PacketKind,
    &AfxdpKind("afxdp native", Attach::Native),
    &AfxdpKind("afxdp generic", Attach::Generic),
];

/// A tap that is said to take neither large packets nor frames to be summed: the engine cuts and
/// sums, and a real stack is the judge.
pub(crate) const CUT: &dyn Kind = &CutKind;

struct CutKind;

impl Kind for CutKind {
    fn name(&self) -> &'static str {
        "tap without offloads"
    }

    fn plug(&self, host: &Namespace, wires: &Namespace, plug: &Plug) -> Box<dyn Device> {
        Box::new(Cut(TapKind.plug(host, wires, plug)))
    }
}

#[derive(Debug)]
struct Cut(Box<dyn Device>);

impl Device for Cut {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn queues(&self) -> u32 {
        self.0.queues()
    }

    fn features(&self) -> Features {
        Features { rx_frags: true, ..Features::default() }
    }

    fn mtu(&self) -> u32 {
        self.0.mtu()
    }

    fn open_rx(&self, queue: u32, arena: &Arc<Arena>) -> std::io::Result<Box<dyn Rx>> {
        self.0.open_rx(queue, arena)
    }

    fn open_tx(&self, worker: u32, arena: &Arc<Arena>) -> std::io::Result<Box<dyn Tx>> {
        self.0.open_tx(worker, arena)
    }
}

/// A tap in the host.
struct TapKind;

impl Kind for TapKind {
    fn name(&self) -> &'static str {
        "tap"
    }

    fn plug(&self, host: &Namespace, _wires: &Namespace, plug: &Plug) -> Box<dyn Device> {
        let options = tap::Options {
            mtu: plug.mtu,
            queues: plug.queues,
            netns: Some(host.path()),
            ..tap::Options::new(&plug.name)
        };
        Box::new(Tap::new(&options).unwrap())
    }
}

/// Ports of kind `packet`, each on one end of a veth whose other end is the host's.
struct PacketKind;

impl Kind for PacketKind {
    fn name(&self) -> &'static str {
        "packet"
    }

    fn plug(&self, host: &Namespace, wires: &Namespace, plug: &Plug) -> Box<dyn Device> {
        let name = veth(host, wires, plug);
        let options = packet::Options { queues: plug.queues, ..packet::Options::new(&name) };
        Box::new(Packet::new(&options).unwrap())
    }
}

/// As [`PacketKind`], through AF_XDP, in the driver or behind it.
struct AfxdpKind(&'static str, Attach);

impl Kind for AfxdpKind {
    fn name(&self) -> &'static str {
        self.0
    }

    fn plug(&self, host: &Namespace, wires: &Namespace, plug: &Plug) -> Box<dyn Device> {
        let name = veth(host, wires, plug);
        // AF_XDP has no offloads: the host must set checksums and tags itself.
        host.run(&format!("ethtool -K {} tx off txvlan off", plug.name));
        let options = afxdp::Options {
            netns: Some(wires.path()),
            attach: self.1,
            ..afxdp::Options::new(&name)
        };
        Box::new(Afxdp::new(&options).unwrap())
    }
}

/// The same over a veth as it comes: its other end leaves checksums to the device, unless the port
/// sees to it. It finds that end where a process is, as in a container.
pub(crate) struct PlainVeth {
    offloads: PeerOffloads,
    processes: Mutex<Vec<Background>>,
}

impl PlainVeth {
    pub(crate) fn new(offloads: PeerOffloads) -> PlainVeth {
        PlainVeth { offloads, processes: Mutex::default() }
    }

    fn populate(&self, host: &Namespace) {
        self.processes.lock().push(host.start("sleep 60"));
        let inode = |path: PathBuf| std::fs::metadata(path).ok().map(|it| it.ino());
        let wanted = inode(host.path().into());
        let is_there = || {
            let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
            processes.any(|entry| inode(entry.path().join("ns/net")) == wanted)
        };
        let end = Instant::now() + Duration::from_secs(5);
        while !is_there() {
            assert!(Instant::now() < end, "no process is in it");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Kind for PlainVeth {
    fn name(&self) -> &'static str {
        "afxdp on a plain veth"
    }

    fn plug(&self, host: &Namespace, wires: &Namespace, plug: &Plug) -> Box<dyn Device> {
        self.populate(host);
        let name = veth(host, wires, plug);
        let options = afxdp::Options {
            netns: Some(wires.path()),
            peer_offloads: self.offloads,
            ..afxdp::Options::new(&name)
        };
        let port = Afxdp::new(&options).unwrap();
        assert_eq!(port.warnings().is_empty(), self.offloads == PeerOffloads::Off, "it says so");
        Box::new(port)
    }
}

/// Makes a veth whose one end is the host's interface; gives the name of the other, in `wires`.
pub(crate) fn veth(host: &Namespace, wires: &Namespace, plug: &Plug) -> String {
    let Plug { name, mtu, queues } = plug;
    let other = format!("w{name}");
    // The end in the middle has no addresses, and says nothing on its own.
    wires.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
    let shape = format!("mtu {mtu} numtxqueues {queues} numrxqueues {queues}");
    host.run(&format!(
        "ip link add {name} {shape} type veth peer name {other} {shape} netns {}",
        wires.path()
    ));
    host.run(&format!("ip link set {name} up"));
    wires.run(&format!("ip link set {other} up"));
    other
}
