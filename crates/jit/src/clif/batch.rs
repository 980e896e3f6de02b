//! The batch entry: one call for a whole burst.
//!
//! The loop over the frames is compiled around the program, or around a direct call of it, and the
//! runtime reads a frame only if a helper needs it.

use std::mem::offset_of;

use cranelift_codegen::ir::{
    self, AbiParam, ExtFuncData, ExternalName, InstBuilder, MemFlagsData, Signature,
    UserExternalName, UserFuncName, condcodes::IntCC, types,
};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

use super::{ENTRY_PARAMS, bpf_signature, lower};
use crate::environment::Environment;
use crate::machine_unsafe::Machine;
use crate::xir::{Function, Module};

/// `extern "C" fn(machine, frames, returned, first, count) -> u64`: runs the program's first
/// function for frames `first..count`; gives `count`, or the index of the frame that stopped the
/// run.
pub(super) fn entry(
    module: &Module,
    isa: &OwnedTargetIsa,
    environment: &Environment<'_>,
) -> ir::Function {
    let mut signature = Signature::new(isa.default_call_conv());
    signature.params.resize(5, AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I64));
    let mut clif = ir::Function::with_name_signature(UserFuncName::user(1, 1), signature);
    let mut context = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut clif, &mut context);
    let Some(around) = open(&mut builder, module) else { return clif };
    match module.own_entry().filter(|function| is_small(function)) {
        Some(function) => {
            let function = (module, function);
            builder = lower::inside(function, isa, environment, builder, &around);
        }
        None => call(&mut builder, &around),
    }
    builder.seal_all_blocks();
    builder.finalize(isa.frontend_config());
    clif
}

/// The loop around a program that is compiled inside of it.
pub(super) struct Around {
    pub(super) machine: ir::Value,
    pub(super) frame: ir::Value,
    pub(super) ctx: ir::Value,
    /// Number of the running frame.
    pub(super) index: ir::Value,
    /// Address of the running frame's record.
    pub(super) packet: ir::Value,
    /// A mask that is all ones if there is such a frame; for masked programs.
    pub(super) is_frame: Option<ir::Value>,
    /// Stores that tell the runtime both.
    pub(super) stores: [ir::Inst; 2],
    /// Block to continue in, with r0.
    pub(super) next: ir::Block,
    /// Block to go to if the run has to end.
    pub(super) stopped: ir::Block,
}

/// Whether a function is compiled a second time, inside of the loop: a call costs as much as a
/// short program.
fn is_small(function: &Function) -> bool {
    let insts: usize = function.blocks.iter().map(|block| block.insts.len()).sum();
    insts <= INSIDE_INSTS_MAX
}

/// Emits the loop, and positions the builder where the program goes.
fn open(builder: &mut FunctionBuilder<'_>, module: &Module) -> Option<Around> {
    let start = builder.create_block();
    builder.append_block_params_for_function_params(start);
    builder.switch_to_block(start);
    let &[machine, frames, returned, first, count] = builder.block_params(start) else {
        return None;
    };
    let frame = field(builder, types::I64, machine, offset_of!(Machine, stack_top));
    let ctx = field(builder, types::I64, machine, offset_of!(Machine, ctx));
    let [head, body, next, stopped, done] = std::array::from_fn(|_| builder.create_block());
    let index = builder.append_block_param(head, types::I64);
    let r0 = builder.append_block_param(next, types::I64);
    let result = builder.append_block_param(done, types::I64);
    builder.ins().jump(head, &[first.into()]);

    builder.switch_to_block(head);
    let more = builder.ins().icmp(IntCC::UnsignedLessThan, index, count);
    builder.ins().brif(more, body, &[], done, &[count.into()]);

    builder.switch_to_block(next);
    let place = element(builder, returned, index, size_of::<u32>());
    let r0 = builder.ins().ireduce(types::I32, r0);
    put(builder, r0, place, 0);
    let following = builder.ins().iadd_imm_s(index, 1);
    builder.ins().jump(head, &[following.into()]);

    builder.switch_to_block(stopped);
    builder.set_cold_block(stopped);
    builder.ins().jump(done, &[index.into()]);

    builder.switch_to_block(done);
    builder.ins().return_(&[result]);

    builder.switch_to_block(body);
    let record = element(builder, frames, index, size_of::<u64>());
    let packet = field(builder, types::I64, record, 0);
    let number = builder.ins().ireduce(types::I32, index);
    let stores = [
        put(builder, packet, machine, offset_of!(Machine, packet)),
        put(builder, number, machine, offset_of!(Machine, index)),
    ];
    if module.has_tail_calls() {
        let none = builder.ins().iconst(types::I64, 0);
        put(builder, none, machine, offset_of!(Machine, target));
        let none = builder.ins().iconst(types::I32, 0);
        put(builder, none, machine, offset_of!(Machine, tail_calls));
    }
    let is_frame = module.masked.then(|| {
        let [yes, no] = [-1, 0].map(|number| builder.ins().iconst(types::I64, number));
        builder.ins().select_spectre_guard(more, yes, no)
    });
    Some(Around { machine, frame, ctx, index, packet, is_frame, stores, next, stopped })
}

/// Emits a call of the program, which is too long to be inside of the loop.
fn call(builder: &mut FunctionBuilder<'_>, around: &Around) {
    let program = import_entry(builder);
    let no_tail_calls = builder.ins().iconst(types::I64, 0);
    let args = [around.machine, around.frame, around.ctx, no_tail_calls];
    let call = builder.ins().call(program, &args);
    let r0 = builder.inst_results(call)[0];
    let stop = field(builder, types::I32, around.machine, offset_of!(Machine, stop));
    builder.ins().brif(stop, around.stopped, &[], around.next, &[r0.into()]);
}

/// Imports the program's first function.
fn import_entry(builder: &mut FunctionBuilder<'_>) -> ir::FuncRef {
    let signature = builder.import_signature(bpf_signature(ENTRY_PARAMS));
    let name = UserExternalName { namespace: 0, index: 0 };
    let name = ExternalName::User(builder.func.declare_imported_user_function(name));
    let data = ExtFuncData { name, signature, colocated: true, patchable: false };
    builder.import_function(data)
}

/// Address of an element of an array; `bytes` is a power of two.
fn element(
    builder: &mut FunctionBuilder<'_>,
    array: ir::Value,
    index: ir::Value,
    bytes: usize,
) -> ir::Value {
    // A shift can be part of an address, a multiplication could not.
    let offset = builder.ins().ishl_imm_u(index, i64::from(bytes.ilog2()));
    builder.ins().iadd(array, offset)
}

fn field(
    builder: &mut FunctionBuilder<'_>,
    ty: ir::Type,
    base: ir::Value,
    offset: usize,
) -> ir::Value {
    builder.ins().load(ty, MemFlagsData::trusted(), base, offset as i32)
}

fn put(
    builder: &mut FunctionBuilder<'_>,
    value: ir::Value,
    base: ir::Value,
    offset: usize,
) -> ir::Inst {
    builder.ins().store(MemFlagsData::trusted(), value, base, offset as i32)
}

/// Instructions of the longest function that is compiled inside of the loop.
const INSIDE_INSTS_MAX: usize = 4096;
