//! Stack cells become SSA values.
//!
//! As with registers, a block takes the cells that are live into it as parameters and the pass that
//! removes redundant parameters does the rest. Where a call reads stack bytes they are written to
//! memory in front of it, where it may write them they are read back behind it: the memory is used
//! by calls only, for as long as they run.

use super::super::Context;
use super::cells::{Cells, arg_range, ranges};
use super::reach::{Reached, reached, touches};
use crate::xir::{
    Arg, BinaryOp, Block, Dominators, Function, Inst, InstData, Op, StackRange, Type, UnaryOp,
    Value, Width,
};

/// Cells times blocks beyond which promotion would cost more time than it is worth.
const CELLS_BY_BLOCKS_MAX: usize = 1 << 18;

pub(in super::super) fn promote(function: &mut Function, context: Context<'_>) {
    let dominators = Dominators::new(function);
    let reached = reached(function, &dominators, context);
    let cells = Cells::of(function, &dominators, &reached);
    if cells.len() == 0 || cells.len() * function.blocks.len() > CELLS_BY_BLOCKS_MAX {
        return;
    }
    let live = live_into_blocks(function, &dominators, &cells);
    let mut promoter = Promoter {
        values: vec![None; cells.len()],
        cells: &cells,
        reached: &reached,
        insts: Vec::new(),
        origin: 0,
        function,
    };
    let params = promoter.add_params(&dominators, &live);
    for &block in dominators.order() {
        promoter.block(block, &live, &params);
    }
}

/// Cells whose contents some path from the start of a block may read, by block.
fn live_into_blocks(
    function: &Function,
    dominators: &Dominators,
    cells: &Cells,
) -> Vec<Vec<usize>> {
    let mut live: Vec<Vec<bool>> = vec![vec![false; cells.len()]; function.blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for &block in dominators.order().iter().rev() {
            let mut now = vec![false; cells.len()];
            for jump in function.block(block).end.jumps() {
                let next = &live[jump.target.0 as usize];
                now.iter_mut().zip(next).for_each(|(now, next)| *now |= next);
            }
            for &inst in function.block(block).insts.iter().rev() {
                let op = &function.inst(inst).op;
                let writes = matches!(op, Op::StackStore(..));
                for range in ranges(op) {
                    now[cells.covering(range)].fill(!writes);
                }
            }
            if live[block.0 as usize] != now {
                live[block.0 as usize] = now;
                changed = true;
            }
        }
    }
    let indices = |live: &Vec<bool>| (0..live.len()).filter(|&cell| live[cell]).collect();
    live.iter().map(indices).collect()
}

struct Promoter<'a> {
    function: &'a mut Function,
    cells: &'a Cells,
    /// Accesses to these bytes stay as they are.
    reached: &'a Reached,
    /// What each cell holds at this point of the block; `None` where nothing was stored.
    values: Vec<Option<Value>>,
    /// The block's new instructions.
    insts: Vec<Inst>,
    origin: u32,
}

impl Promoter<'_> {
    fn add_params(&mut self, dominators: &Dominators, live: &[Vec<usize>]) -> Vec<Vec<Value>> {
        let mut params = vec![Vec::new(); self.function.blocks.len()];
        for &block in dominators.order().iter().skip(1) {
            let number = block.0 as usize;
            for &cell in &live[number] {
                params[number].push(self.function.add_param(block, self.cells.ty(cell)));
            }
        }
        params
    }

    fn block(&mut self, block: Block, live: &[Vec<usize>], params: &[Vec<Value>]) {
        self.values.fill(None);
        for (cell, param) in live[block.0 as usize].iter().zip(&params[block.0 as usize]) {
            self.values[*cell] = Some(*param);
        }
        for inst in std::mem::take(&mut self.function.block_mut(block).insts) {
            self.inst(inst);
        }
        let targets: Vec<Block> =
            self.function.block(block).end.jumps().map(|jump| jump.target).collect();
        for (index, target) in targets.into_iter().enumerate() {
            let args: Vec<Value> =
                live[target.0 as usize].iter().map(|&cell| self.cell(cell)).collect();
            let jump = self.function.block_mut(block).end.jumps_mut().nth(index);
            if let Some(jump) = jump {
                jump.args.extend(args);
            }
        }
        self.function.block_mut(block).insts = std::mem::take(&mut self.insts);
    }

    fn inst(&mut self, inst: Inst) {
        let data = self.function.inst(inst).clone();
        self.origin = data.origin;
        match &data.op {
            Op::StackLoad(range) | Op::StackStore(range, _) if touches(self.reached, *range) => {
                self.insts.push(inst);
            }
            Op::StackLoad(range) => {
                // The load becomes the last step of assembling its value.
                let op = self.assembled(*range);
                self.function.inst_mut(inst).op = op;
                self.insts.push(inst);
            }
            Op::StackStore(range, value) => self.split(*range, *value),
            Op::MapLookup { key, .. } => self.call(inst, std::slice::from_ref(key)),
            Op::CallHelper { args, .. }
            | Op::CallKfunc { args, .. }
            | Op::CallRuntime { args, .. } => self.call(inst, args),
            _ => self.insts.push(inst),
        }
    }

    fn call(&mut self, inst: Inst, args: &[Arg]) {
        for range in args.iter().filter_map(arg_range) {
            for cell in self.cells.covering(range) {
                if let Some(value) = self.values[cell] {
                    let op = Op::StackStore(self.cells.range(cell), value);
                    self.push(None, op);
                }
            }
        }
        self.insts.push(inst);
        for arg in args {
            if let Arg::StackReadWrite(range) = arg {
                for cell in self.cells.covering(*range) {
                    let load = Op::StackLoad(self.cells.range(cell));
                    let ty = self.cells.ty(cell);
                    self.values[cell] = Some(self.value(ty, load));
                }
            }
        }
    }

    /// What a cell holds; bytes nobody stored read as zero.
    fn cell(&mut self, cell: usize) -> Value {
        match self.values[cell] {
            Some(value) => value,
            None => {
                let zero = self.value(self.cells.ty(cell), Op::Const(0));
                self.values[cell] = Some(zero);
                zero
            }
        }
    }

    /// The operation that gives the bytes of a range as one value, low bytes first.
    fn assembled(&mut self, range: StackRange) -> Op {
        let ty = Width::from_bytes(u32::from(range.len)).unwrap_or(Width::W64).value_type();
        let covering = self.cells.covering(range);
        let mut whole = None;
        for cell in covering {
            let value = self.cell(cell);
            let value = self.extended(value, ty);
            let shift = (self.cells.range(cell).offset - range.offset) as u64 * 8;
            let part = self.shifted(BinaryOp::Shl, value, ty, shift);
            whole = Some(match whole {
                None => part,
                Some(low) => self.value(ty, Op::Binary(BinaryOp::Or, low, part)),
            });
        }
        let zero = |this: &mut Self| this.value(ty, Op::Const(0));
        let whole = whole.unwrap_or_else(|| zero(self));
        let none = zero(self);
        // An identity that folding removes: the load's own instruction must define its value.
        Op::Binary(BinaryOp::Or, whole, none)
    }

    /// Stores a value into the cells of a range.
    fn split(&mut self, range: StackRange, value: Value) {
        let ty = self.function.ty(value);
        for cell in self.cells.covering(range) {
            let shift = (self.cells.range(cell).offset - range.offset) as u64 * 8;
            let part = self.shifted(BinaryOp::LShr, value, ty, shift);
            let width = self.cells.width(cell);
            let part = if ty == Type::I64 && width != Width::W64 {
                self.value(Type::I32, Op::Unary(UnaryOp::Trunc, part))
            } else {
                part
            };
            self.values[cell] = Some(self.masked(part, width));
        }
    }

    fn extended(&mut self, value: Value, ty: Type) -> Value {
        if self.function.ty(value) == ty {
            return value;
        }
        self.value(ty, Op::Unary(UnaryOp::Zext, value))
    }

    fn shifted(&mut self, op: BinaryOp, value: Value, ty: Type, bits: u64) -> Value {
        if bits == 0 {
            return value;
        }
        let count = self.value(ty, Op::Const(bits));
        self.value(ty, Op::Binary(op, value, count))
    }

    /// The low bits of a narrow cell; the rest of its 32-bit value is zero, as after a load.
    fn masked(&mut self, value: Value, width: Width) -> Value {
        let mask = match width {
            Width::W8 => 0xff,
            Width::W16 => 0xffff,
            Width::W32 | Width::W64 => return value,
        };
        let mask = self.value(Type::I32, Op::Const(mask));
        self.value(Type::I32, Op::Binary(BinaryOp::And, value, mask))
    }

    fn value(&mut self, ty: Type, op: Op) -> Value {
        let result = self.function.add_value(ty);
        self.push(Some(result), op);
        result
    }

    fn push(&mut self, result: Option<Value>, op: Op) {
        let inst = self.function.add_inst(InstData { op, result, origin: self.origin });
        self.insts.push(inst);
    }
}
