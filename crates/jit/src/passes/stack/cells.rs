//! Division of a function's stack into cells: the smallest pieces that all accesses consist of.

use towpath_bpf::insn::STACK_BYTES;

use super::reach::Reached;
use crate::xir::{Arg, Dominators, Function, Op, StackRange, Type, Width};

/// The pieces of the stack that become values, by offset. They don't overlap.
#[derive(Debug)]
pub(super) struct Cells {
    cells: Vec<StackRange>,
}

impl Cells {
    /// The cells of a function; bytes that stay in memory are in none.
    pub(super) fn of(function: &Function, dominators: &Dominators, reached: &Reached) -> Self {
        let mut used = [false; STACK_BYTES];
        // `cut[n]`: an access starts or ends before byte n.
        let mut cut = [false; STACK_BYTES + 1];
        for &block in dominators.order() {
            for &inst in &function.block(block).insts {
                for range in ranges(&function.inst(inst).op) {
                    let start = (i32::from(range.offset) + STACK_BYTES as i32) as usize;
                    let end = start + usize::from(range.len);
                    used[start..end].fill(true);
                    cut[start] = true;
                    cut[end] = true;
                }
            }
        }
        used.iter_mut().zip(reached).for_each(|(used, reached)| *used &= !reached);
        Cells { cells: pieces(&used, &cut) }
    }

    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn range(&self, cell: usize) -> StackRange {
        self.cells[cell]
    }

    /// The cells of which a range consists.
    pub(super) fn covering(&self, range: StackRange) -> std::ops::Range<usize> {
        let end = i32::from(range.offset) + i32::from(range.len);
        let first = self.cells.partition_point(|cell| cell.offset < range.offset);
        let last = self.cells.partition_point(|cell| i32::from(cell.offset) < end);
        first..last
    }

    pub(super) fn width(&self, cell: usize) -> Width {
        // `pieces` makes only lengths for which there is a width.
        Width::from_bytes(u32::from(self.cells[cell].len)).unwrap_or(Width::W8)
    }

    pub(super) fn ty(&self, cell: usize) -> Type {
        self.width(cell).value_type()
    }
}

/// Stack bytes that an instruction accesses.
pub(super) fn ranges(op: &Op) -> Vec<StackRange> {
    match op {
        Op::StackLoad(range) | Op::StackStore(range, _) => vec![*range],
        Op::MapLookup { key, .. } => arg_range(key).into_iter().collect(),
        Op::CallHelper { args, .. } | Op::CallKfunc { args, .. } | Op::CallRuntime { args, .. } => {
            args.iter().filter_map(arg_range).collect()
        }
        _ => vec![],
    }
}

/// Stack bytes that an argument names.
pub(super) fn arg_range(arg: &Arg) -> Option<StackRange> {
    match arg {
        Arg::Value(_) => None,
        Arg::StackRead(range) | Arg::StackReadWrite(range) => Some(*range),
    }
}

/// Used bytes between cuts, in aligned pieces of 8, 4, 2 or 1 bytes.
fn pieces(used: &[bool; STACK_BYTES], cut: &[bool; STACK_BYTES + 1]) -> Vec<StackRange> {
    let mut cells = Vec::new();
    let mut start = 0;
    while start < STACK_BYTES {
        if !used[start] {
            start += 1;
            continue;
        }
        let run = (start + 1..STACK_BYTES).find(|&n| cut[n] || !used[n]).unwrap_or(STACK_BYTES);
        let fits = |len: &usize| start.is_multiple_of(*len) && start + len <= run;
        let len = [8, 4, 2, 1].into_iter().find(fits).unwrap_or(1);
        cells.push(StackRange { offset: start as i16 - STACK_BYTES as i16, len: len as u16 });
        start += len;
    }
    cells
}
