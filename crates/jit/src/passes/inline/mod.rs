//! Inlines functions of the program into their callers.
//!
//! A call costs more than the jump: its effects are unknown, stack bytes whose address is an
//! argument stay memory, and all registers are saved. In their callers' frames, callees keep the
//! stack that the verifier gave them, below the caller's own; facts of the verifier are still found
//! by the instruction that they belong to.

mod body;
mod graph;

use towpath_bpf::verifier::{SubprogramFacts, SubprogramKind};

use super::{Context, blocks, dead, fold, params};
use crate::xir::{Block, Function, Module, Terminator, Type};
use graph::Graph;

/// Largest number of instructions of a function that is inlined into every caller.
const SMALL: usize = 40;
/// Largest number of instructions of a function that is inlined into its only caller.
const ONLY_CALL_MAX: usize = 4_000;
/// Largest number of instructions of a caller after inlining.
const GROWN_MAX: usize = 20_000;

/// A call of a function of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Call {
    callee: u32,
    block: Block,
    /// Position of the call in the block.
    position: usize,
}

pub(super) fn inline_calls(module: &mut Module, context: Context<'_>) {
    let mut graph = Graph::new(module);
    for caller in graph.callees_first() {
        let caller = caller as usize;
        let mut changed = false;
        // From the last to the first: positions before a call don't change.
        for call in graph.calls[caller].clone().into_iter().rev() {
            if is_worth(module, &graph, caller, &call, context) {
                let callee = module.functions[call.callee as usize].clone();
                let frame = graph.take_in(module, caller, &call);
                body::put_in(&mut module.functions[caller], &call, frame, &callee);
                if graph.uses(call.callee) == 0 {
                    empty(&mut module.functions[call.callee as usize]);
                }
                changed = true;
            }
        }
        if changed {
            let function = &mut module.functions[caller];
            params::remove_redundant(function, context);
            fold::run(function, context);
            blocks::simplify(function, context);
            dead::remove(function, context);
        }
    }
}

fn is_worth(
    module: &Module,
    graph: &Graph,
    caller: usize,
    call: &Call,
    context: Context<'_>,
) -> bool {
    let callee = call.callee as usize;
    let grown = graph.sizes[callee];
    let pays = grown <= SMALL || (grown <= ONLY_CALL_MAX && graph.uses(call.callee) == 1);
    // A tail call leaves its callers' frames on the stack: they must not grow.
    let steady = facts(&module.functions[caller], context)
        .is_some_and(|facts| facts.reachable && !facts.tail_call_reachable);
    pays && steady
        && graph.sizes[caller] + grown <= GROWN_MAX
        && is_plain(&module.functions[callee], context)
        && graph.stack_fits(module, caller, call)
}

fn facts<'a>(function: &Function, context: Context<'a>) -> Option<&'a SubprogramFacts> {
    let start = function.start as usize;
    context.program.subprograms().iter().find(|facts| facts.start == start)
}

/// Whether a function is only called, and returns to its caller or ends the run.
fn is_plain(callee: &Function, context: Context<'_>) -> bool {
    use SubprogramKind::{AsyncCallback, Entry, ExceptionCallback};
    let is_called = facts(callee, context).is_some_and(|facts| {
        let elsewhere = matches!(facts.kind, Entry | AsyncCallback | ExceptionCallback);
        !elsewhere && facts.reachable
    });
    is_called && callee.blocks.iter().all(|b| !matches!(b.end, Terminator::TailCall { .. }))
}

/// Empties a function without callers; its number stays.
fn empty(function: &mut Function) {
    let params = function.blocks.first().map_or(0, |entry| entry.params.len());
    (function.blocks, function.insts, function.values) = (vec![], vec![], vec![]);
    let entry = function.add_block();
    for _ in 0..params {
        function.add_param(entry, Type::I64);
    }
}
