//! The batch entry: one call for a whole burst.
//!
//! The loop over the descriptors is compiled beside the program, so that a frame costs a direct
//! call and a copy of its descriptor, and the runtime hears of a frame only when a helper asks.

use std::mem::offset_of;

use cranelift_codegen::ir::{
    self, AbiParam, ExtFuncData, ExternalName, InstBuilder, MemFlagsData, Signature,
    UserExternalName, UserFuncName, condcodes::IntCC, types,
};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

use super::bpf_signature;
use crate::machine_unsafe::{Descriptor, Machine, Packet};

/// `extern "C" fn(machine, descriptors, first, count) -> u64`: runs the program's entry function
/// for descriptors `first..count`; gives `count`, or the index of the one that stopped the run.
pub(super) fn entry(isa: &OwnedTargetIsa) -> ir::Function {
    let mut signature = Signature::new(isa.default_call_conv());
    signature.params.resize(4, AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I64));
    let mut clif = ir::Function::with_name_signature(UserFuncName::user(1, 1), signature);
    let mut context = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut clif, &mut context);
    build(&mut builder);
    builder.seal_all_blocks();
    builder.finalize(isa.frontend_config());
    clif
}

fn build(builder: &mut FunctionBuilder<'_>) {
    let start = builder.create_block();
    builder.append_block_params_for_function_params(start);
    builder.switch_to_block(start);
    let [machine, descriptors, first, count] = builder.block_params(start) else { return };
    let (machine, descriptors, first, count) = (*machine, *descriptors, *first, *count);
    let program = import_entry(builder);
    let frame = field(builder, types::I64, machine, offset_of!(Machine, stack_top));
    let ctx = field(builder, types::I64, machine, offset_of!(Machine, ctx));
    let [head, body, next, done] = std::array::from_fn(|_| builder.create_block());
    let index = builder.append_block_param(head, types::I64);
    let result = builder.append_block_param(done, types::I64);
    builder.ins().jump(head, &[first.into()]);

    builder.switch_to_block(head);
    let more = builder.ins().icmp(IntCC::UnsignedLessThan, index, count);
    builder.ins().brif(more, body, &[], done, &[count.into()]);

    builder.switch_to_block(body);
    let offset = builder.ins().imul_imm_s(index, size_of::<Descriptor>() as i64);
    let descriptor = builder.ins().iadd(descriptors, offset);
    copy_packet(builder, descriptor, machine);
    let number = builder.ins().ireduce(types::I32, index);
    put(builder, number, machine, offset_of!(Machine, index));
    let call = builder.ins().call(program, &[machine, frame, ctx]);
    let r0 = builder.inst_results(call)[0];
    let stop = field(builder, types::I32, machine, offset_of!(Machine, stop));
    builder.ins().brif(stop, done, &[index.into()], next, &[]);

    builder.switch_to_block(next);
    let returned = builder.ins().ireduce(types::I32, r0);
    put(builder, returned, descriptor, offset_of!(Descriptor, returned));
    let following = builder.ins().iadd_imm_s(index, 1);
    builder.ins().jump(head, &[following.into()]);

    builder.switch_to_block(done);
    builder.ins().return_(&[result]);
}

/// The program's first function.
fn import_entry(builder: &mut FunctionBuilder<'_>) -> ir::FuncRef {
    let signature = builder.import_signature(bpf_signature(1));
    let name = UserExternalName { namespace: 0, index: 0 };
    let name = ExternalName::User(builder.func.declare_imported_user_function(name));
    let data = ExtFuncData { name, signature, colocated: true, patchable: false };
    builder.import_function(data)
}

fn copy_packet(builder: &mut FunctionBuilder<'_>, descriptor: ir::Value, machine: ir::Value) {
    for word in (0..size_of::<Packet>()).step_by(8) {
        let from = offset_of!(Descriptor, packet) + word;
        let value = field(builder, types::I64, descriptor, from);
        put(builder, value, machine, offset_of!(Machine, packet) + word);
    }
}

fn field(
    builder: &mut FunctionBuilder<'_>,
    ty: ir::Type,
    base: ir::Value,
    offset: usize,
) -> ir::Value {
    builder.ins().load(ty, MemFlagsData::trusted(), base, offset as i32)
}

fn put(builder: &mut FunctionBuilder<'_>, value: ir::Value, base: ir::Value, offset: usize) {
    builder.ins().store(MemFlagsData::trusted(), value, base, offset as i32);
}
