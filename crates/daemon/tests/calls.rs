//! `bpf(2)` on a daemon's objects: programs and maps that come through it take part in the engine's
//! traffic as those of its configuration do.

mod running;

use std::sync::Arc;

use towpath_bpf::{Errno, Insn};
use towpath_daemon::live::Live;
use towpath_engine::counters::DropReason;
use towpath_objects::{Objects, Process, XdpRequest};

use running::{start, sum, wait_for};

/// A generator, a sink, and a pair of which one end is above nothing and the other below the sink.
const CONFIG: &str = r#"
[[worker]]
[[worker]]
[[port]]
name = "gen"
kind = "generator"
rate = 50000
frames = ["02000000000202000000000108000000000000000000000000000000"]
[[port]]
name = "out"
kind = "sink"
[[port]]
name = "a"
kind = "pair"
peer = "b"
upper = "out"
[[port]]
name = "b"
kind = "pair"
peer = "a"
"#;

fn sent(live: &Live, port: &str) -> u64 {
    sum(live, port, |it| it.tx_packets.get())
}

fn entry_programs(live: &Live) -> usize {
    live.engine().read(|_, snapshot| snapshot.entry_programs.len())
}

/// A process that calls `bpf(2)`.
struct Caller {
    objects: Arc<Objects>,
    process: Process,
}

/// An attribute: 4-byte fields at their places.
struct Attr([u8; 168]);

impl Attr {
    fn new(fields: &[(usize, u32)]) -> Attr {
        let mut attr = Attr([0; 168]);
        for &(at, value) in fields {
            attr.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        attr
    }

    fn address(mut self, at: usize, address: u64) -> Attr {
        self.0[at..at + 8].copy_from_slice(&address.to_ne_bytes());
        self
    }

    fn word(&self, at: usize) -> u32 {
        self.0[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }
}

impl Caller {
    fn new(live: &Live) -> Caller {
        Caller { objects: Arc::clone(live.registry()), process: Process::new(0) }
    }

    fn call(&mut self, command: u32, attr: &mut Attr) -> Result<u32, Errno> {
        let address = self.process.map_bytes(&attr.0);
        let result = self.objects.bpf(&mut self.process, command, address, 168);
        attr.0.copy_from_slice(&self.process.bytes(address).expect("it is there")[..168]);
        self.process.unmap();
        result
    }

    fn load(&mut self, insns: &[Insn], attach: u32) -> u32 {
        self.load_as(PROG_TYPE_XDP, insns, attach).expect("it is verified")
    }

    fn load_as(&mut self, kind: u32, insns: &[Insn], attach: u32) -> Result<u32, Errno> {
        let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.to_le_bytes()).collect();
        let bytes = self.process.map_bytes(&bytes);
        let licence = self.process.map_bytes(b"GPL\0");
        let fields = [(0, kind), (4, insns.len() as u32), (68, attach)];
        let mut attr = Attr::new(&fields).address(8, bytes).address(16, licence);
        self.call(5, &mut attr)
    }

    fn map(&mut self, kind: u32, key: u32, value: u32, entries: u32) -> u32 {
        let mut attr = Attr::new(&[(0, kind), (4, key), (8, value), (12, entries)]);
        self.call(0, &mut attr).expect("there is memory")
    }

    fn update(&mut self, map: u32, key: u32, value: &[u32]) -> Result<u32, Errno> {
        let key = self.process.map_bytes(&key.to_ne_bytes());
        let value: Vec<u8> = value.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let value = self.process.map_bytes(&value);
        self.call(2, &mut Attr::new(&[(0, map)]).address(8, key).address(16, value))
    }

    fn delete(&mut self, map: u32, key: u32) -> Result<u32, Errno> {
        let key = self.process.map_bytes(&key.to_ne_bytes());
        self.call(3, &mut Attr::new(&[(0, map)]).address(8, key))
    }

    /// `BPF_PROG_TEST_RUN`: the frame comes from `ingress`, if that is not 0.
    fn run(&mut self, program: u32, live: Option<u32>, ingress: u32) -> Result<Attr, Errno> {
        let frame = self.process.map_bytes(&[2; 60]);
        let context = [0, 60, 0, ingress, 0, 0];
        let context: Vec<u8> = context.iter().flat_map(|it: &u32| it.to_ne_bytes()).collect();
        let context = self.process.map_bytes(&context);
        let flags = if live.is_some() { 2 } else { 0 };
        let fields = [(0, program), (8, 60), (32, RUNS), (40, 24), (64, flags)];
        let mut attr = Attr::new(&fields).address(16, frame).address(48, context);
        attr.0[72..76].copy_from_slice(&live.unwrap_or(0).to_ne_bytes());
        self.call(10, &mut attr).map(|_| attr)
    }

    fn set_xdp(&mut self, live: &Live, port: &str, program: i32) {
        let ifindex = live.ports()[port].ifindex;
        let request = XdpRequest { descriptor: Some(program), ..XdpRequest::default() };
        self.objects.set_xdp(&self.process, ifindex, &request).expect("it is free");
    }
}

fn insn(code: u8, dst: u8, src: u8, imm: u32) -> Insn {
    Insn { code, dst, src, off: 0, imm: imm as i32 }
}

/// `return VERDICT;`
fn returning(verdict: u32) -> Vec<Insn> {
    vec![insn(0xb7, 0, 0, verdict), insn(0x95, 0, 0, 0)]
}

/// `return bpf_redirect_map(&map, 0, 0);`
fn redirecting(map: u32) -> Vec<Insn> {
    let load = [insn(0x18, 1, 1, map), insn(0, 0, 0, 0)];
    let call = [insn(0xb7, 2, 0, 0), insn(0xb7, 3, 0, 0), insn(0x85, 0, 0, 51)];
    [&load[..], &call, &[insn(0x95, 0, 0, 0)]].concat()
}

/// `return bpf_redirect(ifindex, 0);`
fn redirecting_to(ifindex: u32) -> Vec<Insn> {
    let call = [insn(0xb7, 1, 0, ifindex), insn(0xb7, 2, 0, 0), insn(0x85, 0, 0, 23)];
    [&call[..], &[insn(0x95, 0, 0, 0)]].concat()
}

#[test]
fn programs_of_map_entries_run_that_came_by_bpf() {
    let (mut live, state) = start(CONFIG);
    let mut caller = Caller::new(&live);
    let out = live.ports()["out"].ifindex;
    let map = caller.map(DEVMAP, 4, 8, 1);
    let [dropping, passing] = [DROP, PASS].map(|it| caller.load(&returning(it), FOR_DEVMAP));
    assert_eq!(entry_programs(&live), 2);
    let redirect = caller.load(&redirecting(map), 0);
    caller.update(map, 0, &[out, dropping]).expect("both are there");
    caller.set_xdp(&live, "gen", redirect as i32);
    let refused =
        |live: &Live| sum(live, "out", |it| it.tx_drops[DropReason::EntryVerdict as usize].get());
    wait_for("frame that the entry's program drops", || refused(&live) > 100);
    assert_eq!(sent(&live, "out"), 0);
    caller.update(map, 0, &[out, passing]).expect("both are there");
    wait_for("frame that it passes", || sent(&live, "out") > 100);

    // The entry keeps its program, although no process has a descriptor of it.
    for descriptor in [dropping, passing, map] {
        caller.process.close(descriptor).expect("it is open");
    }
    assert_eq!(entry_programs(&live), 1);
    let before = sent(&live, "out");
    wait_for("more of them", || sent(&live, "out") > before + 100);
    caller.set_xdp(&live, "gen", -1);
    caller.process.close(redirect).expect("it is open");
    assert_eq!(entry_programs(&live), 0, "with the map went the program");
    assert_eq!(live.reconcile(&state).failures, []);
    live.stop();
    assert_eq!(live.engine().conservation().missing(), 0);
}

#[test]
fn programs_of_a_file_that_map_entries_name_go_with_their_map() {
    let more = r#"
        [[attach]]
        port = "gen"
        object = "redirector.o"
        program = "redirector"
        maps = { tx_ports = [ { key = 0, value = { ifindex = 65538, prog = "egress" } } ] }
    "#;
    let (mut live, mut state) = start(&format!("{CONFIG}{more}"));
    assert_eq!(entry_programs(&live), 1);
    state.programs[0].generation += 1;
    assert_eq!(live.reconcile(&state).failures, []);
    assert_eq!(entry_programs(&live), 1, "the replaced program's entry is gone");
    state.attachments.clear();
    state.programs.clear();
    assert_eq!(live.reconcile(&state).failures, []);
    assert_eq!(entry_programs(&live), 0);
    let mut caller = Caller::new(&live);
    let next = caller.call(11, &mut Attr::new(&[]));
    assert_eq!(next, Err(Errno::ENOENT), "no program is left");
}

#[test]
fn live_frames_go_where_the_program_says() {
    let (mut live, _) = start(CONFIG);
    let mut caller = Caller::new(&live);
    let [a, out] = ["a", "out"].map(|port| live.ports()[port].ifindex);
    let runs = u64::from(RUNS);
    let [dropping, passing, sending, aborting] =
        [DROP, PASS, TX, 0].map(|verdict| caller.load(&returning(verdict), 0));

    let done = caller.run(dropping, Some(0), a).expect("frames are there");
    assert_eq!(done.word(4), 0, "there is no return value");
    let dropped = |live: &Live, port: &str, why: DropReason| {
        sum(live, port, |it| it.drops[why as usize].get())
    };
    assert_eq!(dropped(&live, "a", DropReason::Verdict), runs);
    caller.run(aborting, Some(1), a).expect("frames are there");
    assert_eq!(dropped(&live, "a", DropReason::Aborted), runs);
    caller.run(passing, Some(100), a).expect("frames are there");
    assert_eq!(sent(&live, "out"), runs, "what passes goes to the port's upper");
    caller.run(sending, Some(256), a).expect("frames are there");
    assert_eq!(sent(&live, "a"), runs, "what is sent back leaves by the port");
    wait_for("frame at the other end", || dropped(&live, "b", DropReason::NoUpper) == runs);

    let redirect = caller.load(&redirecting_to(out), 0);
    // From no port: the loopback device.
    caller.run(redirect, Some(64), 0).expect("frames are there");
    assert_eq!(sent(&live, "out"), 2 * runs);
    caller.run(passing, Some(64), 0).expect("they pass to nobody");
    caller.run(sending, Some(64), 0).expect("they can't leave");
    let map = caller.map(DEVMAP, 4, 8, 1);
    let for_entry = caller.load(&returning(DROP), FOR_DEVMAP);
    caller.update(map, 0, &[out, for_entry]).expect("both are there");
    let redirect = caller.load(&redirecting(map), 0);
    caller.run(redirect, Some(64), a).expect("frames are there");
    let refused = sum(&live, "out", |it| it.tx_drops[DropReason::EntryVerdict as usize].get());
    assert_eq!((sent(&live, "out"), refused), (2 * runs, runs), "through the entry's program");

    assert_eq!(caller.run(for_entry, Some(64), a).err(), Some(Errno::EINVAL));
    assert_eq!(caller.run(dropping, Some(64), 9999).err(), Some(Errno::ENODEV));
    assert_eq!(caller.run(dropping, Some(257), a).err(), Some(Errno::E2BIG));
    live.stop();
    let frames = live.engine().conservation();
    assert_eq!(frames.missing(), 0, "{frames:?}");
    assert_eq!(caller.run(dropping, Some(64), a).err(), Some(Errno::EINTR), "nobody runs it");
}

#[test]
fn test_runs_and_traffic_share_a_worker() {
    let (mut live, _) = start(CONFIG);
    let mut caller = Caller::new(&live);
    let counts = caller.map(PERCPU_ARRAY, 4, 8, 1);
    // *(u64 *)bpf_map_lookup_elem(&counts, &(u32){0}) += 1; return XDP_DROP;
    let look_up = [
        Insn { code: 0x62, dst: 10, src: 0, off: -4, imm: 0 },
        insn(0xbf, 2, 10, 0),
        insn(0x07, 2, 0, u32::MAX - 3),
        insn(0x18, 1, 1, counts),
        insn(0, 0, 0, 0),
        insn(0x85, 0, 0, 1),
        Insn { code: 0x15, dst: 0, src: 0, off: 3, imm: 0 },
        insn(0x79, 1, 0, 0),
        insn(0x07, 1, 0, 1),
        insn(0x7b, 0, 1, 0),
    ];
    let program = caller.load(&[&look_up[..], &returning(DROP)].concat(), 0);
    caller.set_xdp(&live, "gen", program as i32);
    for _ in 0..20 {
        let done = caller.run(program, None, 0).expect("it runs");
        assert_eq!(done.word(4), DROP);
    }
    caller.set_xdp(&live, "gen", -1);
    let judged = sum(&live, "gen", |it| it.actions[DROP as usize].get());
    let key = caller.process.map_bytes(&[0; 4]);
    let values = caller.process.map_bytes(&[0; 16]);
    // The memory is gone after a call, so that this one is made by hand.
    let attr = Attr::new(&[(0, counts)]).address(8, key).address(16, values);
    let attr = caller.process.map_bytes(&attr.0);
    caller.objects.bpf(&mut caller.process, 1, attr, 168).expect("it is there");
    let counted = caller.process.bytes(values).expect("it is mapped")[..16].as_chunks().0;
    let counted: u64 = counted.iter().map(|bytes| u64::from_ne_bytes(*bytes)).sum();
    assert_eq!(counted, judged + 20 * u64::from(RUNS), "nobody wrote over what another counted");
    live.stop();
}

#[test]
fn elements_are_used_again_though_no_worker_runs_a_program_of_the_map() {
    let (live, _) = start(CONFIG);
    let mut caller = Caller::new(&live);
    let map = caller.map(HASH, 4, 4, 2);
    for round in 0..1000 {
        caller.update(map, round, &[round]).expect("there is room");
        caller.update(map, round, &[round + 1]).expect("it is there");
        caller.delete(map, round).expect("it is there");
    }
}

const RUNS: u32 = 1000;
const HASH: u32 = 1;
const PERCPU_ARRAY: u32 = 6;
const DEVMAP: u32 = 14;
/// `BPF_XDP_DEVMAP`
const FOR_DEVMAP: u32 = 33;
const DROP: u32 = 1;
const PASS: u32 = 2;
const TX: u32 = 3;

/// Sends what is first in the queue.
fn sends(objects: &Objects, queue: u32) -> Vec<Insn> {
    let dequeue = objects.kfunc_id("bpf_packet_dequeue").expect("it is ours");
    vec![
        Insn::new(0x7a, 10, 0, -8, 0),
        Insn::new(0x18, 2, 1, 0, queue as i32),
        Insn::default(),
        Insn::new(0xb7, 3, 0, 0, 0),
        Insn::new(0xbf, 4, 10, 0, 0),
        Insn::new(0x07, 4, 0, 0, -8),
        Insn::new(0x85, 0, 2, 0, dequeue as i32),
        Insn::new(0x95, 0, 0, 0, 0),
    ]
}

#[test]
fn a_dequeue_program_is_attached_beside_the_others() {
    const DEQUEUE_MODE: u32 = 32;
    let (live, _state) = start(CONFIG);
    let mut caller = Caller::new(&live);
    let mut attr = Attr::new(&[(0, PIFO_XDP), (4, 4), (8, 4), (12, 256), (64, 16)]);
    let queue = caller.call(0, &mut attr).expect("there is memory");
    let puts = caller.load(&redirecting(queue), 0);
    caller.set_xdp(&live, "gen", puts as i32);
    let sends = caller
        .load_as(PROG_TYPE_DEQUEUE, &sends(&caller.objects.clone(), queue), 0)
        .expect("it is verified");
    let ifindex = live.ports()["a"].ifindex;
    let set = |descriptor: u32, flags: u32| {
        let descriptor = Some(descriptor.cast_signed());
        let request = XdpRequest { descriptor, flags, ..XdpRequest::default() };
        caller.objects.set_xdp(&caller.process, ifindex, &request).map_err(|error| error.errno)
    };
    assert_eq!(set(sends, 0), Err(Errno::EINVAL), "it judges nothing that arrives");
    assert_eq!(set(puts, DEQUEUE_MODE), Err(Errno::EINVAL), "it takes nothing out");
    assert_eq!(set(sends, DEQUEUE_MODE | 1), Err(Errno::EINVAL), "only with REPLACE");
    assert_eq!(set(sends, DEQUEUE_MODE | 4), Err(Errno::EINVAL), "one mode");
    assert_eq!(set(sends, DEQUEUE_MODE), Ok(()));
    let state = caller.objects.xdp(ifindex).expect("it is there");
    assert_eq!((state.native, state.generic), (0, 0));
    assert_ne!(state.dequeue, 0);
    wait_for("packets out of the queue", || sent(&live, "a") > 1000);
    // A program of the other kind has its own place, and none may be in two.
    let returns = caller.load(&returning(PASS), 0);
    caller.set_xdp(&live, "a", returns as i32);
    assert_ne!(caller.objects.xdp(ifindex).expect("it is there").native, 0);
    let link = |caller: &mut Caller, flags: u32| {
        caller.call(28, &mut Attr::new(&[(0, sends), (4, ifindex), (8, 37), (12, flags)]))
    };
    assert_eq!(link(&mut caller, DEQUEUE_MODE), Err(Errno::EBUSY), "the hook is taken");
    let gone = XdpRequest { descriptor: Some(-1), flags: DEQUEUE_MODE, ..XdpRequest::default() };
    caller.objects.set_xdp(&caller.process, ifindex, &gone).expect("it was attached");
    assert_eq!(caller.objects.xdp(ifindex).expect("it is there").dequeue, 0);
    let before = sent(&live, "a");
    let link = link(&mut caller, DEQUEUE_MODE).expect("the hook is free");
    wait_for("packets by the link's program", || sent(&live, "a") > before + 1000);
    caller.process.close(link).expect("it is open");
    assert_eq!(caller.objects.xdp(ifindex).expect("it is there").dequeue, 0, "it lets go");
}

const PROG_TYPE_XDP: u32 = 6;
const PROG_TYPE_DEQUEUE: u32 = 1024;
/// `BPF_MAP_TYPE_PIFO_XDP`
const PIFO_XDP: u32 = 1025;
