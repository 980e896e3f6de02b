//! Guest offload from end to end: virtual machines (drivers of our own) at a daemon's ports, one of
//! which has its host run its programs.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use towpath_bpf::insn::*;
use towpath_bpf::proto::id;
use towpath_bpf::{Insn, Object};
use towpath_daemon::State;
use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::live::Live;
use towpath_engine::counters::{DropReason, PortCounters};
use towpath_engine::{Hook, Link};
use towpath_guest_client::wire::Direction;
use towpath_guest_client::{Client, Loaded, ProgramSpec, Wanted, load, open};
use towpath_tests::sources;
use towpath_workload::small;
use towpath_workload::virtio::{Guest, GuestOptions};
use towpath_xdp::{LoadOptions, Program};

/// Three machines: what the first two send goes to each other; the third is a target.
struct Scene {
    live: Live,
    state: State,
    folder: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        Scene::with("")
    }

    /// With further keys of the first one's offload.
    fn with(keys: &str) -> Scene {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("towpath-offload-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let at = folder.display();
        let text = format!(
            "[[worker]]\n[[port]]\nname = \"vm0\"\nkind = \"vhost-user\"\npath = \"{at}/vm0\"\n\
             upper = \"vm1\"\n[port.offload]\npath = \"{at}/off0\"\ntargets = [\"vm2\"]\n{keys}\n\
             [[port]]\nname = \"vm1\"\nkind = \"vhost-user\"\npath = \"{at}/vm1\"\n\
             upper = \"vm0\"\n\
             [[port]]\nname = \"vm2\"\nkind = \"vhost-user\"\npath = \"{at}/vm2\"\n"
        );
        let objects = Arc::new(ObjectFiles::default());
        let loaded = parse(&text, Path::new("t.toml"), &folder, &objects).unwrap();
        let mut live = Live::start(&loaded.state, objects, Arc::default()).unwrap();
        let report = live.reconcile(&loaded.state);
        assert_eq!(report.failures, [], "{report:?}");
        Scene { live, state: loaded.state, folder }
    }

    /// The machine at a port, its driver up.
    fn machine(&self, port: &str) -> Guest {
        let options = GuestOptions { size: 64, ..GuestOptions::default() };
        let guest = Guest::connect(&self.folder.join(port), options).unwrap();
        let id = self.live.ports()[port].id;
        wait_for("the driver is up", || {
            let engine = self.live.engine();
            engine.read(|_, snapshot| snapshot.port(id).unwrap().opened.device.link())
        });
        guest
    }

    /// The agent in the first one.
    fn agent(&self) -> Client {
        let channel = open(&Wanted::Unix(self.folder.join("off0")), None).unwrap();
        Client::begin(channel, b"boot 1").unwrap()
    }

    fn counter(&self, port: &str, read: impl Fn(&PortCounters) -> u64) -> u64 {
        let id = self.live.ports()[port].id;
        self.live
            .engine()
            .read(|_, snapshot| snapshot.port(id).unwrap().opened.counters.iter().map(&read).sum())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.live.stop();
        let conservation = self.live.engine().conservation();
        let _gone = std::fs::remove_dir_all(&self.folder);
        if !std::thread::panicking() {
            assert_eq!(conservation.missing(), 0, "{conservation:?}");
        }
    }
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A UDP packet to a port from an address.
fn packet(source: [u8; 4], port: u16) -> Vec<u8> {
    let mut packet = vec![0; 60];
    packet[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    packet[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    packet[12..14].copy_from_slice(&[8, 0]);
    packet[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    packet[26..30].copy_from_slice(&source);
    packet[30..34].copy_from_slice(&[10, 0, 0, 1]);
    packet[36..38].copy_from_slice(&port.to_be_bytes());
    packet[38..40].copy_from_slice(&26u16.to_be_bytes());
    packet
}

/// A program of these instructions and an exit.
fn program(client: &mut Client, insns: &[Insn]) -> u32 {
    let exit = Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    let insns = insns.iter().chain([&exit]).flat_map(|insn| insn.to_le_bytes()).collect();
    let (name, license) = ("prog".to_owned(), "GPL".to_owned());
    client.load_program(&ProgramSpec { name, insns, license, ..ProgramSpec::default() }).unwrap()
}

fn returns(client: &mut Client, verdict: i32) -> u32 {
    program(client, &[Insn::new(BPF_ALU64 | BPF_MOV, 0, 0, 0, verdict)])
}

fn redirects(client: &mut Client, ifindex: i32) -> u32 {
    program(
        client,
        &[
            Insn::new(BPF_ALU64 | BPF_MOV, 1, 0, 0, ifindex),
            Insn::new(BPF_ALU64 | BPF_MOV, 2, 0, 0, 0),
            Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id::REDIRECT as i32),
        ],
    )
}

fn map(loaded: &Loaded, name: &str) -> u32 {
    loaded.maps.iter().find(|(known, _)| known == name).unwrap().1
}

const PLAIN: [u8; 12] = [0; 12];

/// Objects that a guest loads and unloads leave nothing behind, not even types that no map uses.
#[test]
fn loading_and_unloading_leaves_nothing() {
    let folder = match sources::own_objects() {
        Ok(folder) => folder,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let scene = Scene::new();
    let mut client = scene.agent();
    let (mut loaded_any, mut names) = (0, Vec::new());
    for path in sources::object_files(&folder.join("clang-19")) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Ok(object) = Object::open(&std::fs::read(&path).unwrap(), &name) else { continue };
        for _ in 0..2 {
            // Some take more than a guest may have; those leave nothing either.
            if let Ok(loaded) = load(&mut client, &object, None) {
                loaded_any += 1;
                client.close_all(loaded.program).unwrap();
            }
            if !client.list().unwrap().is_empty() {
                names.push(name.clone());
                client.reset().unwrap();
            }
        }
    }
    assert!(loaded_any > 10, "{loaded_any} were loaded");
    assert_eq!(names, [""; 0], "left something at the host");
}

#[test]
fn the_host_runs_the_guests_firewall() {
    let folder = match sources::own_objects() {
        Ok(folder) => folder,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    // A busy machine takes time that belongs to no program.
    let scene = Scene::with("burst_us = 1000000");
    let (mut inside, mut outside) = (scene.machine("vm0"), scene.machine("vm1"));
    let mut send = |source, port| {
        wait_for("there is room", || outside.send(0, &PLAIN, &packet(source, port)));
    };
    send([192, 0, 2, 1], 80);
    assert_eq!(inside.wait_for(0).unwrap().1, packet([192, 0, 2, 1], 80));

    let mut client = scene.agent();
    let file = std::fs::read(folder.join("clang-19/firewall.o")).unwrap();
    let object = Object::open(&file, "firewall.o").unwrap();
    let loaded = load(&mut client, &object, None).unwrap();
    client.attach(Direction::Ingress, loaded.program, None).unwrap();
    // Prefix length, address -> rule, action (drop).
    let blocked = [&32u32.to_le_bytes()[..], &[192, 0, 2, 1]].concat();
    let rule = [5u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
    client.update(map(&loaded, "sources_v4"), &[(blocked.clone(), rule)], 0).unwrap();
    // Frames are counted after they have arrived.
    let counted = |count| {
        wait_for("it is counted", || scene.counter("vm0", |it| it.tx_packets.get()) == count);
    };
    counted(1);
    (0..100).for_each(|_| send([192, 0, 2, 1], 80));
    send([192, 0, 2, 2], 80);
    let (_, received) = inside.wait_for(0).unwrap();
    assert_eq!(received, packet([192, 0, 2, 2], 80), "the others never came");
    counted(2);
    let counters = client.query().unwrap()[0].counters;
    assert_eq!((counters.runs, counters.actions), (101, [0, 100, 1, 0, 0]));
    // The guest reads what the program counted, and changes what it does.
    let stats = client.lookup(map(&loaded, "rule_stats"), &5u32.to_le_bytes()).unwrap();
    assert_eq!(stats[..8], 100u64.to_le_bytes());
    client.delete(map(&loaded, "sources_v4"), &blocked).unwrap();
    send([192, 0, 2, 1], 81);
    assert_eq!(inside.wait_for(0).unwrap().1, packet([192, 0, 2, 1], 81));
    // Replaced, then unloaded.
    let drops = returns(&mut client, 1);
    client.attach(Direction::Ingress, drops, Some(loaded.program)).unwrap();
    client.close_all(loaded.program).unwrap();
    send([192, 0, 2, 2], 82);
    wait_for("it is dropped", || client.query().unwrap()[0].counters.actions[1] == 1);
    client.detach(Direction::Ingress).unwrap();
    client.close_all(drops).unwrap();
    assert_eq!(client.list().unwrap(), []);
    send([192, 0, 2, 2], 83);
    assert_eq!(inside.wait_for(0).unwrap().1, packet([192, 0, 2, 2], 83));
}

#[test]
fn what_the_guests_program_sends_back_arrives_as_if_the_guest_had_sent_it() {
    let scene = Scene::new();
    let (mut inside, mut outside) = (scene.machine("vm0"), scene.machine("vm1"));
    let mut client = scene.agent();
    let back = returns(&mut client, 3);
    client.attach(Direction::Ingress, back, None).unwrap();
    let received = scene.counter("vm0", |it| it.rx_packets.get());
    for number in 0..50 {
        assert!(outside.send(0, &PLAIN, &packet([192, 0, 2, 1], number)));
        // Its upper is the other machine's port.
        assert_eq!(outside.wait_for(0).unwrap().1, packet([192, 0, 2, 1], number));
    }
    assert!(inside.receive(0).is_none(), "nothing got to the guest");
    assert_eq!(scene.counter("vm0", |it| it.rx_packets.get()), received + 50);
}

#[test]
fn what_goes_to_and_fro_has_an_end() {
    let scene = Scene::new();
    let (_inside, mut outside) = (scene.machine("vm0"), scene.machine("vm1"));
    let mut client = scene.agent();
    let back = returns(&mut client, 3);
    client.attach(Direction::Ingress, back, None).unwrap();
    // The port's own program sends everything back to the guest.
    let program = Program::from_linked(small::reflect(), &LoadOptions::default()).unwrap();
    let (port, link) = (scene.live.ports()["vm0"].id, Link::new(program, 1, 1));
    scene.live.engine().change(|config| config.set_links(port, Hook::Rx, vec![link])).unwrap();
    (0..10).for_each(|it| assert!(outside.send(0, &PLAIN, &packet([192, 0, 2, 1], it))));
    let looped = |it: &PortCounters| it.drops[DropReason::Loop as usize].get();
    wait_for("they are dropped", || scene.counter("vm0", looped) == 10);
    let runs = client.query().unwrap()[0].counters.runs;
    assert!((20..=60).contains(&runs), "{runs}");
}

#[test]
fn redirects_lead_to_allowed_targets_by_the_guests_numbers() {
    let scene = Scene::new();
    let (_inside, mut outside) = (scene.machine("vm0"), scene.machine("vm1"));
    let mut target = scene.machine("vm2");
    let mut client = scene.agent();
    assert_eq!(client.features().targets[0].name, "vm2");
    let to_target = redirects(&mut client, 1);
    client.attach(Direction::Ingress, to_target, None).unwrap();
    assert!(outside.send(0, &PLAIN, &packet([192, 0, 2, 1], 1)));
    assert_eq!(target.wait_for(0).unwrap().1, packet([192, 0, 2, 1], 1));
    // The host's own number of a port means nothing.
    let ifindex = scene.live.ports()["vm2"].ifindex;
    let to_host = redirects(&mut client, ifindex.cast_signed());
    client.attach(Direction::Ingress, to_host, Some(to_target)).unwrap();
    assert!(outside.send(0, &PLAIN, &packet([192, 0, 2, 1], 2)));
    wait_for("it is dropped", || {
        let drops = |it: &PortCounters| it.drops.iter().map(|drop| drop.get()).sum();
        scene.counter("vm0", drops) == 1
    });
    assert!(target.receive(0).is_none());
}

#[test]
fn what_the_guest_sends_is_judged_before_the_port_sees_it() {
    let scene = Scene::new();
    let (mut inside, mut outside) = (scene.machine("vm0"), scene.machine("vm1"));
    let mut client = scene.agent();
    let passes = returns(&mut client, 2);
    client.attach(Direction::Egress, passes, None).unwrap();
    assert!(inside.send(0, &PLAIN, &packet([10, 0, 0, 1], 1)));
    assert_eq!(outside.wait_for(0).unwrap().1, packet([10, 0, 0, 1], 1));
    let back = returns(&mut client, 3);
    client.attach(Direction::Egress, back, Some(passes)).unwrap();
    assert!(inside.send(0, &PLAIN, &packet([10, 0, 0, 1], 2)));
    assert_eq!(inside.wait_for(0).unwrap().1, packet([10, 0, 0, 1], 2), "back to the guest");
    let drops = returns(&mut client, 1);
    client.attach(Direction::Egress, drops, Some(back)).unwrap();
    assert!(inside.send(0, &PLAIN, &packet([10, 0, 0, 1], 3)));
    wait_for("it is dropped", || client.query().unwrap()[0].counters.actions[1] == 1);
    assert!(outside.receive(0).is_none());
}

#[test]
fn a_reset_takes_the_programs_away_and_a_pause_does_not() {
    let scene = Scene::new();
    let (mut inside, mut outside) = (scene.machine("vm0"), scene.machine("vm1"));
    assert!(outside.send(0, &PLAIN, &packet([192, 0, 2, 1], 1)));
    assert!(inside.wait_for(0).is_some());
    let mut client = scene.agent();
    let drops = returns(&mut client, 1);
    client.attach(Direction::Ingress, drops, None).unwrap();
    // The monitor's connection breaks, and it comes back to rings that were used.
    inside
        .reconnect(std::os::unix::net::UnixStream::connect(scene.folder.join("vm0")).unwrap())
        .unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(client.query().unwrap().len(), 1, "the same guest");
    drop(inside);
    let mut other = scene.machine("vm0");
    wait_for("the program is gone", || client.query().unwrap().is_empty());
    assert_eq!(client.list().unwrap(), [], "another guest has nothing");
    assert!(outside.send(0, &PLAIN, &packet([192, 0, 2, 1], 2)));
    assert_eq!(other.wait_for(0).unwrap().1, packet([192, 0, 2, 1], 2));
}

#[test]
fn configuration_changes_limits_and_ends_offload_while_the_guest_runs() {
    let mut scene = Scene::new();
    let (mut inside, mut outside) = (scene.machine("vm0"), scene.machine("vm1"));
    let mut client = scene.agent();
    let drops = returns(&mut client, 1);
    client.attach(Direction::Ingress, drops, None).unwrap();
    let mut state = scene.state.clone();
    state.ports[0].offload.as_mut().unwrap().programs = Some(1);
    assert_eq!(scene.live.reconcile(&state).failures, []);
    let exit = Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0).to_le_bytes().to_vec();
    let error = client.load_program(&ProgramSpec { insns: exit, ..ProgramSpec::default() });
    assert!(error.expect_err("one is allowed").to_string().contains("\"programs\""));
    assert_eq!(client.query().unwrap().len(), 1, "what runs goes on");
    state.ports[0].offload = None;
    assert_eq!(scene.live.reconcile(&state).failures, []);
    assert!(outside.send(0, &PLAIN, &packet([192, 0, 2, 1], 2)));
    assert_eq!(inside.wait_for(0).unwrap().1, packet([192, 0, 2, 1], 2), "no program any more");
    assert!(!scene.folder.join("off0").exists());
}

/// A program that passes what has 0 in its byte 37, and goes round for others as often as the
/// kernel lets programs.
fn goes_round() -> [Insn; 9] {
    let word = |to, from, at| Insn::new(BPF_LDX | BPF_MEM | BPF_W, to, from, at, 0);
    [
        word(2, 1, 0),
        word(3, 1, 4),
        Insn::new(BPF_ALU64 | BPF_MOV, 0, 0, 0, 2),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 4, 2, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD, 4, 0, 0, 38),
        Insn::new(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 4, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_B, 5, 2, 37, 0),
        Insn::new(BPF_JMP | BPF_JEQ, 5, 0, 2, 0),
        // `may_goto`, and back to it.
        Insn::new(BPF_JMP | BPF_JCOND, 0, 0, 1, 0),
    ]
}

#[test]
fn a_frame_that_takes_more_than_its_part_is_aborted() {
    let scene = Scene::with("burst_instructions = 64000");
    let (mut inside, mut outside) = (scene.machine("vm0"), scene.machine("vm1"));
    let mut client = scene.agent();
    let back = Insn::new(BPF_JMP, 0, 0, -2, 0);
    let insns: Vec<Insn> = goes_round().into_iter().chain([back]).collect();
    let program = program(&mut client, &insns);
    client.attach(Direction::Ingress, program, None).unwrap();
    // Some that pass between those that don't.
    for number in 0..20u16 {
        assert!(outside.send(0, &PLAIN, &packet([192, 0, 2, 1], (number << 8) | (number % 2))));
        if number % 2 == 0 {
            let passed = packet([192, 0, 2, 1], number << 8);
            assert_eq!(inside.wait_for(0).unwrap().1, passed);
        }
        // The rest of its burst goes with a frame that took too much: each has one of its own.
        let judged = u64::from(number) + 1;
        wait_for("it is judged", || client.query().unwrap()[0].counters.runs == judged);
    }
    let counters = client.query().unwrap()[0].counters;
    assert_eq!((counters.faults, counters.actions[2]), (10, 10), "{counters:?}");
    assert!(inside.receive(0).is_none());
    // The attached programs go on.
    assert!(outside.send(0, &PLAIN, &packet([192, 0, 2, 1], 0x0100)));
    assert_eq!(inside.wait_for(0).unwrap().1, packet([192, 0, 2, 1], 0x0100));
}

/// The monitor listens, and the daemon connects, again and again.
#[test]
fn a_channel_may_be_the_monitors() {
    let scene = Scene::with("mode = \"client\"");
    let _inside = scene.machine("vm0");
    let listener = std::os::unix::net::UnixListener::bind(scene.folder.join("off0")).unwrap();
    for round in 0..2 {
        let (host, _) = listener.accept().unwrap();
        // A guest on the other side of the monitor's.
        let agents = scene.folder.join("agent");
        let between = std::os::unix::net::UnixListener::bind(&agents).unwrap();
        let channel = open(&Wanted::Unix(agents.clone()), None).unwrap();
        let (guest, _) = between.accept().unwrap();
        std::fs::remove_file(&agents).unwrap();
        std::thread::scope(|scope| {
            for (mut from, mut to) in [
                (host.try_clone().unwrap(), guest.try_clone().unwrap()),
                (guest.try_clone().unwrap(), host.try_clone().unwrap()),
            ] {
                scope.spawn(move || {
                    let _ended = std::io::copy(&mut from, &mut to);
                    let _gone = to.shutdown(std::net::Shutdown::Both);
                });
            }
            let mut client = Client::begin(channel, b"boot 1").unwrap();
            assert_eq!(client.query().unwrap().len(), round, "what it had, it has");
            if round == 0 {
                let drops = returns(&mut client, 1);
                client.attach(Direction::Ingress, drops, None).unwrap();
            }
            host.shutdown(std::net::Shutdown::Both).unwrap();
        });
    }
}
