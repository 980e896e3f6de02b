//! The programs in jump tables: what they return and leave behind is nothing that anybody may
//! count on.

use towpath_bpf::Insn;
use towpath_bpf::insn::*;
use towpath_bpf::proto::id;

use super::{kfunc, maps};
use crate::programs::asm::Asm;

/// Instructions over [`super::maps`], each as a program of its own that takes frames with frags.
pub fn targets() -> Vec<Vec<Insn>> {
    vec![
        program(|_| {}, Some(-1)),
        program(|_| {}, None),
        program(|asm| moves(asm, id::XDP_ADJUST_HEAD, -14), Some(i32::MIN)),
        program(|asm| moves(asm, id::XDP_ADJUST_TAIL, -10), Some(64)),
        program(writes_values, Some(63)),
        program(takes_objects, Some(8)),
        program(goes_on, Some(0x7fff_ffff)),
        program(throws, Some(3)),
        program_with_function(throws),
    ]
}

/// The context is in r6; returns a number, or one of the packet's.
fn program(body: impl FnOnce(&mut Asm), returned: Option<i32>) -> Vec<Insn> {
    let mut asm = Asm::default();
    asm.mov(6, 1);
    body(&mut asm);
    match returned {
        Some(imm) => asm.mov_imm(0, imm),
        None => {
            asm.mov_imm(0, -9);
            asm.load(BPF_W, 2, 6, 0);
            asm.load(BPF_W, 3, 6, 4);
            asm.mov(4, 2);
            asm.alu_imm(BPF_ADD, 4, 8);
            let short = asm.jump(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 0);
            asm.load(BPF_DW, 0, 2, 0);
            asm.land(short);
        }
    }
    asm.exit();
    asm.insns
}

/// What it does is done by a function.
fn program_with_function(body: impl FnOnce(&mut Asm)) -> Vec<Insn> {
    let mut asm = Asm::default();
    asm.mov(6, 1);
    asm.put(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 2);
    asm.mov_imm(0, 5);
    asm.exit();
    body(&mut asm);
    asm.mov_imm(0, 0);
    asm.exit();
    asm.insns
}

/// The caller goes on with any number.
fn throws(asm: &mut Asm) {
    asm.mov_imm(1, -2);
    asm.call_kfunc(kfunc("bpf_throw"));
}

fn moves(asm: &mut Asm, helper: u32, by: i32) {
    asm.mov(1, 6);
    asm.mov_imm(2, by);
    asm.call(helper as i32);
}

/// Extreme numbers where programs look for small ones.
fn writes_values(asm: &mut Asm) {
    asm.put(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_VALUE, 0, maps::SINGLE);
    asm.put(0, 0, 0, 0, 0);
    for (off, value) in [(0, -1), (8, i32::MIN), (16, 65), (24, 64), (56, 0x7fff_ffff)] {
        asm.store_imm(BPF_DW, 1, off, value);
    }
}

/// No objects are left in the map.
fn takes_objects(asm: &mut Asm) {
    for key in 0..2 {
        asm.store_imm(BPF_W, REG_FP, -4, key);
        asm.load_map(1, maps::KEEPER);
        asm.mov(2, REG_FP);
        asm.alu_imm(BPF_ADD, 2, -4);
        asm.call(id::MAP_DELETE_ELEM as i32);
    }
}

/// Another one from the same table.
fn goes_on(asm: &mut Asm) {
    asm.call(id::GET_PRANDOM_U32 as i32);
    asm.mov(3, 0);
    asm.alu_imm(BPF_AND, 3, maps::PROGRAM_SLOTS as i32 - 1);
    asm.mov(1, 6);
    asm.load_map(2, maps::PROGRAMS);
    asm.call(id::TAIL_CALL as i32);
}
