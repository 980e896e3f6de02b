//! The daemon as people run it: started from a file, asked by verbs, changed under traffic, ended.

mod addresses;
mod bond;
mod bound;
mod bpftool;
mod bridge;
mod browser;
mod called;
mod doors;
mod dump;
mod ending;
mod front;
mod guest;
mod ike;
mod ipsec;
mod listen;
mod load_map;
mod log;
mod page;
mod pin;
mod queue;
mod refer;
mod replace;
mod restart;
mod routes;
mod run;
mod saved;
mod streams;
mod stuck;
mod tour;
mod trouble;
mod versions;
mod xsk;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Bench;

/// A daemon in a bench's directory; killed when the test ends before it.
struct Daemon<'a> {
    bench: &'a Bench,
    child: Child,
}

const SOCKET: &str = "s.sock";

/// A generator whose frames pass its program and end in a sink.
const CONFIG: &str = r#"
[[port]]
name = "gen"
kind = "generator"
rate = 20000
frames = ["02000000000202000000000108000000000000000000000000000000"]
upper = "out"

[[port]]
name = "out"
kind = "sink"

[[port]]
name = "p0"
kind = "pair"
peer = "p1"
upper = "out"

[[port]]
name = "p1"
kind = "pair"
peer = "p0"

[[attach]]
port = "gen"
object = "every_verdict.o"
program = "every_verdict"
"#;

impl<'a> Daemon<'a> {
    fn start(bench: &'a Bench, config: &str) -> Daemon<'a> {
        Daemon::start_by(bench, config, &[])
    }

    /// As an argument of another command.
    fn start_by(bench: &'a Bench, config: &str, by: &[&str]) -> Daemon<'a> {
        bench.file("t.toml", config);
        let mut command = bench.command_by(by, &["up", "-c", "t.toml", "--socket", SOCKET]);
        let log = std::fs::File::create(bench.path("log")).expect("the directory is there");
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("it was built");
        let daemon = Daemon { bench, child };
        daemon.wait_for("an answer", || bench.run(&["status", "--socket", SOCKET]).status == 0);
        daemon
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.bench.path("log")).expect("it was made")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        self.bench.json(&[arguments, &["--socket", SOCKET]].concat())
    }

    /// Elements that a command shows in bpftool's JSON, through their types.
    fn formatted(&self, arguments: &[&str]) -> Value {
        match self.json(arguments) {
            Value::Array(all) => all.iter().map(|it| it["formatted"].clone()).collect(),
            one => one["formatted"].clone(),
        }
    }

    fn refusal(&self, status: i32, arguments: &[&str]) -> String {
        self.bench.refusal(status, &[arguments, &["--socket", SOCKET]].concat())
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let done = std::process::Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(done.expect("kill is there").success());
    }

    fn wait_for(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(30), "no {what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it as systemd does, and looks at how it ended.
    fn end(mut self) {
        self.signal("TERM");
        let start = Instant::now();
        let status = self.child.wait().expect("it is ours");
        assert_eq!(status.code(), Some(0), "{}", self.log());
        assert!(start.elapsed() < Duration::from_secs(20), "it took {:?}", start.elapsed());
        assert!(!self.bench.path(SOCKET).exists(), "the socket stays behind");
        let log = self.log();
        // A look at the workers may be told later than that.
        let stopped = log.lines().find(|line| line.contains("INFO stopped: "));
        let nothing_missing = stopped.is_some_and(|line| line.ends_with(" 0 missing"));
        assert!(nothing_missing, "frames are missing: {stopped:?}");
    }

    fn rx(&self, port: &str) -> u64 {
        self.json(&["stats"])["ports"][port]["rx_packets"].as_u64().expect("a number")
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // It has ended already, if all went well.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

#[test]
fn traffic_flows_and_verbs_tell_of_it() {
    let bench = Bench::new("daemon_verbs");
    let daemon = Daemon::start(&bench, CONFIG);
    daemon.wait_for("traffic", || daemon.rx("gen") > 1000);
    let stats = daemon.json(&["stats", "gen"]);
    assert!(stats["ports"]["gen"]["verdicts"]["XDP_PASS"].as_u64() > Some(0), "{stats}");
    assert_eq!(stats["ports"]["out"], Value::Null, "only one port was asked for");

    let status = daemon.json(&["status"]);
    let link = &status["links"][0];
    assert_eq!((&link["port"], &link["prio"]), (&"gen".into(), &50.into()), "{status}");
    assert_eq!(link["actions"], serde_json::json!(["XDP_PASS"]));
    assert_eq!(link["tag"].as_str().map(str::len), Some(16));
    assert_eq!(status["failures"], serde_json::json!([]));
    let memory = match status["huge_pages"].as_bool().expect("it is known") {
        true => format!("{} frames in huge pages", status["frames"]),
        false => format!("{} frames in pages of the usual size", status["frames"]),
    };
    assert!(daemon.log().contains(&memory), "{memory}: {}", daemon.log());

    let features = daemon.json(&["features", "gen"]);
    let features = features[0]["features"].as_array().expect("a list").clone();
    let flags = |prefix: &str| {
        let names = features.iter().filter_map(|feature| feature["name"].as_str());
        names.filter(|name| name.starts_with(prefix)).count()
    };
    assert_eq!(flags("NETDEV_XDP_ACT_"), 7, "the kernel's flags");
    assert_eq!(flags("NETDEV_XDP_RX_METADATA_"), 4, "the kernel's, and checksums");
    assert_eq!(flags("NETDEV_XSK_FLAGS_"), 2, "times and checksums");
    assert_eq!(features.len(), 13, "{features:?}");
    for feature in &features {
        assert_ne!(feature["note"], "", "explained: {feature}");
    }
    let error = daemon.refusal(2, &["status", "gne"]);
    assert!(error.contains("did you mean \"gen\"?"), "{error}");
    daemon.end();
}

#[test]
fn maps_are_read_and_changed_while_traffic_flows() {
    let bench = Bench::new("daemon_maps");
    let daemon = Daemon::start(&bench, CONFIG);
    daemon.wait_for("traffic", || daemon.rx("gen") > 0);
    let maps = daemon.json(&["map", "show"]);
    assert!(maps.as_array().is_some_and(|maps| maps.len() >= 6), "{maps}");
    let counted = daemon.formatted(&["map", "lookup", "counts", "key", "2"]);
    assert!(counted["values"][0]["value"]["frames"].as_u64() > Some(0), "{counted}");
    // The fixture does with frames to address 2 what overrides[2] says: 1 is XDP_DROP.
    daemon.json(&["map", "update", "name", "overrides", "key", "2", "value", "1", "noexist"]);
    daemon.wait_for("drops", || {
        daemon.json(&["stats"])["ports"]["gen"]["drops"]["verdict"].as_u64() > Some(0)
    });
    let error =
        daemon.refusal(1, &["map", "update", "overrides", "key", "2", "value", "1", "noexist"]);
    assert!(error.contains("exists"), "{error}");
    let dumped = daemon.formatted(&["map", "dump", "overrides"]);
    assert_eq!(dumped, serde_json::json!([{"key": 2, "value": 1}]));
    let hex = ["map", "delete", "overrides", "key", "hex", "02", "00", "00", "00"];
    daemon.json(&hex);
    let error = daemon.refusal(1, &["map", "lookup", "overrides", "key", "2"]);
    assert!(error.contains("overrides"), "{error}");
    // Targets must exist, as in the kernel.
    let error = daemon.refusal(1, &["map", "update", "tx_ports", "key", "0", "value", "1"]);
    assert!(error.contains("tx_ports"), "{error}");
    let index = daemon.json(&["port", "show", "out"])[0]["index"].to_string();
    daemon.json(&["map", "update", "tx_ports", "key", "0", "value", &index]);
    daemon.end();
}

#[test]
fn programs_are_attached_in_order_and_replaced_by_the_kernels_rules() {
    let bench = Bench::new("daemon_load");
    let daemon = Daemon::start(&bench, CONFIG);
    let load = |more: &[&str]| {
        let mut words = vec!["load", "p0", "every_verdict.o", "-n", "every_verdict"];
        words.extend(more);
        words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let run = |words: &[String]| daemon.json(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let refused =
        |words: &[String]| daemon.refusal(1, &words.iter().map(String::as_str).collect::<Vec<_>>());
    let first = run(&load(&["-P", "30", "--exclusive"]));
    let first = first["links"][0].clone();
    let second = run(&load(&["-P", "10", "-A", "XDP_PASS,drop"]))["links"][0].clone();
    assert_eq!(second["actions"], serde_json::json!(["XDP_DROP", "XDP_PASS"]));
    let status = daemon.json(&["status", "p0"]);
    let order: Vec<&Value> =
        status["links"].as_array().expect("a list").iter().map(|link| &link["prio"]).collect();
    assert_eq!(order, [10, 30], "by priority");

    assert!(refused(&load(&["--exclusive"])).contains("(EBUSY)"));
    assert!(refused(&load(&["--replace=4000"])).contains("(EEXIST)"));
    let id = first["prog_id"].to_string();
    let replaced = run(&load(&[&format!("--replace={id}")]))["links"][0].clone();
    assert_eq!(replaced["id"], first["id"], "the link stays");
    assert_eq!(replaced["prio"], 30, "with what was not said of it");
    assert_ne!(replaced["prog_id"], first["prog_id"]);
    let id = replaced["prog_id"].to_string();
    daemon.json(&["unload", "p0", "-i", &id]);
    assert!(daemon.refusal(2, &["unload", "p0", "-i", &id]).contains("(ENOENT)"));
    run(&load(&["--replace"]));
    assert_eq!(daemon.json(&["status", "p0"])["links"].as_array().map(Vec::len), Some(1));
    daemon.json(&["unload", "p0", "-a"]);
    assert_eq!(daemon.json(&["status", "p0"])["links"], serde_json::json!([]));

    // What the verifier refuses changes nothing.
    let before = daemon.json(&["status", "gen"])["links"][0]["prog_id"].clone();
    let error =
        daemon.refusal(1, &["load", "gen", "refused.o", "-n", "reads_too_far", "--replace"]);
    assert!(error.contains("invalid access to packet"), "{error}");
    assert_eq!(daemon.json(&["status", "gen"])["links"][0]["prog_id"], before);
    assert!(daemon.refusal(1, &["load", "nix", "refused.o"]).contains("(ENODEV)"));
    daemon.end();
}

#[test]
fn a_reload_touches_only_what_differs() {
    let bench = Bench::new("daemon_reload");
    let daemon = Daemon::start(&bench, CONFIG);
    daemon.json(&["port", "add", "x0", "kind=pair", "peer=x1"]);
    let before = daemon.json(&["status"]);
    let rounds = 10;
    for round in 0..rounds {
        let more = "\n[[port]]\nname = \"late\"\nkind = \"sink\"\n";
        let text = if round % 2 == 0 { format!("{CONFIG}{more}") } else { CONFIG.to_owned() };
        bench.file("t.toml", text);
        let report = daemon.json(&["reload"]);
        assert_eq!(report["failures"], serde_json::json!([]), "{report}");
        assert!(!report["changes"].to_string().contains("gen"), "it was touched: {report}");
    }
    let after = daemon.json(&["status"]);
    assert_eq!(before["links"][0]["prog_id"], after["links"][0]["prog_id"]);
    assert!(after.to_string().contains("\"x0\""), "what the API made stays");
    assert!(!after.to_string().contains("\"late\""));
    let stats = daemon.json(&["stats"]);
    assert_eq!(stats["ports"]["gen"]["drops"]["no_upper"], 0, "{stats}");

    // By signal, and with a mistake: nothing changes then.
    bench.file("t.toml", CONFIG.replace("rate = 20000", "rate = 30000"));
    daemon.signal("HUP");
    daemon.wait_for("the new generator", || daemon.log().contains("port gen: opened again"));
    bench.file("t.toml", CONFIG.replace("rate = 20000", "rat = 1"));
    let error = daemon.refusal(1, &["reload"]);
    assert!(error.contains("t.toml:5:1: port[0].rat"), "{error}");
    assert!(error.contains("did you mean \"rate\"?"), "{error}");
    let rx = daemon.rx("gen");
    daemon.wait_for("more traffic", || daemon.rx("gen") > rx);
    daemon.end();
}

#[test]
fn ports_come_change_and_go() {
    let bench = Bench::new("daemon_ports");
    let daemon = Daemon::start(&bench, CONFIG);
    daemon.json(&["port", "add", "a0", "kind=pair", "peer=a1", "upper=out", "mtu=9000"]);
    let shown = daemon.json(&["port", "show", "a1"]);
    assert_eq!(shown[0]["options"]["peer"], "a0", "the peer is made with it");
    daemon.json(&["port", "set", "a0", "up=false", "upper=", "mtu=1400"]);
    let shown = daemon.json(&["port", "show", "a0"]);
    assert_eq!((&shown[0]["up"], &shown[0]["mtu_now"]), (&false.into(), &1400.into()), "{shown}");
    assert!(daemon.refusal(1, &["port", "add", "a0", "kind=sink"]).contains("(EEXIST)"));
    assert!(daemon.refusal(1, &["port", "del", "out"]).contains("(EBUSY)"));
    assert!(daemon.refusal(2, &["port", "set", "a0", "mut=5"]).contains("did you mean \"mtu\"?"));
    let error = daemon.refusal(1, &["port", "set", "a0", "upper=a1"]);
    assert!(error.contains("for ever"), "{error}");
    // One that cannot be opened leaves nothing behind.
    let error = daemon.refusal(1, &["port", "add", "cap", "kind=pcap", "in=/nonexistent.pcap"]);
    assert!(error.contains("/nonexistent.pcap"), "{error}");
    assert!(daemon.refusal(1, &["port", "show", "cap"]).contains("(ENODEV)"));
    daemon.json(&["port", "del", "a0"]);
    assert!(daemon.refusal(1, &["port", "show", "a1"]).contains("(ENODEV)"));
    daemon.end();
}

#[test]
fn a_port_that_fails_keeps_no_other_from_working() {
    let bench = Bench::new("daemon_failure");
    let missing = "\n[[port]]\nname = \"cap\"\nkind = \"pcap\"\nin = \"/nonexistent.pcap\"\n";
    let refused =
        "\n[[attach]]\nport = \"p0\"\nobject = \"refused.o\"\nprogram = \"reads_too_far\"\n";
    let daemon = Daemon::start(&bench, &format!("{CONFIG}{missing}{refused}"));
    daemon.wait_for("traffic", || daemon.rx("gen") > 0);
    let status = daemon.json(&["status"]);
    let failures = status["failures"].to_string();
    assert!(failures.contains("/nonexistent.pcap"), "{failures}");
    assert!(failures.contains("invalid access to packet"), "{failures}");
    assert!(failures.contains("it drops everything until it has its programs"), "{failures}");
    daemon.end();
}

#[test]
fn a_program_that_always_aborts_costs_its_own_frames_only() {
    let bench = Bench::new("daemon_aborts");
    // `every_verdict` returns XDP_ABORTED for address 0.
    let aborts = CONFIG.replace("0200000000020200", "0200000000000200");
    let other = "\n[[port]]\nname = \"other\"\nkind = \"generator\"\nrate = 20000\n\
                 upper = \"out\"\n\
                 frames = [\"02000000000202000000000108000000000000000000000000000000\"]\n";
    let daemon = Daemon::start(&bench, &format!("{aborts}{other}"));
    let stats = || daemon.json(&["stats"])["ports"].clone();
    daemon.wait_for("aborted frames", || stats()["gen"]["drops"]["aborted"].as_u64() > Some(1000));
    daemon.wait_for("others'", || stats()["out"]["tx_packets"].as_u64() > Some(1000));
    let stats = stats();
    assert_eq!(stats["gen"]["verdicts"]["XDP_PASS"], 0, "{stats}");
    assert_eq!(daemon.json(&["status"])["failures"], serde_json::json!([]));
    daemon.end();
}

#[test]
fn one_daemon_a_socket_and_none_after_a_kill() {
    let bench = Bench::new("daemon_socket");
    let mut daemon = Daemon::start(&bench, CONFIG);
    let error = bench.refusal(2, &["up", "--socket", SOCKET]);
    assert!(error.contains("another daemon uses it"), "{error}");
    daemon.signal("KILL");
    daemon.child.wait().expect("it is ours");
    let error = daemon.refusal(2, &["status"]);
    assert!(error.contains("no daemon on s.sock"), "{error}");
    assert!(bench.path(SOCKET).exists(), "as kill -9 leaves it");
    drop(daemon);
    Daemon::start(&bench, CONFIG).end();
}

#[test]
fn metrics_and_events_and_an_end_by_itself() {
    let bench = Bench::new("daemon_metrics");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let port = port.expect("a port is free").port();
    let config = format!("{CONFIG}\n[metrics]\nlisten = \"127.0.0.1:{port}\"\n");
    let daemon = Daemon::start(&bench, &config);
    daemon.wait_for("traffic", || daemon.rx("gen") > 0);
    let text = scrape(port);
    for line in ["towpath_frames_missing ", "towpath_port_rx_frames_total{port=\"gen\"} "] {
        assert!(text.contains(line), "{text}");
    }
    let drops = "towpath_port_drops_total{port=\"gen\",reason=\"no_upper\"} ";
    assert!(text.contains(drops), "{text}");
    let words = ["events", "--count", "1", "--json", "--socket", SOCKET];
    let mut events = bench.command(&words);
    let events = events.stdout(Stdio::piped()).spawn().expect("it was built");
    // It listens when it listens: something happens until it has heard of it.
    let done = std::thread::spawn(move || events.wait_with_output().expect("it ends"));
    daemon.wait_for("an event", || {
        daemon.json(&["port", "add", "e0", "kind=sink"]);
        daemon.json(&["port", "del", "e0"]);
        done.is_finished()
    });
    let heard = done.join().expect("no panic").stdout;
    let event: Value = serde_json::from_slice(&heard).expect("one JSON object");
    // On a busy machine the first one may be about a worker that is late.
    let kind = event["kind"].as_str().expect("text");
    assert!(["change", "failure", "recovery"].contains(&kind), "{event}");
    daemon.end();

    let words = ["exec", "up", "-c", "t.toml", "--for", "300ms", "--socket", SOCKET];
    let ended = bench.run(&words);
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.stderr.contains("time is over"), "{ended:?}");
}

fn scrape(port: u16) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}
