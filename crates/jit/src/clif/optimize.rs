//! The choice whether Cranelift's optimizer runs on a function.
//!
//! XIR's passes leave little for it: equal loads of the runtime's records, divisions by constants.
//! But it also moves all arithmetic to its first use, in each branch that has one. In a long sum of
//! fields the loads then come first, and their results need more registers than there are; and an
//! expression computed in front of a branch is computed on each of its edges. In short functions
//! that does no harm.

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::{CodegenResult, Context};

/// Runs the optimizer on a short function. The order of a longer one is kept.
pub(super) fn optimize(context: &mut Context, isa: &OwnedTargetIsa) -> CodegenResult<()> {
    if context.func.dfg.num_insts() > SHORT_INSTS_MAX {
        return Ok(());
    }
    // The steps of `Context::optimize`, if the settings ask for optimization.
    let isa = &**isa;
    context.verify_if(isa)?;
    context.compute_cfg();
    context.compute_domtree();
    context.eliminate_unreachable_code(isa)?;
    context.remove_constant_phis(isa)?;
    context.func.dfg.resolve_all_aliases();
    context.egraph_pass(isa, &mut ControlPlane::default())
}

/// Largest number of Cranelift instructions of a short function.
const SHORT_INSTS_MAX: usize = 512;
