//! Packets that are received where the application has them, by a daemon.
//!
//! No kernel's driver does that on a veth, so there is nothing to compare with here; that a socket
//! without copies sees what one with copies sees is what the tests compare.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use towpath_daemon::client::Client;
use towpath_xsk_client::abi::{COPY, OPTIONS, ZEROCOPY};
use towpath_xsk_client::{Action, Options, Socket};

use crate::daemon::Daemon;
use crate::packets::PATIENCE;

fn options(daemon: &Daemon, port: &str, flags: u16) -> Options {
    Options { path: daemon.sockets(), chunks: 512, entries: 256, flags, ..Options::new(port, 0) }
}

fn is_zero_copy(socket: &Socket) -> bool {
    socket.connection().get_option(OPTIONS, 4).unwrap() == [1, 0, 0, 0]
}

/// The daemon's answer at a path of its API.
fn ask(daemon: &Daemon, path: &str) -> Value {
    Client::new(&daemon.directory.join("api.sock")).unwrap().get(path).unwrap()
}

fn statistic(daemon: &Daemon, name: &str) -> u64 {
    let sockets = ask(daemon, "/v1/xsk");
    // The last one: those before it are about to go.
    sockets["sockets"].as_array().unwrap().last().unwrap()["statistics"][name].as_u64().unwrap()
}

/// Waits until all frames are accounted for.
#[track_caller]
fn check_conservation(daemon: &Daemon) {
    let until = Instant::now() + PATIENCE;
    loop {
        let missing = ask(daemon, "/v1/stats")["frames"]["missing"].as_i64().unwrap();
        // Frames that move during the count may be missing for a moment.
        if missing == 0 {
            return;
        }
        assert!(Instant::now() < until, "{missing} frames are missing");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const GENERATOR: &str = "
[[port]]
name = \"gen\"
kind = \"generator\"
rate = 50000
burst = 32
size = 200

[[port]]
name = \"a\"
kind = \"pair\"
peer = \"b\"

[[port]]
name = \"b\"
kind = \"pair\"
peer = \"a\"
";

/// Opens a socket where one that is about to go may still be.
#[track_caller]
fn open(options: &Options) -> Socket {
    let until = Instant::now() + PATIENCE;
    loop {
        match Socket::open(options) {
            Err(error) if error.raw_os_error() == Some(16) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => break opened.unwrap(),
        }
    }
}

/// Receives `count` packets, and returns them.
#[track_caller]
fn receive(socket: &mut Socket, count: usize) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let until = Instant::now() + PATIENCE;
    while packets.len() < count {
        socket.receive(64, |bytes, _| {
            packets.push(bytes.to_vec());
            Action::Drop
        });
        assert!(Instant::now() < until, "{} packets", packets.len());
    }
    packets
}

#[test]
fn who_gets_packets_without_a_copy() {
    let daemon = Daemon::start(GENERATOR);
    let refused = Socket::open(&options(&daemon, "a", ZEROCOPY)).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(95));
    assert!(!is_zero_copy(&Socket::open(&options(&daemon, "a", 0)).unwrap()));
    let mut seen = Vec::new();
    for (flags, expected) in [(ZEROCOPY, true), (0, true), (COPY, false)] {
        let mut socket = open(&options(&daemon, "gen", flags));
        assert_eq!(is_zero_copy(&socket), expected);
        seen.push(receive(&mut socket, 2000)[0].clone());
        let [without, all] = ["rx_zero_copy", "rx_packets"].map(|name| statistic(&daemon, name));
        assert!(if expected { without > 1900 } else { without == 0 }, "{without} of {all}");
    }
    assert!(seen.iter().all(|packet| *packet == seen[0]), "the same packet each time");
    check_conservation(&daemon);
}

/// Echoes leave from where they came.
#[test]
fn what_was_received_is_sent_without_a_copy() {
    let daemon = Daemon::start(GENERATOR);
    let mut socket = Socket::open(&options(&daemon, "gen", ZEROCOPY)).unwrap();
    let mut count = 0;
    let until = Instant::now() + PATIENCE;
    while count < 5000 {
        count += socket.receive(64, |_, _| Action::Send);
        socket.kick().unwrap();
        assert!(Instant::now() < until, "{count} packets");
    }
    while socket.unsent() > 0 {
        assert!(Instant::now() < until, "{} wait", socket.unsent());
    }
    let [sent, all] = ["tx_zero_copy", "tx_packets"].map(|name| statistic(&daemon, name));
    assert!(sent > 4000 && sent == all, "{sent} of {all}");
    drop(socket);
    check_conservation(&daemon);
}

/// Killed at any point, with frames in its memory on their way: nothing is lost, and the next one
/// gets the queue.
#[test]
fn applications_are_killed() {
    let daemon = Daemon::start(GENERATOR);
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..60 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut child = start_victim(&daemon);
        std::thread::sleep(Duration::from_micros(3000 + (seed >> 40) % 30_000));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut socket = open(&options(&daemon, "gen", ZEROCOPY));
    receive(&mut socket, 1000);
    drop(socket);
    check_conservation(&daemon);
}

/// Frames in its memory may still be on their way, and the application finds its descriptor at its
/// end.
#[test]
fn a_port_goes() {
    let daemon = Daemon::start(GENERATOR);
    let mut other = Socket::open(&options(&daemon, "a", 0)).unwrap();
    for flags in [ZEROCOPY, COPY] {
        let mut socket = open(&options(&daemon, "gen", flags));
        receive(&mut socket, 500);
        let client = Client::new(&daemon.directory.join("api.sock")).unwrap();
        client.send::<Value>("DELETE", "/v1/ports/gen", Default::default()).unwrap();
        let until = Instant::now() + PATIENCE;
        while socket.wait(Duration::from_millis(10)).is_ok() {
            socket.receive(64, |_, _| Action::Drop);
            assert!(Instant::now() < until, "the application is not told");
        }
        let refused = Socket::open(&options(&daemon, "gen", 0)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(19));
        check_conservation(&daemon);
        let again = serde_json::json!({"name": "gen", "kind": "generator", "rate": 50000});
        client.json::<Value>("POST", "/v1/ports", &again).unwrap();
    }
    assert!(other.send(&[1; 60]));
}

/// Whatever looks at packets before the application gets them finds them in its memory as in ours.
#[test]
fn every_consumer_takes_frames_of_every_owner() {
    let folder = std::env::temp_dir().join(format!("towpath-consumers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    let layers = [
        String::new(),
        format!("record = {:?}", file("record.pcapng")),
        format!("trace = {:?}", file("trace.txt")),
        "rx_hash = \"toeplitz\"\nrx_vlan = \"strip\"\ntimestamp = \"software\"".to_owned(),
        "fault = { corrupt = 0.3, duplicate = 0.3, reorder = 0.3, loss = 0.1 }".to_owned(),
        "limit = { rx = 40000, tx = 40000 }".to_owned(),
    ];
    for layer in &layers {
        let port = GENERATOR.replacen("size = 200", &format!("size = 200\n{layer}"), 1);
        let daemon = Daemon::start(&port);
        for flags in [ZEROCOPY, COPY] {
            // Layers that keep frames may refuse to do without copies.
            let Ok(mut socket) = Socket::open(&options(&daemon, "gen", flags)) else { continue };
            receive(&mut socket, 100);
            for query in ["capture=entry", "capture=exit", "capture=entry,exit&snaplen=60"] {
                let path = format!("/v1/ports/gen/dump?count=200&{query}");
                let dump = || {
                    Client::new(&daemon.directory.join("api.sock")).unwrap().bytes(&path).unwrap()
                };
                let bytes = std::thread::scope(|scope| {
                    let dump = scope.spawn(dump);
                    while !dump.is_finished() {
                        receive(&mut socket, 50);
                    }
                    dump.join().unwrap()
                });
                let packets = packets_of(&bytes);
                assert!(packets >= 200, "{layer}: {packets} packets of a dump with {query}");
            }
            drop(socket);
            check_conservation(&daemon);
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Enhanced packet blocks of a pcapng file.
fn packets_of(mut bytes: &[u8]) -> usize {
    const ENHANCED_PACKET: u32 = 6;
    let mut count = 0;
    while let Some((kind, rest)) = bytes.split_first_chunk::<4>() {
        let length = rest.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        count += usize::from(u32::from_le_bytes(*kind) == ENHANCED_PACKET);
        bytes = bytes.get(length.max(12)..).unwrap_or_default();
    }
    count
}

fn start_victim(daemon: &Daemon) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "zero_copy::is_killed", "--ignored"])
        .env(VICTIM, daemon.sockets())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test of its own: what [`applications_are_killed`] kills.
#[test]
#[ignore = "started by applications_are_killed"]
fn is_killed() {
    let Some(path) = std::env::var_os(VICTIM) else { return };
    let usual = Options::new("gen", 0);
    let options =
        Options { path: path.into(), chunks: 512, entries: 256, flags: ZEROCOPY, ..usual };
    loop {
        let Ok(mut socket) = Socket::open(&options) else { continue };
        for _ in 0..200 {
            socket.receive(64, |_, _| Action::Send);
            let _kicked = socket.kick();
        }
    }
}

const VICTIM: &str = "TOWPATH_TEST_VICTIM";
