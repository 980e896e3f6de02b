//! A program that does not return, and a daemon that is asked for something meanwhile.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{CONFIG, Daemon};
use crate::support::Bench;

/// Far less than the program would run for, and enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// By itself it would never be stopped.
fn config() -> String {
    let program = "object = \"every_verdict.o\"\nprogram = \"every_verdict\"";
    assert!(CONFIG.contains(program));
    format!("[engine]\nstuck_ms = 3600000\n{}", CONFIG.replace(program, "object = \"endless.o\""))
}

fn wait_until_stuck(daemon: &Daemon<'_>) {
    daemon.wait_for("a failure that names the program", || {
        let status = daemon.json(&["status"]);
        let failures = status["failures"].as_array().expect("a list").iter();
        let mut stuck = failures.filter(|failure| failure["code"] == "worker-stuck");
        stuck.any(|failure| failure.to_string().contains("endless"))
    });
}

#[test]
fn a_program_that_does_not_return_is_unloaded_at_once() {
    let bench = Bench::new("daemon_stuck_unload");
    let daemon = Daemon::start(&bench, &config());
    wait_until_stuck(&daemon);
    let start = Instant::now();
    daemon.json(&["unload", "gen", "--all"]);
    assert!(start.elapsed() < LIMIT, "it took {:?}", start.elapsed());
    daemon.wait_for("no failure", || {
        daemon.json(&["status"])["failures"] == Value::Array(Vec::new())
    });
    let received = daemon.rx("gen");
    daemon.wait_for("traffic again", || daemon.rx("gen") > received + 100);
    daemon.end();
}

#[test]
fn a_reload_changes_how_long_a_program_may_run() {
    let bench = Bench::new("daemon_stuck_reload");
    let daemon = Daemon::start(&bench, &config());
    wait_until_stuck(&daemon);
    bench.file("t.toml", config().replace("3600000", "100"));
    let reloaded = daemon.json(&["reload"]);
    let says = |what: &str| reloaded.to_string().contains(what);
    assert!(says("stopped after 100 ms") && !says("when it starts"), "{reloaded}");
    daemon.wait_for("a stopped program", || {
        let failures = daemon.json(&["status"])["failures"].to_string();
        failures.contains("program-stopped")
    });
    daemon.end();
}

/// `Daemon::end` sends SIGTERM, and fails unless the daemon ends soon.
#[test]
fn a_daemon_whose_program_does_not_return_ends() {
    let bench = Bench::new("daemon_stuck_end");
    let daemon = Daemon::start(&bench, &config());
    wait_until_stuck(&daemon);
    daemon.end();
}
