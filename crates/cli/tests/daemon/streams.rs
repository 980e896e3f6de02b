//! Captures that come by standard input and go by standard output, through a running daemon.

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use towpath_capture::Reader;

use super::SOCKET;
use crate::support::{Bench, frame};

const CONFIG: &str = r#"
[[port]]
name = "in"
kind = "pcap"
in = "-"
timing = "unlimited"
upper = "out"

[[port]]
name = "out"
kind = "pcap"
out = "-"
"#;

#[test]
fn captures_pass_by_standard_input_and_output() {
    let bench = Bench::new("streams");
    bench.file("t.toml", CONFIG);
    bench.capture("in.pcap", &[1, 2, 3]);
    let mut command = bench.command(&["up", "-c", "t.toml", "--socket", SOCKET]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut daemon = command.spawn().expect("it was built");
    let mut input = daemon.stdin.take().expect("a pipe");
    input.write_all(&std::fs::read(bench.path("in.pcap")).expect("it was made")).expect("it reads");
    // The daemon goes on when nothing more comes.
    drop(input);
    let start = Instant::now();
    let has_sent = || {
        let ended = bench.run(&["--json", "stats", "--socket", SOCKET]);
        let stats = serde_json::from_str::<serde_json::Value>(&ended.stdout).unwrap_or_default();
        stats["ports"]["out"]["tx_packets"] == 3
    };
    while !has_sent() {
        assert!(start.elapsed() < Duration::from_secs(30), "nothing was sent");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let mut output = Vec::new();
    daemon.stdout.take().expect("a pipe").read_to_end(&mut output).expect("a pipe");
    assert!(daemon.wait().expect("it is ours").success());
    bench.file("out.pcapng", output);
    let mut reader = Reader::open(&bench.path("out.pcapng")).expect("a capture");
    for byte in [1, 2, 3] {
        let packet = reader.next_packet().expect("it is whole").expect("there are three");
        assert_eq!(packet.data, frame(byte));
    }
    assert!(reader.next_packet().expect("it is whole").is_none());
}
