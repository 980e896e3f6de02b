//! Promotes stack cells to SSA values.
//!
//! As with registers, a block takes the cells that are live into it as parameters, and the pass
//! that removes redundant parameters does the rest. If a call reads stack bytes, they are written
//! to memory in front of it; if it may write them, they are read back behind it: only calls use the
//! memory, while they run.

use super::super::Context;
use super::super::assemble::{Assembler, Bytes};
use super::cells::{Cells, arg_range, ranges};
use super::reach::{Reached, reached, touches};
use crate::xir::{Arg, BinaryOp, Block, Dominators, Function, Inst, Op, StackRange, Value, Width};

/// Largest product of cells and blocks; above it, promotion would take too long.
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
        code: Assembler::new(function, 0),
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
    /// New instructions of the block.
    code: Assembler<'a>,
    cells: &'a Cells,
    /// Bytes that stay in memory: accesses to them are kept.
    reached: &'a Reached,
    /// Value of each cell at this point of the block; `None` if it was not stored to.
    values: Vec<Option<Value>>,
}

impl Promoter<'_> {
    fn add_params(&mut self, dominators: &Dominators, live: &[Vec<usize>]) -> Vec<Vec<Value>> {
        let mut params = vec![Vec::new(); self.code.function.blocks.len()];
        for &block in dominators.order().iter().skip(1) {
            let number = block.0 as usize;
            for &cell in &live[number] {
                params[number].push(self.code.function.add_param(block, self.cells.ty(cell)));
            }
        }
        params
    }

    fn block(&mut self, block: Block, live: &[Vec<usize>], params: &[Vec<Value>]) {
        self.values.fill(None);
        for (cell, param) in live[block.0 as usize].iter().zip(&params[block.0 as usize]) {
            self.values[*cell] = Some(*param);
        }
        for inst in std::mem::take(&mut self.code.function.block_mut(block).insts) {
            self.inst(inst);
        }
        let targets: Vec<Block> =
            self.code.function.block(block).end.jumps().map(|jump| jump.target).collect();
        for (index, target) in targets.into_iter().enumerate() {
            let args: Vec<Value> =
                live[target.0 as usize].iter().map(|&cell| self.cell(cell)).collect();
            let jump = self.code.function.block_mut(block).end.jumps_mut().nth(index);
            if let Some(jump) = jump {
                jump.args.extend(args);
            }
        }
        self.code.function.block_mut(block).insts = std::mem::take(&mut self.code.insts);
    }

    fn inst(&mut self, inst: Inst) {
        let data = self.code.function.inst(inst).clone();
        self.code.origin = data.origin;
        match &data.op {
            Op::StackLoad(range) | Op::StackStore(range, _) if touches(self.reached, *range) => {
                self.code.insts.push(inst);
            }
            Op::StackLoad(range) => {
                // The load becomes the last step of assembling its value.
                let op = self.whole(*range);
                self.code.function.inst_mut(inst).op = op;
                self.code.insts.push(inst);
            }
            Op::StackStore(range, value) => self.split(*range, *value),
            Op::MapLookup { key, .. } => self.call(inst, std::slice::from_ref(key)),
            Op::CallHelper { args, .. }
            | Op::CallKfunc { args, .. }
            | Op::CallRuntime { args, .. } => self.call(inst, args),
            _ => self.code.insts.push(inst),
        }
    }

    fn call(&mut self, inst: Inst, args: &[Arg]) {
        for range in args.iter().filter_map(arg_range) {
            for cell in self.cells.covering(range) {
                if let Some(value) = self.values[cell] {
                    let op = Op::StackStore(self.cells.range(cell), value);
                    self.code.push(None, op);
                }
            }
        }
        self.code.insts.push(inst);
        for arg in args {
            if let Arg::StackReadWrite(range) = arg {
                for cell in self.cells.covering(*range) {
                    let load = Op::StackLoad(self.cells.range(cell));
                    let ty = self.cells.ty(cell);
                    self.values[cell] = Some(self.code.value(ty, load));
                }
            }
        }
    }

    /// The value of a cell; bytes without a store read as zero.
    fn cell(&mut self, cell: usize) -> Value {
        match self.values[cell] {
            Some(value) => value,
            None => {
                let zero = self.code.constant(self.cells.ty(cell), 0);
                self.values[cell] = Some(zero);
                zero
            }
        }
    }

    /// The operation that gives the bytes of a range as one value, low bytes first.
    fn whole(&mut self, range: StackRange) -> Op {
        let width = Width::from_bytes(u32::from(range.len)).unwrap_or(Width::W64);
        let mut pieces = Vec::new();
        for cell in self.cells.covering(range) {
            let (value, count) = (self.cell(cell), self.cells.width(cell).bytes());
            pieces.push(Bytes { value, first: 0, count, is_clean: true });
        }
        let whole = self.code.assembled(&pieces, width);
        let none = self.code.constant(width.value_type(), 0);
        // An identity that folding removes: the load's own instruction must define its value.
        Op::Binary(BinaryOp::Or, whole, none)
    }

    /// Stores a value into the cells of a range.
    fn split(&mut self, range: StackRange, value: Value) {
        for cell in self.cells.covering(range) {
            let first = (self.cells.range(cell).offset - range.offset) as u32;
            let count = self.cells.width(cell).bytes();
            let part = Bytes { value, first, count, is_clean: false };
            self.values[cell] = Some(self.code.extracted(part, self.cells.ty(cell)));
        }
    }
}
