//! Sizes of native stack frames that are slow on AMD processors.
//!
//! Zen forwards a stored register to the load that reads it back by the offset from the stack
//! pointer, and distinguishes those of `push` by their last ten bits only. Saved registers are at
//! the top of a frame. In a frame of about 1,024 bytes their offsets resemble those that a callee
//! pushes to below it, and reading them back costs some 60 cycles: measured on Zen 4, where a
//! program took twice the time. No manual documents this.

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{StackSlotData, StackSlotKind};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::{CompiledCode, Context};

use super::optimize::optimize;

/// Compiles a function, and again with a larger frame if its size is a bad one on this processor.
pub(super) fn compile<'c>(
    context: &'c mut Context,
    isa: &OwnedTargetIsa,
) -> Result<&'c CompiledCode, String> {
    optimize(context, isa).map_err(|error| format!("{error:?}"))?;
    if is_bad(once(context, isa)?) && is_zen() {
        let room = StackSlotData::new(StackSlotKind::ExplicitSlot, ROOM_BYTES, 0);
        context.func.create_sized_stack_slot(room);
        once(context, isa)?;
    }
    context.compiled_code().ok_or_else(|| "nothing was compiled".to_owned())
}

fn once<'c>(context: &'c mut Context, isa: &OwnedTargetIsa) -> Result<&'c CompiledCode, String> {
    let compiled = context.compile(&**isa, &mut ControlPlane::default());
    compiled.map_err(|error| format!("{:?}", error.inner))
}

/// Whether offsets of registers saved at the top of the frame resemble those of a callee's pushes.
fn is_bad(compiled: &CompiledCode) -> bool {
    let layout = compiled.buffer.frame_layout();
    let bytes = layout.map_or(0, |layout| layout.frame_to_fp_offset);
    bytes > ALIAS_BYTES / 2 && (bytes + SAVED_BYTES) % ALIAS_BYTES <= 2 * SAVED_BYTES
}

/// Whether this processor is AMD's, or Hygon's of the same design.
fn is_zen() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let leaf = std::arch::x86_64::__cpuid(0);
        let vendor = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).concat();
        matches!(&*vendor, b"AuthenticAMD" | b"HygonGenuine")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Offsets from the stack pointer are indistinguishable if they differ by a multiple of this.
const ALIAS_BYTES: u32 = 1024;

/// Smallest number of bytes of saved registers: five, a frame pointer, an address.
const SAVED_BYTES: u32 = 64;

/// Number of bytes added to a frame of a bad size.
const ROOM_BYTES: u32 = 2 * SAVED_BYTES + 16;

#[cfg(test)]
mod tests {
    use cranelift_codegen::ir::{AbiParam, Function, InstBuilder, Signature, types};
    use cranelift_codegen::isa::CallConv;
    use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

    use super::*;

    /// Size of the frame of a function with this number of bytes of its own.
    fn frame_of(bytes: u32) -> u32 {
        let isa = crate::clif::host_isa().unwrap();
        let mut clif = Function::new();
        clif.signature = Signature::new(CallConv::Tail);
        clif.signature.returns.push(AbiParam::new(types::I64));
        let mut context = FunctionBuilderContext::new();
        let mut builder = FunctionBuilder::new(&mut clif, &mut context);
        let block = builder.create_block();
        builder.switch_to_block(block);
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 4);
        let slot = builder.create_sized_stack_slot(slot);
        let address = builder.ins().stack_addr(types::I64, slot, 0);
        builder.ins().return_(&[address]);
        builder.seal_all_blocks();
        builder.finalize(isa.frontend_config());
        let mut context = Context::for_function(clif);
        let compiled = compile(&mut context, &isa).unwrap();
        compiled.buffer.frame_layout().unwrap().frame_to_fp_offset
    }

    #[test]
    fn frames_around_a_kilobyte_are_made_larger() {
        assert_eq!(frame_of(16), 16);
        assert_eq!(frame_of(896), 896);
        let room = if is_zen() { ROOM_BYTES } else { 0 };
        for bytes in [960, 1024, 1088] {
            assert_eq!(frame_of(bytes), bytes + room);
        }
        assert_eq!(frame_of(1104), 1104);
    }
}
