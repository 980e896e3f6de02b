//! Whether Cranelift's optimizer has a look at a function.
//!
//! XIR's passes leave it little: loads of the runtime's records that are the same, divisions by
//! numbers. But it also takes all arithmetic out of the order it came in and puts it in front of
//! its first use, in each branch that has one. Of a long sum of fields that leaves the loads first,
//! and their results in more registers than there are; what was computed in front of a branch is
//! computed in each of its ways. In short functions that does no harm.

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::{CodegenResult, Context};

/// Runs the optimizer over a short function. The order of a longer one stays what it is.
pub(super) fn optimize(context: &mut Context, isa: &OwnedTargetIsa) -> CodegenResult<()> {
    if context.func.dfg.num_insts() > SHORT_INSTS_MAX {
        return Ok(());
    }
    // What `Context::optimize` does, where the settings ask for it.
    let isa = &**isa;
    context.verify_if(isa)?;
    context.compute_cfg();
    context.compute_domtree();
    context.eliminate_unreachable_code(isa)?;
    context.remove_constant_phis(isa)?;
    context.func.dfg.resolve_all_aliases();
    context.egraph_pass(isa, &mut ControlPlane::default())
}

/// Instructions of Cranelift's of a short function.
const SHORT_INSTS_MAX: usize = 512;
