//! A branch whose ways meet at once with different values becomes a select.
//!
//! "The header, or nothing if the packet is too short" is such a choice. As a select it is undone
//! behind the branch that tests it (see [`super::known`]), and its blocks become one.

use super::Context;
use super::assemble::Assembler;
use crate::xir::{Dominators, Function, Jump, Op, Terminator};

/// More choices at once are left to a branch.
const SELECTS_MAX: usize = 2;

pub(super) fn form(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    for &block in dominators.order() {
        let Terminator::Branch(condition, yes, no) = function.block(block).end.clone() else {
            continue;
        };
        let differing = yes.args.iter().zip(&no.args).filter(|(yes, no)| yes != no).count();
        if yes.target != no.target || differing > SELECTS_MAX {
            continue;
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
