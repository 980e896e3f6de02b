//! Whatever a dequeue program is made of, it is refused, or each packet that was in its queue is
//! there still, is sent, or is dropped: once, and by the interpreter as by machine code.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use towpath_bpf::btf::Btf;
use towpath_bpf::insn::Insn;
use towpath_bpf::interp::Limits;
use towpath_bpf::program::{AttachType, KfuncRef, MapType};
use towpath_bpf::{Linked, MapDef};
use towpath_xdp::{Dequeued, Exec, Frame, FrameQueue, LoadOptions, Program};

/// A piece of a program and what it is about.
type Raw = (u8, u8, i8, i32);

#[test]
fn no_packet_is_lost_or_doubled() {
    let kernel = Arc::new(Btf::default());
    let sent = AtomicUsize::new(0);
    bolero::check!().with_type::<(Vec<Raw>, Vec<u8>)>().for_each(|(raw, ranks)| {
        let interpreted = outcome(raw, ranks, Exec::Interp, &kernel);
        let Some(interpreted) = interpreted else { return };
        sent.fetch_add(usize::from(interpreted.values().any(|it| *it == "sent")), Relaxed);
        let compiled = outcome(raw, ranks, Exec::Jit, &kernel);
        assert_eq!(compiled, Some(interpreted));
    });
    assert!(sent.into_inner() > 0, "not one program sends anything");
}

/// Where each packet is afterwards, by its number; nothing of a program that is refused.
fn outcome(
    raw: &[Raw],
    ranks: &[u8],
    exec: Exec,
    kernel: &Arc<Btf>,
) -> Option<BTreeMap<u8, &'static str>> {
    let options = LoadOptions { exec, limits: Limits { insns: 1 << 20 }, ..LoadOptions::default() };
    let program = Program::from_linked(linked(raw, kernel), &options).ok()?;
    let map = program.maps().by_name("packets").expect("it was defined");
    let queue = FrameQueue::of(map).expect("it is one");
    let mut places = BTreeMap::new();
    let mut note = |frame: &Frame, place| {
        // Programs may have written to it, but not there.
        let number = *frame.to_vec().last().expect("it has bytes");
        let before = places.insert(number, place);
        assert_eq!(before, None, "packet {number} is in two places");
    };
    let count = ranks.len().min(PACKETS_MAX);
    let mut refused = Vec::new();
    for (number, rank) in ranks.iter().take(count).enumerate() {
        let mut bytes = [0; 60];
        bytes[59] = number as u8;
        let mut frame = Frame::new(&bytes).expect("a good length");
        frame.set_rank((*rank).into());
        queue.push_all(&mut vec![frame], 1, &mut refused);
    }
    refused.iter().for_each(|(frame, _errno)| note(frame, "refused"));
    let (mut worker, mut out) = (program.worker(0), Dequeued::default());
    worker.fill_stack(0);
    for runs in [1, RUNS] {
        program.dequeue(&mut worker, (7, runs), 2, &mut out).expect("it has no timers");
    }
    assert!(out.faults.is_empty() && out.lost.is_empty(), "it was verified: {:?}", out.faults);
    out.frames.iter().for_each(|frame| note(frame, "sent"));
    out.dropped.iter().for_each(|frame| note(frame, "dropped"));
    while let Some((frame, _rank)) = queue.pop(3) {
        note(&frame, "queued");
    }
    assert_eq!(places.len(), count, "each is somewhere");
    Some(places)
}

fn linked(raw: &[Raw], kernel: &Arc<Btf>) -> Linked {
    let mut pieces = Pieces { insns: vec![Insn::new(MOV_X, 6, 1, 0, 0)], holds: [false; 2] };
    raw.iter().take(PIECES_MAX).for_each(|piece| pieces.add(*piece));
    let insns = pieces.end();
    let kfunc = |name: &str| KfuncRef { name: name.to_owned(), type_id: None, weak: false };
    let map = MapDef { map_extra: 16, ..MapDef::new("packets", MapType::PifoXdp, 4, 4, 16) };
    Linked {
        name: "fuzzed".to_owned(),
        section: "dequeue".to_owned(),
        attach: AttachType::Dequeue,
        has_frags: false,
        license: "GPL".to_owned(),
        insns,
        functions: Vec::new(),
        lines: Vec::new(),
        maps: vec![map].into(),
        unresolved: Vec::new(),
        kfuncs: KFUNCS.map(kfunc).into(),
        btf: None,
        kernel_btf: Arc::clone(kernel),
    }
}

/// Pieces of programs as people write them, in any order; now and then something else in between.
/// The context is in r6, packets are in r7 and r8, bytes of them in r9.
struct Pieces {
    insns: Vec<Insn>,
    /// As far as nothing came in between.
    holds: [bool; 2],
}

impl Pieces {
    fn add(&mut self, (what, regs, off, imm): Raw) {
        let which = usize::from(regs & 1);
        let (packet, off) = (7 + which as u8, i16::from(off));
        match (what % 16, self.holds[which]) {
            (0..=3, false) => self.take(which, imm & i32::from(regs & 2 != 0)),
            (4 | 5, true) => self.drop(which),
            (6 | 7, true) => self.insns.extend([
                Insn::new(0x61, 2, packet, 0, 0),
                Insn::new(0x61, 3, packet, 4, 0),
                Insn::new(MOV_X, 9, 2, 0, 0),
                Insn::new(0x07, 2, 0, 0, i32::from(regs >> 3)),
                Insn::new(0x2d, 2, 3, 1, 0),
                Insn::new(0x72, 9, 0, off & 31, imm),
            ]),
            (8, true) => self.insns.extend([
                Insn::new(MOV_X, 1, packet, 0, 0),
                Insn::new(MOV_K, 2, 0, 0, imm),
                call(3),
            ]),
            (9, _) => self.insns.extend([
                Insn::new(MOV_X, 1, 6, 0, 0),
                Insn::new(0x61, 2, 6, 0, 0),
                Insn::new(MOV_K, 3, 0, 0, imm & 1),
                call(2),
            ]),
            // What people write by mistake.
            (10, _) => self.insns.push(Insn::new(0x15, packet, 0, off & 7, 0)),
            (11, _) => self.insns.push(Insn::new(MOV_X, packet, 15 - packet, 0, 0)),
            (12, _) => self.insns.push(Insn::new(0x72, 9, 0, off, imm)),
            (13, _) => self.insns.push(Insn::new(MOV_K, regs % 10, 0, 0, imm)),
            (14, _) => self.holds[which] = !self.holds[which],
            _ => {}
        }
    }

    /// Takes a packet; without one it ends.
    fn take(&mut self, which: usize, flags: i32) {
        let packet = 7 + which as u8;
        self.insns.extend([
            Insn::new(0x7a, 10, 0, -8, 0),
            Insn::new(MOV_X, 1, 6, 0, 0),
            Insn::new(0x18, 2, 1, 0, 0),
            Insn::default(),
            Insn::new(MOV_K, 3, 0, 0, flags),
            Insn::new(MOV_X, 4, 10, 0, 0),
            Insn::new(0x07, 4, 0, 0, -8),
            call(0),
            Insn::new(MOV_X, packet, 0, 0, 0),
        ]);
        let (other, holds_other) = (15 - packet, self.holds[1 - which]);
        let end = Insn::new(MOV_X, 0, if holds_other { other } else { packet }, 0, 0);
        self.insns.extend([Insn::new(0x55, packet, 0, 2, 0), end, EXIT]);
        self.holds[which] = true;
    }

    fn drop(&mut self, which: usize) {
        let packet = 7 + which as u8;
        let context = Insn::new(MOV_X, 1, 6, 0, 0);
        self.insns.extend([context, Insn::new(MOV_X, 2, packet, 0, 0), call(1)]);
        self.holds[which] = false;
    }

    /// Sends what is held, one packet at most.
    fn end(mut self) -> Vec<Insn> {
        if self.holds == [true; 2] {
            self.drop(0);
        }
        let result = match self.holds {
            [true, _] => Insn::new(MOV_X, 0, 7, 0, 0),
            [_, true] => Insn::new(MOV_X, 0, 8, 0, 0),
            _ => Insn::new(MOV_K, 0, 0, 0, 0),
        };
        self.insns.extend([result, EXIT]);
        self.insns
    }
}

fn call(kfunc: i32) -> Insn {
    Insn::new(0x85, 0, 2, 0, kfunc)
}

const KFUNCS: [&str; 4] = [
    "bpf_packet_dequeue",
    "bpf_packet_drop",
    "bpf_schedule_iface_dequeue",
    "bpf_packet_store_launch_time",
];
const MOV_X: u8 = 0xbf;
const MOV_K: u8 = 0xb7;
const EXIT: Insn = Insn { code: 0x95, dst: 0, src: 0, off: 0, imm: 0 };
const PACKETS_MAX: usize = 24;
const PIECES_MAX: usize = 12;
/// As many as a worker asks for.
const RUNS: usize = 8;
