//! Stack bytes that may be accessed through an address, and so stay in memory.
//!
//! The verifier followed every pointer and lists the bytes that callees, callbacks and variable
//! offsets reach, and for each call the bytes that it can access. The bytes that a call names as
//! its argument are written for it and read back, so a call alone keeps no bytes in memory.

use std::collections::HashMap;

use towpath_bpf::insn::STACK_BYTES;
use towpath_bpf::verifier::{StackArg, SubprogramFacts};

use super::super::Context;
use super::cells::{arg_range, ranges};
use crate::xir::{Dominators, Function, Inlined, Op, StackRange};

/// For each byte of the stack, lowest first, whether it has to stay in memory.
pub(in super::super) type Reached = [bool; STACK_BYTES];

/// Bytes of the function's stack that are accessed otherwise than by instructions that name them.
pub(in super::super) fn reached(
    function: &Function,
    dominators: &Dominators,
    context: Context<'_>,
) -> Reached {
    let mut reached = [false; STACK_BYTES];
    if !has_address(function, dominators) {
        return reached;
    }
    let named = named_ranges(function, dominators);
    let own = Inlined { start: function.start, frame: 0 };
    for part in std::iter::once(&own).chain(&function.inlined) {
        let start = part.start as usize;
        let subprogram = context.program.subprograms().iter().find(|facts| facts.start == start);
        let Some(subprogram) = subprogram else { return [true; STACK_BYTES] };
        let frame = usize::from(part.frame.unsigned_abs());
        for (index, byte) in reached.iter_mut().enumerate() {
            let offset = (index + frame) as i64 - STACK_BYTES as i64;
            *byte |= subprogram.reached.contains(offset);
        }
        for range in unnamed_args(&named, context, subprogram, part.frame) {
            fill(&mut reached, range);
        }
    }
    keep_whole_accesses(function, dominators, &mut reached);
    reached
}

/// Whether any byte of the range has to stay in memory.
pub(super) fn touches(reached: &Reached, range: StackRange) -> bool {
    reached[bytes(range)].iter().any(|reached| *reached)
}

fn has_address(function: &Function, dominators: &Dominators) -> bool {
    let mut insts = dominators.order().iter().flat_map(|&block| &function.block(block).insts);
    insts.any(|&inst| matches!(function.inst(inst).op, Op::StackAddr(_)))
}

/// A range that an instruction names, and the register that holds it if the instruction is still a
/// call.
type Named = (Option<u8>, StackRange);

/// Stack bytes that instructions name, by the BPF instruction that they come from.
fn named_ranges(function: &Function, dominators: &Dominators) -> HashMap<usize, Vec<Named>> {
    let mut named: HashMap<usize, Vec<Named>> = HashMap::new();
    for &inst in dominators.order().iter().flat_map(|&block| &function.block(block).insts) {
        let data = function.inst(inst);
        let found = match &data.op {
            Op::CallHelper { args, .. } | Op::CallKfunc { args, .. } => {
                let registers = args.iter().zip(1..);
                let of = |(arg, register)| arg_range(arg).map(|range| (Some(register), range));
                registers.filter_map(of).collect()
            }
            op => ranges(op).into_iter().map(|range| (None, range)).collect::<Vec<Named>>(),
        };
        if !found.is_empty() {
            named.entry(data.origin as usize).or_default().extend(found);
        }
    }
    named
}

/// Stack bytes that calls of one part of the function, with its frame pointer at `frame`, access
/// without naming them.
fn unnamed_args(
    named: &HashMap<usize, Vec<Named>>,
    context: Context<'_>,
    subprogram: &SubprogramFacts,
    frame: i16,
) -> Vec<StackRange> {
    let facts = context.program.facts().get(subprogram.start..subprogram.end).unwrap_or_default();
    let mut unnamed = Vec::new();
    for (facts, slot) in facts.iter().zip(subprogram.start..) {
        let moved = |arg: &StackArg| StackArg { offset: arg.offset + frame, ..*arg };
        let all: Vec<StackArg> = facts.stack_args.iter().map(moved).collect();
        let named = named.get(&slot).map_or(&[][..], Vec::as_slice);
        let seen = all.iter().filter(|arg| !is_named(arg, &all, named));
        unnamed.extend(seen.map(|arg| StackRange { offset: arg.offset, len: arg.len }));
    }
    unnamed
}

/// Whether the instructions made from a call name all bytes that it accesses through an argument.
fn is_named(arg: &StackArg, all: &[StackArg], named: &[Named]) -> bool {
    let inside = |byte: i32, range: StackRange| {
        let start = i32::from(range.offset);
        (start..start + i32::from(range.len)).contains(&byte)
    };
    let start = i32::from(arg.offset);
    let mut bytes = start..start + i32::from(arg.len);
    bytes.all(|byte| {
        named.iter().any(|&(register, range)| match register {
            Some(register) => register == arg.register && inside(byte, range),
            // A lowered call: its loads can't be distinguished by register, so no other argument
            // may reach the byte.
            None => {
                let other = all.iter().any(|other| {
                    let range = StackRange { offset: other.offset, len: other.len };
                    other.register != arg.register && inside(byte, range)
                });
                !other && inside(byte, range)
            }
        })
    })
}

/// Makes an access either promoted as a whole or kept in memory as a whole.
fn keep_whole_accesses(function: &Function, dominators: &Dominators, reached: &mut Reached) {
    let insts = dominators.order().iter().flat_map(|&block| &function.block(block).insts);
    let accesses: Vec<StackRange> = insts
        .filter_map(|&inst| match function.inst(inst).op {
            Op::StackLoad(range) | Op::StackStore(range, _) => Some(range),
            _ => None,
        })
        .collect();
    let mut changed = true;
    while changed {
        changed = false;
        for &range in &accesses {
            let all = &reached[bytes(range)];
            if all.contains(&true) && all.contains(&false) {
                fill(reached, range);
                changed = true;
            }
        }
    }
}

fn fill(reached: &mut Reached, range: StackRange) {
    reached[bytes(range)].fill(true);
}

/// Indices of a range's bytes; bytes outside of the stack are left out.
fn bytes(range: StackRange) -> std::ops::Range<usize> {
    let start = (i32::from(range.offset) + STACK_BYTES as i32).clamp(0, STACK_BYTES as i32);
    let end = (start + i32::from(range.len)).min(STACK_BYTES as i32);
    start as usize..end as usize
}
