//! Real stacks talk through a program, for each port kind.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use towpath_ports::afxdp::PeerOffloads;

use crate::kinds::{self, Kind, PlainVeth};
use crate::lab::{self, Lab, Plan};
use crate::programs::{self, Seen, live, seen, set};
use crate::traffic::{must_ping, ping, serve, stack_counter, tcp, udp};

/// Runs a test for each port kind, or says why not.
pub(crate) fn for_each_kind(test: impl Fn(&dyn Kind)) {
    if let Some(why) = lab::unavailable().or_else(programs::unavailable) {
        return eprintln!("skipped: {why}");
    }
    for kind in kinds::ALL {
        eprintln!("{}:", kind.name());
        test(*kind);
    }
}

#[test]
fn hosts_ping_each_other_through_a_program() {
    for_each_kind(|kind| {
        let lab = Lab::new(kind, Plan::default());
        let program = live("pass", 1);
        lab.attach(0, &program);
        let [a, b] = [&lab.hosts[0].namespace, &lab.hosts[1].namespace];
        must_ping(a, "10.0.0.2", 56);
        must_ping(a, "fd00::2", 56);
        must_ping(b, "10.0.0.1", 1472);
        assert_eq!(seen(&program, Seen::Echo as u32)[0], 22, "requests of A, answers of A");
        assert_eq!(seen(&program, Seen::Echo6 as u32)[0], 11);
        lab.check();
    });
}

#[test]
fn tcp_passes_with_intact_checksums() {
    for_each_kind(|kind| {
        for name in ["pass", "pass_linear", "pop_push"] {
            let lab = Lab::new(kind, Plan::default());
            let program = live(name, 1);
            lab.attach(0, &program);
            lab.attach(1, &program);
            let [a, b] = [&lab.hosts[0].namespace, &lab.hosts[1].namespace];
            let _server = serve(b);
            for to in ["10.0.0.2", "fd00::2"] {
                let up = tcp(a, to, "-t 1");
                let down = tcp(a, to, "-t 1 -R");
                eprintln!("  {name} {to}: {:.2} and {:.2} Gbit/s", up / 1e9, down / 1e9);
                assert!(up > 50e6 && down > 50e6, "{name} {to}: {up} {down}");
            }
            for host in [a, b] {
                assert_eq!(stack_counter(host, "Tcp.InErrs"), 0);
                assert_eq!(stack_counter(host, "Tcp.InCsumErrors"), 0);
            }
            lab.check();
            assert_eq!(lab.drops(0), [], "{name}");
        }
    });
}

#[test]
fn jumbo_frames_pass() {
    for_each_kind(|kind| {
        for name in ["pass", "pass_linear"] {
            let lab = Lab::new(kind, Plan { mtu: 9000, ..Plan::default() });
            lab.attach(0, &live(name, 1));
            let [a, b] = [&lab.hosts[0].namespace, &lab.hosts[1].namespace];
            must_ping(a, "10.0.0.2", 8972);
            must_ping(b, "fd00::1", 8952);
            let _server = serve(b);
            let rate = tcp(a, "10.0.0.2", "-t 1");
            assert!(rate > 50e6, "{rate}");
            assert_eq!(stack_counter(b, "Tcp.InErrs"), 0);
            lab.check();
        }
    });
}

#[test]
fn tagged_frames_pass() {
    for_each_kind(|kind| {
        let lab = Lab::new(kind, Plan::default());
        let program = live("pass", 1);
        lab.attach(0, &program);
        let object = programs::path("tag");
        for host in &lab.hosts {
            let (net, n) = (&host.namespace, host.number);
            net.run(&format!("tc qdisc add dev h{n} clsact"));
            for (hook, section) in [("egress", "push"), ("ingress", "pop")] {
                let object = object.display();
                net.run(&format!(
                    "tc filter add dev h{n} {hook} bpf da obj {object} sec {section}"
                ));
            }
        }
        let [a, b] = [&lab.hosts[0].namespace, &lab.hosts[1].namespace];
        must_ping(a, "10.0.0.2", 56);
        must_ping(a, "fd00::2", 1452);
        assert!(seen(&program, Seen::Vlan as u32)[0] >= 11, "the program sees the tag");
        let _server = serve(b);
        assert!(tcp(a, "10.0.0.2", "-t 1") > 50e6);
        assert_eq!(stack_counter(b, "Tcp.InErrs"), 0);
        lab.check();
    });
}

#[test]
fn a_filter_drops_what_it_says() {
    for_each_kind(|kind| {
        let lab = Lab::new(kind, Plan::default());
        let program = live("filter", 1);
        lab.attach(0, &program);
        let [a, b] = [&lab.hosts[0].namespace, &lab.hosts[1].namespace];
        must_ping(a, "10.0.0.2", 56);
        assert_eq!(ping(a, "10.0.0.2", 10, 1400), 0);
        assert_eq!(lab.drops(0), [("verdict", 10)]);
        let _server = serve(b);
        assert!(tcp(a, "10.0.0.2", "-t 1") > 50e6, "TCP is not meant");
        lab.check();
    });
}

#[test]
fn a_responder_answers_a_real_ping() {
    for_each_kind(|kind| {
        let lab = Lab::new(kind, Plan::default());
        let a = &lab.hosts[0].namespace;
        // No host has these addresses, so all answers are the program's.
        a.run("ip neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev h1 nud permanent");
        a.run("ip neigh add fd00::9 lladdr 02:00:00:00:00:09 dev h1 nud permanent");
        assert_eq!(ping(a, "10.0.0.9", 3, 56), 0);
        lab.attach(0, &programs::load("echo", "echo", 1));
        must_ping(a, "10.0.0.9", 56);
        must_ping(a, "fd00::9", 1400);
        lab.check();
    });
}

#[test]
fn frames_are_redirected() {
    for_each_kind(|kind| {
        for (name, map) in [("redirect", "target"), ("redirect_map", "ports")] {
            let lab = Lab::new(kind, Plan::default());
            let programs = [live(name, 1), live(name, 1)];
            for (host, program) in programs.iter().enumerate() {
                set(program, map, 0, lab.ifindex(1 - host));
                lab.attach(host, program);
            }
            let [a, b] = [&lab.hosts[0].namespace, &lab.hosts[1].namespace];
            must_ping(a, "10.0.0.2", 56);
            let _server = serve(b);
            let rate = tcp(a, "10.0.0.2", "-t 1");
            assert!(rate > 50e6, "{name}: {rate}");
            assert_eq!(udp(a, "10.0.0.2", 100, 1000), 0);
            assert_eq!(stack_counter(b, "Tcp.InErrs"), 0);
            lab.check();
        }
    });
}

#[test]
fn a_broadcast_reaches_all_but_its_origin() {
    for_each_kind(|kind| {
        let lab = Lab::new(kind, Plan { hosts: 3, ..Plan::default() });
        let program = live("broadcast", 1);
        for host in 0..3 {
            set(&program, "ports", host as u32, lab.ifindex(host));
            lab.attach(host, &program);
        }
        let before = lab.settled();
        let a = &lab.hosts[0].namespace;
        // ARP requests and answers go to all hosts; each host accepts its own.
        must_ping(a, "10.0.0.2", 56);
        must_ping(a, "10.0.0.3", 1400);
        must_ping(&lab.hosts[1].namespace, "fd00::3", 56);
        lab.check();
        let after = lab.settled();
        let [(rx1, tx1), (rx2, tx2), (rx3, tx3)] =
            [0, 1, 2].map(|i| (after[i].0 - before[i].0, after[i].1 - before[i].1));
        assert_eq!([tx1, tx2, tx3], [rx2 + rx3, rx1 + rx3, rx1 + rx2], "everybody's but one's own");
    });
}

#[test]
fn frames_pass_on_another_worker() {
    for_each_kind(|kind| {
        let lab = Lab::new(kind, Plan { workers: 2, ..Plan::default() });
        let program = live("to_cpu", 2);
        set(&program, "cpus", 1, 1024);
        lab.attach(0, &program);
        lab.attach(1, &program);
        let [a, b] = [&lab.hosts[0].namespace, &lab.hosts[1].namespace];
        must_ping(a, "10.0.0.2", 56);
        let _server = serve(b);
        assert!(tcp(a, "10.0.0.2", "-t 1") > 50e6);
        assert_eq!(stack_counter(b, "Tcp.InErrs"), 0);
        lab.check();
    });
}

#[test]
fn flows_are_spread_over_queues() {
    for_each_kind(|kind| {
        let plan = Plan { queues: 4, workers: 2, ..Plan::default() };
        let lab = Lab::new(kind, plan);
        let program = live("pass", 2);
        lab.attach(0, &program);
        let [a, b] = [&lab.hosts[0].namespace, &lab.hosts[1].namespace];
        must_ping(a, "10.0.0.2", 56);
        let _server = serve(b);
        assert!(tcp(a, "10.0.0.2", "-t 1 -P 16") > 50e6);
        assert_eq!(stack_counter(b, "Tcp.InErrs"), 0);
        let workers = lab.by_worker(0);
        assert!(workers.iter().all(|&frames| frames > 0), "{workers:?}");
        lab.check();
    });
}

#[test]
fn what_is_cut_and_summed_here_is_believed_by_a_stack() {
    if let Some(why) = lab::unavailable().or_else(programs::unavailable) {
        return eprintln!("skipped: {why}");
    }
    for mtu in [1500, 9000] {
        let lab = Lab::new(kinds::CUT, Plan { mtu, ..Plan::default() });
        let program = live("pass", 1);
        lab.attach(0, &program);
        let [a, b] = [&lab.hosts[0].namespace, &lab.hosts[1].namespace];
        must_ping(a, "10.0.0.2", mtu - 28);
        let _server = serve(b);
        for to in ["10.0.0.2", "fd00::2"] {
            assert!(tcp(a, to, "-t 1") > 50e6);
            assert!(tcp(a, to, "-t 1 -R") > 50e6);
        }
        assert_eq!(udp(a, "10.0.0.2", 100, 1000), 0);
        assert_eq!(udp(a, "fd00::2", 100, 1001), 0);
        for host in [a, b] {
            for counter in ["Tcp.InErrs", "Tcp.InCsumErrors", "Udp.InCsumErrors"] {
                assert_eq!(stack_counter(host, counter), 0, "{counter}");
            }
        }
        assert_eq!(lab.drops(1), []);
        lab.check();
    }
}

#[test]
fn tcp_passes_a_plain_veth_when_its_other_end_makes_checksums_itself() {
    if let Some(why) = lab::unavailable().or_else(programs::unavailable) {
        return eprintln!("skipped: {why}");
    }
    let left = Lab::new(&PlainVeth::new(PeerOffloads::Leave), Plan::default());
    let [a, b] = [&left.hosts[0].namespace, &left.hosts[1].namespace];
    must_ping(a, "10.0.0.2", 56);
    let address = SocketAddr::from(([10, 0, 0, 2], 7));
    let _listener = b.within(|| TcpListener::bind(address).unwrap());
    let connected = a.within(|| TcpStream::connect_timeout(&address, Duration::from_secs(2)));
    assert_eq!(connected.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    assert!(stack_counter(b, "Tcp.InCsumErrors") > 0, "nobody made them");
    drop(left);

    let switched = Lab::new(&PlainVeth::new(PeerOffloads::Off), Plan::default());
    let [a, b] = [&switched.hosts[0].namespace, &switched.hosts[1].namespace];
    let server = serve(b);
    for options in ["-t 1", "-t 1 -R"] {
        let rate = tcp(a, "10.0.0.2", options);
        eprintln!("{:.2} Gbit/s", rate / 1e9);
        assert!(rate > 50e6, "{rate}");
    }
    for host in [a, b] {
        assert_eq!(stack_counter(host, "Tcp.InCsumErrors"), 0);
    }
    switched.check();
    drop(server);
    let Lab { engine, hosts } = switched;
    drop(engine);
    for host in hosts {
        let features = host.namespace.run(&format!("ethtool -k h{}", host.number));
        assert!(features.contains("tx-checksumming: on"), "as it was before: {features}");
    }
}
