//! The `afxdp` port on a veth: what the kernel sends it, what it sends, and what it leaves behind.
//!
//! Each test has a network namespace of its own with two veth ends: the port is over `near`, and
//! `far` is where traffic comes from, made by the kernel itself (`BPF_PROG_RUN`, live frames).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use towpath_bpf::program::Linked;
use towpath_engine::counters::Conservation;
use towpath_engine::port::Device as _;
use towpath_engine::{Engine, Hook, Link, Options, PortId, PortOptions};
use towpath_kernel::{
    AttachMode, Kernel, KernelProgram, LiveFrames, LiveSent, Steering, TestRun, Unserved,
};
use towpath_ports::Error;
use towpath_ports::afxdp::{self, Afxdp, Attach, Transmit};
use towpath_ports::packet::{self, Packet};
use towpath_workload::small;
use towpath_xdp::{Arena, LoadOptions, Pool, Program};

#[test]
fn frames_arrive() {
    in_a_namespace(|world| {
        for attach in [Attach::Native, Attach::Generic] {
            let (engine, port) = world.port(&afxdp::Options { attach, ..near() });
            set_program(&engine, port, small::returns(1));
            for portion in 1..=10 {
                world.send(100, &packet(60));
                wait_for(&engine, |sums| sums.received == portion * 100);
            }
            let sums = engine.conservation();
            assert_eq!((sums.dropped, sums.missing()), (1000, 0), "{attach:?}");
        }
    });
}

#[test]
fn frames_that_come_before_the_first_poll_are_kept() {
    in_a_namespace(|world| {
        let arena = Arena::new(4096).unwrap();
        let afxdp = Afxdp::new(&near()).unwrap();
        // The second opening finds the socket of the first.
        for opening in 1..=2 {
            let mut rx = afxdp.open_rx(0, &arena).unwrap();
            world.send(100, &packet(60));
            let (mut pool, mut frames) = (Pool::new(&arena), Vec::new());
            let until = Instant::now() + Duration::from_secs(3);
            while frames.len() < 100 && Instant::now() < until {
                rx.receive(&mut pool, &mut frames, 64).unwrap();
            }
            assert_eq!((frames.len(), rx.take_missed()), (100, 0), "opening {opening}");
            pool.give_all(&mut frames);
        }
    });
}

#[test]
fn what_takes_the_kernel_long_comes_and_goes_while_frames_flow() {
    in_a_namespace(|world| {
        let (engine, port) = world.port(&near());
        set_program(&engine, port, small::returns(1));
        let device = &engine.port(port).unwrap().opened.device;
        let steps: [(&str, &dyn Fn()); 3] = [
            ("off: not attached yet", &|| {}),
            ("on", &|| device.look()),
            ("off: the port is being closed", &|| device.closes_soon()),
        ];
        for ((guard, step), portion) in steps.into_iter().zip(1..) {
            step();
            let details = device.details();
            let told = details.iter().find(|(name, _)| *name == "guard").unwrap();
            assert!(told.1 == guard || told.1.contains("no tcx"), "{told:?}, not {guard}");
            world.send(100, &packet(60));
            wait_for(&engine, |sums| sums.received == portion * 100);
        }
        device.look();
        assert!(device.details().contains(&("guard", "off: the port is being closed".to_owned())));
    });
}

#[test]
fn frames_leave() {
    in_a_namespace(|world| {
        // A veth takes frames on behalf of a peer that has a program.
        let counter = world.load(&small::returns(1));
        let _link = counter.attach(world.far, AttachMode::Native).unwrap();
        let ways = [
            (Attach::Native, Transmit::Auto),
            (Attach::Native, Transmit::Socket),
            (Attach::Generic, Transmit::Auto),
        ];
        for (attach, transmit) in ways {
            let (engine, port) = world.port(&afxdp::Options { attach, transmit, ..near() });
            set_program(&engine, port, small::reflect());
            let before = world.far_received();
            // More than a ring holds, in portions that fit.
            for portion in 1..=20 {
                world.send(200, &packet(100));
                wait_for(&engine, |sums| sums.received == portion * 200);
            }
            wait_for(&engine, |sums| sums.delivered == 4000);
            assert_eq!(engine.conservation().missing(), 0);
            let until = Instant::now() + Duration::from_secs(2);
            while world.far_received() - before < 4000 {
                let arrived = world.far_received() - before;
                assert!(Instant::now() < until, "{attach:?}, {transmit:?}: {arrived}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    });
}

#[test]
fn bursts_of_all_sizes_leave_in_order() {
    in_a_namespace(|_world| {
        let gro = Command::new("ethtool").args(["-K", "far", "gro", "on"]).status();
        if !gro.is_ok_and(|status| status.success()) {
            return skip("there is no ethtool");
        }
        let arena = Arena::new(4096).unwrap();
        let mut pool = Pool::new(&arena);
        let far = Packet::new(&packet::Options::new("far")).unwrap();
        let mut rx = far.open_rx(0, &arena).unwrap();
        let afxdp = Afxdp::new(&near()).unwrap();
        let mut tx = afxdp.open_tx(0, &arena).unwrap();
        let (mut next, mut wanted) = (0, Vec::new());
        // Few go by the socket, many as live frames, too long ones by the socket and nowhere.
        let bursts = [(3, 60), (64, 60), (1, 1514), (200, 900), (20, 60), (5, 3000), (40, 14)];
        for (count, len) in bursts {
            let mut frames = Vec::new();
            for _ in 0..count {
                let mut bytes = numbered(next, len);
                frames.push(pool.frame(&bytes).unwrap().unwrap());
                if len <= 1514 {
                    bytes.truncate(14);
                    wanted.push((bytes, len));
                }
                next += 1;
            }
            tx.transmit(&mut frames, &mut pool).unwrap();
            assert!(frames.is_empty());
            if tx.flush_some(&mut pool).unwrap() {
                tx.flush(&mut pool).unwrap();
            }
        }
        let mut seen = Vec::new();
        let until = Instant::now() + Duration::from_secs(3);
        while seen.len() < wanted.len() && Instant::now() < until {
            let mut frames = Vec::new();
            rx.receive(&mut pool, &mut frames, 64).unwrap();
            seen.extend(frames.iter().map(|frame| (frame.to_vec()[..14].to_vec(), frame.len())));
            pool.give_all(&mut frames);
        }
        assert_eq!(seen, wanted);
        let details = afxdp.details();
        let detail = |name| details.iter().find(|(key, _)| *key == name).unwrap().1.clone();
        assert!(detail("transmit").contains("live frames"), "{details:?}");
        assert_eq!(detail("refused_live_frames"), "0");
        // The socket says that it is down.
        ip("link set near down");
        let until = Instant::now() + Duration::from_secs(2);
        loop {
            assert!(Instant::now() < until, "nobody says that it is down");
            let burst = (0..64).map(|_| pool.frame(&packet(60)).unwrap().unwrap());
            let mut frames = burst.collect();
            let sent = tx.transmit(&mut frames, &mut pool).and_then(|()| tx.flush(&mut pool));
            pool.give_all(&mut frames);
            if sent.is_err() {
                break;
            }
        }
    });
}

#[test]
fn an_interface_that_is_gone_refuses_live_frames() {
    in_a_namespace(|world| {
        let counter = world.load(&small::returns(1));
        let _link = counter.attach(world.far, AttachMode::Native).unwrap();
        let steering = Steering::with_way_out(1, Unserved::Pass, world.near).unwrap();
        let _link = steering.attach(world.near, AttachMode::Native).unwrap();
        let Some(live) = steering.live() else { return skip("the kernel has no live frames") };
        let bytes = packet(60);
        let send = |count| live.send(std::iter::repeat_n(&bytes[..], count)).unwrap();
        assert_eq!(send(300), LiveSent { taken: LiveFrames::PACKETS_MAX, refused: 0 });
        assert_eq!(send(1), LiveSent { taken: 1, refused: 0 });
        for len in [0, 13, LiveFrames::PACKET_BYTES_MAX + 1] {
            assert!(live.send([&vec![0; len][..]]).is_err(), "{len}");
        }
        ip("link del near");
        assert_eq!(send(10), LiveSent { taken: 10, refused: 10 });
    });
}

#[test]
fn memory_comes_back() {
    in_a_namespace(|world| {
        let (engine, port) = world.port(&near());
        set_program(&engine, port, small::reflect());
        world.send(400, &packet(60));
        wait_for(&engine, |sums| sums.delivered == 400);
        engine.remove_port(port).unwrap();
        let arena = engine.arena();
        let kept = arena.total() - arena.free();
        assert!(kept <= 2048, "{kept} of {} frames are gone", arena.total());
    });
}

#[test]
fn queues_leave_half_of_the_frames_to_others() {
    in_a_namespace(|world| {
        ip("link add many numrxqueues 64 type veth peer name other");
        ip("link set many up");
        let channels = Command::new("ethtool").args(["-L", "many", "rx", "64"]).status();
        if !channels.is_ok_and(|status| status.success()) {
            return skip("there is no ethtool");
        }
        let (engine, _near) = world.port(&near());
        let many = Afxdp::new(&afxdp::Options::new("many")).unwrap();
        assert_eq!(many.queues(), 64);
        let arena = engine.arena();
        let before = arena.free();
        engine.add_port(PortOptions::new("many"), Box::new(many)).unwrap();
        let kept = before - arena.free();
        assert!(kept <= arena.total() / 2 + 1024, "{kept} of {}", arena.total());
        assert!(kept >= 64 * 64, "each queue has some: {kept}");
    });
}

#[test]
fn a_foreign_program_is_left_alone() {
    in_a_namespace(|world| {
        let foreign = world.load(&small::returns(2));
        let link = foreign.attach(world.near, AttachMode::Native).unwrap();
        let id = foreign.info().unwrap().id;
        let error = Afxdp::new(&near()).unwrap_err().to_string();
        assert!(error.contains(&format!("id {id}")) && error.contains("near"), "{error}");
        drop(link);
        let first = Afxdp::new(&near()).unwrap();
        let error = Afxdp::new(&near()).unwrap_err().to_string();
        assert!(error.contains("already"), "{error}");
        drop(first);
        assert!(!has_program("near"));
    });
}

#[test]
fn bad_options_are_explained() {
    in_a_namespace(|_world| {
        let open = |options| Afxdp::new(&options).unwrap_err().to_string();
        let error = open(afxdp::Options { rx_ring: 1000, ..near() });
        assert!(error.contains("rx_ring") && error.contains("1000"), "{error}");
        let error = open(afxdp::Options { queues: Some(7), ..near() });
        assert!(error.contains("7"), "{error}");
        let error = open(afxdp::Options::new("nowhere"));
        assert!(error.contains("nowhere"), "{error}");
        assert!(!has_program("near"));
    });
}

#[test]
fn an_interface_that_vanishes_ends_its_port_only() {
    in_a_namespace(|world| {
        ip("link add near2 type veth peer name far2");
        ip("link set near2 up");
        ip("link set far2 up");
        let (engine, port) = world.port(&near());
        let other = Afxdp::new(&afxdp::Options::new("near2")).unwrap();
        let other = engine.add_port(PortOptions::new("other"), Box::new(other)).unwrap();
        set_program(&engine, port, small::reflect());
        set_program(&engine, other, small::returns(1));
        let failed = |port| {
            engine.read(|_, snapshot| {
                let slot = snapshot.port(port).unwrap();
                slot.opened.failed.load(std::sync::atomic::Ordering::Relaxed)
            })
        };
        std::thread::scope(|scope| {
            // Under traffic, most of which finds no way any more.
            scope.spawn(|| {
                for _ in 0..50 {
                    let _fails_at_last = world.try_send(200, &packet(60));
                }
            });
            std::thread::sleep(Duration::from_millis(5));
            ip("link del near");
        });
        let until = Instant::now() + Duration::from_secs(2);
        while !failed(port) {
            assert!(Instant::now() < until, "the port does not notice");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!failed(other));
        engine.remove_port(port).unwrap();
        let before = engine.conservation();
        let sender = world.load(&small::redirect(index("far2")));
        run_live(&sender, 300, &packet(60)).unwrap();
        wait_for(&engine, |sums| sums.received - before.received == 300);
        assert_eq!(engine.conservation().missing(), 0);
    });
}

/// Not a test of its own: the process that the next one kills.
#[test]
#[ignore = "started by nothing_stays_after_a_kill"]
fn holds_a_port() {
    let _port = Afxdp::new(&near()).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn nothing_stays_after_a_kill() {
    in_a_namespace(|_world| {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "holds_a_port", "--ignored"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let attached = || has_program("near");
        let until = Instant::now() + Duration::from_secs(10);
        while !attached() {
            assert!(Instant::now() < until, "the port does not open");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let until = Instant::now() + Duration::from_secs(2);
        while attached() {
            assert!(Instant::now() < until, "the program is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// A namespace with two ends of a veth, and the kernel's programs.
struct World {
    kernel: Kernel,
    sender: KernelProgram,
    /// Numbers of both ends.
    near: u32,
    far: u32,
}

fn in_a_namespace(test: impl FnOnce(&World) + Send) {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return skip(&why.to_string()),
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            if let Err(errno) = towpath_kernel::isolate_network() {
                return skip(&format!("no network namespace: {errno}"));
            }
            // Frames that the stack makes on its own would be counted too.
            let _no_ipv6 = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            ip("link add near type veth peer name far");
            ip("link set near up");
            ip("link set far up");
            // Without a program a veth takes redirected frames only with GRO.
            let _gro = Command::new("ethtool").args(["-K", "near", "gro", "on"]).status();
            let (near, far) = (index("near"), index("far"));
            let sender = load(&kernel, &small::redirect(far));
            test(&World { kernel, sender, near, far });
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

impl World {
    fn load(&self, linked: &Linked) -> KernelProgram {
        load(&self.kernel, linked)
    }

    /// An engine with the port.
    fn port(&self, options: &afxdp::Options) -> (Engine, PortId) {
        let engine = Engine::start(&Options::default()).unwrap();
        // The port before may be attached for a moment: a process that another test is just about
        // to start has its descriptors until then.
        let until = Instant::now() + Duration::from_secs(2);
        let device = loop {
            match Afxdp::new(options) {
                Err(Error::Occupied { .. }) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                made => break made.unwrap(),
            }
        };
        let port = engine.add_port(PortOptions::new("near"), Box::new(device)).unwrap();
        (engine, port)
    }

    /// Lets the kernel send frames out of `far`, so that they arrive at `near`.
    fn send(&self, count: u32, packet: &[u8]) {
        self.try_send(count, packet).unwrap();
    }

    fn try_send(&self, count: u32, packet: &[u8]) -> Result<(), String> {
        run_live(&self.sender, count, packet)
    }

    /// Frames that arrived at `far`.
    fn far_received(&self) -> u64 {
        link("far")["stats64"]["rx"]["packets"].as_u64().unwrap()
    }
}

/// The usual options.
fn near() -> afxdp::Options {
    afxdp::Options::new("near")
}

/// The output of `ip link show` for an interface.
fn link(name: &str) -> serde_json::Value {
    let out = Command::new("ip").args(["-s", "-j", "link", "show", name]).output().unwrap();
    let links: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    links[0].clone()
}

fn index(name: &str) -> u32 {
    link(name)["ifindex"].as_u64().unwrap() as u32
}

fn has_program(name: &str) -> bool {
    link(name)["xdp"].is_object()
}

fn load(kernel: &Kernel, linked: &Linked) -> KernelProgram {
    let maps = kernel.load_maps(&linked.maps).unwrap();
    kernel.load(linked, &maps).unwrap()
}

fn run_live(program: &KernelProgram, count: u32, packet: &[u8]) -> Result<(), String> {
    let run = TestRun { repeat: count, live_frames: true, ..TestRun::new(packet) };
    program.test_run(&run).map(drop).map_err(|error| error.to_string())
}

fn set_program(engine: &Engine, port: PortId, linked: Linked) {
    let options = LoadOptions { workers: engine.workers(), ..LoadOptions::default() };
    let program = Program::from_linked(linked, &options).unwrap();
    let link = Link::new(program, 1, engine.workers());
    engine.change(|config| config.set_links(port, Hook::Rx, vec![link])).unwrap();
}

#[track_caller]
fn wait_for(engine: &Engine, is_done: impl Fn(&Conservation) -> bool) {
    let until = Instant::now() + Duration::from_secs(3);
    while !is_done(&engine.conservation()) {
        assert!(Instant::now() < until, "{:?}", engine.conservation());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// An invalid IPv4 packet, which every stack drops.
fn packet(len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    packet[14] = 0x45;
    packet
}

/// A frame of an unknown protocol with a number in its addresses.
fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    bytes[2..6].copy_from_slice(&number.to_be_bytes());
    bytes.resize(len, 0);
    bytes
}

#[expect(clippy::print_stderr, reason = "says why a test did nothing")]
fn skip(why: &str) {
    eprintln!("skipped: {why}");
}
