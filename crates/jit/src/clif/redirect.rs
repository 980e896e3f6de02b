//! Redirect calls without the runtime: where they lead is written where the runtime looks for it.

use std::mem::offset_of;

use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, condcodes::IntCC, types};

use super::lower::Lowering;
use crate::machine_unsafe::{Machine, RedirectCell};
use crate::redirects::{Redirect, Targets, XDP_REDIRECT};
use crate::xir::{Arg, MapMeta, RuntimeFunction};

impl Lowering<'_, '_> {
    /// What a redirect call returns, when all that it does can be done here.
    pub(super) fn redirect(&mut self, callee: RuntimeFunction, args: &[Arg]) -> Option<ir::Value> {
        if !matches!(callee, RuntimeFunction::Redirect | RuntimeFunction::RedirectMap) {
            return None;
        }
        let targets = Targets::of(self.environment);
        let redirect = targets.redirect(self.function, callee, args, self.around.is_some())?;
        let (kind, words) = match redirect {
            Redirect::Entry { map, entries, key, action } => {
                let key = self.value(key);
                return Some(self.redirect_by((map, entries), key, action));
            }
            Redirect::Interface { ifindex } => {
                let ifindex = self.value(ifindex);
                let ifindex = self.builder.ins().ireduce(types::I32, ifindex);
                (RedirectCell::INTERFACE, self.builder.ins().uextend(types::I64, ifindex))
            }
            Redirect::Queue { map, rank } => {
                let rank = self.value(rank);
                let high = self.builder.ins().ishl_imm_u(rank, 32);
                (RedirectCell::ENTRY, self.builder.ins().bor_imm_u(high, i64::from(map)))
            }
            Redirect::Broadcast { map, exclude_ingress } => {
                let words = u64::from(exclude_ingress) << 32 | u64::from(map);
                (RedirectCell::BROADCAST, self.iconst(words))
            }
        };
        let none = self.iconst(0);
        self.lead(kind, words, none);
        Some(self.iconst(XDP_REDIRECT))
    }

    /// `__bpf_xdp_redirect_map`: a miss forgets an earlier redirect and returns `action`.
    fn redirect_by(
        &mut self,
        (map, entries): (u32, Option<u32>),
        key: ir::Value,
        action: u64,
    ) -> ir::Value {
        let [hit, miss, done] = std::array::from_fn(|_| self.builder.create_block());
        let result = self.builder.append_block_param(done, types::I64);
        let key = self.builder.ins().ireduce(types::I32, key);
        let key = self.builder.ins().uextend(types::I64, key);
        let entry = match entries {
            Some(entries) => self.entry_at(map, entries, key, miss),
            None => {
                let map = self.iconst(self.environment.map_handle(map));
                self.call_direct(RuntimeFunction::TargetLookup, &[map, key])
            }
        };
        self.builder.ins().brif(entry, hit, &[], miss, &[]);

        self.builder.switch_to_block(hit);
        let key = self.builder.ins().ishl_imm_u(key, 32);
        let words = self.builder.ins().bor_imm_u(key, i64::from(map));
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

    /// The entry at an index of an array of them, 0 when it is empty; goes to `miss` when the index
    /// is past the last.
    fn entry_at(&mut self, map: u32, entries: u32, key: ir::Value, miss: ir::Block) -> ir::Value {
        let look = self.builder.create_block();
        let entries = i64::from(entries);
        let inside = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, key, entries);
        self.builder.ins().brif(inside, look, &[], miss, &[]);

        self.builder.switch_to_block(look);
        let offset = self.builder.ins().ishl_imm_u(key, 3);
        let base = self.iconst(self.environment.map_meta(map, MapMeta::Targets));
        let address = self.builder.ins().iadd(base, offset);
        self.builder.ins().load(types::I64, MemFlagsData::trusted(), address, 0)
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
        let index = match self.around {
            Some(around) => around.index,
            None => {
                let index = self.machine_field(types::I32, offset_of!(Machine, index));
                self.builder.ins().uextend(types::I64, index)
            }
        };
        let offset = self.builder.ins().imul_imm_s(index, size_of::<RedirectCell>() as i64);
        self.builder.ins().iadd(cells, offset)
    }

    fn put(&mut self, value: ir::Value, base: ir::Value, offset: usize) {
        self.builder.ins().store(MemFlagsData::trusted(), value, base, offset as i32);
    }
}
