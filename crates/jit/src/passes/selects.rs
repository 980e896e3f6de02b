//! Turns a branch whose edges meet at once with different values into a select.
//!
//! "The header, or nothing if the packet is too short" is such a choice. As a select it is resolved
//! behind the branch that tests it (see [`super::known`]), and its blocks become one.

use super::Context;
use super::assemble::Assembler;
use crate::xir::{Block, Dominators, Function, Inst, Jump, Op, Terminator};

/// Largest number of selects; with more, the branch is kept.
const SELECTS_MAX: usize = 2;

pub(super) fn form(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    for &block in dominators.order() {
        let Terminator::Branch(condition, yes, no) = function.block(block).end.clone() else {
            continue;
        };
        let [(yes, first), (no, second)] =
            [yes, no].map(|way| past_constants(function, &dominators, way));
        let differing = yes.args.iter().zip(&no.args).filter(|(yes, no)| yes != no).count();
        if yes.target != no.target || differing > SELECTS_MAX {
            continue;
        }
        for from in [first, second].into_iter().flatten() {
            let insts: Vec<Inst> = std::mem::take(&mut function.block_mut(from).insts);
            function.block_mut(block).insts.extend(insts);
        }
        let last = function.block(block).insts.last();
        let origin = last.map_or(function.start, |&inst| function.inst(inst).origin);
        let mut assembler = Assembler::new(function, origin);
        let choose = |(&yes, &no)| match yes == no {
            true => yes,
            false => {
                let ty = assembler.function.ty(yes);
                assembler.value(ty, Op::Select(condition, yes, no))
            }
        };
        let args = yes.args.iter().zip(&no.args).map(choose).collect();
        let insts = assembler.insts;
        let data = function.block_mut(block);
        data.insts.extend(insts);
        data.end = Terminator::Jump(Jump { target: yes.target, args });
    }
}

/// The final target of a branch's edge that passes only constants; and the block of these
/// constants, which is on no other path.
fn past_constants(
    function: &Function,
    dominators: &Dominators,
    way: Jump,
) -> (Jump, Option<Block>) {
    let data = function.block(way.target);
    let is_constant = |&inst: &Inst| matches!(function.inst(inst).op, Op::Const(_));
    let is_only = dominators.predecessors(way.target).len() == 1 && data.params.is_empty();
    match &data.end {
        Terminator::Jump(next) if is_only && data.insts.iter().all(is_constant) => {
            (next.clone(), Some(way.target))
        }
        _ => (way, None),
    }
}
