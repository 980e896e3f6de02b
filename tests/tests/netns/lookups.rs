//! `bpf_fib_lookup` with the host's tables as rtnetlink tells them, beside the kernel's own answers
//! in the same namespace.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use towpath_bpf::Env;
use towpath_host::{Live, Watcher};
use towpath_kernel::{Kernel, KernelProgram, TestRun};
use towpath_xdp::{Frame, LoadOptions, Program, Select, Worker};

use crate::namespace::Namespace;
use crate::{lab, programs};

/// Routers around this one, and routes of every kind.
const SETUP: &str = "
sysctl -qw net.ipv4.ip_forward=1
sysctl -qw net.ipv6.conf.all.forwarding=1
sysctl -qw net.ipv6.conf.default.accept_dad=0
ip link add name va type veth peer name vap
ip link add name vb mtu 9000 type veth peer name vbp
ip link add name vc type veth peer name vcp
ip link set vcp up
ip link set vc up
ip link add link vb name vb.7 type vlan id 7
ip link set va up
ip link set vap up
ip link set vb up
ip link set vbp up
ip link set vb.7 up
ip addr add 10.0.0.1/24 dev va
ip addr add 10.0.1.1/24 dev vb
ip addr add 10.0.9.1/24 dev vb
ip addr add 10.0.7.1/24 dev vb.7
ip addr add fd00::1/64 dev va nodad
ip addr add fd01::1/64 dev vb nodad
sysctl -qw net.ipv4.conf.vb/7.forwarding=0
sysctl -qw net.ipv6.conf.vb/7.forwarding=0
sysctl -qw net.ipv4.conf.vc.forwarding=0
sysctl -qw net.ipv6.conf.vc.forwarding=0
ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev va nud permanent
ip neigh add 10.0.1.2 lladdr 02:00:00:00:01:02 dev vb nud reachable
ip neigh add 10.0.9.2 lladdr 02:00:00:00:09:02 dev vb nud stale
ip neigh add 10.0.1.3 dev vb nud failed
ip neigh add fd00::2 lladdr 02:00:00:00:00:12 dev va nud permanent
ip neigh add fd01::2 lladdr 02:00:00:00:01:12 dev vb nud noarp
ip route add default via 10.0.0.2 metric 100
ip route add 10.1.0.0/16 via 10.0.1.2
ip route add 10.1.1.0/24 via 10.0.0.2 metric 5
ip route add 10.1.1.0/24 via 10.0.1.2 metric 4
ip route add 10.1.2.0/24 via 10.0.9.2
ip route add 10.1.3.0/24 via 10.0.1.3
ip route add 10.1.4.0/24 via 10.0.1.2 mtu lock 800
ip route add 10.1.5.0/24 via 10.0.1.2 mtu 800
ip route add 10.1.6.0/24 via 10.0.1.2 src 10.0.0.1
ip route add 10.1.7.0/24 via inet6 fd01::2 dev vb
ip route add blackhole 10.1.8.0/24
ip route add unreachable 10.1.9.0/24
ip route add prohibit 10.1.10.0/24
ip route add throw 10.1.11.0/24
ip route add 10.1.12.0/24 encap mpls 100 via 10.0.1.2
ip route add 10.1.13.0/24 nexthop via 10.0.0.2 weight 1 nexthop via 10.0.1.2 weight 3
ip nexthop add id 1 via 10.0.1.2 dev vb
ip nexthop add id 2 blackhole
ip nexthop add id 3 via fd01::2 dev vb
ip route add 10.1.14.0/24 nhid 1
ip route add 10.1.15.0/24 nhid 2
ip route add 10.2.0.0/16 via 10.0.1.2 table 100
ip route add blackhole 10.1.0.0/24 table 100
ip route add local 10.3.0.0/24 dev lo
ip route add 10.4.0.0/16 dev vc
ip route add fd10::/16 via fd00::2
ip route add fd11::/16 via fd01::2 metric 7
ip route add fd11:1::/32 via fd00::2 metric 9
ip route add fd11:2::/32 via fd01::2 mtu lock 1300
ip route add blackhole fd11:8::/32
ip route add unreachable fd11:9::/32
ip route add prohibit fd11:a::/32
ip route add throw fd11:b::/32
ip route add fd11:c::/32 encap mpls 100 via fd01::2
ip route add fd11:d::/32 nexthop via fd00::2 nexthop via fd01::2
ip -6 route add fd11:e::/32 nhid 3
ip route add fd12::/16 via fd01::2 table 100
";

/// Changes while look-ups are compared, one line at a time.
const CHANGES: &str = "
ip neigh replace 10.0.1.3 lladdr 02:00:00:00:01:03 dev vb nud permanent
ip neigh del 10.0.0.2 dev va
ip route replace default via 10.0.1.2 metric 100
ip route del blackhole 10.1.8.0/24
ip route add 10.1.16.0/20 via 10.0.0.2
ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:22 dev va nud permanent
ip nexthop replace id 1 via 10.0.0.2 dev va
ip link set vc down
ip link set vb mtu 2000
ip link set va address 02:00:00:00:0a:0a
sysctl -qw net.ipv4.conf.vb.forwarding=0
ip route flush 10.1.13.0/24
ip link set va down
ip link set va up
sysctl -qw net.ipv4.nexthop_compat_mode=0
ip route replace 10.1.14.0/24 nhid 1
ip -6 route add fd11:f::/32 nhid 3
ip route del fd10::/16
ip link del vb.7
sysctl -qw net.ipv6.conf.all.forwarding=0
ip link del vb
";

/// A program in Towpath, with the host's tables, and the same one in the kernel.
struct Both {
    ours: Program,
    worker: Worker,
    theirs: KernelProgram,
}

/// A look-up.
#[derive(Debug, Clone, Copy)]
struct Question {
    flags: u32,
    ifindex: u32,
    destination: IpAddr,
    source: IpAddr,
    total_len: u16,
    table: u32,
}

impl Question {
    /// The frame: room for the result, flags, `struct bpf_fib_lookup`.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 8 + 64];
        bytes[4..8].copy_from_slice(&self.flags.to_ne_bytes());
        let params = &mut bytes[8..];
        params[0] = if self.destination.is_ipv4() { 2 } else { 10 };
        params[1] = 17;
        params[6..8].copy_from_slice(&self.total_len.to_ne_bytes());
        params[8..12].copy_from_slice(&self.ifindex.to_ne_bytes());
        for (at, address) in [(16, self.source), (32, self.destination)] {
            match address {
                IpAddr::V4(v4) => params[at..at + 4].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => params[at..at + 16].copy_from_slice(&v6.octets()),
            }
        }
        params[48..52].copy_from_slice(&self.table.to_ne_bytes());
        bytes
    }
}

impl Both {
    fn load(live: &Arc<Live>) -> Both {
        let object = programs::object("fib");
        let options = LoadOptions { host: Arc::clone(live), ..LoadOptions::default() };
        let ours = Program::load(&object, Select::Only, &Env::builtin(), &options).unwrap();
        let kernel = Kernel::open().unwrap();
        let linked = object.link(0, &Env::builtin()).unwrap();
        let maps = kernel.load_maps(&linked.maps).unwrap();
        let theirs = kernel.load(&linked, &maps).unwrap();
        Both { worker: ours.worker(0), ours, theirs }
    }

    /// The answers of both: result and parameters.
    fn ask(&mut self, question: &Question) -> [Vec<u8>; 2] {
        let bytes = question.bytes();
        let mut frame = Frame::new(&bytes).unwrap();
        self.ours.run(&mut self.worker, &mut frame).unwrap();
        let theirs = self.theirs.test_run(&TestRun::new(&bytes)).unwrap();
        [frame.to_vec(), theirs.data]
    }
}

/// Questions that reach every route, and some that reach none.
struct Questions {
    random: u64,
    ifindexes: Vec<u32>,
}

impl Questions {
    fn below(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % below
    }

    fn next(&mut self) -> Question {
        let v4 = |[b, c, d]: [u64; 3]| IpAddr::from([10, b as u8, c as u8, d as u8]);
        let (destination, source) = if self.below(2) == 0 {
            let parts = [self.below(5), self.below(20), self.below(4)];
            (
                if self.below(20) == 0 { [8, 8, 8, 8].into() } else { v4(parts) },
                [10, 0, 0, 77].into(),
            )
        } else {
            let first = [0xfd00, 0xfd01, 0xfd10, 0xfd11, 0xfd11, 0xfd11, 0xfd12, 0xfe80, 0xff02];
            let first = first[self.below(9) as usize];
            let (second, last) = (self.below(17) as u16, self.below(4) as u16);
            let second = if first < 0xfd10 { 0 } else { second };
            let to = Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, last);
            (to.into(), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x77).into())
        };
        // DIRECT, OUTPUT, SKIP_NEIGH, TBID, SRC; SRC where there is one address to choose.
        let flags = [0, 0, 0, 1, 4, 9, 5, 2, 8, 1, 3, 20];
        let flags = flags[self.below(12) as usize];
        let flags = if destination.is_ipv6() { flags & !16 } else { flags };
        let place = self.below(self.ifindexes.len() as u64) as usize;
        let ifindex = self.ifindexes[place];
        let total_len = [0, 0, 100, 900, 1400, 1600, 9500][self.below(7) as usize];
        let table = [100, 100, 254, 255, 77][self.below(5) as usize];
        let table = if flags & 8 != 0 { table } else { 0 };
        Question { flags, ifindex, destination, source, total_len, table }
    }
}

/// Whether a route has several next hops. The kernel's choice among them depends on a secret, so
/// only the result code is compared.
fn is_multipath(question: &Question) -> bool {
    match question.destination {
        IpAddr::V4(v4) => v4.octets()[..3] == [10, 1, 13],
        IpAddr::V6(v6) => v6.segments()[..2] == [0xfd11, 0xd],
    }
}

fn compare(both: &mut Both, questions: &mut Questions, count: usize) -> [usize; 10] {
    let mut seen = [0; 10];
    for _ in 0..count {
        let question = questions.next();
        let end = Instant::now() + Duration::from_secs(3);
        loop {
            let [ours, theirs] = answers(both, &question);
            if ours == theirs {
                if let Some(seen) = seen.get_mut(usize::from(theirs[0])) {
                    *seen += 1;
                }
                break;
            }
            // A change may not have been read yet.
            assert!(Instant::now() < end, "{question:?}\n{ours:?}\n{theirs:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    seen
}

/// The answers of both, as far as they can be equal.
fn answers(both: &mut Both, question: &Question) -> [Vec<u8>; 2] {
    let mut answers = both.ask(question);
    // Not every next hop has a neighbour, and their interfaces' MTUs differ.
    let may_differ = |answer: &Vec<u8>| [0, 7, 8].contains(&answer[0]);
    if is_multipath(question) && answers.iter().all(may_differ) {
        answers.iter_mut().for_each(|answer| answer.truncate(0));
        answers.iter_mut().for_each(|answer| answer.push(0));
    }
    answers
}

/// Waits until the watcher has read what changed.
fn settle(watcher: &Watcher) {
    let end = Instant::now() + Duration::from_secs(5);
    let mut last = watcher.status().reads;
    let mut quiet = 0;
    while quiet < 4 {
        assert!(Instant::now() < end, "{:?}", watcher.status());
        std::thread::sleep(Duration::from_millis(15));
        let reads = watcher.status().reads;
        quiet = if reads == last { quiet + 1 } else { 0 };
        last = reads;
    }
}

fn in_namespace(namespace: &Namespace) {
    let file = File::open(namespace.path()).unwrap();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    let live = Arc::new(Live::default());
    let watcher = Watcher::start(&live).unwrap();
    settle(&watcher);
    let tables = live.current();
    let host = tables.host();
    let b = host.interfaces.iter().find(|interface| interface.name == "vb").unwrap();
    if let Some(vlan) = host.interfaces.iter().find(|interface| interface.name == "vb.7") {
        let tag = vlan.vlan.unwrap();
        assert_eq!((tag.lower, tag.id, tag.protocol), (b.ifindex, 7, 0x8100));
        assert!(!vlan.forwarding_v4 && !vlan.forwarding_v6);
    }
    assert_eq!((b.mtu, b.up, b.forwarding_v4), (9000, true, true));
    assert!(b.addresses.contains(&Ipv4Addr::new(10, 0, 9, 1).into()));
    assert_eq!(watcher.status().unreadable, 0);

    let mut both = Both::load(&live);
    let mut ifindexes: Vec<u32> = host.interfaces.iter().map(|i| i.ifindex).collect();
    ifindexes.push(9999);
    let mut questions = Questions { random: 11, ifindexes };
    let seen = compare(&mut both, &mut questions, 3000);
    eprintln!("  answers by result: {seen:?}");
    // Tunnels of routes are not in every kernel; sources of IPv6 are not asked for.
    assert!([0, 1, 2, 3, 4, 5, 7, 8].iter().all(|result| seen[*result] > 0), "{seen:?}");
    for change in CHANGES.lines().filter(|line| !line.is_empty()) {
        if !namespace.output(change).status.success() {
            eprintln!("  without: {change}");
            continue;
        }
        settle(&watcher);
        eprintln!("  {change}");
        compare(&mut both, &mut questions, 300);
    }
    let status = watcher.status();
    eprintln!("  {status:?}");
    assert_eq!((status.unreadable, status.error), (0, None));
}

#[test]
fn routes_are_found_as_in_the_kernel_while_they_change() {
    if let Some(why) = lab::unavailable().or_else(programs::unavailable) {
        return eprintln!("skipped: {why}");
    }
    if let Err(why) = Kernel::open() {
        return eprintln!("skipped: {why}");
    }
    let namespace = Namespace::new();
    let mut missing = Vec::new();
    for line in SETUP.lines().filter(|line| !line.is_empty()) {
        if !namespace.output(line).status.success() {
            missing.push(line);
        }
    }
    eprintln!("  without: {missing:#?}");
    // Kernels are built without these.
    let is_optional = |line: &&str| ["mpls", "vb.7", "vb/7"].iter().any(|part| line.contains(part));
    missing.retain(|line| !is_optional(line));
    assert!(missing.is_empty(), "{missing:#?}");
    std::thread::scope(|scope| {
        scope.spawn(|| in_namespace(&namespace)).join().unwrap();
    });
}
