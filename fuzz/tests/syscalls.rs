//! Whatever a program that users call is made of, it is refused, or runs on any context that is
//! long enough, and changes nothing but that.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use towpath_bpf::MapDef;
use towpath_bpf::btf::Btf;
use towpath_bpf::insn::Insn;
use towpath_bpf::interp::Limits;
use towpath_bpf::program::{AttachType, Linked, MapType};
use towpath_xdp::{LoadOptions, Program};

/// A piece of a program: what it is, registers, offset and number.
type Raw = (u8, u8, i16, i32);

#[test]
fn accepted_programs_stay_in_their_context() {
    let kernel = Arc::new(Btf::default());
    let called = AtomicUsize::new(0);
    bolero::check!().with_type::<(Vec<Raw>, u8)>().for_each(|(raw, byte)| {
        let options = LoadOptions { limits: Limits { insns: 1 << 16 }, ..LoadOptions::default() };
        let Ok(program) = Program::from_linked(linked(raw, &kernel), &options) else { return };
        let least = program.verified().expect("it was verified").context_bytes() as usize;
        let mut worker = program.worker(0);
        if let Some(shorter) = least.checked_sub(1) {
            assert!(program.call(&mut worker, &mut vec![0; shorter]).is_err(), "too short");
        }
        // Bytes that it does not access stay, as far as the context is longer than it has to be.
        let mut context = vec![*byte; (least + 9).min(65_535)];
        program.call(&mut worker, &mut context).expect("verified, and long enough");
        assert!(context[least..].iter().all(|it| it == byte), "behind what it accesses");
        called.fetch_add(usize::from(least > 0), Relaxed);
    });
    assert!(called.into_inner() > 0, "not one program accesses its context");
}

fn linked(raw: &[Raw], kernel: &Arc<Btf>) -> Linked {
    let mut insns = vec![Insn::new(0xbf, 6, 1, 0, 0), Insn::new(0xb7, 0, 0, 0, 0)];
    insns.extend(raw.iter().take(PIECES_MAX).map(|piece| insn(*piece)));
    insns.extend([Insn::new(0xb7, 0, 0, 0, 3), Insn::new(0x95, 0, 0, 0, 0)]);
    let maps = vec![MapDef::new("values", MapType::Array, 4, 16, 4)];
    let linked = Linked::of_insns("fuzzed", insns, maps, kernel);
    Linked { attach: AttachType::Syscall, has_frags: false, ..linked }
}

/// Mostly accesses to the context, by its copy in r6; else arithmetic, jumps and calls.
fn insn((what, regs, off, imm): Raw) -> Insn {
    const SIZES: [(u8, i16); 4] = [(0x10, 1), (0x08, 2), (0x00, 4), (0x18, 8)];
    let (dst, src) = (regs & 7, (regs >> 4) & 7);
    let (size, bytes) = SIZES[usize::from(what >> 6)];
    // Now and then not aligned, or in front of the context.
    let off = if imm & 15 == 0 { off } else { (off & 0x7fff) / bytes * bytes };
    match what % 16 {
        0..=3 => Insn::new(0x61 | size, dst, 6, off, 0),
        4..=6 => Insn::new(0x63 | size, 6, src, off, 0),
        7 | 8 => Insn::new(0x62 | size, 6, 0, off, imm),
        9 => Insn::new(0x0f, dst, src, 0, 0),
        10 => Insn::new(0x07, dst, 0, 0, imm % 4096),
        11 => Insn::new(0x25, dst, 0, off % 4, imm),
        12 => Insn::new(0x85, 0, 0, 0, imm % 212),
        13 => Insn::new(0x7b, 10, src, -8 * (1 + off.rem_euclid(8)), 0),
        14 => Insn::new(0x79, dst, 10, -8 * (1 + off.rem_euclid(8)), 0),
        _ => Insn::new(0xb7, dst, 0, 0, imm),
    }
}

const PIECES_MAX: usize = 64;
