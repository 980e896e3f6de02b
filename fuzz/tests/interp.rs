//! Whatever the instructions, the interpreter ends with a value or a fault; and a program that the
//! verifier accepts ends without a fault, and compiled it does the same.

use std::sync::Arc;
use std::time::Duration;

use towpath_bpf::Linked;
use towpath_bpf::btf::Btf;
use towpath_bpf::insn::Insn;
use towpath_bpf::interp::{Limits, run_conformance};
use towpath_xdp::{Exec, Frame, LoadOptions, Program, Trust, Worker};

/// Five fields that become an instruction; codes are picked so that most are defined.
type Raw = (u8, u8, u8, i8, i32);

#[test]
fn any_stream_ends() {
    bolero::check!().with_type::<(Vec<Raw>, Vec<u8>)>().for_each(|(raw, memory)| {
        let program: Vec<u8> = raw.iter().flat_map(|raw| insn(*raw).to_le_bytes()).collect();
        let _value_or_fault = run_conformance(&program, &mut memory.clone());
    });
}

#[test]
fn accepted_programs_stay_inside() {
    let kernel = Arc::new(Btf::default());
    bolero::check!().with_type::<(Vec<Raw>, Vec<u8>)>().for_each(|(raw, packet)| {
        let options = LoadOptions { limits: Limits { insns: 1 << 24 }, ..LoadOptions::default() };
        let Ok(program) = Program::from_linked(linked(raw, &kernel), &options) else { return };
        let mut bytes = packet.clone();
        bytes.resize(packet.len().clamp(14, 9000), 0);
        // The same stack and buffers for all: a program may look at addresses.
        let mut frame = Frame::new(&bytes).expect("the length is clamped");
        let mut worker = program.worker(0);
        let interpreted = outcome(&program, &mut worker, &mut frame, &bytes);
        for (exec, trust, masked) in WAYS {
            let mut options = LoadOptions { exec, ..options.clone() };
            (options.jit.trust, options.jit.mask_speculation) = (trust, masked);
            options.jit.passes.check = true;
            let verified = program.verified().expect("it was verified");
            let compiled = Program::from_verified(verified.as_ref().clone(), &options);
            let compiled = compiled.expect("it was loaded before");
            compiled.wait_for_tier2(Duration::from_secs(60));
            let found = outcome(&compiled, &mut worker, &mut frame, &bytes);
            assert_eq!(found, interpreted, "{exec:?}, {trust:?}, masked: {masked}");
        }
    });
}

/// What a run returns, and the packet it leaves.
fn outcome(
    program: &Program,
    worker: &mut Worker,
    frame: &mut Frame,
    packet: &[u8],
) -> (u32, Vec<u8>) {
    frame.refill(packet, 0).expect("as before");
    worker.fill_stack(0);
    match program.run(worker, frame) {
        Ok(verdict) => (verdict.returned, frame.to_vec()),
        Err(fault) => panic!("accepted, but: {fault}"),
    }
}

/// Everything that compiles, with and without masks; LLVM only where the machine has it, and then
/// as long as it takes.
const WAYS: [(Exec, Trust, bool); 5] = [
    (Exec::Jit, Trust::Verified, false),
    (Exec::Jit, Trust::Guest, false),
    (Exec::Jit, Trust::Verified, true),
    (Exec::Jit, Trust::Guest, true),
    (Exec::Llvm, Trust::Verified, false),
];

fn linked(raw: &[Raw], kernel: &Arc<Btf>) -> Linked {
    let mut insns = prelude();
    insns.extend(raw.iter().map(|raw| plausible(*raw)));
    insns.extend([Insn::new(MOV64, 0, 0, 0, 2), Insn::new(EXIT, 0, 0, 0, 0)]);
    Linked::of_insns("fuzzed", insns, Vec::new(), kernel)
}

/// Gives every register and some stack a value, so that what follows is often accepted: r6 the
/// context, r7 and r8 the packet with 16 bytes proved, the others numbers.
fn prelude() -> Vec<Insn> {
    let mut insns = vec![
        Insn::new(0xbf, 6, 1, 0, 0),
        Insn::new(0x61, 7, 6, 0, 0),
        Insn::new(0x61, 8, 6, 4, 0),
        Insn::new(0xbf, 2, 7, 0, 0),
        Insn::new(0x07, 2, 0, 0, 16),
        Insn::new(0x3d, 8, 2, 2, 0),
        Insn::new(MOV64, 0, 0, 0, 1),
        Insn::new(EXIT, 0, 0, 0, 0),
    ];
    insns.extend([0, 1, 2, 3, 4, 5, 9].map(|reg| Insn::new(MOV64, reg, 0, 0, i32::from(reg) * 3)));
    insns.extend((1..=4).map(|slot| Insn::new(0x7a, 10, 0, -8 * slot, i32::from(slot))));
    insns
}

/// An instruction that makes sense after the prelude: most mixtures of these are accepted, and the
/// rest probe the verifier's borders.
fn plausible((choice, dst, src, off, imm): Raw) -> Insn {
    const NUMBERS: [u8; 7] = [0, 1, 2, 3, 4, 5, 9];
    let number = |index: u8| NUMBERS[usize::from(index) % NUMBERS.len()];
    let size = [0x00, 0x08, 0x10, 0x18][usize::from(off as u8) % 4];
    let op = (src % 13) << 4;
    let (dst, wild) = (number(dst), dst % 11);
    match choice % 10 {
        0 => Insn::new(0x07 | op, dst, 0, 0, imm),
        1 => Insn::new(0x0f | op, dst, number(src >> 4), 0, 0),
        2 => Insn::new(0x04 | op, dst, 0, 0, imm),
        3 => Insn::new(0x0c | op, dst, number(src >> 4), 0, 0),
        4 => Insn::new(0x61 | size, dst, 7, i16::from(off & 15), 0),
        5 => Insn::new(0x61 | size, dst, 10, -8 * (1 + i16::from(off & 3)), 0),
        6 => Insn::new(0x63 | size, 10, number(src), -8 * (1 + i16::from(off & 3)), 0),
        7 => Insn::new(0x63 | size, 7, number(src), i16::from(off & 15), 0),
        8 => Insn::new(0x05 | (1 + src % 7) << 4, dst, 0, i16::from(off & 3), imm),
        _ => Insn::new(0x0f | op, wild, src % 11, 0, 0),
    }
}

fn insn((code, dst, src, off, imm): Raw) -> Insn {
    let code = CODES.get(usize::from(code)).copied().unwrap_or(code);
    Insn::new(code, dst % 12, src % 12, i16::from(off), imm)
}

const MOV64: u8 = 0xb7;
const EXIT: u8 = 0x95;
/// Codes of common instructions, so that random bytes often mean something.
const CODES: &[u8] = &[
    0x07, 0x0f, 0x17, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x47, 0x4f, 0x57, 0x5f, 0x67, 0x6f, 0x77, 0x7f,
    0x87, 0x97, 0x9f, 0xa7, 0xaf, 0xb7, 0xbf, 0xc7, 0xcf, 0xd4, 0xd7, 0xdc, 0x04, 0x0c, 0x14, 0x1c,
    0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c, 0xa4,
    0xac, 0xb4, 0xbc, 0xc4, 0xcc, 0x05, 0x06, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x55,
    0x5d, 0x65, 0x6d, 0x75, 0x7d, 0xa5, 0xad, 0xb5, 0xbd, 0xc5, 0xcd, 0xd5, 0xdd, 0x16, 0x1e, 0x26,
    0x2e, 0x61, 0x69, 0x71, 0x79, 0x81, 0x89, 0x91, 0x62, 0x6a, 0x72, 0x7a, 0x63, 0x6b, 0x73, 0x7b,
    0xc3, 0xdb, 0x18, 0x85, 0x95, 0xe5,
];
