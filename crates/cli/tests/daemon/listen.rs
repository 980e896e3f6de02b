//! Output of running programs: printed lines, records, samples and streams, read while traffic
//! flows.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

/// The generator's frames go through a program that says something of each.
fn config() -> String {
    let (ports, _) = CONFIG.split_once("[[attach]]").expect("it attaches a program");
    format!("{ports}[[attach]]\nport = \"gen\"\nobject = \"talker.o\"\n")
}

fn heard(daemon: &Daemon<'_>, words: &[&str]) -> Vec<Value> {
    let ended = daemon.bench.run(&[&["-j"], words, &["--socket", SOCKET]].concat());
    assert_eq!(ended.status, 0, "{ended:?}");
    let lines = ended.stdout.lines();
    lines.map(|line| serde_json::from_str(line).expect("an object for each")).collect()
}

/// A command that listens, and has printed its first line.
fn listener(daemon: &Daemon<'_>, words: &[&str]) -> Child {
    let mut command = daemon.bench.command(&[words, &["--socket", SOCKET]].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it was built");
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    output.read_line(&mut line).expect("text");
    assert!(!line.is_empty());
    // The rest of the output stays unread.
    child.stdout = Some(output.into_inner());
    child
}

fn interrupted(mut child: Child) {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    // The command may print the rest of its output.
    let mut output = child.stdout.take().expect("a pipe");
    std::io::copy(&mut output, &mut std::io::sink()).expect("text");
    assert_eq!(child.wait().expect("it is ours").code(), Some(0), "an interrupt is its end");
}

#[test]
fn printed_lines_are_heard_by_everybody_who_listens() {
    let bench = Bench::new("tracelog");
    let daemon = Daemon::start(&bench, &config());
    daemon.wait_for("traffic", || daemon.rx("gen") > 1000);
    let lines = heard(&daemon, &["prog", "tracelog", "-c", "20"]);
    let lines: Vec<&Value> = lines.iter().filter(|line| line["lost"].is_null()).collect();
    let numbers: Vec<u64> = lines.iter().filter_map(|line| line["number"].as_u64()).collect();
    assert_eq!(numbers.len(), 20, "{lines:?}");
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert_eq!(lines[0]["program"], "talker", "{lines:?}");
    // The program's stream is not among them, as in the kernel.
    for line in &lines {
        let text = line["text"].as_str().expect("text");
        assert!(text.starts_with("frame ") && text.ends_with(" of 28 bytes"), "{text}");
    }

    let first = listener(&daemon, &["prog", "tracelog"]);
    let ended = bench.run(&["prog", "tracelog", "-c", "1", "--socket", SOCKET]);
    assert!(ended.stdout.contains(": bpf_trace_printk: frame "), "{ended:?}");
    assert!(ended.stdout.contains("talker-0"), "{ended:?}");
    interrupted(first);
    daemon.end();
}

#[test]
fn a_listener_who_does_not_read_stops_nobody() {
    let bench = Bench::new("deaf");
    let daemon = Daemon::start(&bench, &config());
    daemon.wait_for("traffic", || daemon.rx("gen") > 0);
    let deaf = [
        listener(&daemon, &["prog", "tracelog"]),
        listener(&daemon, &["map", "event_pipe", "records"]),
        listener(&daemon, &["map", "event_pipe", "samples"]),
    ];
    let before = daemon.rx("gen");
    daemon.wait_for("more traffic", || daemon.rx("gen") > before + 100_000);
    let stats = daemon.json(&["stats"]);
    assert_eq!(stats["frames"]["missing"], 0, "{stats}");
    for mut listener in deaf {
        listener.kill().expect("it runs");
        listener.wait().expect("it is ours");
    }
    // Their places are free as soon as the daemon has seen that they are gone.
    let pipe = ["-j", "map", "event_pipe", "records", "-c", "1", "--socket", SOCKET];
    daemon.wait_for("another reader", || bench.run(&pipe).status == 0);
    let lost = daemon.json(&["map", "show", "name", "records"]);
    let lost = lost["towpath"]["ring"]["lost"].as_u64();
    assert!(lost > Some(0), "what had no room is counted: {lost:?}");
    daemon.end();
}

#[test]
fn records_are_read_by_one_and_shown_through_their_type() {
    let bench = Bench::new("event_pipe");
    let daemon = Daemon::start(&bench, &config());
    daemon.wait_for("traffic", || daemon.rx("gen") > 1000);
    let shown = bench.run(&["map", "show", "name", "records", "--socket", SOCKET]);
    assert!(shown.stdout.contains("of 4096 bytes used"), "{shown:?}");

    let typed = ["map", "event_pipe", "records", "--type", "event", "-c", "3"];
    let records = heard(&daemon, &typed);
    let mut records = records.iter().filter(|record| record["lost"].is_null());
    let record = records.next().expect("there are three");
    let value = json!({"bytes": 28, "destination": "02:00:00:00:00:02", "queue": 0, "number": 0});
    assert_eq!(record["value"], value, "those that were there first");
    assert_eq!(record["type"], 9, "as bpftool says");
    assert_eq!(record["data"].as_array().map(Vec::len), Some(24), "{record}");
    assert_eq!(record["data"][0], "0x1c", "{record}");

    let samples = heard(&daemon, &["map", "event_pipe", "name", "samples", "cpu", "0", "-c", "2"]);
    assert_eq!((&samples[0]["cpu"], &samples[0]["index"]), (&json!(0), &json!(0)), "{samples:?}");
    let text = bench.run(&["map", "event_pipe", "samples", "-c", "1", "--socket", SOCKET]);
    assert!(text.stdout.starts_with("== @"), "{text:?}");
    assert!(text.stdout.contains("CPU: 0 index: 0 =====\n1c 00 00 00 02 00 00"), "{text:?}");

    let reader = listener(&daemon, &["map", "event_pipe", "records"]);
    let refused = daemon.refusal(1, &["map", "event_pipe", "records"]);
    assert!(refused.contains("is being read already"), "{refused}");
    assert!(refused.contains("(EBUSY)"), "{refused}");
    interrupted(reader);
    let refused = daemon.refusal(1, &["map", "event_pipe", "records", "--type", "evnt"]);
    assert!(refused.contains("did you mean \"event\"?"), "{refused}");
    let refused = daemon.refusal(1, &["map", "event_pipe", "records", "cpu", "0"]);
    assert!(refused.contains("a ring buffer"), "{refused}");
    let refused = daemon.refusal(1, &["map", "event_pipe", ".bss"]);
    assert!(refused.contains("is of kind array"), "{refused}");

    // It ends with the map.
    let mut reader = listener(&daemon, &["map", "event_pipe", "records"]);
    daemon.json(&["unload", "gen", "-a"]);
    let mut output = reader.stdout.take().expect("a pipe");
    std::io::copy(&mut output, &mut std::io::sink()).expect("text");
    assert_eq!(reader.wait().expect("it is ours").code(), Some(0));
    daemon.end();
}

#[test]
fn a_programs_stream_is_read_until_it_is_empty() {
    let bench = Bench::new("stream");
    let daemon = Daemon::start(&bench, &config());
    // More than a stream keeps.
    daemon.wait_for("traffic", || daemon.rx("gen") > 10_000);
    let ended = bench.run(&["prog", "tracelog", "stdout", "name", "talker", "--socket", SOCKET]);
    assert!(ended.stdout.starts_with("number 0\nnumber 1\n"), "{ended:?}");
    assert!(ended.stdout.contains("lost "), "what had no room is counted");
    let ended = bench.run(&["prog", "tracelog", "stderr", "talker", "--socket", SOCKET]);
    assert_eq!((ended.status, &*ended.stdout), (0, ""), "{ended:?}");
    interrupted(listener(&daemon, &["prog", "tracelog", "stdout", "talker", "--follow"]));
    let refused = daemon.refusal(2, &["prog", "tracelog", "stdin", "talker"]);
    assert!(refused.contains("expected stdout PROG or stderr PROG"), "{refused}");
    daemon.end();
}
