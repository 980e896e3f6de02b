//! Faults outside of Towpath: each ends in an error that names it or in counted drops, other ports
//! go on, and nothing is left over.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use towpath_engine::{Engine, Options, PortOptions, UpperName};
use towpath_ports::generator::{self, Generator};

use crate::kinds::{self, Plug};
use crate::lab::{self, Lab, Plan};
use crate::namespace::Namespace;
use crate::programs::{live, set};
use crate::stacks::for_each_kind;
use crate::traffic::{datagrams, must_ping, ping};

/// Waits for something that must become true soon.
#[track_caller]
fn until(what: &str, is_true: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_interface_vanishes_and_others_go_on() {
    for_each_kind(|kind| {
        let lab = Lab::new(kind, Plan { hosts: 3, workers: 2, ..Plan::default() });
        let [a, b, c] = [0, 1, 2].map(|host| &lab.hosts[host].namespace);
        must_ping(a, "10.0.0.2", 56);
        c.run("ip link del h3");
        let has_failed = |host| lab.slot(host, |slot| slot.opened.failed.load(Ordering::Relaxed));
        until("the port notices", || has_failed(2));
        assert!(!has_failed(0) && !has_failed(1), "others are not concerned");
        must_ping(a, "10.0.0.2", 56);
        // Frames sent to the port are dropped, with a reason.
        let program = live("redirect", 2);
        set(&program, "target", 0, lab.ifindex(2));
        lab.attach(0, &program);
        assert_eq!(ping(a, "10.0.0.2", 5, 56), 0);
        let drops = lab.drops(2);
        assert!(matches!(drops[..], [("tx_error", 5..)]), "{drops:?}");
        must_ping(b, "10.0.0.2", 56);
        lab.check();
        lab.engine.remove_port(lab.hosts[2].port).unwrap();
        lab.check_conservation();
    });
}

#[test]
fn an_interface_goes_down_and_comes_back() {
    for_each_kind(|kind| {
        let lab = Lab::new(kind, Plan::default());
        let [a, b] = [0, 1].map(|host| &lab.hosts[host].namespace);
        must_ping(a, "10.0.0.2", 56);
        b.run("ip link set h2 down");
        assert_eq!(ping(a, "10.0.0.2", 3, 56), 0);
        b.run("ip link set h2 up");
        b.run("ip addr replace fd00::2/64 dev h2 nodad");
        until("pings are answered again", || ping(a, "10.0.0.2", 1, 56) == 1);
        must_ping(a, "fd00::2", 1400);
        lab.check();
    });
}

#[test]
fn a_ring_that_is_full_loses_frames_and_says_so() {
    for_each_kind(|kind| {
        let lab = Lab::new(kind, Plan::default());
        let [a, b] = [0, 1].map(|host| &lab.hosts[host].namespace);
        must_ping(a, "10.0.0.2", 56);
        let port = lab.hosts[0].port;
        // The port does not read while it is down.
        lab.engine.change(|config| config.set_up(port, false)).unwrap();
        datagrams(a, "10.0.0.2", 20_000, 1400);
        lab.engine.change(|config| config.set_up(port, true)).unwrap();
        let lost = || match kind.name() {
            // The kernel counts what a tap has no room for on the interface.
            "tap" => dropped_by_host(a),
            _ => lab.missed(0),
        };
        until("what was lost is counted", || lost() > 1000);
        must_ping(b, "10.0.0.1", 56);
        lab.check();
    });
}

/// Frames that host 1's interface could not send.
fn dropped_by_host(host: &Namespace) -> u64 {
    let text = host.run("cat /proc/net/dev");
    let line = text.lines().find_map(|line| line.trim().strip_prefix("h1:")).unwrap();
    line.split_whitespace().nth(11).unwrap().parse().unwrap()
}

#[test]
fn without_frames_nothing_is_lost_for_ever() {
    for_each_kind(|kind| {
        // Hardly more frames than the ports keep for themselves.
        let lab = Lab::with_frames(kind, Plan::default(), 64);
        let [a, b] = [0, 1].map(|host| &lab.hosts[host].namespace);
        must_ping(a, "10.0.0.2", 56);
        datagrams(a, "10.0.0.2", 5000, 1400);
        must_ping(b, "fd00::1", 1400);
        lab.check();
    });
}

/// The namespace in which a child process is to make its ports.
const CHILD: &str = "TOWPATH_NETNS_CHILD";

#[test]
fn nothing_stays_behind_after_kill_9_in_mid_traffic() {
    if let Some(why) = lab::unavailable() {
        return eprintln!("skipped: {why}");
    }
    let host = Namespace::new();
    let wires = Namespace::enter_new();
    let before = [&host, &wires].map(state);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults::ports_until_killed", "--nocapture", "--include-ignored"])
        .env(CHILD, host.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ready")), "the child made its ports");
    assert!(state(&host).contains("h1") && state(&wires).contains("wh2"));
    child.kill().unwrap();
    child.wait().unwrap();
    // Veths are the operator's: they were there before their ports and are there after them.
    for number in 2..=kinds::ALL.len() {
        host.run(&format!("ip link del h{number}"));
    }
    until("all is as it was", || [&host, &wires].map(state) == before);
}

/// Interfaces, addresses, rules and whatever else could stay.
fn state(namespace: &Namespace) -> String {
    let commands = ["ip -o link", "ip -o addr", "ip rule", "ip route show table all"];
    commands.map(|command| namespace.run(command)).concat()
}

/// The child of [`nothing_stays_behind_after_kill_9_in_mid_traffic`].
#[test]
#[ignore = "runs until it is killed"]
fn ports_until_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let host = Namespace::open(&path);
    let wires = Namespace::open("/proc/thread-self/ns/net");
    let engine = Engine::start(&Options::default()).unwrap();
    for (number, kind) in kinds::ALL.iter().enumerate() {
        let number = number + 1;
        let plug = Plug { name: format!("h{number}"), mtu: 1500, queues: 1 };
        let (device, name) = (kind.plug(&host, &wires, &plug), format!("p{number}"));
        let port = engine.add_port(PortOptions::new(&name), device).unwrap();
        let options = generator::Options {
            rate: Some(5000),
            ..generator::Options::new([&[2; 12][..], &[0x88, 0xb5], &[0; 50]].concat())
        };
        let source = Box::new(Generator::new(options).unwrap());
        let source = engine.add_port(PortOptions::new(&format!("g{number}")), source).unwrap();
        engine.change(|config| config.set_upper(source, UpperName::Named(name))).unwrap();
        let sent = || -> u64 {
            engine.read(|_, snapshot| {
                let counters = &snapshot.port(port).unwrap().opened.counters;
                counters.iter().map(|it| it.tx_packets.get()).sum()
            })
        };
        until("frames leave", || sent() > 100);
    }
    let ready = format!("ready {}\n", std::process::id());
    std::io::Write::write_all(&mut std::io::stdout(), ready.as_bytes()).unwrap();
    loop {
        std::thread::park();
    }
}
