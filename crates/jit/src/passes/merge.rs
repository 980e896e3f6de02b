//! Merges byte-wise loads into wide ones: `p[0] | p[1] << 8` is one 16-bit load, `p[0] << 8 | p[1]`
//! one with swapped bytes.
//!
//! Clang reads packed and unaligned fields byte by byte; machines don't have to. All bytes are
//! loaded in one block, unconditionally, so the verifier proved every one of them. A byte that is
//! also used by itself is extracted from the wide load.

use super::{Context, definition, definitions};
use crate::xir::{
    Alias, BinaryOp, Block, Dominators, Function, Inst, InstData, Op, Place, Type, UnaryOp, Value,
    Width,
};

/// Largest number of pieces of one value, which has at most 8 bytes.
const PARTS_MAX: usize = 8;

pub(super) fn merge_loads(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    // Wide loads replace existing values, so the analyses stay valid.
    let definitions = definitions(function, &dominators);
    for &block in dominators.order() {
        merge_in_block(function, block, &definitions);
    }
}

fn merge_in_block(function: &mut Function, block: Block, definitions: &[Option<Inst>]) {
    let insts = function.block(block).insts.clone();
    let mut defined: Vec<Option<usize>> = vec![None; function.values.len()];
    for (position, &inst) in insts.iter().enumerate() {
        if let Some(result) = function.inst(inst).result {
            defined[result.0 as usize] = Some(position);
        }
    }
    let finder = Finder { function, insts: &insts, defined: &defined, definitions };
    let found: Vec<(Inst, Merged)> = (0..insts.len())
        .filter_map(|position| Some((insts[position], finder.merged(position)?)))
        .collect();
    for (root, merged) in found {
        replace(function, block, root, &merged);
    }
}

/// A wide load that replaces a tree of narrow ones.
struct Merged {
    place: Place,
    swapped: bool,
    /// The narrow loads.
    parts: Vec<(Inst, Part)>,
}

/// One narrow load, and the position of its bits.
#[derive(Clone, Copy)]
struct Part {
    position: usize,
    place: Place,
    shift: u32,
}

struct Finder<'a> {
    function: &'a Function,
    insts: &'a [Inst],
    /// Position in the block of each value defined there.
    defined: &'a [Option<usize>],
    /// Instruction that defines each value, in any block.
    definitions: &'a [Option<Inst>],
}

impl Finder<'_> {
    fn op(&self, position: usize) -> &Op {
        &self.function.inst(self.insts[position]).op
    }

    fn merged(&self, root: usize) -> Option<Merged> {
        let Op::Binary(BinaryOp::Or, a, b) = *self.op(root) else { return None };
        let mut parts = Vec::with_capacity(PARTS_MAX);
        self.collect(a, 0, &mut parts)?;
        self.collect(b, 0, &mut parts)?;
        parts.sort_by_key(|part| part.place.offset);
        let first = parts.first()?.place;
        let mut end = first.offset;
        for part in &parts {
            let same = part.place.base == first.base && part.place.alias == first.alias;
            if !same || part.place.offset != end {
                return None;
            }
            end = end.checked_add(part.place.width.bytes() as i32)?;
        }
        let width = Width::from_bytes((end - first.offset) as u32)?;
        let place = Place { width, ..first };
        let little = |part: &Part| (part.place.offset - first.offset) as u32 * 8 == part.shift;
        let big = |part: &Part| {
            part.place.width == Width::W8 && (end - 1 - part.place.offset) as u32 * 8 == part.shift
        };
        let swapped = if parts.iter().all(little) {
            false
        } else if parts.iter().all(big) {
            true
        } else {
            return None;
        };
        let is_quiet = self.is_quiet(&parts, root, place.alias);
        let parts = parts.into_iter().map(|part| (self.insts[part.position], part)).collect();
        is_quiet.then_some(Merged { place, swapped, parts })
    }

    /// Collects the loads of which `value << shift` consists.
    fn collect(&self, value: Value, shift: u32, parts: &mut Vec<Part>) -> Option<()> {
        let position = self.defined[value.0 as usize]?;
        match *self.op(position) {
            Op::Binary(BinaryOp::Or, a, b) => {
                self.collect(a, shift, parts)?;
                self.collect(b, shift, parts)
            }
            Op::Binary(BinaryOp::Shl, inner, count) => {
                let count = self.constant(count)?;
                self.collect(inner, shift.checked_add(u32::try_from(count).ok()?)?, parts)
            }
            Op::Unary(UnaryOp::Zext, inner) => self.collect(inner, shift, parts),
            Op::Load { place, probe: false } if parts.len() < PARTS_MAX => {
                parts.push(Part { position, place, shift });
                Some(())
            }
            _ => None,
        }
    }

    /// The constant of a value. Constants are shared by all blocks dominated by the first one that
    /// has them.
    fn constant(&self, value: Value) -> Option<u64> {
        match definition(self.function, self.definitions, value)? {
            Op::Const(constant) => Some(*constant),
            _ => None,
        }
    }

    /// Whether no instruction between the first load and the root writes the loaded bytes.
    fn is_quiet(&self, parts: &[Part], root: usize, alias: Alias) -> bool {
        let first = parts.iter().map(|part| part.position).min().unwrap_or(root);
        (first..root).all(|position| match self.op(position) {
            Op::Store { place, .. } => place.alias != alias && place.alias != Alias::Other,
            Op::CallRuntime { function, .. } => !function.effects().writes.includes(alias),
            op => op.is_pure() || op.is_read_only(),
        })
    }
}

fn replace(function: &mut Function, block: Block, root: Inst, merged: &Merged) {
    let Some(result) = function.inst(root).result else { return };
    let (ty, origin) = (function.ty(result), function.inst(root).origin);
    let width = merged.place.width;
    if width == Width::W64 && ty == Type::I32 {
        return;
    }
    let mut ops = vec![Op::Load { place: merged.place, probe: false }];
    let loaded = width.value_type();
    let swap = match width {
        _ if !merged.swapped => None,
        Width::W16 => Some(UnaryOp::Bswap16),
        Width::W32 => Some(UnaryOp::Bswap32),
        Width::W64 => Some(UnaryOp::Bswap64),
        Width::W8 => None,
    };
    ops.extend(swap.map(|swap| Op::Unary(swap, Value(0))));
    ops.extend((loaded != ty).then_some(Op::Unary(UnaryOp::Zext, Value(0))));
    // The last step keeps the root's value, the earlier ones go in front of it.
    let mut steps = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    let last = ops.len() - 1;
    for (step, mut op) in ops.into_iter().enumerate() {
        if let (Op::Unary(_, operand), Some(value)) = (&mut op, values.last()) {
            *operand = *value;
        }
        if step == last {
            function.inst_mut(root).op = op;
            steps.push(root);
            values.push(result);
        } else {
            let value = function.add_value(loaded);
            steps.push(function.add_inst(InstData { op, result: Some(value), origin }));
            values.push(value);
        }
    }
    // The new instructions replace the first narrow load.
    let is_part = |inst: &Inst| merged.parts.iter().any(|(part, _)| part == inst);
    let insts = &mut function.block_mut(block).insts;
    insts.retain(|inst| *inst != root);
    if let Some(at) = insts.iter().position(is_part) {
        insts.splice(at..at, steps);
    }
    if width != Width::W64 {
        for (inst, part) in &merged.parts {
            cut_out(function, block, *inst, part.place, (values[0], merged.place));
        }
    }
}

/// Replaces a narrow load by bytes of the wide one: other instructions may use it, too.
fn cut_out(
    function: &mut Function,
    block: Block,
    inst: Inst,
    place: Place,
    (wide, whole): (Value, Place),
) {
    let (origin, ty) = (function.inst(inst).origin, Type::I32);
    let mut before = Vec::new();
    let mut add = |function: &mut Function, op| {
        let value = function.add_value(ty);
        before.push(function.add_inst(InstData { op, result: Some(value), origin }));
        value
    };
    let first = (place.offset - whole.offset) as u32;
    let mut value = wide;
    let mut last = None;
    if first > 0 {
        let count = add(function, Op::Const(u64::from(first) * 8));
        last = Some(Op::Binary(BinaryOp::LShr, value, count));
    }
    if first + place.width.bytes() < whole.width.bytes() {
        if let Some(op) = last {
            value = add(function, op);
        }
        let mask = add(function, Op::Const((1 << (place.width.bytes() * 8)) - 1));
        last = Some(Op::Binary(BinaryOp::And, value, mask));
    }
    let Some(last) = last else { return };
    function.inst_mut(inst).op = last;
    let insts = &mut function.block_mut(block).insts;
    if let Some(at) = insts.iter().position(|other| *other == inst) {
        insts.splice(at..at, before);
    }
}
