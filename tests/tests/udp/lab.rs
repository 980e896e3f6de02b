//! Two hosts, and a daemon's engine at the near one.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::live::Live;
use towpath_kernel::Namespace;
use towpath_udp::{Options, RxDatagram, TxDatagram, UdpSocket as TowpathSocket, UdpStack};
use towpath_xsk::Server;

use crate::kernel::Kernel;

/// The hosts. The thread that made them is in the near one.
pub(crate) struct Lab {
    // The server goes before its engine, and ports before their namespaces.
    _server: Server,
    live: Live,
    path: PathBuf,
    pub(crate) far: Namespace,
    pub(crate) near: Namespace,
}

/// A datagram as both ends describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) payload: Vec<u8>,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) ecn: u8,
}

impl Lab {
    /// Two joined hosts; `None`, after a message, if this machine cannot have them.
    pub(crate) fn new() -> Option<Lab> {
        Lab::with("")
    }

    /// The same, with further keys of the port.
    pub(crate) fn with(keys: &str) -> Option<Lab> {
        Lab::with_queues(1, keys)
    }

    /// The same, whose port has this number of queues.
    pub(crate) fn with_queues(queues: u32, keys: &str) -> Option<Lab> {
        if let Some(why) = unavailable() {
            eprintln!("skipped: {why}");
            return None;
        }
        let (far, near) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        near.enter().unwrap();
        let run = |host: &Namespace, line: &str| drop(host.run(line).unwrap());
        let count = format!("numtxqueues {queues} numrxqueues {queues}");
        let peer = format!("peer name near netns {} {count}", near.path());
        run(&far, &format!("ip link add far {count} type veth {peer}"));
        // The port cannot complete checksums that the far host leaves to the veth.
        run(&far, "ethtool -K far tx off");
        run(&far, "ip link set far up");
        run(&near, "ip link set near up");
        let (live, path) = (start(keys), path());
        let server = Server::start(live.xsk().sockets(), &path, 0o600).unwrap();
        run(&near, "ip link set stack0 up");
        for (host, device, addresses) in [(&far, "far", FAR), (&near, "stack0", NEAR)] {
            for address in addresses {
                let length = if address.contains(':') { "64 nodad" } else { "24" };
                run(host, &format!("ip addr add {address}/{length} dev {device}"));
            }
        }
        let lab = Lab { _server: server, live, path, far, near };
        // The daemon hears of addresses a moment later.
        let stack = lab.stack();
        for address in NEAR {
            wait_for(address, || stack.bind(at(address, 0)).is_ok());
        }
        Some(lab)
    }

    /// The same as [`Lab::with`], whose hosts know each other's Ethernet addresses.
    pub(crate) fn acquainted(keys: &str) -> Option<Lab> {
        Lab::acquainted_with_queues(1, keys)
    }

    pub(crate) fn acquainted_with_queues(queues: u32, keys: &str) -> Option<Lab> {
        let lab = Lab::with_queues(queues, keys)?;
        for address in FAR {
            wait_for("answer", || lab.near.run(&format!("ping -c 1 -W 2 {address}")).is_ok());
        }
        for address in NEAR {
            wait_for("answer", || lab.far.run(&format!("ping -c 1 -W 2 {address}")).is_ok());
        }
        Some(lab)
    }

    /// An application.
    pub(crate) fn stack(&self) -> UdpStack {
        UdpStack::open(&self.options()).unwrap()
    }

    pub(crate) fn options(&self) -> Options {
        Options { path: self.path.clone(), ..Options::new("p0") }
    }

    /// A socket of the kernel at the far end.
    pub(crate) fn kernel(&self, address: &str) -> Kernel {
        Kernel::new(self.far_socket(address))
    }

    /// A plain socket of the kernel at the far end.
    pub(crate) fn far_socket(&self, address: &str) -> UdpSocket {
        socket_in(&self.far, address)
    }
}

/// A socket of the kernel in a network namespace.
pub(crate) fn socket_in(host: &Namespace, address: &str) -> UdpSocket {
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            host.enter().unwrap();
            UdpSocket::bind(address).unwrap()
        });
        made.join().unwrap()
    })
}

impl Drop for Lab {
    fn drop(&mut self) {
        let sums = self.live.engine().conservation();
        if !std::thread::panicking() {
            return assert_eq!(sums.missing(), 0, "{sums:?}");
        }
        // Where something was lost.
        eprintln!("{sums:?}");
        for name in ["p0", "stack0"] {
            let port = self.live.ports().get(name).map(|port| port.id);
            let slot = port.and_then(|port| self.live.engine().port(port));
            if let Some(slot) = slot {
                eprintln!("{name}: {:?} {:?}", slot.opened.device.details(), slot.opened.counters);
            }
        }
        for socket in self.live.xsk().sockets().all() {
            eprintln!("{:?}", socket.statistics());
        }
        for (host, device) in [(&self.far, "far"), (&self.near, "near")] {
            eprintln!("{}", host.run(&format!("ip -s -s link show {device}")).unwrap_or_default());
        }
    }
}

impl Datagram {
    pub(crate) fn of(datagram: &RxDatagram<'_>) -> Datagram {
        let RxDatagram { payload, source, destination, ecn, .. } = *datagram;
        Datagram { payload: payload.to_vec(), source, destination, ecn }
    }

    pub(crate) fn to_send(&self) -> TxDatagram<'_> {
        TxDatagram {
            source: Some(self.source.ip()),
            ecn: self.ecn,
            ..TxDatagram::new(&self.payload, self.destination)
        }
    }
}

/// Sends datagrams, however full the ring is.
pub(crate) fn send_all(socket: &TowpathSocket, mut datagrams: &[TxDatagram<'_>]) {
    while !datagrams.is_empty() {
        match socket.send_batch(datagrams) {
            Ok(count) => datagrams = &datagrams[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                assert!(socket.wait_send(Some(PATIENCE)).unwrap(), "there is no room");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Has the socket's application find the way to a far socket. What is sent before it is known waits
/// and may be overtaken.
pub(crate) fn find_way(socket: &TowpathSocket, there: &Kernel, address: &str) {
    send_all(socket, &[TxDatagram::new(b"first", at(address, there.port()))]);
    assert_eq!(there.receive(1)[0].payload, b"first");
}

/// Receives this number of datagrams.
#[track_caller]
pub(crate) fn receive(socket: &TowpathSocket, count: usize) -> Vec<Datagram> {
    let mut received = Vec::new();
    while received.len() < count {
        let seen = socket.recv_batch(64, |datagram| received.push(Datagram::of(datagram)));
        if seen == 0 {
            let is_there = socket.wait_recv(Some(PATIENCE)).unwrap();
            let statistics = socket.stack().statistics();
            assert!(is_there, "{} of {count}, {statistics:?}", received.len());
        }
    }
    received
}

#[track_caller]
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "no {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), port)
}

pub(crate) fn errno(error: &std::io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(error).unwrap()
}

/// A number from the environment.
pub(crate) fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn start(keys: &str) -> Live {
    let objects = Arc::<ObjectFiles>::default();
    let text = format!("{CONFIG}{keys}\n");
    let loaded = parse(&text, Path::new("udp.toml"), Path::new("."), &objects).unwrap();
    let mut live = Live::start(&loaded.state, objects, Arc::default()).unwrap();
    let report = live.reconcile(&loaded.state);
    assert_eq!(report.failures, [], "{report:?}");
    live
}

fn path() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("udp-{}-{number}.sock", std::process::id()))
}

pub(crate) fn unavailable() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root".to_owned());
    }
    let is_there = |tool: &&str| {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).any(|path| path.join(tool).exists())
    };
    let tools = ["ip", "ethtool", "ping", "nsenter", "setpriv"];
    let missing = tools.into_iter().find(|tool| !is_there(tool));
    missing.map(|tool| format!("{tool} is missing: scripts/install-deps.sh net"))
}

/// Addresses of the near host.
pub(crate) const NEAR: [&str; 4] = ["10.77.0.2", "10.77.0.3", "2001:db8:77::2", "2001:db8:77::3"];
/// Addresses of the far host.
pub(crate) const FAR: [&str; 4] = ["10.77.0.1", "10.77.0.11", "2001:db8:77::1", "2001:db8:77::11"];
/// Longer than any event takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const CONFIG: &str = r#"
[[port]]
name = "p0"
kind = "afxdp"
interface = "near"
shadow = "stack0"
"#;
