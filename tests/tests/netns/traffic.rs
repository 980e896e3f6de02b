//! Traffic between hosts: ping and iperf3.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::namespace::{Background, Namespace};

/// Pings `count` times with `bytes` bytes of payload, and returns the number of answers.
///
/// The command waits two seconds for a first answer, but when it has one only for twice as long as
/// the slowest took so far, or 10 ms. Where a processor is shared by many, or is emulated, an
/// answer may well take longer than that. So what comes within two seconds more is counted, too.
pub(crate) fn ping(from: &Namespace, to: &str, count: u32, bytes: u32) -> u32 {
    let before = echo_replies(from, to);
    let line = format!("ping -n -q -M do -i 0.01 -W 2 -c {count} -s {bytes} {to}");
    let output = from.output(&line);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "5 packets transmitted, 5 received, 0% packet loss"
    let received = text.split(", ").find_map(|part| part.strip_suffix(" received"));
    let received = received.and_then(|number| number.parse().ok()).unwrap_or(0);
    let end = Instant::now() + Duration::from_secs(2);
    let mut answers = received;
    while answers < count && received > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
        answers = count.min((echo_replies(from, to) - before) as u32);
    }
    if answers > received {
        eprintln!("  {} of {count} pings were answered late", answers - received);
    }
    answers
}

/// Answers to pings that a host's stack received.
fn echo_replies(host: &Namespace, to: &str) -> u64 {
    if !to.contains(':') {
        return stack_counter(host, "Icmp.InEchoReps");
    }
    let text = host.run("cat /proc/net/snmp6");
    let counter = text.lines().find_map(|line| line.strip_prefix("Icmp6InEchoReplies"));
    counter.and_then(|number| number.trim().parse().ok()).unwrap()
}

/// Pings, and all must be answered.
#[track_caller]
pub(crate) fn must_ping(from: &Namespace, to: &str, bytes: u32) {
    // The first one may wait for a neighbour.
    let answers = ping(from, to, 1, bytes) + ping(from, to, 10, bytes);
    assert_eq!(answers, 11, "answers to pings of {bytes} bytes to {to}");
}

/// An iperf3 server.
pub(crate) fn serve(on: &Namespace) -> Background {
    let server = on.start("iperf3 -s");
    let end = Instant::now() + Duration::from_secs(5);
    while !on.run("ss -Hltn sport = :5201").contains("5201") {
        assert!(Instant::now() < end, "iperf3 does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

/// Runs iperf3 over TCP; gives bits per second that arrived.
#[track_caller]
pub(crate) fn tcp(from: &Namespace, to: &str, options: &str) -> f64 {
    let report = iperf3(from, &format!("iperf3 -J -c {to} {options}"));
    report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap()
}

/// Sends `count` datagrams of `bytes` bytes, slowly; gives how many were lost.
#[track_caller]
pub(crate) fn udp(from: &Namespace, to: &str, count: u32, bytes: u32) -> u64 {
    let size = count * bytes;
    let line = format!("iperf3 -J -u -b 50M -l {bytes} -n {size} -c {to}");
    let report = iperf3(from, &line);
    report["end"]["sum"]["lost_packets"].as_u64().unwrap()
}

#[track_caller]
fn iperf3(from: &Namespace, line: &str) -> Value {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        // Without an answer, the command would wait for ever.
        let output = from.output(&format!("timeout 120 {line}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let report: Value = serde_json::from_str(&text).unwrap();
        let Some(error) = report.get("error") else { return report };
        // A server does not listen for a moment after each test, and its host says so at once, also
        // to who waited to be accepted; or it is not done with the test before, when its machine is
        // busy.
        let reset = "unable to connect to server: Connection reset by peer";
        let not_yet = ["Connection refused", reset, "the server is busy"];
        let is_refused =
            error.as_str().is_some_and(|error| not_yet.iter().any(|it| error.contains(it)));
        assert!(is_refused && Instant::now() < until, "{line}: {error}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A counter of the stack, e.g. `TcpExt`'s or `Tcp`'s `InCsumErrors`.
pub(crate) fn stack_counter(host: &Namespace, name: &str) -> u64 {
    let text = host.run("cat /proc/net/snmp");
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (protocol, names) = names.split_once(": ").unwrap();
        let mut pairs = names.split(' ').zip(values.split(' ').skip(1));
        let wanted = |(field, _): &(&str, &str)| format!("{protocol}.{field}") == name;
        if let Some((_, value)) = pairs.find(wanted) {
            return value.parse().unwrap();
        }
    }
    panic!("no counter {name}");
}

/// Sends `count` datagrams of lengths from 1 on to the discard port, as fast as it can.
pub(crate) fn datagrams(from: &Namespace, to: &str, count: usize, len: usize) {
    from.within(|| {
        let any = if to.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = std::net::UdpSocket::bind(any).unwrap();
        let bytes = vec![7; len];
        for number in 0..count {
            // A host without this port refuses the datagram: the next call fails.
            let _refused = socket.send_to(&bytes[..1 + number % len], (to, 9));
        }
    });
}
