//! `bpf_tail_call` without the runtime: a program array is read like a map's values.

use std::mem::offset_of;

use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, condcodes::IntCC, types};
use towpath_bpf::interp::MAX_TAIL_CALLS;

use super::lower::Lowering;
use super::{ENTRY_PARAMS, bpf_signature};
use crate::machine_unsafe::{Machine, TailCallTarget};
use crate::slots::{Slot, Slots};
use crate::xir::{Function, Jump, MapMeta, Value};

impl Lowering<'_, '_> {
    /// Jumps to the program in a slot, if there is one and the run may continue.
    pub(super) fn tail_call(&mut self, map: Value, index: Value, otherwise: &Jump) {
        let slot = Slots::of(self.environment).slot(self.function, map, index);
        let [found, go, miss] = std::array::from_fn(|_| self.builder.create_block());
        let target = self.builder.append_block_param(found, types::I64);
        match slot {
            Some(slot) => self.look_up(slot, index, found, miss),
            None => self.ask_for_target((map, index), found, miss),
        }

        self.builder.switch_to_block(found);
        let count = self.tail_calls();
        let limit = i64::from(MAX_TAIL_CALLS);
        let is_last =
            self.builder.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, count, limit);
        self.branch(is_last, [(miss, &[]), (go, &[])]);

        self.builder.switch_to_block(miss);
        let (next, next_args) = self.jump(otherwise);
        self.builder.ins().jump(next, &next_args);

        self.builder.switch_to_block(go);
        let count = self.builder.ins().iadd_imm_s(count, 1);
        let (machine, place) = (self.machine, offset_of!(Machine, tail_calls) as i32);
        self.builder.ins().istore32(MemFlagsData::trusted(), count, machine, place);
        self.enter(target, count);
    }

    /// Number of tail calls of the frame's run. An entry function has it in a register, unless
    /// functions that it calls make tail calls, too.
    fn tail_calls(&mut self) -> ir::Value {
        let others = self.module.functions.get(1..).unwrap_or_default();
        let is_known = self.is_entry() && !others.iter().any(Function::has_tail_calls);
        match (self.entry_params, self.around) {
            (Some(params), _) if is_known => params.tail_calls,
            (None, Some(_)) if is_known => self.iconst(0),
            _ => {
                let count = self.machine_field(types::I32, offset_of!(Machine, tail_calls));
                self.builder.ins().uextend(types::I64, count)
            }
        }
    }

    /// Reads the slot.
    fn look_up(&mut self, slot: Slot, index: Value, found: ir::Block, miss: ir::Block) {
        let slots = self.environment.map_meta(slot.map, MapMeta::Programs);
        let place = match slot.index {
            Some(index) => self.iconst(slots + 8 * u64::from(index)),
            None => {
                let look = self.builder.create_block();
                let index = self.value(index);
                let number = self.builder.ins().uextend(types::I64, index);
                let entries = i64::from(slot.entries);
                let below = IntCC::UnsignedLessThan;
                let inside = self.builder.ins().icmp_imm_u(below, number, entries);
                self.branch(inside, [(look, &[]), (miss, &[])]);

                self.builder.switch_to_block(look);
                let slots = self.iconst(slots);
                let offset = self.builder.ins().ishl_imm_u(number, 3);
                self.builder.ins().iadd(slots, offset)
            }
        };
        let place = self.masked(place);
        let target = self.builder.ins().load(types::I64, MemFlagsData::trusted(), place, 0);
        self.branch(target, [(found, &[target.into()]), (miss, &[])]);
    }

    fn ask_for_target(&mut self, (map, index): (Value, Value), found: ir::Block, miss: ir::Block) {
        let (map, index) = (self.value(map), self.value(index));
        let index = self.builder.ins().uextend(types::I64, index);
        let target = self.environment.callees.tail_call as usize as u64;
        let target = self.call_runtime(target, &[map, index]);
        self.branch(target, [(found, &[target.into()]), (miss, &[])]);
    }

    /// Enters a program, with its stack below that of the callers.
    fn enter(&mut self, target: ir::Value, count: ir::Value) {
        // Only an entry function can be left for good: for callers of other functions, this program
        // is the running one again when they continue.
        let before = (!self.is_entry()).then(|| self.machine_field(types::I64, TARGET));
        self.calls_program();
        self.set_machine_field(target, TARGET);
        let (flags, target) = (MemFlagsData::trusted(), self.masked(target));
        let entry = self.builder.ins().load(types::I64, flags, target, ENTRY);
        let signature = self.builder.import_signature(bpf_signature(ENTRY_PARAMS));
        if let (Some(params), None) = (self.entry_params, self.around) {
            let args = [self.machine, self.frame, params.ctx, count];
            self.builder.ins().return_call_indirect(signature, entry, &args);
            return;
        }
        let ctx = self.machine_field(types::I64, offset_of!(Machine, ctx));
        let args = [self.machine, self.frame, ctx, count];
        let call = self.builder.ins().call_indirect(signature, entry, &args);
        let result = self.builder.inst_results(call)[0];
        if let Some(before) = before {
            return self.go_on(result, before);
        }
        self.leave_if_stopped();
        self.leave(result);
    }

    /// Returns from a function in whose place another program ran: the program of `before` is the
    /// running one again, also if the other one threw.
    fn go_on(&mut self, result: ir::Value, before: ir::Value) {
        let [stopped, returned] = std::array::from_fn(|_| self.builder.create_block());
        self.builder.set_cold_block(stopped);
        let stop = self.machine_field(types::I32, offset_of!(Machine, stop));
        self.branch(stop, [(stopped, &[]), (returned, &[])]);

        self.builder.switch_to_block(stopped);
        let args = [self.frame];
        let caught = self.call_runtime(self.environment.callees.catch as usize as u64, &args);
        self.set_machine_field(before, TARGET);
        self.leave(caught);

        self.builder.switch_to_block(returned);
        self.set_machine_field(before, TARGET);
        self.leave(result);
    }

    fn set_machine_field(&mut self, value: ir::Value, offset: usize) {
        self.builder.ins().store(MemFlagsData::trusted(), value, self.machine, offset as i32);
    }
}

const TARGET: usize = offset_of!(Machine, target);
const ENTRY: i32 = offset_of!(TailCallTarget, entry) as i32;
