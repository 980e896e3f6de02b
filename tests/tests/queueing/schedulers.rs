//! The effect of each scheduler on traffic: the order in which packets leave. The tests assert only
//! results that the clock of a busy machine can't change: order, shares, and that no packet leaves
//! too early.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use towpath_maps::Value;
use towpath_xdp::Exec;

use super::{Lab, wait_for};

/// A UDP packet of `len` bytes with that DSCP and source port, and a number in its payload.
pub(super) fn udp(dscp: u8, port: u16, number: u16, len: usize) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let ip_len = (len - 14) as u16;
    packet.extend([0x45, dscp << 2]);
    packet.extend(ip_len.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(Ipv4Addr::new(10, 0, 0, 1).octets());
    packet.extend(Ipv4Addr::new(10, 0, 0, 2).octets());
    packet.extend(port.to_be_bytes());
    packet.extend(53u16.to_be_bytes());
    packet.extend((ip_len - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(number.to_be_bytes());
    packet.resize(len, 0);
    packet
}

fn dscp(packet: &[u8]) -> u8 {
    packet[15] >> 2
}

fn source_port(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[34], packet[35]])
}

fn number(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[42], packet[43]])
}

const EXECS: [Exec; 3] = [Exec::Interp, Exec::Jit, Exec::Llvm];

#[test]
fn priority_is_strict() {
    for exec in EXECS {
        let Some(lab) = Lab::new("queue_priority", exec, 1, &[]) else { return };
        lab.attach("queue_priority", "send_most_urgent");
        let sent = (0..1000).map(|n| udp([0, 46, 8, 26][n % 4], 1000, n as u16, 100));
        lab.input.receive(sent);
        lab.wait_for_depth(1000);
        lab.output.allow(2000);
        wait_for("all", || lab.output.count() == 1000);
        let sent = lab.output.sent();
        let seen: Vec<_> = sent.iter().map(|(_, it)| (dscp(it), number(it))).collect();
        // The first was in the port's ring when the most came.
        let mut wanted = seen[1..].to_vec();
        wanted.sort_by_key(|&(dscp, number)| (std::cmp::Reverse(dscp >> 3), number));
        assert_eq!(seen[1..], wanted, "{exec:?}");
        lab.check_conservation();
    }
}

#[test]
fn flows_share_a_link_and_mice_pass_elephants() {
    for exec in EXECS {
        // However slow the machine is, nothing waits too long.
        let globals = [("target_ns", 3_600_000_000_000)];
        let Some(lab) = Lab::new("queue_fair", exec, 1, &globals) else { return };
        lab.attach("queue_fair", "send_in_turn");
        // Two elephants, one with large packets and one with small ones.
        lab.input.receive((0..100).flat_map(|n| {
            let small = (0..4).map(move |part| udp(0, 2, n * 4 + part, 375));
            std::iter::once(udp(0, 1, n, 1500)).chain(small)
        }));
        lab.wait_for_depth(500);
        lab.output.allow(20);
        wait_for("the first", || lab.output.count() == 20);
        let mice = 1000..1020u16;
        lab.input.receive(mice.clone().map(|port| udp(0, port, 0, 100)));
        wait_for("mice", || lab.queue(|queue| queue.status().counts.enqueued) == 520);
        lab.output.allow(60);
        wait_for("some more", || lab.output.count() == 80);
        let sent = lab.output.sent();
        let is_mouse = |(_, packet): &&(_, Vec<u8>)| mice.contains(&source_port(packet));
        assert_eq!(sent[20..].iter().filter(is_mouse).count(), 20, "all mice came first");
        let mut bytes = BTreeMap::new();
        for (_, packet) in sent.iter().filter(|it| !is_mouse(it)) {
            *bytes.entry(source_port(packet)).or_insert(0usize) += packet.len();
        }
        assert!(bytes[&1].abs_diff(bytes[&2]) <= 3 * 1514, "{bytes:?}");
        lab.output.allow(1000);
        wait_for("the rest", || lab.output.count() == 520);
        // Each flow's own order is kept.
        for port in [1, 2] {
            let sent = lab.output.sent();
            let own = sent.iter().filter(|(_, it)| source_port(it) == port);
            let numbers: Vec<_> = own.map(|(_, it)| number(it)).collect();
            assert!(numbers.is_sorted(), "{port}");
        }
        lab.check_conservation();
    }
}

#[test]
fn a_flow_that_waits_too_long_loses_packets_and_another_does_not() {
    let globals = [("target_ns", 1_000_000), ("interval_ns", 2_000_000)];
    let Some(lab) = Lab::new("queue_fair", Exec::Jit, 1, &globals) else { return };
    lab.attach("queue_fair", "send_in_turn");
    lab.input.receive((0..120).map(|n| udp(0, 1, n, 1500)));
    lab.wait_for_depth(120);
    let dropped = || lab.queue(|queue| queue.status().counts.drops_program);
    for round in 0..60 {
        std::thread::sleep(Duration::from_millis(4));
        lab.output.allow(1);
        lab.input.receive([udp(0, 2, round, 100)]);
    }
    wait_for("packets", || lab.output.count() == 60);
    assert!(dropped() > 0, "what waited for so long");
    lab.output.allow(1000);
    lab.check_conservation();
}

#[test]
fn a_flow_has_a_limit_of_its_own() {
    let globals = [("target_ns", 3_600_000_000_000)];
    let Some(lab) = Lab::new("queue_fair", Exec::Jit, 1, &globals) else { return };
    lab.attach("queue_fair", "send_in_turn");
    lab.input.receive((0..1000).map(|n| udp(0, 1, n, 1514)));
    wait_for("drops", || lab.drops(towpath_engine::counters::DropReason::Verdict) > 1000 - 131);
    lab.input.receive([udp(0, 2, 0, 100)]);
    wait_for("the other flow to arrive", || lab.input_is_empty());
    lab.output.allow(2);
    wait_for("the other flow's", || lab.output.sent().iter().any(|(_, it)| source_port(it) == 2));
    lab.output.allow(1000);
    lab.check_conservation();
}

#[test]
fn a_shaper_sends_nothing_too_early() {
    for exec in EXECS {
        let globals = [("bytes_per_second", 1_000_000), ("burst_bytes", 2000)];
        let Some(lab) = Lab::new("queue_shaper", exec, 1, &globals) else { return };
        lab.attach("queue_shaper", "send_at_rate");
        lab.output.allow(1000);
        let start = Instant::now();
        lab.input.receive((0..100).map(|n| udp(0, 1, n, 1000)));
        wait_for("all", || lab.output.count() == 100);
        let sent = lab.output.sent();
        for (number, (time, _)) in sent.iter().enumerate().skip(3) {
            // A burst at once, and then a millisecond each.
            let least = Duration::from_micros(1000 * (number as u64 - 2));
            let passed = time.duration_since(start);
            assert!(passed >= least, "{exec:?}: packet {number} after {passed:?}");
        }
        lab.check_conservation();
    }
}

#[test]
fn classes_get_what_they_are_guaranteed_and_no_more_than_their_maximum() {
    for exec in EXECS {
        let Some(lab) = Lab::new("queue_classes", exec, 1, &[]) else { return };
        // 1000 bytes a millisecond on the link: 600 for class 1, 100 for class 2; class 3 may have
        // no more than 100.
        let rates = [[0, 0], [600_000, 0], [100_000, 0], [0, 100_000], [0, 1_000_000]];
        let map = lab.programs[0].maps().by_name("rates").unwrap();
        for (class, rate) in (0u32..).zip(rates) {
            let value: Vec<u8> = rate.iter().flat_map(|it: &u64| it.to_le_bytes()).collect();
            map.user().update(&class.to_le_bytes(), &Value::One(value), 0).unwrap();
        }
        lab.attach("queue_classes", "send_by_class");
        lab.input.receive((0..1600).map(|n| udp((n % 4) as u8 * 16, 1, n, 500)));
        wait_for("all to wait", || lab.input_is_empty());
        lab.output.allow(4000);
        wait_for("some", || lab.output.count() >= 400);
        let sent = lab.output.sent();
        let took = sent[399].0.duration_since(sent[0].0).as_secs_f64();
        let mut bytes = [0; 4];
        for (_, packet) in &sent[..400] {
            bytes[usize::from(dscp(packet) / 16)] += packet.len();
        }
        let rate = bytes.map(|bytes| bytes as f64 / took);
        // A burst of a millisecond at the start, and what the last packet is more.
        assert!(rate[3] <= 100_000.0 * 1.05 + 1100.0 / took, "{exec:?}: {rate:?} in {took}");
        assert!(rate.iter().sum::<f64>() <= 1_000_000.0 * 1.05 + 2000.0 / took, "{rate:?}");
        // Class 1 gets more than half of the link.
        assert!(bytes[1] * 2 > bytes.iter().sum::<usize>(), "{exec:?}: {bytes:?}");
        assert!(bytes[2] > bytes[3] && bytes[0] > 0, "{exec:?}: {bytes:?}");
        wait_for("the rest", || lab.output.count() == 1600);
        lab.check_conservation();
    }
}
