//! Receive hints of a frame stay with it over its whole path: through a devmap's program, over a
//! pair, through a cpumap's program, to a stack above, over another pair, to a socket; for all port
//! kinds that receive frames.
//!
//! `TOWPATH_HINT_FRAMES` is the number of frames of each kind; it is 1000000 for a release.
//! Kinds that are interfaces of the host need root, and say "skipped: why" without it.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "what was skipped, and figures")]

mod packets;
mod socket;
mod source;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use packets::Packets;
use socket::Collecting;
use source::Source;
use towpath_bpf::program::{AttachType, Linked, MapType};
use towpath_engine::{Engine, Hook, Link, Mode, Options, PortId, PortOptions, QueueId, UpperName};
use towpath_engine::{WorkerOptions, port::Device};
use towpath_maps::Value;
use towpath_ports::pair::{self, Pair};
use towpath_workload::small;
use towpath_xdp::{LoadOptions, Program};
use watch::Watch;

#[test]
fn pair() {
    check(Source::pair);
}

#[test]
fn generator() {
    check(Source::generator);
}

#[test]
fn pcap() {
    check(Source::pcap);
}

#[test]
fn vhost_user() {
    check(Source::vhost_user);
}

#[test]
fn tap() {
    check_with_root("tap", Source::tap);
}

#[test]
fn packet() {
    check_with_root("packet", Source::packet);
}

#[test]
fn afxdp() {
    check_with_root("afxdp", Source::afxdp);
}

fn check_with_root(kind: &str, make: fn(&Packets) -> Source) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: {kind} needs root");
        return;
    }
    check(make);
}

fn check(make: fn(&Packets) -> Source) {
    let frames = std::env::var("TOWPATH_HINT_FRAMES").ok().and_then(|it| it.parse().ok());
    let packets = Packets::new(frames.unwrap_or(2000));
    // Before the engine: its threads are where the source's interfaces are.
    let Source { device, mut feed, hints } = make(&packets);
    let socket = Collecting::new(QueueId { ifindex: 1015, queue: 0 });
    let watch = Watch::new(packets.count, &socket);
    let lab = Lab::new(watch.around(device), socket);
    let start = Instant::now();
    let mut sent = 0;
    while lab.socket.count() < packets.count {
        let window = lab.socket.count() + WINDOW;
        let end = packets.count.min(window);
        if sent < end {
            sent = feed.send(&packets, sent..end);
        }
        let patience = PATIENCE + Duration::from_micros(500) * packets.count as u32;
        let all = || lab.engine.conservation();
        let count = lab.socket.count();
        assert!(
            start.elapsed() < patience,
            "{count} of {}, sent {sent}: {:?}",
            packets.count,
            all()
        );
        std::thread::sleep(Duration::from_micros(50));
    }
    eprintln!("{}: {} frames in {:?}", lab.kind, packets.count, start.elapsed());
    for number in 0..packets.count {
        let (known, origin) = watch.seen(number).unwrap_or_else(|| panic!("frame {number}"));
        let (kept, place) = lab.socket.got(number).unwrap_or_else(|| panic!("frame {number}"));
        assert_eq!((kept, place), (known, origin), "frame {number}");
        hints.check(&packets, number, &known);
    }
}

/// source → devmap with a program → pair → cpumap with a program → upper → pair → socket
struct Lab {
    engine: Engine,
    socket: Arc<Collecting>,
    kind: &'static str,
}

impl Lab {
    fn new(source: Box<dyn Device>, socket: Arc<Collecting>) -> Lab {
        let worker = WorkerOptions { cpu: None, mode: Mode::Adaptive, ..WorkerOptions::default() };
        let workers = vec![worker; 2];
        let engine = Engine::start(&Options { workers, frames: 8192 }).unwrap();
        let kind = source.kind();
        let lab = Lab { engine, socket, kind };
        let source = lab.add("source", 1010, source);
        let options = pair::Options { ring: 4096, ..pair::Options::default() };
        let [near, far] = lab.add_pair([("near", 1012), ("far", 1013)], options);
        let [below, end] = lab.add_pair([("below", 1014), ("end", 1015)], options);
        let engine = &lab.engine;
        let entry = |attach| load(Linked { attach, ..small::passes_with_hints() });
        engine
            .change(|config| {
                config.set_entry_program(5, Some(entry(AttachType::Devmap)))?;
                config.set_entry_program(6, Some(entry(AttachType::Cpumap)))?;
                config.set_upper(far, UpperName::Named("below".to_owned()))?;
                config.add_socket(Arc::clone(&lab.socket) as _)
            })
            .unwrap();
        lab.lead(source, MapType::Devmap, [1012, 5]);
        lab.lead(far, MapType::Cpumap, [4096, 6]);
        lab.lead(end, MapType::Xskmap, [towpath_engine::Socket::id(&*lab.socket)]);
        let _both = (near, below);
        engine.change(|config| config.set_up(source, true)).unwrap();
        lab
    }

    fn add(&self, name: &str, ifindex: u32, device: Box<dyn Device>) -> PortId {
        // A source that has its frames itself begins when there is a way for them.
        let up = name != "source";
        let port = PortOptions { ifindex: Some(ifindex), up, ..PortOptions::new(name) };
        self.engine.add_port(port, device).unwrap()
    }

    fn add_pair(&self, ends: [(&str, u32); 2], options: pair::Options) -> [PortId; 2] {
        let (one, other) = Pair::new(options);
        let [(name, ifindex), (other_name, other_ifindex)] = ends;
        let one = self.add(name, ifindex, Box::new(one));
        [one, self.add(other_name, other_ifindex, Box::new(other))]
    }

    /// Has a port's frames redirected by a map with this entry.
    fn lead<const N: usize>(&self, from: PortId, kind: MapType, entry: [u32; N]) {
        let program = load(small::redirect_map(kind, 2, 1, 0));
        let map = program.maps().by_name("targets").unwrap();
        let value = entry.iter().flat_map(|word| word.to_ne_bytes()).collect();
        map.user().update(&1_u32.to_ne_bytes(), &Value::One(value), 0).unwrap();
        let link = Link::new(program, 1, self.engine.workers());
        self.engine.change(|config| config.set_links(from, Hook::Rx, vec![link])).unwrap();
    }
}

fn load(linked: Linked) -> Program {
    let options = LoadOptions { workers: 2, ..LoadOptions::default() };
    Program::from_linked(linked, &options).unwrap()
}

/// Frames under way at a time: no queue on the way is shorter.
pub(crate) const WINDOW: usize = 256;
const PATIENCE: Duration = Duration::from_secs(30);
