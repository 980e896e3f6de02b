//! Replaces loads of known contents: bytes that were read or written before.
//!
//! Packet, context and stack belong to this run alone: loaded or stored contents are known until an
//! instruction overwrites them, also where paths with equal knowledge meet. Map values may be
//! updated by other workers at any time, and a program that reads a value twice may want to see
//! that: only the program's own stores to them are known, within a block. The bookkeeping of maps
//! is known up to the next call, since it is read for one access or lookup at a time. A load of
//! bytes that were stored in pieces is assembled from them: machines wait for such stores to reach
//! the cache.

mod known;

use towpath_bpf::proto::id;

use super::assemble::Assembler;
use super::replace::Replacements;
use super::{Context, effects, stack};
use crate::trust::Trust;
use crate::xir::{Alias, Block, Dominators, Function, Inst, Op, Place, StackRange, Value, Width};
use known::{Known, Spot};

pub(super) fn forward(function: &mut Function, context: Context<'_>) {
    let dominators = Dominators::new(function);
    let reached = stack::reached(function, &dominators, context);
    let mut replacements = Replacements::new(function);
    let mut ends: Vec<Option<Known>> = vec![None; function.blocks.len()];
    for &block in dominators.order() {
        let known = at_start(function, &dominators, &ends, block, (&reached, context));
        let insts = std::mem::take(&mut function.block_mut(block).insts);
        let mut forwarder = Forwarder {
            known,
            reached: &reached,
            context,
            replacements: &mut replacements,
            assembler: Assembler::new(function, 0),
        };
        for inst in insts {
            forwarder.inst(inst);
        }
        let Forwarder { known, assembler, .. } = forwarder;
        let insts = assembler.insts;
        function.block_mut(block).insts = insts;
        ends[block.0 as usize] = Some(known);
    }
    replacements.apply(function);
}

/// Knowledge that all predecessors share, without contents that the rounds of a loop may change.
fn at_start(
    function: &Function,
    dominators: &Dominators,
    ends: &[Option<Known>],
    block: Block,
    (reached, context): (&stack::Reached, Context<'_>),
) -> Known {
    let mut common: Option<Known> = None;
    for pred in dominators.predecessors(block) {
        match (&ends[pred.0 as usize], &mut common) {
            (Some(end), None) => common = Some(end.clone()),
            (Some(end), Some(common)) => common.keep_common(end),
            (None, _) => {}
        }
    }
    let mut known = common.unwrap_or_default();
    known.enter_block();
    let Some(rounds) = rounds(dominators, ends, block) else { return Known::default() };
    for block in rounds {
        for &inst in &function.block(block).insts {
            forget(&mut known, &function.inst(inst).op, reached, context);
        }
    }
    known
}

/// Blocks that lead from the head of a loop back to it; empty if `block` is no head, and `None` if
/// these blocks are unknown.
fn rounds(dominators: &Dominators, ends: &[Option<Known>], block: Block) -> Option<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut work: Vec<Block> = dominators.predecessors(block).to_vec();
    work.retain(|pred| ends[pred.0 as usize].is_none());
    if !work.is_empty() {
        blocks.push(block);
    }
    while let Some(next) = work.pop() {
        if blocks.contains(&next) {
            continue;
        }
        if blocks.len() >= LOOP_BLOCKS_MAX || !dominators.dominates(block, next) {
            return None;
        }
        blocks.push(next);
        work.extend_from_slice(dominators.predecessors(next));
    }
    Some(blocks)
}

/// Largest number of blocks of a loop that keeps knowledge.
const LOOP_BLOCKS_MAX: usize = 64;

/// Forgets contents that an instruction may overwrite or move.
fn forget(known: &mut Known, op: &Op, reached: &stack::Reached, context: Context<'_>) {
    match op {
        Op::Store { place, .. } => overwritten(known, *place, reached),
        Op::StackStore(range, _) => known.forget_stack(*range),
        Op::AtomicRmw { place, .. }
        | Op::CompareExchange { place, .. }
        | Op::StoreRelease { place, .. } => {
            overwritten(known, *place, reached);
            known.forget_maps();
        }
        Op::LoadAcquire(_) => known.forget_maps(),
        op => called(known, op, reached, context),
    }
}

fn overwritten(known: &mut Known, place: Place, reached: &stack::Reached) {
    match place.alias {
        Alias::Packet | Alias::Map(_) => known.overwritten(spot_of(place), place.width),
        Alias::Stack => known.forget_reached(reached),
        Alias::Other => {
            known.forget_packet();
            known.forget_maps();
            known.forget_reached(reached);
        }
        Alias::Ctx | Alias::MapMeta(_) => {}
    }
}

fn called(known: &mut Known, op: &Op, reached: &stack::Reached, context: Context<'_>) {
    let Some(writes) = effects::of_call(op) else { return };
    match op {
        // Guests' checks recognise the end of the packet by its last load.
        Op::CallHelper { id: id::XDP_ADJUST_HEAD, .. } if context.trust == Trust::Verified => {
            known.forget_start();
        }
        _ if writes.all => known.forget_context(),
        _ => {}
    }
    if writes.all || writes.packet {
        known.forget_packet();
    }
    known.forget_maps();
    known.forget_reached(reached);
    effects::written_stack(op).for_each(|range| known.forget_stack(range));
}

struct Forwarder<'a> {
    known: Known,
    reached: &'a stack::Reached,
    context: Context<'a>,
    replacements: &'a mut Replacements,
    assembler: Assembler<'a>,
}

impl Forwarder<'_> {
    fn inst(&mut self, inst: Inst) {
        let replacements = &*self.replacements;
        let data = self.assembler.function.inst_mut(inst);
        data.op.for_each_operand_mut(|value| *value = replacements.resolve(*value));
        let data = self.assembler.function.inst(inst).clone();
        self.assembler.origin = data.origin;
        let found = match &data.op {
            Op::CtxLoad(field) => self.known.field(*field),
            Op::Load { place, probe: false } => self.load(spot_of(*place), place.width),
            Op::StackLoad(range) => {
                width_of(*range).and_then(|width| self.load(spot_of_stack(*range), width))
            }
            Op::StackStore(range, value) => {
                // The same value is already there, for the next call.
                let held = width_of(*range)
                    .and_then(|width| self.known.exact(spot_of_stack(*range), width));
                if held == Some(*value) {
                    return;
                }
                None
            }
            _ => None,
        };
        match (found, data.result) {
            (Some(same), Some(result)) => self.replacements.set(result, same),
            _ => {
                self.after(&data.op, data.result);
                self.assembler.insts.push(inst);
            }
        }
    }

    fn load(&mut self, spot: Spot, width: Width) -> Option<Value> {
        if !is_tracked(spot) {
            return None;
        }
        let pieces = self.known.pieces(spot, width)?;
        let value = match pieces.as_slice() {
            [only] if only.is_clean && only.first == 0 => {
                self.assembler.resized(only.value, width.value_type())
            }
            all => self.assembler.assembled(all, width),
        };
        self.known.loaded(spot, width, value);
        Some(value)
    }

    /// Records an instruction's effect.
    fn after(&mut self, op: &Op, result: Option<Value>) {
        forget(&mut self.known, op, self.reached, self.context);
        match op {
            Op::CtxLoad(field) => {
                if let Some(result) = result {
                    self.known.set_field(*field, result);
                }
            }
            Op::Load { place, probe: false } => self.loaded(spot_of(*place), place.width, result),
            Op::StackLoad(range) => {
                if let Some(width) = width_of(*range) {
                    self.loaded(spot_of_stack(*range), width, result);
                }
            }
            Op::Store { place, value } => {
                let spot = spot_of(*place);
                if is_tracked(spot) {
                    self.known.stored(spot, place.width, *value);
                }
            }
            Op::StackStore(range, value) => {
                if let Some(width) = width_of(*range) {
                    self.known.stored(spot_of_stack(*range), width, *value);
                }
            }
            _ => {}
        }
    }

    fn loaded(&mut self, spot: Spot, width: Width, result: Option<Value>) {
        // The contents of a map may change at any time.
        if let Some(result) = result
            && !matches!(spot.alias, Alias::Map(_))
            && is_tracked(spot)
        {
            self.known.loaded(spot, width, result);
        }
    }
}

/// Whether the place is tracked. Stack places with a computed address are not: such an access may
/// reach any byte.
fn is_tracked(spot: Spot) -> bool {
    match spot.alias {
        Alias::Packet | Alias::Map(_) | Alias::MapMeta(_) => true,
        Alias::Stack => spot.base.is_none(),
        Alias::Ctx | Alias::Other => false,
    }
}

fn spot_of(place: Place) -> Spot {
    Spot { alias: place.alias, base: Some(place.base), offset: place.offset }
}

fn spot_of_stack(range: StackRange) -> Spot {
    Spot { alias: Alias::Stack, base: None, offset: range.offset.into() }
}

fn width_of(range: StackRange) -> Option<Width> {
    Width::from_bytes(range.len.into())
}
