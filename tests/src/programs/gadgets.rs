//! Programs with a gadget for Spectre v1: a number out of the packet is compared, and then leads to
//! memory; what is read there leads to memory again.
//!
//! All are right: on the way that they take, no access is outside of what it may reach. Every
//! combination of where the number leads, how it is compared, what comes of what was read, and what
//! is around that, is one program.

use towpath_bpf::insn::*;
use towpath_bpf::proto::id;
use towpath_bpf::{Insn, MapDef, program::MapType};

use super::asm::Asm;

/// What the number leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The packet, compared with its end.
    Packet,
    /// A byte of a value.
    Value,
    /// A byte of a value further on than where memory may be nowhere.
    FarValue,
    /// An element of an array.
    Array,
    /// An element of an array of each worker.
    PerCpu,
    /// An array in an array of maps.
    Inner,
    /// The stack.
    Stack,
    /// A program: nothing is read, another one runs.
    Program,
}

/// How the number is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// It leaves where the number is too large.
    Leaves,
    /// It jumps to the access where the number is small.
    Enters,
    /// 32 bits are compared.
    Narrow,
    /// As a signed number, from both sides.
    Signed,
}

/// What comes of what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It leads to a byte of a value.
    Value,
    /// It leads to a byte of the packet.
    Packet,
    /// A key of a lookup in an array.
    Key,
    /// A key of a lookup in a hash table.
    HashKey,
    /// It says where something is stored.
    Store,
    /// A branch by it, in front of one or the other load.
    Branch,
}

/// What is around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Around {
    /// Nothing.
    Nothing,
    /// It is a function of its own.
    Function,
    /// A loop of many rounds.
    Loop,
    /// The packet's start was moved.
    Moved,
}

/// One program.
#[derive(Debug, Clone)]
pub struct Gadget {
    /// What it is made of.
    pub parts: (Target, Comparison, Use, Around),
    /// Its instructions.
    pub insns: Vec<Insn>,
}

/// The maps of every gadget.
pub fn maps() -> Vec<MapDef> {
    let inner = MapDef::new("inner", MapType::Array, 4, 8, 64);
    let mut outer = MapDef::new("outer", MapType::ArrayOfMaps, 4, 4, 16);
    outer.inner = Some(Box::new(inner));
    vec![
        MapDef::new("values", MapType::Array, 4, BYTES as u32, 1),
        MapDef::new("elements", MapType::Array, 4, 8, 64),
        MapDef::new("workers", MapType::PercpuArray, 4, 8, 64),
        outer,
        MapDef::new("table", MapType::Hash, 4, 8, 64),
        MapDef::new("programs", MapType::ProgArray, 4, 4, 8),
    ]
}

const VALUES: i32 = 0;
const ELEMENTS: i32 = 1;
const WORKERS: i32 = 2;
const OUTER: i32 = 3;
const TABLE: i32 = 4;
const PROGRAMS: i32 = 5;

/// Bytes of the value that numbers lead to.
const BYTES: i32 = 16384;
/// Numbers below this are right everywhere but in the packet.
const LIMIT: i32 = 48;

/// All of them.
pub fn all() -> Vec<Gadget> {
    use Comparison as C;
    use Target as T;
    let targets =
        [T::Packet, T::Value, T::FarValue, T::Array, T::PerCpu, T::Inner, T::Stack, T::Program];
    let uses = [Use::Value, Use::Packet, Use::Key, Use::HashKey, Use::Store, Use::Branch];
    let mut all = Vec::new();
    for target in targets {
        for comparison in [C::Leaves, C::Enters, C::Narrow, C::Signed] {
            for what in uses {
                for around in [Around::Nothing, Around::Function, Around::Loop, Around::Moved] {
                    // A tail call leaves the function, which other uses then never reach.
                    if target == T::Program && (what != Use::Value || around == Around::Loop) {
                        continue;
                    }
                    let parts = (target, comparison, what, around);
                    all.push(Gadget { parts, insns: written(parts) });
                }
            }
        }
    }
    all
}

/// r6 the context, r7 `data`, r8 `data_end`, r9 the number; r1 to r5 are free.
fn written((target, comparison, what, around): (Target, Comparison, Use, Around)) -> Vec<Insn> {
    let mut asm = Asm::default();
    asm.mov(6, 1);
    if around == Around::Moved {
        asm.mov_imm(2, 4);
        asm.call(id::XDP_ADJUST_HEAD as i32);
    }
    match around {
        Around::Function => {
            asm.mov(1, 6);
            asm.put(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 2);
            asm.mov_imm(0, 2);
            asm.exit();
            asm.mov(6, 1);
            body(&mut asm, target, comparison, what);
        }
        Around::Loop => {
            asm.store_imm(BPF_DW, 10, COUNTER, 0);
            let head = asm.insns.len();
            body_in_loop(&mut asm, target, comparison, what);
            asm.load(BPF_DW, 1, 10, COUNTER);
            asm.alu_imm(BPF_ADD, 1, 1);
            asm.store(BPF_DW, 10, 1, COUNTER);
            let back = head as i16 - asm.insns.len() as i16 - 1;
            asm.put(BPF_JMP | BPF_JLT, 1, 0, back, 5);
            leave(&mut asm);
        }
        Around::Nothing | Around::Moved => body(&mut asm, target, comparison, what),
    }
    asm.insns
}

fn body(asm: &mut Asm, target: Target, comparison: Comparison, what: Use) {
    body_in_loop(asm, target, comparison, what);
    leave(asm);
}

fn leave(asm: &mut Asm) {
    asm.mov_imm(0, 2);
    asm.exit();
}

fn body_in_loop(asm: &mut Asm, target: Target, comparison: Comparison, what: Use) {
    asm.load(BPF_W, 7, 6, 0);
    asm.load(BPF_W, 8, 6, 4);
    asm.mov(1, 7);
    asm.alu_imm(BPF_ADD, 1, 16);
    let short = asm.jump(BPF_JMP | BPF_JGT | BPF_X, 1, 8, 0);
    asm.load(BPF_W, 9, 7, 0);
    let mut out = vec![short];
    let limit = if target == Target::Program { 8 } else { LIMIT };
    if target != Target::Packet {
        compared(asm, comparison, limit, &mut out);
    }
    reached(asm, target, &mut out);
    if target != Target::Program {
        used(asm, what, &mut out);
    }
    out.into_iter().for_each(|jump| asm.land(jump));
}

/// Goes on only where r9 is below the limit.
fn compared(asm: &mut Asm, comparison: Comparison, limit: i32, out: &mut Vec<super::asm::Jump>) {
    match comparison {
        Comparison::Leaves => out.push(asm.jump(BPF_JMP | BPF_JGE, 9, 0, limit)),
        Comparison::Narrow => out.push(asm.jump(BPF_JMP32 | BPF_JGT, 9, 0, limit - 1)),
        Comparison::Enters => {
            let small = asm.jump(BPF_JMP | BPF_JLT, 9, 0, limit);
            out.push(asm.jump(BPF_JMP | BPF_JA, 0, 0, 0));
            asm.land(small);
        }
        Comparison::Signed => {
            out.push(asm.jump(BPF_JMP | BPF_JSGT, 9, 0, limit - 1));
            out.push(asm.jump(BPF_JMP | BPF_JSLT, 9, 0, 0));
        }
    }
}

/// The number leads to memory: r9 becomes what is read there.
fn reached(asm: &mut Asm, target: Target, out: &mut Vec<super::asm::Jump>) {
    match target {
        Target::Packet => {
            asm.alu_imm(BPF_AND, 9, 0x7fff);
            asm.alu(BPF_ADD, 9, 7);
            asm.mov(1, 9);
            asm.alu_imm(BPF_ADD, 1, 1);
            out.push(asm.jump(BPF_JMP | BPF_JGT | BPF_X, 1, 8, 0));
            asm.load(BPF_B, 9, 9, 0);
        }
        Target::Value | Target::FarValue => {
            asm.store_imm(BPF_W, 10, KEY, 0);
            found(asm, VALUES, out);
            asm.alu(BPF_ADD, 0, 9);
            asm.load(BPF_B, 9, 0, if target == Target::Value { 0 } else { 8192 });
        }
        Target::Array | Target::PerCpu => {
            asm.store(BPF_W, 10, 9, KEY);
            found(asm, if target == Target::Array { ELEMENTS } else { WORKERS }, out);
            asm.load(BPF_W, 9, 0, 0);
        }
        Target::Inner => {
            asm.store(BPF_W, 10, 9, KEY);
            found(asm, OUTER, out);
            asm.mov(1, 0);
            lookup(asm, out);
            asm.load(BPF_W, 9, 0, 0);
        }
        Target::Stack => {
            (1..=7).for_each(|slot| asm.store(BPF_DW, 10, 9, -64 - 8 * slot));
            asm.mov(1, 10);
            asm.alu(BPF_ADD, 1, 9);
            asm.load(BPF_B, 9, 1, -120);
        }
        Target::Program => {
            asm.mov(1, 6);
            asm.load_map(2, PROGRAMS);
            asm.mov(3, 9);
            asm.call(id::TAIL_CALL as i32);
        }
    }
}

/// What was read, in r9, leads further.
fn used(asm: &mut Asm, what: Use, out: &mut Vec<super::asm::Jump>) {
    match what {
        Use::Value | Use::Store | Use::Branch => {
            asm.store_imm(BPF_W, 10, KEY, 0);
            found(asm, VALUES, out);
            asm.alu_imm(BPF_AND, 9, BYTES - 1);
        }
        Use::Key | Use::HashKey => asm.store(BPF_W, 10, 9, KEY),
        Use::Packet => {}
    }
    match what {
        Use::Value => {
            asm.alu(BPF_ADD, 0, 9);
            asm.load(BPF_B, 1, 0, 0);
            kept(asm);
        }
        Use::Store => {
            asm.alu(BPF_ADD, 0, 9);
            asm.store_imm(BPF_B, 0, 0, 1);
        }
        Use::Branch => {
            let other = asm.jump(BPF_JMP | BPF_JSET, 9, 0, 1);
            asm.load(BPF_W, 1, 0, 64);
            kept(asm);
            out.push(asm.jump(BPF_JMP | BPF_JA, 0, 0, 0));
            asm.land(other);
            asm.load(BPF_W, 1, 0, 1024);
            kept(asm);
        }
        Use::Packet => reached(asm, Target::Packet, out),
        Use::Key => {
            found(asm, ELEMENTS, out);
            asm.load(BPF_W, 1, 0, 0);
            kept(asm);
        }
        Use::HashKey => {
            found(asm, TABLE, out);
            asm.load(BPF_W, 1, 0, 0);
            kept(asm);
        }
    }
    if what == Use::Packet {
        asm.mov(1, 9);
        kept(asm);
    }
}

/// Writes r1 to the packet, so that it is used.
fn kept(asm: &mut Asm) {
    asm.store(BPF_B, 7, 1, 8);
}

/// r0 becomes the value in a map for the key on the stack; leaves where there is none.
fn found(asm: &mut Asm, map: i32, out: &mut Vec<super::asm::Jump>) {
    asm.load_map(1, map);
    lookup(asm, out);
}

fn lookup(asm: &mut Asm, out: &mut Vec<super::asm::Jump>) {
    asm.mov(2, 10);
    asm.alu_imm(BPF_ADD, 2, KEY.into());
    asm.call(id::MAP_LOOKUP_ELEM as i32);
    out.push(asm.jump(BPF_JMP | BPF_JEQ, 0, 0, 0));
}

/// Where a key is on the stack.
const KEY: i16 = -4;
/// Where a loop counts.
const COUNTER: i16 = -16;
