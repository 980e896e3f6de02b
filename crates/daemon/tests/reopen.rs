//! Devices that are opened again under load: by each key and of each kind. Ports stay what they
//! were, frames in between are dropped as for a port that is down, and all are accounted for.
//!
//! `TOWPATH_REOPENS=1000 cargo test -p towpath-daemon --test reopen` does so often.

#![expect(clippy::print_stdout, reason = "it says why it is skipped")]

mod running;

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use towpath_daemon::State;
use towpath_daemon::live::Live;
use towpath_daemon::state::PortState;
use towpath_engine::UpperName;
use towpath_engine::counters::DropReason;

use running::{start, sum, wait_for};

/// A port that is opened again and again, and a change that makes it so.
struct Case {
    port: &'static str,
    key: &'static str,
    values: [Value; 2],
}

fn case(port: &'static str, key: &'static str, one: Value, other: Value) -> Case {
    Case { port, key, values: [one, other] }
}

impl Case {
    fn apply(&self, state: &mut State, round: usize) {
        let port = state.ports.iter_mut().find(|it| it.name == self.port).expect("it is there");
        let value = self.values[round % 2].clone();
        match self.key {
            "record" => port.record = value.as_str().map(str::to_owned),
            "trace" => port.trace = value.as_str().map(str::to_owned),
            "workers" => port.workers = vec![value.as_u64().unwrap_or_default() as usize],
            "limit" => port.limit = serde_json::from_value(value).expect("a limit"),
            "fault" => port.fault = serde_json::from_value(value).expect("faults"),
            "mtu" => port.mtu = value.as_u64().map(|mtu| mtu as u32),
            key if value.is_null() => drop(port.options.remove(key)),
            key => drop(port.options.insert(key.to_owned(), value)),
        }
    }
}

/// A generator below each port: what it makes goes to that.
fn sources(ports: &[&str]) -> String {
    let source = |port: &&str| {
        format!(
            "[[port]]\nname = \"to-{port}\"\nkind = \"generator\"\nrate = 20000\nburst = 32\n\
             frames = [\"02000000000202000000000108000000000000000000000000000000\"]\n\
             upper = \"{port}\"\n"
        )
    };
    ports.iter().map(source).collect()
}

fn rounds() -> usize {
    std::env::var("TOWPATH_REOPENS").ok().and_then(|it| it.parse().ok()).unwrap_or(10)
}

/// Opens each case's port again and again; then all of them must still be what they were.
fn reopen(text: &str, ports: &[&str], cases: &[Case]) {
    let (mut live, mut state) = start(&format!("{text}{}", sources(ports)));
    let uppers = uppers(&live);
    for case in cases {
        for round in 0..rounds() {
            case.apply(&mut state, round);
            let report = live.reconcile(&state);
            assert_eq!(report.failures, [], "{} {}: {report:?}", case.port, case.key);
        }
        assert_eq!(self::uppers(&live), uppers, "{} {}", case.port, case.key);
        let report = live.reconcile(&state);
        assert!(report.changes.is_empty(), "{} {}: {report:?}", case.port, case.key);
    }
    ports.iter().for_each(|port| wait_for_frames(&live, port));
    live.stop();
    for port in ports {
        let from = format!("to-{port}");
        assert_eq!(
            sum(&live, &from, |it| it.drops[DropReason::NoUpper as usize].get()),
            0,
            "{port}"
        );
    }
    let sum = live.engine().conservation();
    assert_eq!((sum.missing(), sum.in_flight), (0, 0), "{sum:?}");
}

/// The upper of each port.
fn uppers(live: &Live) -> Vec<(String, UpperName)> {
    live.engine().read(|config, _| {
        let upper = |(name, port): (&String, &towpath_daemon::live::LivePort)| {
            (name.clone(), config.upper(port.id).expect("it is open").clone())
        };
        live.ports().iter().map(upper).collect()
    })
}

/// Frames sent to a port leave through it, or through a port below it.
fn wait_for_frames(live: &Live, port: &str) {
    let from = format!("to-{port}");
    let sent = || {
        let made = sum(live, &from, |it| it.rx_packets.get());
        let lost = sum(live, &from, |it| it.drops.iter().map(|drop| drop.get()).sum());
        let down = sum(live, port, |it| it.tx_drops[DropReason::Down as usize].get());
        made.saturating_sub(lost + down)
    };
    let (before, start) = (sent(), Instant::now());
    while sent() < before + 100 {
        assert!(start.elapsed() < Duration::from_secs(10), "nothing goes to {port}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn file(name: &str) -> Value {
    let path = std::env::temp_dir().join(format!("towpath-{name}-{}", std::process::id()));
    json!(path.to_str().expect("a name of ours"))
}

#[test]
fn ports_in_the_process_stay_what_they_are() {
    let out = file("reopen-out");
    let text = format!(
        "[[worker]]\n[[worker]]\n\
         [[bridge]]\nname = \"br\"\n\
         [[port]]\nname = \"a\"\nkind = \"pair\"\npeer = \"b\"\n\
         [[port]]\nname = \"b\"\nkind = \"pair\"\npeer = \"a\"\nupper = \"br\"\n\
         [[port]]\nname = \"sink\"\nkind = \"sink\"\n\
         [[port]]\nname = \"low\"\nkind = \"sink\"\nupper = \"br\"\n\
         [[port]]\nname = \"out\"\nkind = \"pcap\"\nout = {out}\n"
    );
    let frame = "02000000000202000000000108000000000000000000000000000000";
    let cases = [
        case("sink", "trace", file("reopen-trace"), Value::Null),
        case("sink", "record", file("reopen-record"), Value::Null),
        case("sink", "workers", json!(0), json!(1)),
        case("sink", "mtu", json!(1400), Value::Null),
        case("a", "ring", json!(512), json!(1024)),
        case("a", "queues", json!(2), json!(1)),
        case("b", "mac", json!("02:00:00:00:00:07"), json!("02:00:00:00:00:08")),
        case("b", "fault", json!({"loss": 0.1}), Value::Null),
        case("a", "limit", json!({"rx": 10_000_000}), Value::Null),
        case("out", "out", file("reopen-other"), out.clone()),
        case("to-sink", "rate", json!(30000), json!(20000)),
        case("to-a", "frames", json!([frame, frame]), json!([frame])),
        case("low", "trace", file("reopen-trace"), Value::Null),
    ];
    reopen(&text, &["a", "sink", "out"], &cases);
    for name in ["out", "trace", "record", "other"] {
        let path = file(&format!("reopen-{name}"));
        let _there = std::fs::remove_file(path.as_str().expect("a path"));
    }
}

#[test]
fn bonds_and_their_members_stay_what_they_are() {
    let mut text = "[[worker]]\n[[worker]]\n".to_owned();
    for (one, other) in [("a0", "b0"), ("b0", "a0"), ("a1", "b1"), ("b1", "a1")] {
        text += &format!("[[port]]\nname = \"{one}\"\nkind = \"pair\"\npeer = \"{other}\"\n");
    }
    text += "[[port]]\nname = \"bond\"\nkind = \"bond\"\nmembers = [\"a0\", \"a1\"]\n\
             miimon = 10\n";
    let cases = [
        case("bond", "mac", json!("02:00:00:00:00:07"), Value::Null),
        case("a0", "ring", json!(512), json!(1024)),
        case("a1", "trace", file("reopen-member"), Value::Null),
        case("b0", "queues", json!(2), json!(1)),
    ];
    reopen(&text, &["bond"], &cases);
    let _there = std::fs::remove_file(file("reopen-member").as_str().expect("a path"));
}

/// A network namespace of the host's, which goes with this.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> Option<Namespace> {
        if !rustix::process::geteuid().is_root() || !std::fs::exists("/dev/net/tun").ok()? {
            println!("skipped: network namespaces and taps need root and /dev/net/tun");
            return None;
        }
        let name = format!("towpath-{name}-{}", std::process::id());
        run(&["netns", "add", &name]);
        Some(Namespace(name))
    }

    fn run(&self, arguments: &[&str]) {
        run(&[&["-n", &self.0], arguments].concat());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        run(&["netns", "del", &self.0]);
    }
}

fn run(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).status().expect("iproute2 is installed");
    assert!(done.success(), "ip {arguments:?}");
}

#[test]
fn interfaces_of_the_host_stay_what_they_are() {
    let Some(namespace) = Namespace::new("reopen") else { return };
    let netns = &namespace.0;
    for number in ["0", "1"] {
        let (near, far) = (format!("near{number}"), format!("far{number}"));
        namespace.run(&["link", "add", &near, "type", "veth", "peer", "name", &far]);
        namespace.run(&["link", "set", &near, "up"]);
        namespace.run(&["link", "set", &far, "up"]);
    }
    let text = format!(
        "[[worker]]\n[[worker]]\n\
         [[port]]\nname = \"tap\"\nkind = \"tap\"\nnetns = \"{netns}\"\n\
         [[port]]\nname = \"near0\"\nkind = \"packet\"\nnetns = \"{netns}\"\nupper = \"tap\"\n\
         [[port]]\nname = \"near1\"\nkind = \"afxdp\"\nnetns = \"{netns}\"\nupper = \"tap\"\n"
    );
    let cases = [
        case("tap", "queues", json!(2), json!(1)),
        case("tap", "mac", json!("02:00:00:00:00:07"), json!("02:00:00:00:00:08")),
        case("tap", "trace", file("reopen-host"), Value::Null),
        case("near0", "queues", json!(2), json!(1)),
        case("near0", "ring_bytes", json!(1 << 20), json!(2 << 20)),
        case("near1", "rx_ring", json!(1024), json!(2048)),
        case("near1", "attach", json!("generic"), json!("auto")),
        case("near1", "trace", file("reopen-host"), Value::Null),
    ];
    reopen(&text, &["tap", "near0", "near1"], &cases);
    let _there = std::fs::remove_file(file("reopen-host").as_str().expect("a path"));
}

/// The next reconciliation undoes changes that were made directly in the engine.
#[test]
fn what_the_engine_says_counts() {
    let text = "[[bridge]]\nname = \"br\"\n\
                [[port]]\nname = \"one\"\nkind = \"sink\"\nupper = \"two\"\nmtu = 1400\n\
                [[port]]\nname = \"two\"\nkind = \"sink\"\nupper = \"br\"\n";
    let (mut live, state) = start(text);
    let before = uppers(&live);
    let id = live.ports()["one"].id;
    let changed = live.engine().change(|config| {
        config.set_upper(id, UpperName::None)?;
        config.set_mtu(id, Some(100))?;
        config.set_linearize(id, false)?;
        config.set_up(id, false)
    });
    changed.expect("the port is there");
    let report = live.reconcile(&state);
    let told = ["upper is two", "mtu is 1400", "linearize is on", "up"];
    assert_eq!(report.changes, told.map(|what| format!("port one: {what}")));
    assert_eq!(uppers(&live), before);
    assert!(live.reconcile(&state).changes.is_empty());
}

/// A port that cannot be opened again is down, and is not forgotten.
#[test]
fn a_port_that_cannot_be_opened_again_waits() {
    let text = "[[port]]\nname = \"one\"\nkind = \"sink\"\n";
    let (mut live, mut state) = start(&format!("{text}{}", sources(&["one"])));
    let port = |state: &mut State, trace: &str| {
        let port: &mut PortState = &mut state.ports[0];
        port.trace = Some(trace.to_owned());
    };
    port(&mut state, "/nowhere/at/all");
    for _ in 0..2 {
        let report = live.reconcile(&state);
        assert_eq!(report.failures.len(), 1, "{report:?}");
        assert!(report.failures[0].why.contains("/nowhere/at/all"), "{report:?}");
    }
    let down = || sum(&live, "one", |it| it.tx_drops[DropReason::Down as usize].get());
    let before = down();
    wait_for("frame that finds the port down", || down() > before);
    state.ports[0].trace = None;
    let report = live.reconcile(&state);
    assert_eq!(report.failures, []);
    wait_for_frames(&live, "one");
}
