//! UDP addresses and ports of AF_XDP sockets: which datagrams reach which socket, who may bind
//! what, and the way to destinations.

#![forbid(unsafe_code)]

mod namespaces;
mod running;
mod served;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use towpath_bpf::{Env, MapDef, Object};
use towpath_daemon::State;
use towpath_daemon::live::Live;
use towpath_objects::{Selector, Session};
use towpath_xsk::Server;
use towpath_xsk_client::abi::SHARE_QUEUE;
use towpath_xsk_client::protocol::{Route, ServerId, UdpBinding};
use towpath_xsk_client::{Action, Options, Socket};

use namespaces::{Namespaces, ip};
use running::{start, sum, wait_for};
use served::Served;

/// A port `a` with addresses, whose other end `b` is the network. The host is a sink.
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
    state: State,
    _server: Server,
    path: PathBuf,
}

impl Scene {
    fn new(name: &str, config: &str) -> Scene {
        let (live, state) = start(config);
        let path = std::env::temp_dir().join(format!("udp-{name}-{}.sock", std::process::id()));
        let server = Server::start(live.xsk().sockets(), &path, 0o600).expect("there is room");
        Scene { live, state, _server: server, path }
    }

    fn open(&self, port: &str, queue: u32) -> Socket {
        let options = Options {
            path: self.path.clone(),
            chunks: 512,
            entries: 128,
            steer: false,
            flags: SHARE_QUEUE,
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

fn bind(socket: &Socket, address: &str, group: u64) -> Result<u16, i32> {
    bind_as(socket, UdpBinding { group, ..binding(address) })
}

/// The address and port for one group alone.
fn binding(address: &str) -> UdpBinding {
    let address: SocketAddr = address.parse().expect("an address");
    UdpBinding { address, group: 1, shares: false, server: None }
}

fn bind_shared(socket: &Socket, address: &str, group: u64) -> Result<u16, i32> {
    bind_as(socket, UdpBinding { group, shares: true, ..binding(address) })
}

fn bind_as(socket: &Socket, binding: UdpBinding) -> Result<u16, i32> {
    let bound = socket.connection().bind_udp(binding);
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
    assert_eq!(bind(&exact, "10.0.0.1:4433", 1), Ok(4433));
    assert_eq!(bind(&wild, "[::]:4433", 2), Ok(4433));
    assert_eq!(bind(&wild, "10.0.0.1:4433", 1), Ok(4433), "another queue of the group");
    assert_eq!(bind(&exact, "[2001:db8::1]:5000", 1), Ok(5000));
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
fn other_programs_come_first_and_stay() {
    // It decides by the last byte of the destination's Ethernet address.
    let filter = "[[attach]]\nport = \"a\"\nobject = \"every_verdict.o\"\n\
                  program = \"every_verdict\"\n";
    let mut scene = Scene::new("first", &format!("{CONFIG}{filter}"));
    let (mut socket, mut network) = (scene.open("a", 0), scene.open("b", 0));
    assert_eq!(bind(&socket, "10.0.0.1:53", 1), Ok(53));
    assert_eq!(scene.programs(), ["every_verdict", "udp_steer"]);
    let to = |station: u8, byte| {
        let mut frame = datagram("10.0.0.2:9", "10.0.0.1:53", byte);
        frame[5] = station;
        frame
    };
    let (dropped, passed) = (1, 2);
    send(&mut network, &[to(dropped, 1), to(passed, 2), to(dropped, 3), to(passed, 4)]);
    expect(&mut socket, &[2, 4]);
    // A change of other programs leaves it, and no change is none.
    let state = scene.state.clone();
    let report = scene.live.reconcile(&state);
    assert_eq!((report.changes, report.failures), (vec![], vec![]));
    let without = State { attachments: Vec::new(), ..state.clone() };
    assert_eq!(scene.live.reconcile(&without).failures, []);
    assert_eq!(scene.programs(), ["udp_steer"]);
    send(&mut network, &[to(dropped, 5)]);
    expect(&mut socket, &[5]);
    assert_eq!(scene.live.reconcile(&state).failures, []);
    assert_eq!(scene.programs(), ["every_verdict", "udp_steer"]);
    // Its map is nothing that applications may change.
    let refused = network.connection().insert("udp_sockets", 0).expect_err("it isn't theirs");
    assert_eq!(refused.raw_os_error(), Some(ENOENT));
    let refused = socket.connection().insert("udp_sockets", 0).expect_err("it isn't theirs");
    assert_eq!(refused.raw_os_error(), Some(ENOENT));
    // A port that goes takes its bindings with it.
    let gone = State { ports: state.ports[2..].to_vec(), attachments: Vec::new(), ..state.clone() };
    let gone = State { host: None, ..gone };
    assert_eq!(scene.live.reconcile(&gone).failures, []);
    assert!(bind(&socket, "10.0.0.1:54", 1).is_err());
    assert_eq!(scene.live.reconcile(&state).failures, []);
    assert_eq!(scene.programs(), ["every_verdict"]);
    assert_eq!(bind(&scene.open("a", 0), "10.0.0.1:53", 2), Ok(53));
}

/// The last byte of a packet is told apart by `expect`.
#[test]
fn quic_packets_go_by_connection_id() {
    let scene = Scene::new("quic", CONFIG);
    let (mut one, mut other) = (scene.open("a", 0), scene.open("a", 0));
    let mut network = scene.open("b", 0);
    let of = |group, server| UdpBinding {
        group,
        shares: true,
        server: ServerId::new(0, server),
        ..binding("10.0.0.1:443")
    };
    assert_eq!(bind_as(&one, of(1, 1)), Ok(443));
    assert_eq!(bind_as(&other, of(2, 1)), Err(EEXIST));
    assert_eq!(bind_as(&other, of(2, 2)), Ok(443));
    let short = |server: u8, byte| quic(&[&[0x40, 7, 0, server][..], &[0; 8]].concat(), byte);
    let long = |id, byte| quic(&[&[0xc0, 0, 0, 0, 1, 8][..], &[id; 8]].concat(), byte);
    send(&mut network, &[short(1, 1), short(2, 2), short(1, 3), short(2, 4)]);
    expect(&mut one, &[1, 3]);
    expect(&mut other, &[2, 4]);
    let drain = |socket: &Socket, address: &str| {
        let drained = socket.connection().drain_udp(address.parse().expect("an address"));
        drained.map_err(|error| error.raw_os_error().expect("the daemon's"))
    };
    assert_eq!(drain(&network, "10.0.0.1:443"), Err(ENOENT));
    assert_eq!(drain(&one, "10.0.0.1:444"), Err(ENOENT));
    assert_eq!(drain(&one, "10.0.0.1:443"), Ok(()));
    let new: Vec<_> = (0..16).map(|id| long(id, id)).collect();
    send(&mut network, &new);
    send(&mut network, &[short(1, 5)]);
    expect(&mut other, &Vec::from_iter(0..16));
    expect(&mut one, &[5]);
    // The packets of a server that is gone are for the others, which can reset its connections.
    drop(one);
    wait_for("the server ID", || {
        let again = scene.open("a", 0);
        bind_as(&again, of(3, 1)) == Ok(443)
    });
    wait_for("its end", || scene.live.xsk().sockets().all().len() == 2);
    send(&mut network, &[short(1, 6)]);
    expect(&mut other, &[6]);
}

/// A frame with a QUIC packet for port 443, and a byte behind it.
fn quic(packet: &[u8], byte: u8) -> Vec<u8> {
    let mut frame = datagram("10.0.0.2:9", "10.0.0.1:443", byte);
    let more = packet.len() as u8;
    // The lengths of the IP packet and of the datagram.
    frame[17] += more;
    frame[39] += more;
    let last = frame.len() - 1;
    frame.splice(last..last, packet.iter().copied());
    frame
}

/// A client of `bpf(2)` owns the hook alone, as if nothing was bound.
#[test]
fn a_client_attaches_a_program_before_it() {
    let filter = "[[attach]]\nport = \"b\"\nobject = \"every_verdict.o\"\n\
                  program = \"every_verdict\"\n";
    let mut scene = Scene::new("client", &format!("{CONFIG}{filter}"));
    let mut socket = scene.open("a", 0);
    let mut network = scene.open("b", 0);
    assert_eq!(bind(&socket, "10.0.0.1:53", 1), Ok(53));
    let (program, ifindex) = (scene.live.links()[0].program, scene.live.ports()["a"].ifindex);
    let mut session = Session::new(scene.live.registry(), 0);
    session.set_xdp(ifindex, Some(&Selector::Id(program)), XDP_FLAGS_DRV_MODE).expect("it is free");
    assert_eq!(scene.programs(), ["every_verdict", "udp_steer"]);
    let state = scene.state.clone();
    let report = scene.live.reconcile(&state);
    assert_eq!((report.changes, report.failures), (vec![], vec![]));
    assert_eq!(scene.programs(), ["every_verdict", "udp_steer"]);
    let mut passed = datagram("10.0.0.2:9", "10.0.0.1:53", 2);
    passed[5] = 2;
    send(&mut network, &[datagram("10.0.0.2:9", "10.0.0.1:53", 1), passed]);
    expect(&mut socket, &[2]);
    let mut session = Session::new(scene.live.registry(), 0);
    session.set_xdp(ifindex, None, XDP_FLAGS_DRV_MODE).expect("it was attached");
    assert_eq!(scene.programs(), ["udp_steer"]);
}

#[test]
fn the_api_lists_addresses() {
    let served = Served::start("udp-api", CONFIG);
    let path = served.dir.join("api.sock.xsk");
    let socket = Socket::open(&Options { steer: false, path, ..Options::new("a", 0) });
    let socket = socket.expect("its queue is free");
    assert_eq!(bind(&socket, "10.0.0.1:53", 1), Ok(53));
    assert_eq!(bind(&socket, "[::]:53", 1), Ok(53));
    let shown = served.get("/v1/xsk")["sockets"][0].clone();
    assert_eq!(shown["udp"], serde_json::json!(["10.0.0.1:53", "[::]:53"]), "{shown}");
    assert_eq!(shown["maps"], serde_json::json!([]), "{shown}");
    served.end();
}

#[test]
fn many_ports_are_bound_quickly_and_freed_at_once() {
    let scene = Scene::new("many", CONFIG);
    let socket = scene.open("a", 0);
    let start = Instant::now();
    let first = bind(&socket, "10.0.0.1:1", 1);
    let loaded = start.elapsed();
    assert_eq!(first, Ok(1));
    let bound = (2..10_000).filter(|port| bind(&socket, &format!("10.0.0.1:{port}"), 1).is_ok());
    assert_eq!(bound.count(), 4095, "there is a limit");
    assert_eq!(bind(&socket, "10.0.0.1:9999", 1), Err(ENOBUFS));
    println!("the first bound in {loaded:?}, all in {:?}", start.elapsed());
    drop(socket);
    wait_for("the end of the program", || scene.programs().is_empty());
    let again = scene.open("a", 0);
    assert_eq!(bind(&again, "10.0.0.1:9999", 1), Ok(9999));
}

#[test]
fn the_built_in_program_is_what_its_source_says() {
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !has("clang-19") || !has("llvm-strip") {
        return println!("skipped: no clang-19 or llvm-strip (scripts/install-deps.sh test)");
    }
    let out = std::env::temp_dir().join(format!("udp-steer-{}", std::process::id()));
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut script = Command::new(format!("{top}/scripts/build-programs.sh"));
    script.args(["--clang", "clang-19", "--ship", "--out"]).arg(&out).arg("udp_steer");
    let made = script.output().expect("there is a shell");
    assert!(made.status.success(), "{made:?}");
    let parts = |bytes: &[u8]| {
        let object = Object::open(bytes, "udp_steer.o").expect("an object");
        let linked = object.link(0, &Env::builtin()).expect("it links");
        let map = |map: &MapDef| {
            (map.name.clone(), map.kind, map.key_size, map.value_size, map.max_entries, map.flags)
        };
        (linked.insns, linked.maps.iter().map(map).collect::<Vec<_>>())
    };
    let made = std::fs::read(out.join("udp_steer.o")).expect("it was made");
    let built_in = include_bytes!("../src/live/udp/udp_steer.o");
    assert!(parts(&made) == parts(built_in), "see crates/daemon/src/live/udp/steering.rs");
    std::fs::remove_dir_all(out).expect("it was made here");
}

#[test]
fn a_wildcard_is_for_all_addresses_of_its_family() {
    let mut scene = Scene::new("wild", CONFIG);
    let (mut socket, mut network) = (scene.open("a", 0), scene.open("b", 0));
    assert_eq!(bind(&socket, "0.0.0.0:53", 1), Ok(53));
    assert_eq!(bind(&socket, "[::]:54", 1), Ok(54));
    let frames = [
        datagram("10.0.0.2:9", "10.7.0.1:53", 1),
        datagram("10.0.0.2:9", "10.0.0.1:53", 2),
        datagram("10.0.0.2:9", "10.0.0.1:54", 3),
        datagram("[2001:db8::2]:9", "[2001:db8::1]:54", 4),
        datagram("[2001:db8::2]:9", "[2001:db8::1]:53", 5),
        datagram("10.0.0.2:9", "10.0.1.1:53", 6),
    ];
    send(&mut network, &frames);
    expect(&mut socket, &[1, 2, 4, 6]);
    wait_for("the frames of others", || scene.passed() == 2);
    // It stays so with other tables: the running host has no address on this port.
    let running = State { host: None, ..scene.state.clone() };
    assert_eq!(scene.live.reconcile(&running).failures, []);
    send(&mut network, &frames[5..]);
    expect(&mut socket, &[6]);
}

#[test]
fn the_rules_of_bind_hold() {
    let scene = Scene::new("rules", CONFIG);
    let first = scene.open("a", 0);
    let second = scene.open("a", 1);
    let unbound = towpath_xsk_client::Connection::open(&scene.path).expect("it listens");
    let error = unbound.bind_udp(binding("10.0.0.1:53")).expect_err("it has no port");
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
        assert_eq!(bind(&first, text, 1), Err(errno), "{text}");
    }
    assert_eq!(scene.programs(), [""; 0], "nothing is bound");
    assert_eq!(bind(&first, "10.0.0.1:53", 1), Ok(53));
    assert_eq!(bind(&first, "10.0.0.1:53", 1), Err(EADDRINUSE));
    assert_eq!(bind(&second, "10.0.0.1:53", 2), Err(EADDRINUSE));
    assert_eq!(bind_shared(&second, "0.0.0.0:53", 2), Err(EADDRINUSE));
    let chosen = bind(&first, "10.0.0.1:0", 1).expect("a port is free");
    assert!((32768..=60999).contains(&chosen), "{chosen}");
    assert_eq!(bind(&second, &format!("10.0.0.1:{chosen}"), 1), Ok(chosen));
    let ended = |socket: &Socket, text: &str| {
        let ended = socket.connection().unbind_udp(text.parse().expect("an address"));
        ended.map_err(|error| error.raw_os_error().expect("the daemon's"))
    };
    assert_eq!(ended(&second, "10.0.0.1:53"), Err(ENOENT));
    assert_eq!(ended(&first, "10.0.0.1:53"), Ok(()));
    assert_eq!(bind(&second, "10.0.0.1:53", 2), Ok(53));
    // A socket that goes frees its ports, and the last one the program.
    drop(second);
    wait_for("the port", || bind(&first, "10.0.0.1:53", 3) == Ok(53));
    assert_eq!(scene.programs(), ["udp_steer"]);
    drop(first);
    wait_for("the end of the program", || scene.programs().is_empty());
}

#[test]
fn sockets_that_share_a_port_share_its_flows() {
    let scene = Scene::new("share", CONFIG);
    let (mut one, mut network) = (scene.open("a", 0), scene.open("b", 0));
    let other = scene.open("a", 1);
    assert_eq!(bind_shared(&one, "10.0.0.1:53", 1), Ok(53));
    assert_eq!(bind_shared(&other, "10.0.0.1:53", 2), Ok(53));
    assert_eq!(bind(&other, "10.0.0.1:53", 3), Err(EADDRINUSE));
    // Only sockets of the frame's queue can have it.
    let frames: Vec<_> =
        (0..20).map(|n| datagram(&format!("10.0.0.2:10{n}"), "10.0.0.1:53", n)).collect();
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

/// The host's stack beside sockets: a port whose network is a namespace, and whose shadow is in
/// the daemon's.
#[test]
fn the_host_and_sockets_respect_each_other() {
    let Some(namespaces) = Namespaces::new("udp") else {
        return println!("skipped: needs root and /dev/net/tun");
    };
    let near = std::fs::File::open(format!("/run/netns/{}", namespaces.near));
    let near = near.expect("it was made");
    let inside = || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(near.as_fd(), kind).expect("we are root");
        beside_the_host(&namespaces);
    };
    std::thread::scope(|scope| scope.spawn(inside).join().expect("it did not panic"));
}

fn beside_the_host(namespaces: &Namespaces) {
    namespaces.ip("link set lo up");
    let far = &namespaces.far;
    namespaces.wire("near0", "far0", "");
    let config = "[[port]]\nname = \"a\"\nkind = \"afxdp\"\ninterface = \"near0\"\nqueues = 1\n\
                  shadow = \"shadow0\"\n";
    let scene = Scene::new("stack", config);
    namespaces.ip("addr add 10.0.0.1/24 dev shadow0");
    namespaces.ip("addr add 2001:db8::1/64 dev shadow0 nodad");
    ip(&["-n", far, "addr", "add", "10.0.0.2/24", "dev", "far0"]);
    ip(&["-n", far, "addr", "add", "2001:db8::2/64", "dev", "far0", "nodad"]);
    let mut socket = scene.open("a", 0);
    wait_for("the host's addresses", || bind(&socket, "10.0.0.1:53", 1) == Ok(53));
    wait_for("the host's addresses", || bind(&socket, "[2001:db8::1]:53", 1) == Ok(53));
    both_ways(&socket);
    neighbours(namespaces, &scene, &mut socket);
}

/// Conflicts between AF_XDP sockets and those of the host.
fn both_ways(socket: &Socket) {
    let errno = |bound: std::io::Result<UdpSocket>| bound.map_err(|error| error.raw_os_error());
    for text in ["10.0.0.1:53", "0.0.0.0:53", "[2001:db8::1]:53", "[::]:53"] {
        assert_eq!(errno(UdpSocket::bind(text)).err(), Some(Some(EADDRINUSE)), "{text}");
    }
    let host = UdpSocket::bind("10.0.0.1:54").expect("it is free");
    assert_eq!(bind(socket, "10.0.0.1:54", 1), Err(EADDRINUSE));
    assert_eq!(bind_shared(socket, "0.0.0.0:54", 1), Err(EADDRINUSE));
    assert_eq!(bind(socket, "[::]:54", 1), Ok(54), "of the other family");
    drop(host);
    assert_eq!(bind(socket, "10.0.0.1:54", 1), Ok(54));
    let end = |text: &str| {
        let address = text.parse().expect("an address");
        socket.connection().unbind_udp(address).expect("it was bound");
    };
    end("10.0.0.1:54");
    UdpSocket::bind("10.0.0.1:54").expect("it is free at once");
    let chosen = bind(socket, "10.0.0.1:0", 1).expect("a port is free");
    let taken = UdpSocket::bind(("10.0.0.1", chosen));
    assert_eq!(errno(taken).err(), Some(Some(EADDRINUSE)));
    for text in [&format!("10.0.0.1:{chosen}"), "[::]:54"] {
        end(text);
    }
}

/// Neighbours that the host resolves for sockets, datagrams from them, and answers.
fn neighbours(namespaces: &Namespaces, scene: &Scene, socket: &mut Socket) {
    for (destination, source) in [("10.0.0.2", "10.0.0.1"), ("2001:db8::2", "2001:db8::1")] {
        // It is not known at first, since nobody has sent it anything.
        let mut found = route(socket, destination);
        let start = Instant::now();
        while found == Err(EAGAIN) {
            assert!(start.elapsed() < Duration::from_secs(20), "{destination} is not resolved");
            std::thread::sleep(Duration::from_millis(1));
            found = route(socket, destination);
        }
        let found = found.expect("it is a neighbour");
        assert_eq!((found.source.to_string(), found.mtu), (source.to_owned(), 1500));
        assert_eq!(route(socket, source), Err(EOPNOTSUPP));
    }
    namespaces.ip("route add 10.5.0.0/16 via 10.0.0.2 dev shadow0 mtu 1280");
    let by_router = |socket: &Socket| route(socket, "10.5.0.1").map(|route| route.mtu);
    wait_for("a new route", || by_router(socket) == Ok(1280));
    let start = Instant::now();
    loop {
        match route(socket, "10.0.0.99") {
            Err(EHOSTUNREACH) => break,
            answer => assert_eq!(answer, Err(EAGAIN)),
        }
        assert!(start.elapsed() < Duration::from_secs(60), "nobody is there");
        std::thread::sleep(Duration::from_millis(10));
    }
    let script = "import socket\nfor family, to in ((2, '10.0.0.1'), (10, '2001:db8::1')):\n \
                  sender = socket.socket(family, socket.SOCK_DGRAM)\n \
                  sender.sendto(b'hello' + bytes([family]), (to, 53))";
    ip(&["netns", "exec", &namespaces.far, "python3", "-c", script]);
    expect(socket, &[2, 10]);
    assert_eq!(scene.programs(), ["udp_steer"]);
}

const ENOENT: i32 = 2;
const ENXIO: i32 = 6;
const EAGAIN: i32 = 11;
const EEXIST: i32 = 17;
const EOPNOTSUPP: i32 = 95;
const EADDRINUSE: i32 = 98;
const EADDRNOTAVAIL: i32 = 99;
const ENETUNREACH: i32 = 101;
const ENOBUFS: i32 = 105;
const EHOSTUNREACH: i32 = 113;
const XDP_FLAGS_DRV_MODE: u32 = 4;
