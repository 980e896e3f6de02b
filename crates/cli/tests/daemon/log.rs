//! The log where nobody takes it: the data plane, changes and the end go on, and `status` says it.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use towpath_daemon::client::Client;

use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

/// Starts a daemon whose log goes there.
fn start(bench: &Bench, log: Stdio) -> Daemon<'_> {
    bench.file("t.toml", CONFIG);
    bench.file("log", "");
    let mut command = bench.command(&["up", "-c", "t.toml", "--socket", SOCKET]);
    let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("it was built");
    let daemon = Daemon { bench, child };
    daemon.wait_for("an answer", || bench.run(&["status", "--socket", SOCKET]).status == 0);
    daemon
}

/// The failure to write the log, if it is told.
fn failure(daemon: &Daemon<'_>) -> Option<Value> {
    let status = daemon.json(&["status"]);
    let failures = status["failures"].as_array().expect("a list");
    failures.iter().find(|it| it["code"] == "log").cloned()
}

/// Changes are made and answered.
fn changes(daemon: &Daemon<'_>) {
    daemon.json(&["port", "add", "extra", "kind=sink"]);
    daemon.json(&["port", "del", "extra"]);
}

fn ends(mut daemon: Daemon<'_>) {
    let start = Instant::now();
    daemon.signal("TERM");
    assert_eq!(daemon.child.wait().expect("it is ours").code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(20), "it took {:?}", start.elapsed());
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("it is there").into()
}

#[test]
fn a_log_on_a_full_disk_stops_nothing_and_is_told() {
    let bench = Bench::new("log_full");
    let daemon = start(&bench, full());
    changes(&daemon);
    daemon.wait_for("the failure", || failure(&daemon).is_some());
    let failure = failure(&daemon).expect("it stays");
    assert!(failure["why"].as_str().expect("a text").contains("No space left"), "{failure}");
    assert!(failure["since"].as_f64().expect("a time") > 1e9, "{failure}");
    let lost = daemon.json(&["status"])["log_lines_lost"].as_u64().expect("a number");
    assert!(lost > 0);
    let shown = bench.run(&["status", "--exit-status", "--socket", SOCKET]);
    assert_eq!(shown.status, 1, "{shown:?}");
    assert!(shown.stdout.contains("failed: log: "), "{shown:?}");
    let before = daemon.rx("gen");
    daemon.wait_for("frames", || daemon.rx("gen") > before);
    ends(daemon);
}

#[test]
fn a_log_whose_reader_is_gone_stops_nothing_and_is_told() {
    let bench = Bench::new("log_closed");
    let (reader, writer) = std::io::pipe().expect("there are descriptors");
    drop(reader);
    let daemon = start(&bench, writer.into());
    changes(&daemon);
    daemon.wait_for("the failure", || failure(&daemon).is_some());
    ends(daemon);
}

#[test]
fn a_log_that_nobody_reads_stops_nothing_and_is_told_until_somebody_does() {
    let bench = Bench::new("log_unread");
    let (mut reader, writer) = std::io::pipe().expect("there are descriptors");
    let daemon = start(&bench, writer.into());
    // The pipe takes 64 KiB, and the queue its lines.
    let client = Client::new(&bench.path(SOCKET)).expect("there are descriptors");
    let port = json!({ "name": "extra", "kind": "sink" });
    daemon.wait_for("the failure", || {
        for _ in 0..50 {
            client.json::<Value>("POST", "/v1/ports", &port).expect("it is free");
            client.json::<Value>("DELETE", "/v1/ports/extra", &json!({})).expect("it is there");
        }
        failure(&daemon).is_some()
    });
    changes(&daemon);
    let reads = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    daemon.wait_for("peace", || failure(&daemon).is_none());
    ends(daemon);
    reads.join().expect("no panic").expect("it can be read");
}

#[test]
fn an_error_at_the_start_is_a_status_where_it_cannot_be_written() {
    let bench = Bench::new("log_refused");
    bench.file("t.toml", "[nonsense]\n");
    let arguments = ["up", "-c", "t.toml", "--socket", SOCKET];
    let usual = bench.run(&arguments);
    assert!(usual.stderr.contains("no such section"), "{usual:?}");
    let mut command = bench.command(&arguments);
    let status = command.stdout(full()).stderr(full()).status().expect("it was built");
    assert_eq!(status.code(), Some(usual.status));
}
