//! Queues of packets and dequeue programs in an engine: what leaves in which order, what becomes of
//! packets when queues, programs and ports go, and programs that are no good. And what each of the
//! schedulers of `programs/` does to traffic.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::print_stderr, reason = "what was skipped")]

mod clock;
mod ports;
mod schedulers;
mod timestamps;

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ports::Wire;
use towpath_bpf::{Env, Object};
use towpath_engine::counters::{DropReason, PortCounters};
use towpath_engine::{Engine, Hook, Link, Options, PortId, PortOptions, WorkerOptions};
use towpath_tests::sources::repository;
use towpath_xdp::{Exec, FrameQueue, LoadOptions, Loader, Program, Select};

#[test]
fn packets_leave_by_rank_when_there_is_room() {
    for (exec, workers) in [(Exec::Interp, 1), (Exec::Jit, 1), (Exec::Jit, 2), (Exec::Llvm, 1)] {
        let Some(lab) = Lab::new("misbehaving", exec, workers, &[]) else { return };
        lab.attach("put", "sends");
        lab.input.receive([5, 3, 9, 3].map(packet));
        lab.wait_for_depth(4);
        assert_eq!(lab.output.count(), 0, "one is in the port's ring, and stays there");
        lab.output.allow(2);
        wait_for("two packets", || lab.output.count() == 2 && lab.output.waiting() == 1);
        // The program chooses among the waiting packets and the next one; only the packet in the
        // ring is fixed.
        lab.input.receive([4].map(packet));
        lab.wait_for_depth(3);
        lab.output.allow(10);
        wait_for("the others", || lab.output.count() == 5);
        assert_eq!(lab.ranks(), [3, 3, 5, 4, 9], "{exec:?}");
        lab.check_conservation();
    }
}

#[test]
fn what_a_queue_refuses_is_dropped_with_its_reason() {
    let Some(lab) = Lab::new("misbehaving", Exec::Jit, 1, &[]) else { return };
    lab.attach("put", "sends");
    // Ranks 0 to 31 have a bucket; past those all are the last one.
    lab.input.receive([20, 255, 33].map(packet));
    lab.wait_for_depth(3);
    lab.output.allow(3);
    wait_for("all", || lab.output.count() == 3);
    assert_eq!(lab.ranks(), [20, 255, 33]);
    // The window has moved to 16.
    lab.input.receive([3, 16].map(packet));
    lab.output.allow(1);
    wait_for("one more", || lab.output.count() == 4);
    assert_eq!(lab.drops(DropReason::QueueRank), 1);
    lab.input.receive((0..300).map(|_| packet(40)));
    // One of the packets is in the port's ring.
    wait_for("drops", || lab.drops(DropReason::QueueFull) == 300 - 257);
    let counts = lab.queue(|queue| queue.status().counts);
    assert_eq!((counts.depth, counts.drops_full, counts.drops_rank), (256, 43, 1));
    lab.output.allow(1000);
    wait_for("the rest", || lab.output.count() == 261);
    lab.check_conservation();
}

#[test]
fn programs_that_are_no_good_harm_nobody() {
    for exec in [Exec::Interp, Exec::Jit] {
        for program in ["sends_nothing", "never_rests", "drops_all", "holds_many"] {
            let Some(lab) = Lab::new("misbehaving", exec, 1, &[]) else { return };
            lab.output.allow(usize::MAX / 2);
            lab.attach("put", program);
            lab.input.receive((0..90).map(|number| packet(number % 16)));
            let taken = || lab.queue(|queue| queue.status().counts.enqueued) == 90;
            wait_for("packets to be in the queue", taken);
            let dropped = || lab.drops(DropReason::Dequeue);
            match program {
                "drops_all" => wait_for("drops", || dropped() == 90),
                "holds_many" => wait_for("packets", || dropped() + lab.count() == 90),
                _ => lab.wait_for_depth(90),
            }
            // Other ports go on, and so does the queue with another program.
            lab.attach("put", "sends");
            lab.input.receive([packet(15)]);
            wait_for("all", || lab.queue(|queue| queue.status().counts.dequeued) == 91);
            let counts = lab.queue(|queue| queue.status().counts);
            assert_eq!(counts.drops_program, dropped(), "{program}");
            lab.check_conservation();
        }
    }
}

#[test]
fn nothing_is_lost_without_a_word() {
    let Some(lab) = Lab::new("misbehaving", Exec::Jit, 1, &[]) else { return };
    lab.attach("put", "sends");
    lab.input.receive((0..100).map(|_| packet(1)));
    lab.wait_for_depth(100);
    // Another program of the same object finds what waits.
    lab.attach("put", "sends_nothing");
    lab.attach("put", "sends");
    lab.output.allow(10);
    wait_for("ten", || lab.output.count() == 10 && lab.output.waiting() == 1);
    // A port that comes and goes loses nothing that is in the queue.
    lab.engine.remove_port(lab.to).unwrap();
    let frames = lab.engine.conservation();
    assert_eq!((frames.in_flight, frames.missing()), (89, 0), "one was in its ring");
    // The map goes with its programs.
    let Lab { engine, programs, .. } = lab;
    engine.change(|config| config.set_links(lab.from, Hook::Rx, Vec::new())).unwrap();
    drop(programs);
    let frames = engine.conservation();
    assert_eq!((frames.in_flight, frames.dropped, frames.delivered), (0, 89, 11));
    assert_eq!(frames.missing(), 0);
}

/// A packet now and then costs a run or two, and not as many as a burst is worth.
#[test]
fn a_program_is_run_as_often_as_it_has_something_to_send() {
    let Some(lab) = Lab::new("misbehaving", Exec::Jit, 1, &[]) else { return };
    lab.output.allow(1000);
    lab.attach("put", "sends");
    let runs = || {
        lab.engine.read(|_, snapshot| {
            let hook = snapshot.port(lab.to).and_then(|port| port.dequeue.as_ref());
            hook.map_or(0, |hook| hook.link().counters().iter().map(|it| it.runs.get()).sum())
        })
    };
    for number in 0..50 {
        lab.input.receive([packet(number)]);
        wait_for("it", || lab.output.count() == usize::from(number) + 1);
    }
    let before: u64 = runs();
    assert!(before <= 4 * 50, "{before} runs for 50 packets");
    lab.input.receive((0..250).map(|_| packet(200)));
    wait_for("the others", || lab.output.count() == 300);
    assert!(runs() - before <= 4 * 250, "{} runs for 250 packets", runs() - before);
    lab.check_conservation();
}

#[test]
fn who_schedules_is_told_what_is_wrong() {
    for exec in [Exec::Interp, Exec::Jit] {
        let Some(lab) = Lab::new("misbehaving", exec, 1, &[]) else { return };
        lab.input.allow(1);
        lab.attach("asks", "sends");
        lab.input.receive([packet(0)]);
        wait_for("an answer", || lab.input.count() == 1);
        let packet = &lab.input.sent()[0].1;
        let said = |at: usize| i32::from_le_bytes(*packet[16 + at * 4..].first_chunk().unwrap());
        assert_eq!([said(0), said(1), said(2)], [-19, -2, -22], "ENODEV, ENOENT, EINVAL");
        lab.check_conservation();
    }
}

#[test]
fn a_frame_waits_for_its_launch_time() {
    let Some(lab) = Lab::new("misbehaving", Exec::Jit, 1, &[]) else { return };
    lab.output.allow(1000);
    lab.attach("later", "sends");
    let start = Instant::now();
    lab.input.receive((0..50).map(packet));
    wait_for("the frames", || lab.output.count() == 50);
    let early = lab.output.sent()[0].0.duration_since(start);
    assert!(early >= Duration::from_millis(30), "{early:?}");
    assert_eq!(lab.ranks(), (0..50).collect::<Vec<_>>());
    // No waiting packet is lost without being counted.
    lab.input.receive((0..7).map(packet));
    wait_for("them to wait", || lab.engine.conservation().in_flight == 7);
    lab.engine.remove_port(lab.to).unwrap();
    let frames = lab.engine.conservation();
    assert_eq!((frames.in_flight, frames.dropped, frames.missing()), (0, 7, 0));
}

#[test]
fn what_is_to_leave_too_late_is_dropped() {
    let later = [("later_ns", 60_000_000_000u64)];
    let Some(lab) = Lab::new("misbehaving", Exec::Jit, 1, &later) else { return };
    lab.attach("later", "sends");
    lab.input.receive([packet(0)]);
    wait_for("a drop", || lab.drops(DropReason::Launch) == 1);
    lab.check_conservation();
}

#[test]
fn hooks_take_programs_of_their_own_type() {
    let Some(lab) = Lab::new("misbehaving", Exec::Interp, 1, &[]) else { return };
    let refused = |hook, names: &[&str]| {
        let links = names.iter().map(|name| lab.link(name)).collect();
        let result = lab.engine.change(|config| config.set_links(lab.to, hook, links));
        result.unwrap_err().to_string()
    };
    assert!(refused(Hook::Rx, &["sends"]).contains("--hook dequeue"));
    assert!(refused(Hook::Dequeue, &["put"]).contains("not a dequeue program"));
    assert!(refused(Hook::Dequeue, &["sends", "drops_all"]).contains("one dequeue program"));
}

/// An engine with a port where packets arrive and one where they leave, and the programs of one
/// object over the same maps.
pub(crate) struct Lab {
    pub(crate) engine: Engine,
    pub(crate) input: Wire,
    pub(crate) output: Wire,
    from: PortId,
    to: PortId,
    programs: Vec<Program>,
    workers: usize,
}

impl Lab {
    /// `None` without a compiler.
    pub(crate) fn new(
        object: &str,
        exec: Exec,
        workers: usize,
        globals: &[(&str, u64)],
    ) -> Option<Lab> {
        let programs = load(object, exec, workers, globals)?;
        let engine = Engine::start(&Options {
            workers: vec![WorkerOptions::default(); workers],
            frames: 8192,
        });
        let engine = engine.unwrap();
        let (input, output) = (Wire::default(), Wire::default());
        let add = |name, ifindex, worker, wire: &Wire| {
            let options = PortOptions {
                ifindex: Some(ifindex),
                workers: vec![worker],
                ..PortOptions::new(name)
            };
            engine.add_port(options, Box::new(wire.clone())).unwrap()
        };
        let from = add("from", 11, 0, &input);
        let to = add("to", 12, workers - 1, &output);
        Some(Lab { engine, input, output, from, to, programs, workers })
    }

    fn link(&self, name: &str) -> Link {
        Link::new(program_of(&self.programs, name).clone(), 1, self.workers)
    }

    /// The programs where packets arrive, and where they leave.
    pub(crate) fn attach(&self, rx: &str, dequeue: &str) {
        self.attach_some(rx, Some(dequeue));
    }

    /// As `attach`; without a dequeue program, packets in the queue wait.
    fn attach_some(&self, rx: &str, dequeue: Option<&str>) {
        let changed = self.engine.change(|config| {
            config.set_links(self.from, Hook::Rx, vec![self.link(rx)])?;
            let links = dequeue.map(|name| self.link(name)).into_iter().collect();
            config.set_links(self.to, Hook::Dequeue, links)
        });
        changed.unwrap();
    }

    /// The program where packets arrive.
    fn attach_rx(&self, rx: &str) {
        let links = vec![self.link(rx)];
        self.engine.change(|config| config.set_links(self.from, Hook::Rx, links)).unwrap();
    }

    /// The object's first queue.
    pub(crate) fn queue<T>(&self, read: impl Fn(&FrameQueue) -> T) -> T {
        let maps = self.programs[0].maps().maps();
        read(maps.iter().find_map(|map| FrameQueue::of(map)).unwrap())
    }

    pub(crate) fn wait_for_depth(&self, depth: u64) {
        let waits = || {
            let kept = |_: &_, snapshot: &towpath_engine::Snapshot| {
                let hook = snapshot.port(self.to).and_then(|port| port.dequeue.as_ref());
                hook.map_or(0, |hook| hook.schedule.kept())
            };
            let queued = self.queue(|queue| queue.status().counts.depth);
            queued + self.engine.read(kept) + self.output.waiting()
        };
        wait_for("packets in the queue", || waits() == depth);
    }

    /// Whether all that was to arrive has.
    pub(crate) fn input_is_empty(&self) -> bool {
        self.input.is_empty() && self.engine.conservation().held == 0
    }

    fn count(&self) -> u64 {
        self.output.count() as u64
    }

    /// The ranks of the packets that were sent, in order.
    fn ranks(&self) -> Vec<u8> {
        self.output.sent().iter().map(|(_, packet)| packet[14]).collect()
    }

    pub(crate) fn drops(&self, why: DropReason) -> u64 {
        let count = |counters: &PortCounters| {
            counters.drops[why as usize].get() + counters.tx_drops[why as usize].get()
        };
        let ports = |snapshot: &towpath_engine::Snapshot| {
            let ports = snapshot.ports.iter().flatten();
            ports.flat_map(|port| port.opened.counters.iter()).map(count).sum()
        };
        self.engine.read(|_, snapshot| ports(snapshot))
    }

    pub(crate) fn check_conservation(&self) {
        wait_for("frames to settle", || self.engine.conservation().is_settled());
        self.engine.stop();
        assert_eq!(self.engine.conservation().missing(), 0);
    }
}

/// The programs of one object over the same maps; `None` without a compiler.
pub(crate) fn load(
    object: &str,
    exec: Exec,
    workers: usize,
    globals: &[(&str, u64)],
) -> Option<Vec<Program>> {
    let Some(folder) = &*OBJECTS else {
        eprintln!("skipped: no clang (scripts/install-deps.sh)");
        return None;
    };
    let bytes = std::fs::read(folder.join(object).with_extension("o")).unwrap();
    let mut object = Object::open(&bytes, object).unwrap();
    for (name, value) in globals {
        let value = towpath_bpf::object::GlobalValue::Int((*value).into());
        object.set_global(name, &value).unwrap();
    }
    let options = LoadOptions { workers, exec, ..LoadOptions::default() };
    let env = Env::builtin();
    let loader = Loader::new(&object, &env, &options).unwrap();
    let load = |program: &towpath_bpf::object::Program| {
        loader.program(Select::Name(&program.name)).unwrap_or_else(|error| panic!("{error}"))
    };
    let programs: Vec<Program> = object.programs().iter().map(load).collect();
    if exec == Exec::Llvm {
        if let Err(why) = towpath_jit::llvm_library() {
            eprintln!("skipped: {why}");
            return None;
        }
        programs.iter().for_each(|it| _ = it.wait_for_tier2(Duration::from_secs(60)));
    }
    assert!(programs.iter().all(|program| program.exec() == exec), "it can be compiled");
    Some(programs)
}

pub(crate) fn program_of<'a>(programs: &'a [Program], name: &str) -> &'a Program {
    programs.iter().find(|program| program.name() == name).unwrap()
}

/// Waits until `done`, but not for ever.
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "still waiting for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn packet(rank: u8) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5, rank];
    packet.resize(64, 0);
    packet
}

/// The objects, compiled once; `None` without a compiler.
static OBJECTS: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("queueing");
    let build = |from: &str, names: &[&str]| {
        let mut script = Command::new(repository().join("scripts/build-programs.sh"));
        script.args(["--from", from, "--out"]).arg(&out).args(names).output().unwrap()
    };
    let schedulers = ["queue_priority", "queue_fair", "queue_shaper", "queue_classes"];
    let outputs = [
        build("programs", &schedulers),
        build("tests/data/queueing", &["misbehaving", "timestamps"]),
    ];
    for output in &outputs {
        let text = String::from_utf8_lossy(&output.stderr);
        if text.contains("no clang found") {
            return None;
        }
        assert!(output.status.success(), "{text}");
    }
    Some(out)
});
