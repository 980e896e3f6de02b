//! Copies of what follows a join.

use towpath_bpf::Insn;
use towpath_bpf::insn::*;

use super::{R0, R1, R2, R3, R4, R5, R6, check};

const R7: u8 = 7;
const R8: u8 = 8;

/// `hash(words of the address) ^ family`, where IPv4 brings three words that are known: behind the
/// join, its way has a copy in which they are hashed already.
#[test]
fn a_way_with_many_constants_has_a_copy_of_what_follows() {
    let set = |register, value| Insn::new(BPF_ALU | BPF_MOV | BPF_K, register, 0, 0, value);
    let word = |to, at| Insn::new(BPF_LDX | BPF_MEM | BPF_W, to, R6, at, 0);
    let by = |op, to, value| Insn::new(BPF_ALU | op | BPF_K, to, 0, 0, value);
    let with = |op, to, from| Insn::new(BPF_ALU | op | BPF_X, to, from, 0, 0);
    let rotate = |of, count| {
        let (left, right) = (by(BPF_LSH, R8, count), by(BPF_RSH, of, 32 - count));
        [with(BPF_MOV, R8, of), left, right, with(BPF_OR, of, R8)]
    };
    let mut insns = vec![
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R7, R1, 4, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R6, R1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R8, R6, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R8, 0, 0, 46),
        set(R0, 1),
        Insn::new(BPF_JMP | BPF_JGT | BPF_X, R8, R7, 71, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_H, R7, R6, 12, 0),
        Insn::new(BPF_JMP | BPF_JNE | BPF_K, R7, 0, 6, 8),
    ];
    insns.extend([set(R1, 0), set(R2, 0), set(R3, -65536), word(R4, 26), set(R5, 2)]);
    insns.push(Insn::new(BPF_JMP | BPF_JA, 0, 0, 5, 0));
    insns.extend([word(R1, 22), word(R2, 26), word(R3, 30), word(R4, 34), set(R5, 10)]);
    insns.push(set(R0, 0));
    for of in [R1, R2, R3, R4] {
        insns.push(by(BPF_MUL, of, 0xcc9e_2d51_u32 as i32));
        insns.extend(rotate(of, 15));
        insns.extend([by(BPF_MUL, of, 0x1b87_3593), with(BPF_XOR, R0, of)]);
        insns.extend(rotate(R0, 13));
        insns.extend([by(BPF_MUL, R0, 5), by(BPF_ADD, R0, 0xe654_6b64_u32 as i32)]);
    }
    insns.extend([with(BPF_XOR, R0, R5), by(BPF_AND, R0, 1)]);
    let end = insns.len() as i16;
    insns[5].off = end - 6;
    insns.push(Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
    check("specialized", vec![], insns);
}
