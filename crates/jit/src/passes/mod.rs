//! The passes over XIR, in the order they run; each can be switched off by name.

mod ahead;
mod assemble;
mod blocks;
mod dead;
mod effects;
mod emit;
mod fold;
mod frozen;
mod guard;
mod helpers;
mod known;
mod loads;
mod maps;
mod merge;
mod narrow;
mod params;
mod replace;
mod selects;
mod stack;
mod stores;

use std::collections::BTreeSet;
use std::sync::Arc;

use towpath_bpf::verifier::Verified;
use towpath_maps::Map;

use crate::trust::Trust;
use crate::xir::{Dominators, Function, Inst, Module};

pub(crate) use ahead::slice;

/// What a pass may look at besides the function it changes.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The program the module was built from.
    pub program: &'a Verified,
    /// The program's maps: where they are and how they are laid out.
    pub maps: &'a [Arc<Map>],
    /// How far the verifier is trusted.
    pub trust: Trust,
}

/// One pass: its name and what it does to a function.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// What `--without PASS` calls it.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    run: fn(&mut Function, Context<'_>),
}

impl Pass {
    /// A pass of the caller's own, for [`Choice::more`].
    pub const fn new(
        name: &'static str,
        summary: &'static str,
        run: fn(&mut Function, Context<'_>),
    ) -> Pass {
        Pass { name, summary, run }
    }
}

/// Which passes run. All of [`PASSES`] by default; anything else is for finding out what a pass
/// does, or does wrong.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Passes to leave out, by name; [`LOOK_AHEAD`] can be among them.
    pub without: BTreeSet<String>,
    /// How many of the passes run, counted from the first (`more` behind [`PASSES`]); all of them
    /// when `None`.
    pub first: Option<usize>,
    /// Passes behind [`PASSES`]: tests put a wrong one here, to see that it is found.
    pub more: Vec<Pass>,
    /// Run the checker after each pass in release builds too.
    pub check: bool,
}

impl Choice {
    /// The passes that run, in order.
    pub fn passes(&self) -> impl Iterator<Item = &Pass> {
        let all = PASSES.iter().chain(&self.more).take(self.first.unwrap_or(usize::MAX));
        all.filter(|pass| !self.without.contains(pass.name))
    }
}

/// Every pass, in order. Some run twice: what a later one uncovers, an earlier one cleans up.
pub const PASSES: &[Pass] = &[
    PARAMS,
    FOLD,
    BLOCKS,
    DEAD,
    Pass {
        name: "stack-args",
        summary: "calls name the stack bytes they read or write instead of taking a pointer",
        run: stack::name_argument_bytes,
    },
    DEAD,
    Pass {
        name: "maps",
        summary: "map operations become arithmetic or direct calls with keys in registers",
        run: maps::lower,
    },
    Pass {
        name: "helpers",
        summary: "helpers become arithmetic or direct calls",
        run: helpers::lower,
    },
    Pass {
        name: "constants",
        summary: "constants of the object file are not loaded",
        run: frozen::read,
    },
    Pass { name: "stack-promote", summary: "stack bytes become SSA values", run: stack::promote },
    PARAMS,
    FOLD,
    BLOCKS,
    Pass {
        name: "selects",
        summary: "branches whose ways meet at once become selects",
        run: selects::form,
    },
    BLOCKS,
    FOLD,
    Pass {
        name: "known-branches",
        summary: "behind a branch, its condition and values selected by it are known",
        run: known::use_branches,
    },
    Pass {
        name: "forward-loads",
        summary: "bytes and context fields that were read or written before are not loaded",
        run: loads::forward,
    },
    Pass {
        name: "merge-loads",
        summary: "values assembled from bytes are loaded whole",
        run: merge::merge_loads,
    },
    Pass {
        name: "narrow",
        summary: "arithmetic of which 32 bits matter is done in 32",
        run: narrow::narrow,
    },
    FOLD,
    Pass {
        name: "rotate",
        summary: "pairs of shifts become rotations",
        run: narrow::find_rotations,
    },
    DEAD,
    Pass {
        name: "merge-stores",
        summary: "neighbouring stores become wide ones, overwritten ones go",
        run: stores::merge_stores,
    },
    FOLD,
    BLOCKS,
    DEAD,
];

const PARAMS: Pass = Pass {
    name: "params",
    summary: "block parameters whose arguments agree disappear",
    run: params::remove_redundant,
};
const FOLD: Pass = Pass {
    name: "fold",
    summary: "constants, identities, equal computations, branches known by now",
    run: fold::run,
};
const BLOCKS: Pass = Pass {
    name: "blocks",
    summary: "straight lines of blocks become one; blocks no path reaches are emptied",
    run: blocks::simplify,
};
const DEAD: Pass =
    Pass { name: "dead", summary: "instructions without effect or use go", run: dead::remove };

/// What makes the functions that fetch hash buckets for a whole burst. No pass: the program stays
/// as it is. It can be left out by this name all the same.
pub const LOOK_AHEAD: &str = "look-ahead";

/// Runs the chosen passes, in order.
///
/// # Panics
///
/// In debug builds, and where [`Choice::check`] asks for it, when a pass leaves a function the
/// checker refuses: a bug in that pass.
pub fn run(module: &mut Module, context: Context<'_>, choice: &Choice) {
    let check = cfg!(debug_assertions) || choice.check;
    if check {
        check_after("build", module);
    }
    for pass in choice.passes() {
        for function in &mut module.functions {
            (pass.run)(function, context);
        }
        if check {
            check_after(pass.name, module);
        }
    }
}

/// Puts run-time checks into a module and limits its time; nothing may run behind it.
///
/// # Panics
///
/// As [`run`] with [`Choice::check`]: these checks are the last line.
pub(crate) fn guard(module: &mut Module, context: Context<'_>, budget: u32) {
    guard::insert(module, context, budget);
    check_after("guard", module);
}

/// The instruction that defines each value; `None` for block parameters and dead values.
fn definitions(function: &Function, dominators: &Dominators) -> Vec<Option<Inst>> {
    let mut definitions = vec![None; function.values.len()];
    for &block in dominators.order() {
        for &inst in &function.block(block).insts {
            if let Some(result) = function.inst(inst).result {
                definitions[result.0 as usize] = Some(inst);
            }
        }
    }
    definitions
}

fn check_after(pass: &str, module: &Module) {
    if let Err(error) = crate::xir::check(module) {
        panic!("after pass {pass}: {error}\n{module}");
    }
}
