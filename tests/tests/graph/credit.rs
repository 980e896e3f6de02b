//! Every kind of port says how much it takes, and keeps its word.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use towpath_engine::bond::{BondMode, BondOptions};
use towpath_engine::port::{Device, Tx};
use towpath_engine::{BURST, Config, Hook, QueueId};
use towpath_ports::afxdp::{self, Afxdp, Attach, Transmit};
use towpath_ports::packet::{self, Packet};
use towpath_ports::pair::{self, Pair};
use towpath_ports::pcap::{self, Pcap};
use towpath_ports::sink::Sink;
use towpath_ports::tap::{self, Tap};
use towpath_ports::wrap::{Wrapped, fault::Fault, limit::Limit};
use towpath_workload::small;
use towpath_xdp::{Arena, Frame, Pool};

use crate::asking::Asking;
use crate::counting::{Counting, Sends};
use crate::{Lab, link, load, options, packet, wait_for};

/// A transmitter, and frames for it.
struct Sender {
    tx: Box<dyn Tx>,
    pool: Pool,
}

impl Sender {
    fn new(device: &dyn Device) -> Sender {
        let arena = Arena::new(8192).unwrap();
        Sender { tx: device.open_tx(0, &arena).unwrap(), pool: Pool::new(&arena) }
    }

    fn frames(&mut self, count: usize) -> Vec<Frame> {
        let packet = packet();
        (0..count).map(|_| self.pool.frame(&packet).unwrap().unwrap()).collect()
    }

    /// Gives it bursts no longer than it says, until it has no credit or that many; gives how many.
    #[track_caller]
    fn fill(&mut self, most: usize) -> usize {
        let mut total = 0;
        while total < most {
            let count = self.tx.credit().min(BURST).min(most - total);
            if count == 0 {
                break;
            }
            let mut frames = self.frames(count);
            self.tx.transmit(&mut frames, &mut self.pool).unwrap();
            assert_eq!(frames.len(), 0, "left of {count} that there was credit for, after {total}");
            self.tx.flush(&mut self.pool).unwrap();
            total += count;
        }
        total
    }

    /// Tries one more; gives whether it was taken.
    fn one_more(&mut self) -> bool {
        let mut frames = self.frames(1);
        self.tx.transmit(&mut frames, &mut self.pool).unwrap();
        let is_taken = frames.is_empty();
        self.pool.give_all(&mut frames);
        is_taken
    }
}

#[test]
fn sinks_take_everything() {
    let mut sender = Sender::new(&Sink);
    assert_eq!((sender.tx.credit(), sender.fill(1000)), (usize::MAX, 1000));
}

#[test]
fn pairs_take_what_their_ring_holds() {
    let (near, far) = Pair::new(pair::Options { ring: 200, ..pair::Options::default() });
    let mut sender = Sender::new(&near);
    assert_eq!((sender.tx.credit(), sender.fill(1000)), (200, 200));
    assert!(!sender.one_more());
    let mut rx = far.open_rx(0, &Arena::new(1).unwrap()).unwrap();
    let mut frames = Vec::new();
    assert_eq!(rx.receive(&mut sender.pool, &mut frames, 7).unwrap(), 7);
    assert_eq!((sender.tx.credit(), sender.fill(1000)), (7, 7));
}

#[test]
fn captures_take_what_is_read() {
    let place = Scratch::new();
    let (file, fifo) = (place.0.join("file"), place.0.join("fifo"));
    let pcap = |path: &PathBuf| {
        Pcap::new(pcap::Options { output: Some(path.clone()), ..pcap::Options::default() })
    };
    let device = pcap(&file).unwrap();
    let mut sender = Sender::new(&device);
    assert_eq!((sender.tx.credit(), sender.fill(1000)), (usize::MAX, 1000));
    let mut sender = Sender::new(&Pcap::new(pcap::Options::default()).unwrap());
    assert_eq!(sender.tx.credit(), usize::MAX, "nothing to write");

    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    // Open, and never read.
    let reader = std::fs::File::options().read(true).write(true).open(&fifo).unwrap();
    let device = pcap(&fifo).unwrap();
    let mut sender = Sender::new(&device);
    let taken = sender.fill(100_000);
    assert!((1000..100_000).contains(&taken), "{taken}");
    assert!(!sender.one_more());
    drop(sender);
    drop((device, reader));
}

#[test]
fn layers_take_what_both_take() {
    let (near, _far) = Pair::new(pair::Options { ring: 50, ..pair::Options::default() });
    let limit = Limit { tx: Some(1), burst: 20, rx: None };
    let mut sender = Sender::new(&Wrapped::new(Box::new(near), Arc::new(limit)));
    assert_eq!((sender.tx.credit(), sender.fill(1000)), (20, 20));
    assert!(!sender.one_more());
    let (near, _far) = Pair::new(pair::Options { ring: 50, ..pair::Options::default() });
    let limit = Limit { tx: Some(1), burst: 80, rx: None };
    let mut sender = Sender::new(&Wrapped::new(Box::new(near), Arc::new(limit)));
    assert_eq!((sender.tx.credit(), sender.fill(1000)), (50, 50));

    // A wire that holds frames back gives back none but those that came.
    let (near, _far) = Pair::new(pair::Options { ring: 2, ..pair::Options::default() });
    let delay = Duration::from_millis(1);
    let fault = Fault { delay, on_tx: true, ..Fault::default() };
    let mut sender = Sender::new(&Wrapped::new(Box::new(near), Arc::new(fault)));
    let mut frames = sender.frames(10);
    sender.tx.transmit(&mut frames, &mut sender.pool).unwrap();
    std::thread::sleep(2 * delay);
    let mut frames = sender.frames(1);
    sender.tx.transmit(&mut frames, &mut sender.pool).unwrap();
    assert!(frames.is_empty(), "{} came out of one", frames.len());
}

#[test]
fn interfaces_take_what_the_kernel_does() {
    in_a_namespace(|| {
        ip("link add near type veth peer name far");
        ip("link set near up");
        ip("link set far up");
        let packets = |qdisc_bypass| {
            let options = packet::Options { qdisc_bypass, ..packet::Options::new("near") };
            Packet::new(&options).unwrap()
        };
        let mut sender = Sender::new(&packets(true));
        assert_eq!(sender.fill(10_000), 10_000);
        // A queueing discipline that keeps what it gets.
        let shaper = "qdisc add dev near root tbf rate 1kbit burst 1600 limit 100000000";
        match run("tc", shaper) {
            true => {
                let mut sender = Sender::new(&packets(false));
                let taken = sender.fill(1_000_000);
                assert!((1000..1_000_000).contains(&taken), "{taken}");
                assert!(run("tc", "qdisc del dev near root"));
                assert_eq!(sender.fill(1000), 1000, "it is empty again");
            }
            false => eprintln!("skipped: this kernel has no tbf"),
        }
        let mut sender = Sender::new(&Tap::new(&tap::Options::new("tap0")).unwrap());
        assert_eq!((sender.tx.credit(), sender.fill(10_000)), (usize::MAX, 10_000));
        for transmit in [Transmit::Auto, Transmit::Socket] {
            let options = afxdp::Options::new("near");
            let options = afxdp::Options { transmit, attach: Attach::Generic, ..options };
            let ring = options.tx_ring as usize;
            let device = Afxdp::new(&options).unwrap();
            let mut sender = Sender::new(&device);
            assert_eq!((sender.tx.credit(), sender.fill(10_000)), (ring, 10_000));
        }
    });
}

/// A bond has as much credit as the member that has least, with a `tx` hook as without.
#[test]
fn bonds_take_what_their_members_do() {
    let lab = Lab::new();
    let members = [Counting::with_room(0), Counting::with_room(0)];
    let bond_options = BondOptions { mode: BondMode::BalanceRr, ..BondOptions::default() };
    let add = |config: &mut Config| config.add_bond(options("bond", 12), bond_options, None);
    let bond = lab.engine.change(add).unwrap();
    for (number, member) in members.iter().enumerate() {
        let port =
            lab.add(&format!("m{number}"), 20 + number as u32, Box::new(Sends(member.clone())));
        lab.engine.change(|config| config.enslave(bond, port)).unwrap();
    }
    let links = vec![link(&load(small::returns(2)))];
    lab.engine.change(|config| config.set_links(bond, Hook::Tx, links)).unwrap();
    let place = QueueId { ifindex: 12, queue: 0 };
    let socket = Arc::new(Asking::new(place, 300, packet()));
    lab.engine.change(|config| config.add_socket(Arc::clone(&socket) as _)).unwrap();
    members[0].set_room(1000);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(socket.left.load(Ordering::SeqCst), 300, "the other one has no room");
    members[1].set_room(1000);
    wait_for("the ring to be empty", || socket.left.load(Ordering::SeqCst) == 0);
    assert_eq!(members.each_ref().map(Counting::refused), [0, 0], "credit is never exceeded");
    assert_eq!(members.iter().map(Counting::count).sum::<u64>(), 300);
    lab.check_conservation();
}

/// Runs something where it may make interfaces, if anywhere.
fn in_a_namespace(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| match towpath_kernel::isolate_network() {
            Ok(()) => test(),
            Err(errno) => eprintln!("skipped: no network namespace: {errno}"),
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn run(command: &str, line: &str) -> bool {
    let ran = std::process::Command::new(command).args(line.split(' ')).status();
    ran.is_ok_and(|status| status.success())
}

#[track_caller]
fn ip(line: &str) {
    assert!(run("ip", line), "ip {line}");
}

/// A folder that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("towpath-credit-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}
