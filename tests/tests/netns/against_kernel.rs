//! The kernel's own XDP on a veth, with the same program and the same traffic: counters and what
//! comes of it must be equal.

use std::time::{Duration, Instant};

use towpath_bpf::Env;
use towpath_kernel::{AttachMode, Kernel, KernelProgram, MapSet, XdpLink};

use crate::kinds::{Plug, veth};
use crate::lab::{self, Lab, Plan};
use crate::namespace::Namespace;
use crate::programs::{self, Seen, counter, live, set, sum};
use crate::stacks::for_each_kind;
use crate::traffic::{datagrams, ping};

/// Results of the traffic: answers, then the frames that each host's program saw.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    answers: [u32; 4],
    /// Frames and bytes: IPv4 echoes, IPv6 echoes, UDP.
    seen: [[[u64; 2]; 3]; 2],
    /// Datagrams that reached host 2's stack.
    delivered: u64,
}

const KINDS: [u32; 3] = [Seen::Echo as u32, Seen::Echo6 as u32, Seen::Udp as u32];

/// The same traffic for both systems.
fn exchange(a: &Namespace, b: &Namespace, seen: impl Fn(usize, u32) -> [u64; 2]) -> Outcome {
    // Neighbour discovery is left to the stacks, so these pings are not counted.
    ping(a, "10.0.0.2", 1, 56);
    ping(a, "fd00::2", 1, 56);
    let before = [0, 1].map(|host| KINDS.map(|kind| seen(host, kind)));
    let arrived = udp_arrived(b);
    let answers = [
        ping(a, "10.0.0.2", 20, 56),
        ping(b, "10.0.0.1", 10, 1300),
        ping(a, "fd00::2", 15, 700),
        ping(b, "fd00::1", 5, 1400),
    ];
    datagrams(a, "10.0.0.2", 100, 1400);
    datagrams(a, "fd00::2", 50, 1400);
    let read = || [0, 1].map(|host| KINDS.map(|kind| seen(host, kind)));
    let mut now = read();
    let end = Instant::now() + Duration::from_secs(3);
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let next = read();
        if next == now || Instant::now() > end {
            break;
        }
        now = next;
    }
    for (now, before) in
        now.iter_mut().flatten().flatten().zip(before.as_flattened().as_flattened())
    {
        *now -= before;
    }
    Outcome { answers, seen: now, delivered: udp_arrived(b) - arrived }
}

/// Datagrams that a stack received, also without a socket for them.
fn udp_arrived(host: &Namespace) -> u64 {
    let v4 = crate::traffic::stack_counter(host, "Udp.NoPorts");
    let v6 = host.run("cat /proc/net/snmp6");
    let v6 = v6.lines().find_map(|line| line.strip_prefix("Udp6NoPorts")).unwrap();
    v4 + v6.trim().parse::<u64>().unwrap()
}

/// Two hosts behind veths; programs of the kernel on the other ends, which a bridge joins.
struct KernelLab {
    hosts: [Namespace; 2],
    programs: [(KernelProgram, MapSet); 2],
    _links: [[XdpLink; 2]; 2],
    _wires: Namespace,
}

impl KernelLab {
    fn new(kernel: &Kernel, object: &str, name: &str, mode: AttachMode) -> KernelLab {
        let wires = Namespace::enter_new();
        wires.run("ip link add br0 type bridge mcast_snooping 0");
        wires.run("ip link set br0 up");
        let hosts = [1, 2].map(|number| {
            let host = lab::new_host();
            let plug = Plug { name: format!("h{number}"), mtu: 1500, queues: 1 };
            let other = veth(&host, &wires, &plug);
            wires.run(&format!("ip link set {other} master br0"));
            without_checksum_offload(&host, number);
            lab::add_addresses(&host, number);
            host
        });
        let indexes = [index(&wires, "wh1"), index(&wires, "wh2")];
        let programs = [0, 1].map(|at| {
            let (program, maps) = load(kernel, object, name);
            for (map, key, value) in entries(indexes[at], indexes[1 - at]) {
                if let Some(map) = maps.maps().iter().find(|known| known.name() == map) {
                    map.update(&key.to_ne_bytes(), &value.to_ne_bytes(), 0).unwrap();
                }
            }
            (program, maps)
        });
        let links = [0, 1].map(|at| programs[at].0.attach(indexes[at], mode).unwrap());
        // Frames sent in native mode reach a veth only if it has a program, too.
        let (receiver, _maps) = load(kernel, "live", "pass");
        let receivers = [0, 1].map(|at: usize| {
            let index = index(&hosts[at], &format!("h{}", at + 1));
            hosts[at].within(|| receiver.attach(index, AttachMode::Native).unwrap())
        });
        KernelLab { hosts, programs, _links: [links, receivers], _wires: wires }
    }

    /// A pair of counters of a host's program.
    fn counter(&self, host: usize, map: &str, key: u32) -> [u64; 2] {
        let maps = self.programs[host].1.maps();
        let map = maps.iter().find(|known| known.name() == map).unwrap();
        sum(map.lookup(&key.to_ne_bytes()).unwrap().chunks(16))
    }
}

/// Number of an interface.
fn index(namespace: &Namespace, name: &str) -> u32 {
    let line = namespace.run(&format!("ip -o link show {name}"));
    line.split(':').next().and_then(|index| index.parse().ok()).unwrap()
}

/// Contents of the maps of `live.c` for a port and the other one: map, key, value.
fn entries(own: u32, other: u32) -> [(&'static str, u32, u32); 4] {
    [("target", 0, other), ("ports", 0, other), ("ports", 1, own), ("cpus", 1, 1024)]
}

/// A frame whose checksum is left to do loses that statement when the kernel redirects it from one
/// veth to another in native mode, and is dropped as damaged. So that there is something to
/// compare, hosts sum themselves.
fn without_checksum_offload(host: &Namespace, number: usize) {
    host.run(&format!("ethtool -K h{number} tx off"));
}

fn load(kernel: &Kernel, object: &str, name: &str) -> (KernelProgram, MapSet) {
    let object = programs::object(object);
    let index = object.programs().iter().position(|program| program.name == name).unwrap();
    let linked = object.link(index, &Env::builtin()).unwrap();
    let maps = kernel.load_maps(&linked.maps).unwrap();
    (kernel.load(&linked, &maps).unwrap(), maps)
}

#[test]
fn counters_are_the_kernels() {
    if let Some(why) = lab::unavailable().or_else(programs::unavailable) {
        return eprintln!("skipped: {why}");
    }
    let Some(kernel) = kernel() else { return };
    for name in ["pass", "filter", "redirect", "redirect_map", "broadcast", "to_cpu"] {
        let ask = |mode| {
            let lab = KernelLab::new(&kernel, "live", name, mode);
            let [a, b] = &lab.hosts;
            exchange(a, b, |host, kind| lab.counter(host, "seen", kind))
        };
        let wanted = ask(AttachMode::Native);
        // A generic program's frames do not come out of a cpumap into a bridge.
        if name != "to_cpu" {
            assert_eq!(ask(AttachMode::Generic), wanted, "{name}: the kernel itself");
        }
        for_each_kind(|kind| {
            let lab = Lab::new(kind, Plan { workers: 2, ..Plan::default() });
            let programs = [live(name, 2), live(name, 2)];
            for (at, program) in programs.iter().enumerate() {
                for (map, key, value) in entries(lab.ifindex(at), lab.ifindex(1 - at)) {
                    set(program, map, key, value);
                }
                lab.attach(at, program);
                without_checksum_offload(&lab.hosts[at].namespace, at + 1);
            }
            let [a, b] = [&lab.hosts[0].namespace, &lab.hosts[1].namespace];
            let got = exchange(a, b, |host, kind| counter(&programs[host], "seen", kind));
            assert_eq!(got, wanted, "{name}: {}", kind.name());
            lab.check();
        });
    }
}

/// Answers of a responder that arrived, and its frames and bytes of both families.
fn questions(host: &Namespace, answered: impl Fn(u32) -> [u64; 2]) -> ([u32; 3], [[u64; 2]; 2]) {
    host.run("ip neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev h1 nud permanent");
    host.run("ip neigh add fd00::9 lladdr 02:00:00:00:00:09 dev h1 nud permanent");
    let answers = [
        ping(host, "10.0.0.9", 30, 56),
        ping(host, "10.0.0.9", 10, 1472),
        ping(host, "fd00::9", 20, 1000),
    ];
    (answers, [answered(0), answered(1)])
}

#[test]
fn answers_are_the_kernels() {
    if let Some(why) = lab::unavailable().or_else(programs::unavailable) {
        return eprintln!("skipped: {why}");
    }
    let Some(kernel) = kernel() else { return };
    let wanted = [AttachMode::Native, AttachMode::Generic].map(|mode| {
        let lab = KernelLab::new(&kernel, "echo", "echo", mode);
        questions(&lab.hosts[0], |key| lab.counter(0, "answered", key))
    });
    assert_eq!(wanted[0].0, [30, 10, 20]);
    assert_eq!(wanted[0], wanted[1], "the kernel, native and generic");
    for_each_kind(|kind| {
        let lab = Lab::new(kind, Plan::default());
        let program = programs::load("echo", "echo", 1);
        lab.attach(0, &program);
        let got = questions(&lab.hosts[0].namespace, |key| counter(&program, "answered", key));
        assert_eq!(got, wanted[0], "{}", kind.name());
        lab.check();
    });
}

fn kernel() -> Option<Kernel> {
    Kernel::open().inspect_err(|why| eprintln!("skipped: {why}")).ok()
}
