//! UDP addresses and ports of AF_XDP sockets: which datagrams reach which socket, who may bind
//! what, and the way to destinations.

#![forbid(unsafe_code)]

mod running;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use towpath_daemon::live::Live;
use towpath_xsk::Server;
use towpath_xsk_client::protocol::{Route, UDP_REUSEPORT};
use towpath_xsk_client::{Action, Options, Socket};

use running::{start, sum, wait_for};

/// A port `a` with addresses, whose other end `b` is the network. What passes at `a` ends in a sink.
const CONFIG: &str = r#"
[[port]]
name = "a"
kind = "pair"
peer = "b"
queues = 2
mtu = 1400
upper = "host"
[[port]]
name = "b"
kind = "pair"
peer = "a"
queues = 2
[[port]]
name = "host"
kind = "sink"
[[host.interface]]
name = "a"
addresses = ["10.0.0.1", "10.0.1.1", "2001:db8::1", "fe80::1"]
[[host.route]]
to = "10.0.0.0/24"
dev = "a"
[[host.route]]
to = "10.0.1.0/24"
dev = "a"
src = "10.0.1.1"
mtu = 1300
[[host.route]]
to = "10.9.0.0/16"
via = "10.0.0.254"
dev = "a"
[[host.route]]
to = "10.8.0.0/16"
type = "unreachable"
[[host.route]]
to = "10.7.0.0/16"
dev = "b"
[[host.route]]
to = "2001:db8::/64"
dev = "a"
[[host.route]]
to = "fe80::/64"
dev = "a"
[[host.neighbour]]
address = "10.0.0.254"
dev = "a"
mac = "02:00:00:00:00:fe"
[[host.neighbour]]
address = "10.0.1.2"
dev = "a"
mac = "02:00:00:00:00:02"
[[host.neighbour]]
address = "2001:db8::2"
dev = "a"
mac = "02:00:00:00:00:06"
[[host.neighbour]]
address = "fe80::2"
dev = "a"
mac = "02:00:00:00:00:06"
"#;

/// A daemon with that configuration.
struct Scene {
    live: Live,
    _server: Server,
    path: PathBuf,
}

impl Scene {
    fn new(name: &str, config: &str) -> Scene {
        let (live, _) = start(config);
        let path = std::env::temp_dir().join(format!("udp-{name}-{}.sock", std::process::id()));
        let server = Server::start(live.xsk().sockets(), &path, 0o600).expect("there is room");
        Scene { live, _server: server, path }
    }

    fn open(&self, port: &str, queue: u32) -> Socket {
        let options = Options {
            path: self.path.clone(),
            chunks: 512,
            entries: 128,
            steer: false,
            ..Options::new(port, queue)
        };
        Socket::open(&options).expect("its queue is free")
    }

    /// The programs of port `a`, in their order.
    fn programs(&self) -> Vec<String> {
        let id = self.live.ports()["a"].id;
        self.live.engine().read(|_, snapshot| {
            let slot = snapshot.port(id).expect("it is open");
            let links = slot.rx_hook.iter().flat_map(|chain| chain.links());
            links.map(|link| link.program.name().to_owned()).collect()
        })
    }

    /// Number of frames that the host got.
    fn passed(&self) -> u64 {
        sum(&self.live, "host", |it| it.tx_packets.get())
    }
}

fn bind(socket: &Socket, address: &str, group: u64, flags: u16) -> Result<u16, i32> {
    let address: SocketAddr = address.parse().expect("an address");
    let bound = socket.connection().bind_udp(address, group, flags);
    bound.map_err(|error| error.raw_os_error().expect("the daemon's"))
}

fn route(socket: &Socket, destination: &str) -> Result<Route, i32> {
    let destination: IpAddr = destination.parse().expect("an address");
    let route = socket.connection().route(destination);
    route.map_err(|error| error.raw_os_error().expect("the daemon's"))
}

/// A frame with a datagram of one byte.
fn datagram(source: &str, destination: &str, byte: u8) -> Vec<u8> {
    let [source, destination]: [SocketAddr; 2] =
        [source, destination].map(|text| text.parse().expect("an address"));
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let udp = [source.port(), destination.port(), 9, 0].map(u16::to_be_bytes).concat();
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([8, 0, 0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0]);
            frame.extend([source.octets(), destination.octets()].concat());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 9, 17, 64]);
            frame.extend([source.octets(), destination.octets()].concat());
        }
        _ => panic!("two families"),
    }
    frame.extend(udp);
    frame.push(byte);
    frame
}

fn send(socket: &mut Socket, frames: &[Vec<u8>]) {
    for frame in frames {
        assert!(socket.send(frame), "there is room");
    }
    socket.kick().expect("the daemon is there");
}

/// The last bytes of the frames that a socket received so far.
fn received(socket: &mut Socket) -> Vec<u8> {
    let mut bytes = Vec::new();
    socket.receive(usize::MAX, |frame, _| {
        bytes.extend(frame.last());
        Action::Drop
    });
    bytes
}

#[track_caller]
fn expect(socket: &mut Socket, bytes: &[u8]) {
    let (mut seen, start) = (Vec::new(), Instant::now());
    while seen.len() < bytes.len() {
        seen.extend(received(socket));
        assert!(start.elapsed() < Duration::from_secs(20), "{seen:?} of {bytes:?}");
        socket.wait(Duration::from_millis(10)).expect("the daemon is there");
    }
    assert_eq!(seen, bytes);
}

#[test]
fn datagrams_reach_the_socket_that_bound_their_address() {
    let scene = Scene::new("reach", CONFIG);
    let (mut exact, mut wild) = (scene.open("a", 0), scene.open("a", 1));
    let mut network = scene.open("b", 0);
    assert_eq!(bind(&exact, "10.0.0.1:4433", 1, 0), Ok(4433));
    assert_eq!(bind(&wild, "[::]:4433", 2, 0), Ok(4433));
    assert_eq!(bind(&wild, "10.0.0.1:4433", 1, 0), Ok(4433), "another queue of the group");
    assert_eq!(bind(&exact, "[2001:db8::1]:5000", 1, 0), Ok(5000));
    assert_eq!(scene.programs(), ["udp_steer"]);
    let to_four = |byte| datagram("10.0.0.2:9", "10.0.0.1:4433", byte);
    let others = [
        datagram("10.0.0.2:9", "10.0.0.1:4434", 100),
        datagram("10.0.0.2:9", "10.0.1.1:4433", 101),
        datagram("[2001:db8::2]:9", "[2001:db8::3]:5000", 102),
        [&to_four(103)[..12], &[8, 6], &[0; 46][..]].concat(),
    ];
    send(&mut network, &others);
    wait_for("the frames of others", || scene.passed() == 4);
    // Broken datagrams are the host's as well.
    let mut broken = vec![to_four(1); 6];
    broken[0][38..40].copy_from_slice(&[0, 7]);
    broken[1][38..40].copy_from_slice(&[0, 10]);
    broken[2][20..22].copy_from_slice(&[0x20, 0]);
    broken[3].pop();
    broken[4][0] = 3;
    broken[5][23] = 6;
    send(&mut network, &broken);
    wait_for("the broken frames", || scene.passed() == 10);
    let whole = [to_four(1), datagram("[2001:db8::2]:9", "[2001:db8::1]:5000", 2), to_four(3)];
    send(&mut network, &whole);
    expect(&mut exact, &[1, 2, 3]);
    assert_eq!(received(&mut wild), [0; 0], "its queue is another");
    assert_eq!(scene.passed(), 10);
}

#[test]
fn a_wildcard_is_for_the_hosts_addresses() {
    let scene = Scene::new("wild", CONFIG);
    let (mut socket, mut network) = (scene.open("a", 0), scene.open("b", 0));
    assert_eq!(bind(&socket, "0.0.0.0:53", 1, 0), Ok(53));
    assert_eq!(bind(&socket, "[::]:54", 1, 0), Ok(54));
    let frames = [
        datagram("10.0.0.2:9", "10.7.0.1:53", 1),
        datagram("10.0.0.2:9", "10.0.0.1:53", 2),
        datagram("10.0.0.2:9", "10.0.0.1:54", 3),
        datagram("[2001:db8::2]:9", "[2001:db8::1]:54", 4),
        datagram("[2001:db8::2]:9", "[2001:db8::1]:53", 5),
        datagram("10.0.0.2:9", "10.0.1.1:53", 6),
    ];
    send(&mut network, &frames);
    expect(&mut socket, &[2, 4, 6]);
    wait_for("the frames of others", || scene.passed() == 3);
}

#[test]
fn the_rules_of_bind_hold() {
    let scene = Scene::new("rules", CONFIG);
    let first = scene.open("a", 0);
    let second = scene.open("a", 1);
    let unbound = towpath_xsk_client::Connection::open(&scene.path).expect("it listens");
    let address = "10.0.0.1:53".parse().expect("an address");
    let error = unbound.bind_udp(address, 1, 0).expect_err("it has no port");
    assert_eq!(error.raw_os_error(), Some(ENXIO));
    let error = unbound.route("10.0.0.9".parse().expect("one")).expect_err("it has no port");
    assert_eq!(error.raw_os_error(), Some(ENXIO));
    for (text, errno) in [
        ("10.0.0.2:53", EADDRNOTAVAIL),
        ("127.0.0.1:53", EADDRNOTAVAIL),
        ("255.255.255.255:53", EADDRNOTAVAIL),
        ("224.0.0.1:53", EADDRNOTAVAIL),
        ("[ff02::1]:53", EADDRNOTAVAIL),
        ("[2001:db8::9]:53", EADDRNOTAVAIL),
    ] {
        assert_eq!(bind(&first, text, 1, 0), Err(errno), "{text}");
    }
    assert_eq!(bind(&first, "10.0.0.1:53", 1, 2), Err(EINVAL), "an unknown flag");
    assert_eq!(scene.programs(), [""; 0], "nothing is bound");
    assert_eq!(bind(&first, "10.0.0.1:53", 1, 0), Ok(53));
    assert_eq!(bind(&first, "10.0.0.1:53", 1, 0), Err(EADDRINUSE));
    assert_eq!(bind(&second, "10.0.0.1:53", 2, 0), Err(EADDRINUSE));
    assert_eq!(bind(&second, "0.0.0.0:53", 2, UDP_REUSEPORT), Err(EADDRINUSE));
    let chosen = bind(&first, "10.0.0.1:0", 1, 0).expect("a port is free");
    assert!((32768..=60999).contains(&chosen), "{chosen}");
    assert_eq!(bind(&second, &format!("10.0.0.1:{chosen}"), 1, 0), Ok(chosen));
    let ended = |socket: &Socket, text: &str| {
        let ended = socket.connection().unbind_udp(text.parse().expect("an address"));
        ended.map_err(|error| error.raw_os_error().expect("the daemon's"))
    };
    assert_eq!(ended(&second, "10.0.0.1:53"), Err(ENOENT));
    assert_eq!(ended(&first, "10.0.0.1:53"), Ok(()));
    assert_eq!(bind(&second, "10.0.0.1:53", 2, 0), Ok(53));
    // A socket that goes frees its ports, and the last one the program.
    drop(second);
    wait_for("the port", || bind(&first, "10.0.0.1:53", 3, 0) == Ok(53));
    assert_eq!(scene.programs(), ["udp_steer"]);
    drop(first);
    wait_for("the end of the program", || scene.programs().is_empty());
}

#[test]
fn sockets_that_share_a_port_share_its_flows() {
    let scene = Scene::new("share", CONFIG);
    let (mut one, mut network) = (scene.open("a", 0), scene.open("b", 0));
    let other = scene.open("a", 1);
    assert_eq!(bind(&one, "10.0.0.1:53", 1, UDP_REUSEPORT), Ok(53));
    assert_eq!(bind(&other, "10.0.0.1:53", 2, UDP_REUSEPORT), Ok(53));
    assert_eq!(bind(&other, "10.0.0.1:53", 3, 0), Err(EADDRINUSE));
    // Only sockets of the frame's queue can have it.
    let frames: Vec<_> =
        (0..20).map(|n| datagram(&format!("10.0.0.2:{}", 1000 + n), "10.0.0.1:53", n)).collect();
    send(&mut network, &frames);
    expect(&mut one, &(0..20).collect::<Vec<u8>>());
}

#[test]
fn routes_are_those_of_the_hosts_tables() {
    let scene = Scene::new("routes", CONFIG);
    let socket = scene.open("a", 0);
    let mac = scene.live.engine().read(|_, snapshot| {
        let slot = snapshot.port(scene.live.ports()["a"].id).expect("it is open");
        slot.opened.device.mac()
    });
    let found = |destination: &str| {
        let route = route(&socket, destination).map(|route| {
            assert_eq!(route.source_mac, mac);
            (route.next_hop_mac[5], route.mtu, route.source.to_string())
        });
        route.map_err(|errno| (destination.to_owned(), errno))
    };
    let ok = |mac, mtu, source: &str| Ok((mac, mtu, source.to_owned()));
    assert_eq!(found("10.0.1.2"), ok(2, 1300, "10.0.1.1"));
    assert_eq!(found("10.9.1.1"), ok(0xfe, 1400, "10.0.0.1"), "by a router");
    assert_eq!(found("2001:db8::2"), ok(6, 1400, "2001:db8::1"));
    assert_eq!(found("fe80::2"), ok(6, 1400, "fe80::1"));
    for (destination, errno) in [
        ("10.0.0.1", EOPNOTSUPP),
        ("127.0.0.1", EOPNOTSUPP),
        ("10.0.0.7", EHOSTUNREACH),
        ("10.8.0.1", EHOSTUNREACH),
        ("10.7.0.1", ENETUNREACH),
        ("192.0.2.1", ENETUNREACH),
        ("255.255.255.255", ENETUNREACH),
        ("224.0.0.1", ENETUNREACH),
        ("ff02::1", ENETUNREACH),
        ("0.0.0.0", ENETUNREACH),
    ] {
        assert_eq!(found(destination), Err((destination.to_owned(), errno)));
    }
}

const ENOENT: i32 = 2;
const ENXIO: i32 = 6;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;
const EADDRINUSE: i32 = 98;
const EADDRNOTAVAIL: i32 = 99;
const ENETUNREACH: i32 = 101;
const EHOSTUNREACH: i32 = 113;
