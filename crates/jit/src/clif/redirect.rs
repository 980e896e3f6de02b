//! Redirect calls without the runtime: where they lead is written where the runtime looks for it.

use std::mem::offset_of;

use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, condcodes::IntCC, types};
use towpath_maps::Layout;

use super::lower::Lowering;
use crate::machine_unsafe::{Machine, RedirectCell};
use crate::xir::{Arg, Op, RuntimeFunction, Value};

/// A map whose entries are words side by side.
struct Targets {
    map: u32,
    base: u64,
    entries: u32,
}

impl Lowering<'_, '_> {
    /// What a redirect call returns, when all that it does can be done here.
    pub(super) fn redirect(
        &mut self,
        function: RuntimeFunction,
        args: &[Arg],
    ) -> Option<ir::Value> {
        let value = |number: usize| match args.get(number) {
            Some(Arg::Value(value)) => Some(*value),
            _ => None,
        };
        match function {
            RuntimeFunction::Redirect if self.constant(value(1)?) == Some(0) => {
                let ifindex = self.value(value(0)?);
                let ifindex = self.builder.ins().ireduce(types::I32, ifindex);
                let words = self.builder.ins().uextend(types::I64, ifindex);
                let none = self.iconst(0);
                self.lead(RedirectCell::INTERFACE, words, none);
                Some(self.iconst(XDP_REDIRECT))
            }
            RuntimeFunction::RedirectMap => {
                let action = self.constant(value(2)?).filter(|&flags| flags <= ACTION_MASK)?;
                let targets = self.targets(value(0)?)?;
                let key = self.value(value(1)?);
                Some(self.redirect_by(&targets, key, action))
            }
            _ => None,
        }
    }

    /// The map that a value stands for, if its entries are where code can read them. Functions that
    /// tail calls lead to run for bursts of other programs, where maps have other numbers.
    fn targets(&self, map: Value) -> Option<Targets> {
        self.around?;
        let Op::MapRef(map) = *self.op_of(map)? else { return None };
        match self.environment.maps.get(map as usize)?.layout()? {
            Layout::Targets { base, entries } => Some(Targets { map, base, entries }),
            _ => None,
        }
    }

    /// `__bpf_xdp_redirect_map`: a miss forgets an earlier redirect and returns `action`.
    fn redirect_by(&mut self, targets: &Targets, key: ir::Value, action: u64) -> ir::Value {
        let [look, hit, miss, done] = std::array::from_fn(|_| self.builder.create_block());
        let result = self.builder.append_block_param(done, types::I64);
        let key = self.builder.ins().ireduce(types::I32, key);
        let entries = i64::from(targets.entries);
        let inside = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, key, entries);
        self.builder.ins().brif(inside, look, &[], miss, &[]);

        self.builder.switch_to_block(look);
        let key = self.builder.ins().uextend(types::I64, key);
        let offset = self.builder.ins().ishl_imm_u(key, 3);
        let base = self.iconst(targets.base);
        let address = self.builder.ins().iadd(base, offset);
        let entry = self.builder.ins().load(types::I64, MemFlagsData::trusted(), address, 0);
        self.builder.ins().brif(entry, hit, &[], miss, &[]);

        self.builder.switch_to_block(hit);
        let key = self.builder.ins().ishl_imm_u(key, 32);
        let words = self.builder.ins().bor_imm_u(key, i64::from(targets.map));
        self.lead(RedirectCell::ENTRY, words, entry);
        let redirect = self.iconst(XDP_REDIRECT);
        self.builder.ins().jump(done, &[redirect.into()]);

        self.builder.switch_to_block(miss);
        self.builder.set_cold_block(miss);
        let cell = self.redirect_cell();
        // No burst has this number.
        let none = self.builder.ins().iconst(types::I32, 0);
        self.put(none, cell, offset_of!(RedirectCell, burst));
        let action = self.iconst(action);
        self.builder.ins().jump(done, &[action.into()]);

        self.builder.switch_to_block(done);
        result
    }

    /// The frame goes there, unless another call says otherwise.
    fn lead(&mut self, kind: u32, first: ir::Value, second: ir::Value) {
        let cell = self.redirect_cell();
        let burst = self.machine_field(types::I32, offset_of!(Machine, burst));
        self.put(burst, cell, offset_of!(RedirectCell, burst));
        let kind = self.builder.ins().iconst(types::I32, i64::from(kind));
        self.put(kind, cell, offset_of!(RedirectCell, kind));
        let words = offset_of!(RedirectCell, words);
        self.put(first, cell, words);
        self.put(second, cell, words + 8);
    }

    /// Address of the running frame's cell.
    fn redirect_cell(&mut self) -> ir::Value {
        let cells = self.machine_field(types::I64, offset_of!(Machine, redirects));
        let index = self.machine_field(types::I32, offset_of!(Machine, index));
        let index = self.builder.ins().uextend(types::I64, index);
        let offset = self.builder.ins().imul_imm_s(index, size_of::<RedirectCell>() as i64);
        self.builder.ins().iadd(cells, offset)
    }

    fn put(&mut self, value: ir::Value, base: ir::Value, offset: usize) {
        self.builder.ins().store(MemFlagsData::trusted(), value, base, offset as i32);
    }

    fn constant(&self, value: Value) -> Option<u64> {
        match self.op_of(value)? {
            Op::Const(constant) => Some(*constant),
            _ => None,
        }
    }

    /// What makes a value; redirect calls are too few for a table.
    fn op_of(&self, value: Value) -> Option<&Op> {
        let mut insts = self.function.blocks.iter().flat_map(|block| &block.insts);
        let inst = insts.find(|&&inst| self.function.inst(inst).result == Some(value))?;
        Some(&self.function.inst(*inst).op)
    }
}

const XDP_REDIRECT: u64 = 4;
/// Flags that name what a miss returns (`BPF_F_ACTION_MASK`).
const ACTION_MASK: u64 = 3;
