//! Interfaces of the host's that go and come back in every way, at random: ports on them work again
//! by themselves, nothing is left over, and every frame is accounted for.
//!
//! `TOWPATH_ABUSE_SECONDS` says for how long, `TOWPATH_ABUSE_SEED` in which order.

mod namespaces;
mod served;

use std::collections::{BTreeMap, VecDeque};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use parking_lot::Mutex;
use towpath_daemon::client::Client;

use namespaces::{Namespaces, ip};
use served::Served;

/// After its interface is back, a port works within this time of a machine that lets it.
const SOON: Duration = Duration::from_secs(1);
/// Nothing waits longer than this to be found broken.
const LIMIT: Duration = Duration::from_secs(10);

/// Interval of the checks whether the machine lets threads run.
const TICK: Duration = Duration::from_millis(10);
/// Number of the daemon's last messages that are kept.
const HEARD_MAX: usize = 30;

/// A way to go, and the way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Deleted,
    Moved,
    Renamed,
    Down,
    Carrier,
}

/// An interface, the port that is on it, and the port whose frames leave by it.
#[derive(Debug, Clone, Copy)]
struct Victim {
    name: &'static str,
    is_tap: bool,
    /// A bond of which it is a member.
    bond: Option<&'static str>,
}

const VICTIMS: [Victim; 8] = [
    Victim { name: "packet0", is_tap: false, bond: None },
    Victim { name: "packet1", is_tap: false, bond: None },
    Victim { name: "afxdp0", is_tap: false, bond: None },
    Victim { name: "tap0", is_tap: true, bond: None },
    Victim { name: "m0", is_tap: false, bond: Some("bond0") },
    Victim { name: "m1", is_tap: false, bond: Some("bond0") },
    Victim { name: "k0", is_tap: true, bond: Some("bond1") },
    Victim { name: "k1", is_tap: false, bond: Some("bond1") },
];

struct Lab {
    served: Served,
    namespaces: Namespaces,
    /// Nanoseconds by which a thread that has nothing to do was late so far: the machine had other
    /// things to do.
    late: Arc<AtomicU64>,
    /// The daemon's last messages, with their times.
    heard: Arc<Mutex<VecDeque<String>>>,
    /// The longest return by way, and how many there were.
    returns: BTreeMap<(Way, &'static str), (u32, Duration)>,
}

fn config(namespaces: &Namespaces) -> String {
    let near = &namespaces.near;
    let on = |name: &str, kind: &str| {
        format!("[[port]]\nname = \"{name}\"\nkind = \"{kind}\"\nnetns = \"{near}\"\n")
    };
    let bond = |name: &str, members: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\nkind = \"bond\"\nmembers = [{members}]\nmode = 1\n\
             miimon = 10\n"
        )
    };
    let generator = |to: &str| {
        format!(
            "[[port]]\nname = \"to-{to}\"\nkind = \"generator\"\nrate = 1000\nupper = \"{to}\"\n\
             frames = [\"ffffffffffff02000000000108000000000000000000000000000000\"]\n"
        )
    };
    let kinds = ["packet", "packet", "afxdp", "tap", "packet", "packet", "tap", "afxdp"];
    let mut text = String::from("[[worker]]\n[[worker]]\n");
    for (victim, kind) in VICTIMS.iter().zip(kinds) {
        text += &on(victim.name, kind);
    }
    text += &bond("bond0", "\"m0\", \"m1\"");
    text += &bond("bond1", "\"k0\", \"k1\"");
    text += "[[port]]\nname = \"a\"\nkind = \"pair\"\npeer = \"b\"\n\
             [[port]]\nname = \"b\"\nkind = \"pair\"\npeer = \"a\"\n";
    for to in ["packet0", "packet1", "afxdp0", "tap0", "bond0", "bond1", "a"] {
        text += &generator(to);
    }
    text
}

impl Lab {
    fn new(namespaces: Namespaces) -> Lab {
        for victim in VICTIMS.iter().filter(|victim| !victim.is_tap) {
            namespaces.wire(victim.name, &format!("{}-far", victim.name), "");
        }
        let served = Served::start("abuse", &config(&namespaces));
        let heard = Arc::new(Mutex::new(VecDeque::new()));
        let (client, kept) = (Client::new(&served.dir.join("api.sock")), Arc::clone(&heard));
        let client = client.expect("there are descriptors");
        std::thread::spawn(move || {
            let _ended = client.events("/v1/events", |_kind, event| {
                let mut kept = kept.lock();
                kept.push_back(format!("{} {}", event["time"], event["text"]));
                let excess = kept.len().saturating_sub(HEARD_MAX);
                kept.drain(..excess);
                true
            });
        });
        let late = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&late);
        std::thread::spawn(move || {
            loop {
                let start = Instant::now();
                std::thread::sleep(TICK);
                let nanoseconds = (start.elapsed() - TICK).as_nanos() as u64;
                counted.fetch_add(nanoseconds, Ordering::Relaxed);
            }
        });
        Lab { served, namespaces, late, heard, returns: BTreeMap::new() }
    }

    fn late(&self) -> Duration {
        Duration::from_nanos(self.late.load(Ordering::Relaxed))
    }

    fn sent(&self, port: &str) -> u64 {
        self.served.get("/v1/stats")["ports"][port]["tx_packets"].as_u64().expect("a number")
    }

    /// Waits until what the port sends leaves; gives how long that took.
    fn works(&self, port: &str) -> Duration {
        let before = self.sent(port);
        self.served.wait(port, LIMIT, || self.sent(port) > before + 20)
    }

    fn go(&self, victim: Victim, way: Way) {
        let Victim { name, .. } = victim;
        let Namespaces { far, .. } = &self.namespaces;
        match way {
            Way::Deleted => self.namespaces.ip(&format!("link del {name}")),
            Way::Moved => self.namespaces.ip(&format!("link set {name} netns {far}")),
            Way::Renamed => {
                self.namespaces.ip(&format!("link set {name} down"));
                self.namespaces.ip(&format!("link set {name} name {name}-other"));
            }
            Way::Down => self.namespaces.ip(&format!("link set {name} down")),
            Way::Carrier => self.namespaces.ip(&format!("link set {name} carrier off")),
        }
    }

    fn come_back(&self, victim: Victim, way: Way) {
        let Victim { name, .. } = victim;
        let Namespaces { near, far } = &self.namespaces;
        match way {
            // The daemon creates it again.
            Way::Deleted if victim.is_tap => {
                let show = || Command::new("ip").args(["-n", near, "link", "show", name]).output();
                let is_there = || show().is_ok_and(|seen| seen.status.success());
                self.served.wait("another tap", SOON, is_there);
            }
            Way::Deleted => self.namespaces.wire(name, &format!("{name}-far"), ""),
            Way::Moved => ip(&["-n", far, "link", "set", name, "netns", near]),
            Way::Renamed => self.namespaces.ip(&format!("link set {name}-other name {name}")),
            Way::Carrier => self.namespaces.ip(&format!("link set {name} carrier on")),
            Way::Down => {}
        }
        if matches!(way, Way::Moved | Way::Renamed | Way::Down) {
            self.namespaces.ip(&format!("link set {name} up"));
        }
    }

    /// Some interfaces go, and come back.
    fn round(&mut self, dice: &mut Rng) {
        let count = 1 + dice.usize(..3);
        let mut away: Vec<(Victim, Way)> = Vec::new();
        for _ in 0..count {
            let victim = VICTIMS[dice.usize(..VICTIMS.len())];
            if away.iter().any(|(known, _)| known.name == victim.name) {
                continue;
            }
            // A tap is neither moved nor renamed: its new owner would decide about it.
            let ways: &[Way] = match victim.is_tap {
                true => &[Way::Deleted, Way::Down, Way::Carrier],
                false => &[Way::Deleted, Way::Moved, Way::Renamed, Way::Down],
            };
            let way = ways[dice.usize(..ways.len())];
            self.go(victim, way);
            away.push((victim, way));
        }
        std::thread::sleep(Duration::from_millis(dice.usize(..300) as u64));
        for &(victim, way) in &away {
            self.come_back(victim, way);
        }
        let (back, late) = (Instant::now(), self.late());
        for (victim, way) in away {
            let port = victim.bond.unwrap_or(victim.name);
            self.works(port);
            let took = back.elapsed();
            if took > SOON + (self.late() - late) {
                let heard = self.heard.lock();
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let said = heard.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
                panic!("{port} works after {took:?}: {victim:?} was {way:?}, at {now:?}:\n{said}");
            }
            let seen = self.returns.entry((way, port)).or_default();
            *seen = (seen.0 + 1, seen.1.max(took));
        }
        self.works("a");
    }

    /// All that is wanted is there, and every member works.
    fn settle(&self) {
        self.served.wait("peace", LIMIT, || {
            let status = self.served.get("/v1/status");
            let ports = status["ports"].as_array().cloned().unwrap_or_default();
            // All ports are open, and there is no failure.
            ports.iter().all(|port| port["failure"].is_null())
                && status["failures"].as_array().is_some_and(Vec::is_empty)
        });
        for bond in ["bond0", "bond1"] {
            self.served.wait("members", LIMIT, || {
                let bond = self.served.get(&format!("/v1/bonds/{bond}"));
                let members = bond["members"].as_array().cloned().unwrap_or_default();
                members.len() == 2 && members.iter().all(|member| member["mii_status"] == "up")
            });
        }
        for port in ["packet0", "packet1", "afxdp0", "tap0", "bond0", "bond1", "a"] {
            self.works(port);
        }
    }

    fn left(&self) -> Left {
        let links = |namespace: &str| {
            let seen = Command::new("ip").args(["-n", namespace, "-o", "link"]).output();
            seen.expect("iproute2 is installed").stdout.split(|&byte| byte == b'\n').count()
        };
        let status = std::fs::read_to_string("/proc/self/status").expect("proc is there");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = resident.and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok());
        Left {
            descriptors: std::fs::read_dir("/proc/self/fd").expect("proc is there").count(),
            links: (links(&self.namespaces.near), links(&self.namespaces.far)),
            kilobytes: kilobytes.expect("it is said"),
        }
    }
}

/// Resources that could leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    descriptors: usize,
    links: (usize, usize),
    kilobytes: u64,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn interfaces_go_and_come_back_at_random() {
    let Some(namespaces) = Namespaces::new("abuse") else {
        return println!("skipped: network namespaces and taps need root and /dev/net/tun");
    };
    let length = Duration::from_secs(number("TOWPATH_ABUSE_SECONDS").unwrap_or(10));
    let seed = number("TOWPATH_ABUSE_SEED").unwrap_or(1);
    let mut lab = Lab::new(namespaces);
    lab.settle();
    let mut dice = Rng::with_seed(seed);
    // The first rounds make everything that is made once and kept.
    (0..10).for_each(|_| lab.round(&mut dice));
    lab.settle();
    let (before, start) = (lab.left(), Instant::now());
    let mut rounds = 0;
    while start.elapsed() < length {
        lab.round(&mut dice);
        rounds += 1;
    }
    lab.settle();
    for ((way, port), (count, longest)) in &lab.returns {
        println!("{port} {way:?}: {count} times, back after {longest:?} at most");
    }
    let frames = lab.served.get("/v1/stats")["frames"].clone();
    println!("{rounds} rounds, {before:?}, {:?}, {frames}", lab.left());
    lab.served.wait("what was before", LIMIT, || {
        let left = lab.left();
        left.descriptors <= before.descriptors && left.links == before.links
    });
    assert!(lab.left().kilobytes < before.kilobytes + 16 * 1024, "{before:?} {:?}", lab.left());
    assert_eq!((&frames["missing"], &frames["in_flight"]), (&0.into(), &0.into()), "{frames}");
    lab.served.end();
}
