//! A function of XIR as a function of Cranelift's IR: blocks, parameters and terminators.

use std::collections::HashMap;

use cranelift_codegen::ir::{
    self, AbiParam, ExtFuncData, ExternalName, FuncRef, InstBuilder, MemFlagsData, SigRef,
    Signature, UserExternalName, UserFuncName, condcodes::IntCC, types,
};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

use super::batch::Around;
use super::masks::Masks;
use super::{ENTRY_PARAMS, bpf_signature, callee_signature, param_count};
use crate::environment::Environment;
use crate::error::CompileError;
use crate::machine_unsafe::{Callee, Machine};
use crate::xir::{
    Block, Dominators, Function, Jump, Module, Op, RuntimeFunction, Terminator, Type, UnaryOp,
    Value,
};

/// Largest number of parameters of a native function: a table and the words of a key.
const NATIVE_PARAMS_MAX: usize = 7;

/// Translates one function.
pub(super) fn function(
    module: &Module,
    index: usize,
    function: &Function,
    isa: &OwnedTargetIsa,
    environment: &Environment<'_>,
) -> Result<ir::Function, CompileError> {
    let name = UserFuncName::user(0, index as u32);
    let params = if index == 0 { ENTRY_PARAMS } else { param_count(function) };
    let mut clif = ir::Function::with_name_signature(name, bpf_signature(params));
    let mut context = FunctionBuilderContext::new();
    let builder = FunctionBuilder::new(&mut clif, &mut context);
    let mut lowering = Lowering::new((module, function), isa, environment, builder);
    lowering.run();
    if let Some(stopped) = lowering.stopped {
        lowering.builder.switch_to_block(stopped);
        let zero = lowering.builder.ins().iconst(types::I64, 0);
        lowering.builder.ins().return_(&[zero]);
    }
    lowering.builder.seal_all_blocks();
    lowering.builder.finalize(isa.frontend_config());
    Ok(clif)
}

/// Translates a program's first function inside of the loop over frames.
pub(super) fn inside<'b>(
    function: (&Module, &Function),
    isa: &OwnedTargetIsa,
    environment: &Environment<'_>,
    builder: FunctionBuilder<'b>,
    around: &Around,
) -> FunctionBuilder<'b> {
    let mut lowering = Lowering::new(function, isa, environment, builder);
    lowering.around = Some(around);
    (lowering.machine, lowering.frame) = (around.machine, around.frame);
    lowering.stopped = Some(around.stopped);
    lowering.run();
    if !lowering.asks_runtime {
        // No instruction uses the index of the frame.
        around.stores.iter().for_each(|&store| lowering.builder.func.layout.remove_inst(store));
    }
    lowering.builder
}

/// `extern "C" fn(machine, target, frame pointer, r1, ...) -> u64`: enters the function of `params`
/// parameters at `target`. The two calling conventions pass arguments differently.
pub(super) fn trampoline(isa: &OwnedTargetIsa, params: usize) -> ir::Function {
    let mut signature = Signature::new(isa.default_call_conv());
    signature.params.resize(3 + params, AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I64));
    let mut clif = ir::Function::with_name_signature(UserFuncName::user(1, 0), signature);
    let mut context = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut clif, &mut context);
    let block = builder.create_block();
    builder.append_block_params_for_function_params(block);
    builder.switch_to_block(block);
    let all = builder.block_params(block).to_vec();
    let target = builder.import_signature(bpf_signature(params));
    let mut args = vec![all[0]];
    args.extend_from_slice(&all[2..]);
    let call = builder.ins().call_indirect(target, all[1], &args);
    let result = builder.inst_results(call)[0];
    builder.ins().return_(&[result]);
    builder.seal_all_blocks();
    builder.finalize(isa.frontend_config());
    clif
}

/// An entry function that calls `callee` for all of its work.
pub(super) fn bridge(isa: &OwnedTargetIsa, callee: Callee) -> ir::Function {
    let signature = bpf_signature(ENTRY_PARAMS);
    let mut clif = ir::Function::with_name_signature(UserFuncName::user(1, 2), signature);
    let mut context = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut clif, &mut context);
    let block = builder.create_block();
    builder.append_block_params_for_function_params(block);
    builder.switch_to_block(block);
    let mut args = builder.block_params(block).to_vec();
    let zero = builder.ins().iconst(types::I64, 0);
    let signature = callee_signature(isa);
    args.resize(signature.params.len(), zero);
    let signature = builder.import_signature(signature);
    let address = builder.ins().iconst(types::I64, callee as usize as i64);
    let call = builder.ins().call_indirect(signature, address, &args);
    let result = builder.inst_results(call)[0];
    builder.ins().return_(&[result]);
    builder.seal_all_blocks();
    builder.finalize(isa.frontend_config());
    clif
}

pub(super) struct Lowering<'a, 'b> {
    pub(super) module: &'a Module,
    pub(super) function: &'a Function,
    pub(super) environment: &'a Environment<'a>,
    /// Cranelift's value for each of XIR's.
    values: Vec<Option<ir::Value>>,
    /// Values that are constants.
    numbers: Numbers,
    /// The values zero-extended to 64 bits, if that was free.
    pub(super) wide: Vec<Option<ir::Value>>,
    blocks: Vec<Option<ir::Block>>,
    /// Positions of blocks in the order of the code.
    positions: Vec<usize>,
    /// Functions of this program that are called or referred to.
    functions: HashMap<u32, FuncRef>,
    pub(super) machine: ir::Value,
    /// Frame pointer (r10).
    pub(super) frame: ir::Value,
    /// Parameters of an entry function, unless it is compiled inside of the loop.
    pub(super) entry_params: Option<EntryParams>,
    /// The loop around the function, if it is compiled inside of one.
    pub(super) around: Option<&'a Around>,
    /// Block that a call goes to if it ended the run.
    stopped: Option<ir::Block>,
    /// 16-bit values, by the values that are their extensions.
    pub(super) halves: HashMap<Value, ir::Value>,
    /// Whether a call passes the machine.
    asks_runtime: bool,
    /// Address of the frame's buffer, and the block that loads it.
    pub(super) buffer: Option<(ir::Block, ir::Value)>,
    /// Loads of 32 bits that are used both as they are and extended.
    pub(super) is_extended: Vec<bool>,
    /// State of a masked function.
    pub(super) masks: Option<Masks>,
    /// Slot of the BPF instruction that is being translated.
    pub(super) origin: Option<u32>,
    /// Signatures by number of parameters.
    direct_sigs: [Option<SigRef>; NATIVE_PARAMS_MAX + 1],
    native_call_conv: CallConv,
    pub(super) builder: FunctionBuilder<'b>,
}

impl<'a, 'b> Lowering<'a, 'b> {
    fn new(
        (module, function): (&'a Module, &'a Function),
        isa: &OwnedTargetIsa,
        environment: &'a Environment<'a>,
        builder: FunctionBuilder<'b>,
    ) -> Self {
        Lowering {
            module,
            function,
            environment,
            values: vec![None; function.values.len()],
            numbers: Numbers::new(function),
            wide: vec![None; function.values.len()],
            blocks: vec![None; function.blocks.len()],
            positions: vec![0; function.blocks.len()],
            functions: HashMap::new(),
            machine: ir::Value::from_u32(0),
            frame: ir::Value::from_u32(0),
            entry_params: None,
            around: None,
            stopped: None,
            halves: HashMap::new(),
            asks_runtime: false,
            buffer: None,
            is_extended: extended(function),
            masks: None,
            origin: None,
            direct_sigs: [None; NATIVE_PARAMS_MAX + 1],
            native_call_conv: isa.default_call_conv(),
            builder,
        }
    }
}

/// Constants are emitted where they are used, once in each block: kept from their definition on,
/// they would take registers from other values, or be kept on the stack.
struct Numbers {
    known: Vec<Option<u64>>,
    block: Option<ir::Block>,
    /// Constants that were emitted in this block.
    in_block: HashMap<Value, ir::Value>,
}

impl Numbers {
    fn new(function: &Function) -> Numbers {
        let known = vec![None; function.values.len()];
        Numbers { known, block: None, in_block: HashMap::new() }
    }

    /// The value of a constant that was emitted in this block before.
    fn written(&mut self, block: Option<ir::Block>, value: Value) -> Option<ir::Value> {
        if self.block != block {
            self.block = block;
            self.in_block.clear();
        }
        self.in_block.get(&value).copied()
    }
}

/// Parameters of an entry function, which it passes on to programs of tail calls.
#[derive(Clone, Copy)]
pub(super) struct EntryParams {
    /// Context (r1).
    pub(super) ctx: ir::Value,
    /// Number of tail calls so far.
    pub(super) tail_calls: ir::Value,
}

impl Lowering<'_, '_> {
    /// Whether this is the program's first function: callers of other functions continue with the
    /// program when these return.
    pub(super) fn is_entry(&self) -> bool {
        let forms = self.module.functions.first().into_iter().chain(&self.module.own);
        forms.into_iter().any(|entry| std::ptr::eq(entry, self.function))
    }

    fn run(&mut self) {
        let order: Vec<Block> = Dominators::new(self.function).order().to_vec();
        for (position, &block) in order.iter().enumerate() {
            let clif = self.builder.create_block();
            self.blocks[block.0 as usize] = Some(clif);
            self.positions[block.0 as usize] = position;
        }
        if let Some(around) = self.around {
            self.begin_masks(around.is_frame);
            let entry = self.clif_block(Function::ENTRY);
            self.builder.ins().jump(entry, &[around.ctx.into()]);
        }
        for &block in &order {
            self.block(block);
        }
    }

    fn block(&mut self, block: Block) {
        let clif = self.clif_block(block);
        self.builder.switch_to_block(clif);
        if block == Function::ENTRY && self.around.is_none() {
            self.machine = self.builder.append_block_param(clif, types::I64);
            self.frame = self.builder.append_block_param(clif, types::I64);
        }
        let data = self.function.block(block);
        if self.is_cold(block) {
            self.builder.set_cold_block(clif);
        }
        for &param in &data.params {
            let ty = clif_type(self.function.ty(param));
            let value = self.builder.append_block_param(clif, ty);
            self.set(param, value);
        }
        if block == Function::ENTRY && self.around.is_none() && self.is_entry() {
            let ctx = data.params.first().map(|&ctx| self.value(ctx));
            let tail_calls = self.builder.append_block_param(clif, types::I64);
            self.entry_params = ctx.map(|ctx| EntryParams { ctx, tail_calls });
        }
        if block == Function::ENTRY && self.around.is_none() {
            self.begin_masks(None);
        }
        for &inst in &data.insts {
            let data = self.function.inst(inst);
            self.origin = Some(data.origin);
            self.builder.set_srcloc(ir::SourceLoc::new(data.origin));
            self.inst(data);
        }
        self.end(block, &data.end);
    }

    fn end(&mut self, block: Block, end: &Terminator) {
        match end {
            Terminator::Jump(jump) => {
                let (block, args) = self.jump(jump);
                self.builder.ins().jump(block, &args);
            }
            Terminator::Branch(condition, yes, no) => {
                let condition = self.value(*condition);
                let ways = [self.way(block, yes), self.way(block, no)];
                let [(yes, yes_args, _), (no, no_args, _)] = &ways;
                self.builder.ins().brif(condition, *yes, yes_args, *no, no_args);
                for ((edge, _, jump), holds) in ways.into_iter().zip([true, false]) {
                    let Some(jump) = jump else { continue };
                    self.builder.switch_to_block(edge);
                    self.follow(condition, holds);
                    let (target, args) = self.jump(jump);
                    self.builder.ins().jump(target, &args);
                }
            }
            Terminator::Return(value) => {
                let value = self.value(*value);
                self.leave(value);
            }
            Terminator::TailCall { map, index, otherwise } => {
                self.tail_call(*map, *index, otherwise);
            }
            Terminator::Unreachable => {
                // Proved unreachable; if the proof is wrong, the run ends with XDP_ABORTED.
                let zero = self.builder.ins().iconst(types::I64, 0);
                self.leave(zero);
            }
        }
    }

    /// Whether a block is reached only on errors.
    fn is_cold(&self, block: Block) -> bool {
        let mut insts = self.function.block(block).insts.iter();
        insts.any(|&inst| matches!(self.function.inst(inst).op, Op::Guard { .. }))
    }

    pub(super) fn leave(&mut self, value: ir::Value) {
        match self.around {
            Some(around) => self.builder.ins().jump(around.next, &[value.into()]),
            None => self.builder.ins().return_(&[value]),
        };
    }

    /// Calls a function of the runtime; goes to the function's end if the call stops the run.
    pub(super) fn call_runtime(&mut self, target: u64, args: &[ir::Value]) -> ir::Value {
        let result = self.call_with_machine(target, args);
        self.leave_if_stopped();
        result
    }

    /// Calls a function of the runtime. It ignores the registers of arguments that it isn't given.
    pub(super) fn call_with_machine(&mut self, target: u64, args: &[ir::Value]) -> ir::Value {
        let target = self.builder.ins().iconst(types::I64, target as i64);
        let mut all = vec![self.machine];
        all.extend(args.iter().map(|&arg| self.masked(arg)));
        self.asks_runtime = true;
        let signature = self.direct_signature(all.len());
        let call = self.builder.ins().call_indirect(signature, target, &all);
        self.builder.inst_results(call)[0]
    }

    /// Calls a function of the runtime with its own parameters.
    pub(super) fn call_direct(
        &mut self,
        function: RuntimeFunction,
        args: &[ir::Value],
    ) -> ir::Value {
        let effects = function.effects();
        let machine = effects.takes_machine.then_some(self.machine);
        self.asks_runtime |= effects.takes_machine;
        let args = args.iter().map(|&arg| self.masked(arg));
        let all: Vec<ir::Value> = machine.into_iter().chain(args).collect();
        let signature = self.direct_signature(all.len());
        let address = function.address(&self.environment.callees);
        let target = self.builder.ins().iconst(types::I64, address as i64);
        let call = self.builder.ins().call_indirect(signature, target, &all);
        let result = self.builder.inst_results(call)[0];
        if effects.stops {
            self.leave_if_stopped();
        }
        result
    }

    /// The signature of a native function of `params` 64-bit parameters.
    fn direct_signature(&mut self, params: usize) -> SigRef {
        if let Some(known) = self.direct_sigs[params] {
            return known;
        }
        let mut signature = Signature::new(self.native_call_conv);
        signature.params.resize(params, AbiParam::new(types::I64));
        signature.returns.push(AbiParam::new(types::I64));
        let signature = self.builder.import_signature(signature);
        *self.direct_sigs[params].insert(signature)
    }

    /// Leaves this function if the run must end: emitted behind every call that may end it.
    pub(super) fn leave_if_stopped(&mut self) {
        let stop = self.machine_field(types::I32, std::mem::offset_of!(Machine, stop));
        let stopped = match self.stopped {
            Some(block) => block,
            None => {
                let block = self.builder.create_block();
                self.builder.set_cold_block(block);
                *self.stopped.insert(block)
            }
        };
        let next = self.builder.create_block();
        self.branch(stop, [(stopped, &[]), (next, &[])]);
        self.builder.switch_to_block(next);
    }

    /// Records a call of a function of the program, which may have any effect.
    pub(super) fn calls_program(&mut self) {
        self.asks_runtime = true;
    }

    pub(super) fn machine_field(&mut self, ty: ir::Type, offset: usize) -> ir::Value {
        self.builder.ins().load(ty, MemFlagsData::trusted(), self.machine, offset as i32)
    }

    /// Reference to another function of the program.
    pub(super) fn func_ref(&mut self, index: u32) -> FuncRef {
        if let Some(known) = self.functions.get(&index) {
            return *known;
        }
        let params = self.module.functions.get(index as usize).map_or(0, param_count);
        let signature = self.builder.import_signature(bpf_signature(params));
        let name = UserExternalName { namespace: 0, index };
        let name = self.builder.func.declare_imported_user_function(name);
        let data = ExtFuncData {
            name: ExternalName::User(name),
            signature,
            colocated: true,
            patchable: false,
        };
        let func_ref = self.builder.import_function(data);
        self.functions.insert(index, func_ref);
        func_ref
    }

    /// Target of a branch: an edge forwards with arguments goes through a block of its own, which
    /// is returned with its jump. So arguments are computed on the edge that needs them, and not in
    /// front of the branch for both. Masked functions record on each edge that it is the right one.
    fn way<'j>(
        &mut self,
        from: Block,
        jump: &'j Jump,
    ) -> (ir::Block, Vec<ir::BlockArg>, Option<&'j Jump>) {
        let is_forward = self.positions[jump.target.0 as usize] > self.positions[from.0 as usize];
        if self.masks.is_none() && (jump.args.is_empty() || !is_forward) {
            let (target, args) = self.jump(jump);
            return (target, args, None);
        }
        let edge = self.builder.create_block();
        if self.masks.is_some() && self.is_cold(jump.target) {
            self.builder.set_cold_block(edge);
        }
        (edge, vec![], Some(jump))
    }

    pub(super) fn jump(&mut self, jump: &Jump) -> (ir::Block, Vec<ir::BlockArg>) {
        let args = jump.args.iter().map(|&arg| self.value(arg).into()).collect();
        (self.clif_block(jump.target), args)
    }

    fn clif_block(&mut self, block: Block) -> ir::Block {
        // Every reachable block got one; a jump to any other was refused by the checker.
        match self.blocks[block.0 as usize] {
            Some(clif) => clif,
            None => *self.blocks[block.0 as usize].insert(self.builder.create_block()),
        }
    }

    pub(super) fn value(&mut self, value: Value) -> ir::Value {
        if let Some(clif) = self.values[value.0 as usize] {
            return clif;
        }
        let here = self.builder.current_block();
        if let Some(clif) = self.numbers.written(here, value) {
            return clif;
        }
        // The checker refuses undefined values, so 0 only keeps the function total.
        let number = self.numbers.known[value.0 as usize].unwrap_or(0);
        let number = match self.function.ty(value) {
            Type::I32 => i64::from(number as u32),
            Type::I64 => number as i64,
        };
        let clif = self.builder.ins().iconst(clif_type(self.function.ty(value)), number);
        self.numbers.in_block.insert(value, clif);
        clif
    }

    /// The constant of a value, if recorded.
    pub(super) fn known_number(&self, value: Value) -> Option<u64> {
        self.numbers.known[value.0 as usize]
    }

    /// Records the constant of a value.
    pub(super) fn set_number(&mut self, value: Value, number: u64) {
        self.numbers.known[value.0 as usize] = Some(number);
    }

    pub(super) fn set(&mut self, value: Value, clif: ir::Value) {
        self.values[value.0 as usize] = Some(clif);
    }

    /// 0 or 1 as a 32-bit value.
    pub(super) fn compare(&mut self, cond: IntCC, a: ir::Value, b: ir::Value) -> ir::Value {
        let flag = self.builder.ins().icmp(cond, a, b);
        self.builder.ins().uextend(types::I32, flag)
    }
}

/// Whether each 32-bit value is used both extended to 64 bits and as it is.
fn extended(function: &Function) -> Vec<bool> {
    let mut wide = vec![false; function.values.len()];
    let mut narrow = vec![false; function.values.len()];
    for data in &function.blocks {
        for op in data.insts.iter().map(|&inst| &function.inst(inst).op) {
            match op {
                Op::Unary(UnaryOp::Zext, value) => wide[value.0 as usize] = true,
                _ => op.for_each_operand(|value| narrow[value.0 as usize] = true),
            }
        }
        data.end.for_each_operand(|value| narrow[value.0 as usize] = true);
    }
    wide.iter().zip(narrow).map(|(wide, narrow)| *wide && narrow).collect()
}

/// Cranelift's type for one of XIR's.
pub(super) fn clif_type(ty: Type) -> ir::Type {
    match ty {
        Type::I32 => types::I32,
        Type::I64 => types::I64,
    }
}
