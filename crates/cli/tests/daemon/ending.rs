//! Commands without an end of their own can be interrupted at any moment, and end with status 0.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it runs");
}

/// Interrupts it, after a while. Shells have interrupts ignored by what they run in the background,
/// and by all that this runs: then it is waited for that it does not any more.
fn interrupt(child: &Child, time: Duration) {
    std::thread::sleep(time);
    let start = Instant::now();
    while has_interrupt("self", "SigIgn") && !has_interrupt(&child.id().to_string(), "SigCgt") {
        assert!(start.elapsed() < Duration::from_secs(20), "it never expects an interrupt");
        std::thread::sleep(Duration::from_millis(2));
    }
    signal(child, Signal::INT);
}

/// Whether interrupts are among the signals that a process ignores, or catches.
fn has_interrupt(process: &str, set: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let signals = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(":\t"));
    let signals = u64::from_str_radix(signals.expect("a set of signals"), 16).expect("bits");
    signals >> (Signal::INT.as_raw() - 1) & 1 == 1
}

fn end_of(mut child: Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            return status;
        }
        if start.elapsed() > Duration::from_secs(20) {
            child.kill().expect("it runs");
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Programs enough that LLVM is at it for a while.
fn many_programs() -> String {
    let (ports, _) = CONFIG.split_once("[[attach]]").expect("it attaches a program");
    let objects = ["every_verdict.o\"\nprogram = \"every_verdict", "talker.o", "router.o"];
    let attach = |(port, object)| format!("[[attach]]\nport = \"{port}\"\nobject = \"{object}\"\n");
    let all = ["gen", "p0", "p1"].iter().flat_map(|port| objects.map(|object| (*port, object)));
    ports.to_owned() + &all.map(attach).collect::<String>()
}

#[test]
fn a_daemon_that_is_ended_while_it_compiles_ends_with_0() {
    let bench = Bench::new("ending_up");
    bench.file("t.toml", many_programs());
    let mut random = fastrand::Rng::with_seed(19);
    for round in 0..20 {
        let log = std::fs::File::create(bench.path("log")).expect("the directory is there");
        let mut command = bench.command(&["up", "-c", "t.toml", "--socket", SOCKET]);
        // Nothing is compiled already.
        command.env("XDG_CACHE_HOME", bench.path(&format!("cache{round}")));
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("it was built");
        let start = Instant::now();
        while !bench.path(SOCKET).exists() {
            assert!(start.elapsed() < Duration::from_secs(20), "it does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(random.u64(..400)));
        signal(&child, Signal::TERM);
        let status = end_of(child);
        let log = std::fs::read_to_string(bench.path("log")).expect("it was made");
        assert_eq!(status.code(), Some(0), "round {round}: {status}: {log}");
        assert!(log.trim_end().ends_with(" 0 missing"), "round {round}: {log}");
    }
}

#[test]
fn a_run_that_is_interrupted_while_it_compiles_ends_with_0() {
    let bench = Bench::new("ending_run");
    let mut random = fastrand::Rng::with_seed(19);
    bench.capture("in.pcap", &[1, 2, 2]);
    let capture = std::fs::read(bench.path("in.pcap")).expect("it was made");
    let mut ended = 0;
    for round in 0..20 {
        let words = ["run", "talker.o", "--exec", "llvm", "--in", "-"];
        let mut command = bench.command(&words);
        command.env("XDG_CACHE_HOME", bench.path(&format!("cache{round}")));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = child.spawn().expect("it was built");
        // It waits for more.
        let input = child.stdin.as_mut().expect("a pipe");
        input.write_all(&capture).expect("it reads");
        interrupt(&child, Duration::from_millis(random.u64(10..500)));
        let status = end_of(child);
        // Before it expects interrupts one ends it as it ends any command.
        let is_early = status.signal() == Some(Signal::INT.as_raw());
        assert!(is_early || status.code() == Some(0), "round {round}: {status}");
        ended += u32::from(!is_early);
    }
    assert!(ended > 0, "all of them were ended too early");
}

#[test]
fn what_is_watched_ends_with_an_interrupt() {
    let bench = Bench::new("ending_watch");
    let daemon = Daemon::start(&bench, CONFIG);
    daemon.wait_for("traffic", || daemon.rx("gen") > 0);
    for words in [
        &["stats", "-i", "1"][..],
        &["-j", "stats", "-i", "1"],
        &["events"],
        &["-j", "events"],
        &["dump", "gen"],
        &["dump", "gen", "-w", "seen.pcapng"],
    ] {
        let mut command = bench.command(&[words, &["--socket", SOCKET]].concat());
        let child = command.stdout(Stdio::piped()).spawn().expect("it was built");
        interrupt(&child, Duration::from_millis(500));
        let ended = child.wait_with_output().expect("it is ours");
        assert_eq!(ended.status.code(), Some(0), "{words:?}: {ended:?}");
        let text = String::from_utf8(ended.stdout).expect("text");
        if words[0] == "-j" {
            let mut lines = text.lines();
            let is_json = |line: &str| serde_json::from_str::<Value>(line).is_ok();
            assert!(lines.all(is_json), "whole lines only: {text}");
        }
    }
    let mut written = towpath_capture::Reader::open(&bench.path("seen.pcapng")).expect("a capture");
    let mut frames = 0;
    while written.next_packet().expect("it is whole").is_some() {
        frames += 1;
    }
    assert!(frames > 0);
    daemon.end();
}

#[test]
fn a_daemon_logs_json_where_that_was_asked_for() {
    let bench = Bench::new("json_log");
    bench.file("t.toml", CONFIG);
    let ended = bench.run(&["-j", "up", "-c", "t.toml", "--for", "300ms", "--socket", SOCKET]);
    assert_eq!(ended.status, 0, "{ended:?}");
    let lines: Vec<Value> = ended
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(lines.len() > 2, "{ended:?}");
    for line in &lines {
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    let last = lines.last().and_then(|line| line["message"].as_str());
    assert!(last.is_some_and(|text| text.starts_with("stopped")), "{last:?}");
}
