//! DPDK's `net_virtio_user` as a guest: an independent driver.
//!
//! Needs dpdk-testpmd (Debian: dpdk-dev); without it each test says "skipped: why".

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use towpath_bench::testpmd::Testpmd;
use towpath_bench::{attach, load};
use towpath_engine::{Engine, Options, PortId, PortOptions, WorkerOptions};
use towpath_ports::vhost_user::{self, Mode, VhostUser};
use towpath_workload::small;

/// An engine with one port, whose program sends back what comes.
struct Host {
    engine: Engine,
    port: PortId,
    options: vhost_user::Options,
}

/// Frames of the port: received, sent, dropped, and lost before they were received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    rx: u64,
    tx: u64,
    drops: u64,
    missed: u64,
}

impl Host {
    fn new(queues: u32, mode: Mode) -> Host {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = format!("towpath-dpdk-{}-{number}.sock", std::process::id());
        let path: PathBuf = std::env::temp_dir().join(path);
        let workers = vec![WorkerOptions::default()];
        let engine = Engine::start(&Options { workers, frames: 8192 }).unwrap();
        let options = vhost_user::Options { queues, mode, ..vhost_user::Options::new(path) };
        let port = open(&engine, &options);
        Host { engine, port, options }
    }

    /// Closes the port and opens it again, as when the process ended between the two.
    fn reopen(&mut self) {
        self.engine.remove_port(self.port).unwrap();
        self.port = open(&self.engine, &self.options);
    }

    fn counts(&self) -> Counts {
        self.engine.read(|_, snapshot| {
            let port = snapshot.port(self.port).unwrap();
            let zero = Counts { rx: 0, tx: 0, drops: 0, missed: 0 };
            port.opened.counters.iter().fold(zero, |sum, it| Counts {
                rx: sum.rx + it.rx_packets.get(),
                tx: sum.tx + it.tx_packets.get(),
                drops: sum.drops
                    + it.drops.iter().chain(&it.tx_drops).map(|count| count.get()).sum::<u64>(),
                missed: sum.missed + it.rx_missed.get(),
            })
        })
    }

    /// The same when nothing moves any more.
    fn settled(&self) -> Counts {
        let mut before = self.counts();
        loop {
            std::thread::sleep(Duration::from_millis(250));
            let now = self.counts();
            if now == before {
                return now;
            }
            before = now;
        }
    }
}

fn open(engine: &Engine, options: &vhost_user::Options) -> PortId {
    let device = VhostUser::new(options.clone()).unwrap();
    let port = engine.add_port(PortOptions::new("vm"), Box::new(device)).unwrap();
    let programs = [load(small::reflect(), 1).unwrap()];
    engine.change(|config| attach(config, port, &programs, 1, 0)).unwrap();
    port
}

/// Properties of a guest.
#[derive(Debug, Clone, Copy)]
struct Plan {
    packed: bool,
    in_order: bool,
    mergeable: bool,
    queues: u32,
}

impl Plan {
    /// Starts one, which sends back what comes.
    fn start(self, host: &Host, more: &str) -> Testpmd {
        let flag = u8::from;
        let device = format!(
            "net_virtio_user0,path={},queues={},queue_size=256,packed_vq={},in_order={},\
             mrg_rxbuf={}{more}",
            host.options.path.display(),
            self.queues,
            flag(self.packed),
            flag(self.in_order),
            flag(self.mergeable),
        );
        let count = self.queues.to_string();
        let options = ["--forward-mode=io", "--rxq", &count, "--txq", &count];
        Testpmd::start(0, &[device], &options).unwrap()
    }
}

/// Sends frames of `bytes` bytes round for a while, and returns their number.
#[track_caller]
fn go_round(plan: Plan, host: &Host, guest: &mut Testpmd, bytes: u32) -> u64 {
    let before = host.settled();
    let (rx_before, tx_before) = guest.packets().unwrap();
    guest.say(&format!("set txpkts {bytes}")).unwrap();
    guest.say("start tx_first 2").unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while host.counts().rx - before.rx < ENOUGH {
        assert!(Instant::now() < end, "{plan:?}: {:?}", host.counts());
        std::thread::sleep(Duration::from_millis(10));
    }
    guest.say("stop").unwrap();
    guest.wait_for("Done.", Duration::from_secs(10)).unwrap();
    let after = host.settled();
    let (rx, tx) = guest.packets().unwrap();
    // The port received the guest's frames, and sent them or dropped them for a reason.
    assert_eq!(tx - tx_before, after.rx - before.rx + after.missed - before.missed, "{plan:?}");
    let done = after.tx - before.tx + after.drops - before.drops;
    assert_eq!(after.rx - before.rx, done, "{plan:?}");
    // The guest received the port's frames, except those in its rings since it stopped polling.
    let unread = (after.tx - before.tx).wrapping_sub(rx - rx_before) as i64;
    let ring = i64::from(256 * plan.queues);
    assert!((-ring..=ring).contains(&unread), "{plan:?}: {unread} frames");
    after.rx - before.rx
}

#[test]
fn no_frame_is_lost_between_dpdk_and_us() {
    if !Testpmd::is_installed() {
        return eprintln!("skipped: dpdk-testpmd is missing (Debian: dpdk-dev)");
    }
    for number in 0..16 {
        let plan = Plan {
            packed: number & 1 != 0,
            in_order: number & 2 != 0,
            mergeable: number & 4 != 0,
            queues: if number & 8 != 0 { 4 } else { 1 },
        };
        let host = Host::new(plan.queues, Mode::Server);
        let mut guest = plan.start(&host, "");
        let rounds = [64, 1500].map(|bytes| go_round(plan, &host, &mut guest, bytes));
        eprintln!("{plan:?}: {rounds:?} frames of 64 and 1500 B, {:?}", host.counts());
        drop(guest);
        host.engine.stop();
        assert_eq!(host.engine.conservation().missing(), 0, "{plan:?}");
    }
}

#[test]
fn dpdk_goes_on_when_the_port_comes_back() {
    if !Testpmd::is_installed() {
        return eprintln!("skipped: dpdk-testpmd is missing (Debian: dpdk-dev)");
    }
    for packed in [false, true] {
        let plan = Plan { packed, in_order: true, mergeable: true, queues: 1 };
        // As its server, DPDK takes a back end again that was gone.
        let mut host = Host::new(1, Mode::Client);
        let mut guest = plan.start(&host, ",server=1");
        go_round(plan, &host, &mut guest, 64);
        for _ in 0..3 {
            host.reopen();
            let start = Instant::now();
            go_round(plan, &host, &mut guest, 64);
            eprintln!("packed {packed}: {:?} until traffic", start.elapsed());
        }
        drop(guest);
        // A guest that ends and comes back.
        let mut guest = plan.start(&host, ",server=1");
        go_round(plan, &host, &mut guest, 64);
        drop(guest);
        host.engine.stop();
        assert_eq!(host.engine.conservation().missing(), 0);
    }
}

const ENOUGH: u64 = 20_000;
