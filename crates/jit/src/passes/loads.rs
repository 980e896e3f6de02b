//! Loads of what is known already: packet bytes and context fields read or written before.
//!
//! Only memory no other worker can change counts: map values may be updated at any time, and a
//! program that reads one twice may want to see that. Works along straight lines of control flow: a
//! block starts with what its only predecessor ended with.

use std::collections::HashMap;

use towpath_bpf::proto::{self, Flags, id};

use super::Context;
use super::replace::Replacements;
use crate::xir::{Alias, Block, CtxField, Dominators, Function, Op, Place, Value, Width};

pub(super) fn forward(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    let mut replacements = Replacements::new(function);
    let mut ends: HashMap<Block, Known> = HashMap::new();
    for &block in dominators.order() {
        let mut known = match dominators.predecessors(block) {
            [only] if *only != block => ends.get(only).cloned().unwrap_or_default(),
            _ => Known::default(),
        };
        let mut insts = std::mem::take(&mut function.block_mut(block).insts);
        insts.retain(|&inst| {
            let data = function.inst_mut(inst);
            data.op.for_each_operand_mut(|value| *value = replacements.resolve(*value));
            match (known.find(&data.op), data.result) {
                (Some(same), Some(result)) => {
                    replacements.set(result, same);
                    false
                }
                _ => {
                    known.after(&data.op, data.result);
                    true
                }
            }
        });
        function.block_mut(block).insts = insts;
        ends.insert(block, known);
    }
    replacements.apply(function);
}

/// What memory holds at a point of the program.
#[derive(Debug, Clone, Default)]
struct Known {
    ctx: HashMap<CtxField, Value>,
    packet: HashMap<(Value, i32, Width), Value>,
}

impl Known {
    fn find(&self, op: &Op) -> Option<Value> {
        match op {
            Op::CtxLoad(field) => self.ctx.get(field).copied(),
            Op::Load { place, probe: false } if place.alias == Alias::Packet => {
                self.packet.get(&(place.base, place.offset, place.width)).copied()
            }
            _ => None,
        }
    }

    /// Takes an instruction's effect into account.
    fn after(&mut self, op: &Op, result: Option<Value>) {
        match op {
            Op::CtxLoad(field) => {
                self.ctx.extend(result.map(|value| (*field, value)));
            }
            Op::Load { place, probe: false } if place.alias == Alias::Packet => {
                self.packet.extend(result.map(|value| (key(*place), value)));
            }
            Op::Store { place, value } => {
                self.written(*place);
                // A narrow store keeps only the low bits of its value; a load would clear the rest.
                if place.alias == Alias::Packet && matches!(place.width, Width::W32 | Width::W64) {
                    self.packet.insert(key(*place), *value);
                }
            }
            Op::AtomicRmw { place, .. }
            | Op::CompareExchange { place, .. }
            | Op::StoreRelease { place, .. } => self.written(*place),
            Op::CallHelper { id, .. } => self.called(*id),
            Op::CallRuntime { function, .. } => {
                if function.effects().writes.includes(Alias::Packet) {
                    self.packet.clear();
                }
            }
            Op::CallKfunc { .. } | Op::Call { .. } => *self = Known::default(),
            _ => {}
        }
    }

    fn written(&mut self, place: Place) {
        match place.alias {
            Alias::Packet => self.packet.retain(|&(base, offset, width), _| {
                let end = |offset: i32, width: Width| i64::from(offset) + i64::from(width.bytes());
                base == place.base
                    && (end(offset, width) <= i64::from(place.offset)
                        || end(place.offset, place.width) <= i64::from(offset))
            }),
            Alias::Other => self.packet.clear(),
            Alias::Ctx | Alias::Stack | Alias::Map(_) | Alias::MapMeta(_) => {}
        }
    }

    fn called(&mut self, helper: u32) {
        let Some(proto) = proto::helper(helper) else {
            *self = Known::default();
            return;
        };
        let writes = |flags: Flags| flags.has(Flags::WRITE) || flags.has(Flags::UNINIT);
        // A helper with a callback runs code of the program.
        let runs_program = proto.args.iter().any(|arg| arg.kind == proto::ArgKind::Func);
        if proto.changes_packet || runs_program {
            *self = Known::default();
        } else if helper == id::XDP_STORE_BYTES || proto.args.iter().any(|arg| writes(arg.flags)) {
            self.packet.clear();
        }
    }
}

fn key(place: Place) -> (Value, i32, Width) {
    (place.base, place.offset, place.width)
}
