//! Basic blocks of the reachable bytecode, and the registers that are live into each.

use towpath_bpf::Insn;
use towpath_bpf::insn::{
    BPF_ALU, BPF_ALU64, BPF_ATOMIC, BPF_CALL, BPF_CMPXCHG, BPF_EXIT, BPF_FETCH, BPF_JA, BPF_JCOND,
    BPF_JMP, BPF_JMP32, BPF_LDX, BPF_LOAD_ACQ, BPF_MOV, BPF_ST, BPF_STX, REG_COUNT, REG_FP,
};
use towpath_bpf::verifier::{SubprogramFacts, Verified};

use super::BuildError;

/// Remaining rounds of `may_goto`, treated like a register that programs don't see.
pub(super) const ROUNDS: u8 = REG_COUNT as u8;

/// Number of registers and values treated like them.
pub(super) const REGS: usize = REG_COUNT + 1;

/// A set of registers r0 to r9, and [`ROUNDS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RegSet(u16);

impl RegSet {
    pub(super) fn contains(self, reg: u8) -> bool {
        self.0 & 1 << reg != 0
    }

    /// The registers in ascending order.
    pub(super) fn iter(self) -> impl Iterator<Item = u8> {
        (0..REGS as u8).filter(move |&reg| self.contains(reg))
    }

    fn of(regs: &[u8]) -> Self {
        RegSet(regs.iter().filter(|&&reg| reg != REG_FP).fold(0, |set, reg| set | 1 << reg))
    }

    fn union(self, other: RegSet) -> RegSet {
        RegSet(self.0 | other.0)
    }

    fn without(self, other: RegSet) -> RegSet {
        RegSet(self.0 & !other.0)
    }
}

/// A block of bytecode: slots `start..end`.
#[derive(Debug)]
pub(super) struct BytecodeBlock {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) live_in: RegSet,
}

/// The blocks of one function, by start.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) blocks: Vec<BytecodeBlock>,
}

impl Flow {
    pub(super) fn new(program: &Verified, sub: &SubprogramFacts) -> Result<Self, BuildError> {
        let insns = &program.linked().insns;
        let facts = program.facts();
        if sub.end > insns.len() || insns.len() != facts.len() {
            let what = "facts and instructions are not of one length";
            return Err(BuildError::Inconsistent { insn: sub.start, what });
        }
        let reachable = |slot: usize| slot < sub.end && facts[slot].reachable;
        let mut leader = vec![false; sub.end - sub.start + 1];
        for slot in (sub.start..sub.end).filter(|&slot| reachable(slot)) {
            if slot == sub.start {
                leader[0] = true;
            }
            let insn = insns[slot];
            if !ends_block(insn) {
                continue;
            }
            for next in successors(insn, slot) {
                if (sub.start..sub.end).contains(&next) {
                    leader[next - sub.start] = true;
                }
            }
        }
        let mut blocks = Vec::new();
        let starts = (sub.start..sub.end).filter(|&s| leader[s - sub.start] && reachable(s));
        for start in starts {
            let end = block_end(insns, start, sub.end, |slot| leader[slot - sub.start]);
            blocks.push(BytecodeBlock { start, end, live_in: RegSet::default() });
        }
        let mut flow = Flow { blocks };
        flow.find_live_registers(program);
        Ok(flow)
    }

    /// The block that starts at this slot.
    pub(super) fn block_at(&self, slot: usize) -> Option<usize> {
        self.blocks.binary_search_by_key(&slot, |block| block.start).ok()
    }

    /// Computes live registers backwards to a fixed point; a set is one word.
    fn find_live_registers(&mut self, program: &Verified) {
        let insns = &program.linked().insns;
        let mut changed = true;
        while changed {
            changed = false;
            for index in (0..self.blocks.len()).rev() {
                let live = self.live_into(insns, index);
                changed |= live != self.blocks[index].live_in;
                self.blocks[index].live_in = live;
            }
        }
    }

    fn live_into(&self, insns: &[Insn], index: usize) -> RegSet {
        let block = &self.blocks[index];
        let last = last_slot(insns, block);
        let mut live = RegSet::default();
        for next in successors(insns[last], last) {
            if let Some(next) = self.block_at(next) {
                live = live.union(self.blocks[next].live_in);
            }
        }
        let mut slot = block.end;
        while slot > block.start {
            slot -= 1;
            // The second slot of a 64-bit immediate has code 0 and no registers, and has no effect
            // here.
            let (reads, writes) = effects(insns[slot]);
            live = live.without(writes).union(reads);
        }
        live
    }
}

fn block_end(
    insns: &[Insn],
    start: usize,
    limit: usize,
    is_leader: impl Fn(usize) -> bool,
) -> usize {
    let mut slot = start;
    loop {
        let insn = insns[slot];
        let next = slot + if insn.is_ld_imm64() { 2 } else { 1 };
        if ends_block(insn) || next >= limit || is_leader(next) {
            return next.min(limit);
        }
        slot = next;
    }
}

fn last_slot(insns: &[Insn], block: &BytecodeBlock) -> usize {
    let last = block.end - 1;
    // A block of only a 64-bit immediate ends in that instruction's second slot.
    if last > block.start && insns[last - 1].is_ld_imm64() { last - 1 } else { last }
}

fn is_jump_class(insn: Insn) -> bool {
    matches!(insn.class(), BPF_JMP | BPF_JMP32)
}

fn ends_block(insn: Insn) -> bool {
    is_jump_class(insn) && (insn.op() != BPF_CALL || insn.is_tail_call())
}

/// Slots that may follow this one.
fn successors(insn: Insn, slot: usize) -> impl Iterator<Item = usize> {
    let next = slot + if insn.is_ld_imm64() { 2 } else { 1 };
    let is_jump = is_jump_class(insn) && !matches!(insn.op(), BPF_CALL | BPF_EXIT);
    let falls = !is_jump_class(insn) || !matches!(insn.op(), BPF_EXIT | BPF_JA);
    let target = is_jump.then(|| jump_target(insn, slot));
    falls.then_some(next).into_iter().chain(target)
}

/// Target of a jump; `gotol` (`BPF_JMP32 | BPF_JA`) has its distance in the immediate.
pub(super) fn jump_target(insn: Insn, slot: usize) -> usize {
    let long = insn.class() == BPF_JMP32 && insn.op() == BPF_JA;
    let distance = if long { i64::from(insn.imm) } else { i64::from(insn.off) };
    // Verified: the target is a slot of the function. A wrong fact gives a slot that no block has.
    (slot as i64 + 1 + distance) as usize
}

/// Registers an instruction reads and writes.
fn effects(insn: Insn) -> (RegSet, RegSet) {
    let operand = |insn: Insn| if insn.is_reg_operand() { Some(insn.src) } else { None };
    match insn.class() {
        BPF_ALU | BPF_ALU64 => {
            let dst = (insn.op() != BPF_MOV).then_some(insn.dst);
            let reads: Vec<u8> = dst.into_iter().chain(operand(insn)).collect();
            (RegSet::of(&reads), RegSet::of(&[insn.dst]))
        }
        BPF_LDX => (RegSet::of(&[insn.src]), RegSet::of(&[insn.dst])),
        BPF_ST => (RegSet::of(&[insn.dst]), RegSet::default()),
        BPF_STX if insn.mode() == BPF_ATOMIC => atomic_effects(insn),
        BPF_STX => (RegSet::of(&[insn.dst, insn.src]), RegSet::default()),
        BPF_JMP | BPF_JMP32 => match insn.op() {
            BPF_CALL => (RegSet::of(&[1, 2, 3, 4, 5]), RegSet::of(&[0, 1, 2, 3, 4, 5])),
            BPF_EXIT => (RegSet::of(&[0]), RegSet::default()),
            BPF_JA => (RegSet::default(), RegSet::default()),
            BPF_JCOND => (RegSet::of(&[ROUNDS]), RegSet::of(&[ROUNDS])),
            _ => {
                let reads: Vec<u8> = Some(insn.dst).into_iter().chain(operand(insn)).collect();
                (RegSet::of(&reads), RegSet::default())
            }
        },
        _ if insn.is_ld_imm64() => (RegSet::default(), RegSet::of(&[insn.dst])),
        _ => (RegSet::default(), RegSet::default()),
    }
}

fn atomic_effects(insn: Insn) -> (RegSet, RegSet) {
    let both = RegSet::of(&[insn.dst, insn.src]);
    match insn.imm {
        BPF_CMPXCHG => (both.union(RegSet::of(&[0])), RegSet::of(&[0])),
        BPF_LOAD_ACQ => (RegSet::of(&[insn.src]), RegSet::of(&[insn.dst])),
        imm if imm & BPF_FETCH != 0 => (both, RegSet::of(&[insn.src])),
        _ => (both, RegSet::default()),
    }
}
