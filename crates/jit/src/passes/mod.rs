//! Passes over XIR, in the order they run; each can be switched off by name.

mod ahead;
mod assemble;
mod barriers;
mod blocks;
mod callbacks;
mod conditions;
mod constants;
mod copy;
mod dead;
mod effects;
mod emit;
mod fold;
mod frozen;
mod guard;
mod helpers;
mod inline;
mod iterators;
mod known;
mod lengths;
mod loads;
mod looks;
mod loops;
mod maps;
mod merge;
mod narrow;
mod params;
mod predict;
mod redirects;
mod replace;
mod selects;
mod specialize;
mod stack;
mod stores;
mod unroll;

use std::collections::BTreeSet;
use std::sync::Arc;

use towpath_bpf::verifier::Verified;
use towpath_maps::Map;

use crate::trust::Trust;
use crate::xir::{Dominators, Function, Inst, Module, Op, Value};

pub(crate) use ahead::slice;

/// Information for a pass besides the function that it changes.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The program the module was built from.
    pub program: &'a Verified,
    /// The program's maps, with their addresses and layouts.
    pub maps: &'a [Arc<Map>],
    /// Trust in the verifier.
    pub trust: Trust,
}

/// One pass: its name and its effect on a function.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// Name for `--without PASS`.
    pub name: &'static str,
    /// Its effect, in one sentence.
    pub summary: &'static str,
    run: Work,
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Function(fn(&mut Function, Context<'_>)),
    Module(fn(&mut Module, Context<'_>)),
}

impl Pass {
    /// A pass of the caller's own, for [`Choice::more`].
    pub const fn new(
        name: &'static str,
        summary: &'static str,
        run: fn(&mut Function, Context<'_>),
    ) -> Pass {
        Pass { name, summary, run: Work::Function(run) }
    }
}

/// Choice of passes: by default all of [`PASSES`]. Other choices help to find out the effect, or
/// the fault, of a pass.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Passes to leave out, by name; [`LOOK_AHEAD`] can be among them.
    pub without: BTreeSet<String>,
    /// Number of passes that run, from the first (`more` behind [`PASSES`]); `None` for all of
    /// them.
    pub first: Option<usize>,
    /// Passes behind [`PASSES`]: tests put a wrong one here, to check that it is found.
    pub more: Vec<Pass>,
    /// Whether the checker runs after each pass in release builds, too.
    pub check: bool,
}

impl Choice {
    /// The passes that run, in order.
    pub fn passes(&self) -> impl Iterator<Item = &Pass> {
        let all = PASSES.iter().chain(&self.more).take(self.first.unwrap_or(usize::MAX));
        all.filter(|pass| !self.without.contains(pass.name))
    }
}

/// Every pass, in order. Some run twice: an earlier one cleans up after a later one.
pub const PASSES: &[Pass] = &[
    PARAMS,
    FOLD,
    BLOCKS,
    DEAD,
    Pass::new(
        "bpf-loop",
        "bpf_loop and bpf_for_each_map_elem are loops around calls of the program's function",
        callbacks::call_in_loops,
    ),
    Pass {
        name: "inline",
        summary: "small functions, and those called once, become part of their callers",
        run: Work::Module(inline::inline_calls),
    },
    Pass::new("iterators", "open-coded iterators over numbers are two numbers", iterators::lower),
    UNROLL,
    Pass::new(
        "stack-args",
        "calls and accesses name the stack bytes they touch instead of taking a pointer",
        stack::name_argument_bytes,
    ),
    DEAD,
    Pass::new(
        "maps",
        "map operations become arithmetic or direct calls with keys in registers",
        maps::lower,
    ),
    Pass::new("helpers", "helpers become arithmetic or direct calls", helpers::lower),
    Pass::new("constants", "constants of the object file are not loaded", frozen::read),
    Pass::new("stack-promote", "stack bytes become SSA values", stack::promote),
    PARAMS,
    FOLD,
    BLOCKS,
    UNROLL,
    Pass::new("selects", "branches whose ways meet at once become selects", selects::form),
    BLOCKS,
    FOLD,
    KNOWN,
    Pass::new(
        "specialize",
        "what follows a join is written once more for ways that bring many constants",
        specialize::specialize,
    ),
    Pass::new(
        "forward-loads",
        "bytes and context fields that were read or written before are not loaded",
        loads::forward,
    ),
    KNOWN,
    Pass::new(
        "trip-counts",
        "rounds of a loop that no exit can cut short are counted, and done without asking",
        loops::count_rounds,
    ),
    Pass::new(
        "conditions",
        "choices between 1 and 0 are the comparisons they are made by",
        conditions::from_numbers,
    ),
    Pass::new("merge-loads", "values assembled from bytes are loaded whole", merge::merge_loads),
    Pass::new("narrow", "arithmetic of which 32 bits matter is done in 32", narrow::narrow),
    FOLD,
    Pass::new(
        "lengths",
        "a packet's end is compared with by its length, which is computed once",
        lengths::compare,
    ),
    Pass::new("rotate", "pairs of shifts become rotations", narrow::find_rotations),
    DEAD,
    Pass::new(
        "merge-stores",
        "neighbouring stores become wide ones, overwritten ones go",
        stores::merge_stores,
    ),
    Pass {
        name: "redirects",
        summary: "redirects of known effect only write where the frame goes",
        run: Work::Module(redirects::lower),
    },
    PARAMS,
    FOLD,
    Pass::new(
        "split-branches",
        "a branch on several conditions is a branch on each",
        conditions::split,
    ),
    Pass::new("predict", "selects that wait for many others become branches", predict::cut_chains),
    BLOCKS,
    DEAD,
    Pass::new("looks", "loops that call something look whether the run is to end", looks::insert),
];

const PARAMS: Pass = Pass::new(
    "params",
    "block parameters whose arguments agree disappear",
    params::remove_redundant,
);
const FOLD: Pass = Pass::new(
    "fold",
    "constants, identities, equal computations, branches known by now",
    fold::run,
);
const KNOWN: Pass = Pass::new(
    "known-branches",
    "behind a branch, its condition and values selected by it are known",
    known::use_branches,
);
const BLOCKS: Pass = Pass::new(
    "blocks",
    "straight lines of blocks become one; blocks no path reaches are emptied",
    blocks::simplify,
);
const UNROLL: Pass = Pass::new(
    "unroll",
    "small loops whose rounds are known are these rounds, one after the other",
    unroll::unroll,
);
const DEAD: Pass = Pass::new("dead", "instructions without effect or use go", dead::remove);

/// Name of the step that makes functions which prefetch hash buckets for a whole burst. It is no
/// pass, as the program stays unchanged, but it can be left out by this name.
pub const LOOK_AHEAD: &str = "look-ahead";

/// Runs the chosen passes, in order.
///
/// # Panics
///
/// In debug builds, and if [`Choice::check`] is set, if the checker refuses a function after a
/// pass: a bug in that pass.
pub fn run(module: &mut Module, context: Context<'_>, choice: &Choice) {
    let check = cfg!(debug_assertions) || choice.check;
    if check {
        check_after("build", module);
    }
    for pass in choice.passes() {
        match pass.run {
            Work::Module(run) => run(module, context),
            Work::Function(run) => {
                module.all_mut().for_each(|function| run(function, context));
            }
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
/// As [`run`] with [`Choice::check`]: these checks are the last line of defence.
pub(crate) fn guard(module: &mut Module, context: Context<'_>, budget: u32) {
    guard::insert(module, context, budget);
    check_after("guard", module);
}

/// Masks a module's machine code against speculation; no pass may run after it.
///
/// # Panics
///
/// As [`guard()`].
pub(crate) fn mask(module: &mut Module) {
    barriers::insert(module);
    check_after("barriers", module);
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

/// The operation that defines a value, if it existed when `definitions` were made.
fn definition<'a>(
    function: &'a Function,
    definitions: &[Option<Inst>],
    value: Value,
) -> Option<&'a Op> {
    let inst = definitions.get(value.0 as usize).copied().flatten()?;
    Some(&function.inst(inst).op)
}

fn check_after(pass: &str, module: &Module) {
    if let Err(error) = crate::xir::check(module) {
        panic!("after pass {pass}: {error}\n{module}");
    }
}
