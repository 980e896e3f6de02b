//! Looking on as a program runs: is what the verifier proved of each instruction so?

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use towpath_bpf::Insn;
use towpath_bpf::insn::*;
use towpath_bpf::interp::{Code, Observer, Violation};
use towpath_bpf::verifier::{AccessFact, InsnFacts, Range, Verified};

/// Compares each instruction of one program with its facts.
#[derive(Debug)]
pub(super) struct Watch {
    code: Arc<Code>,
    /// From the proof that counts.
    facts: Vec<InsnFacts>,
    /// From one that ended no path early: what it says of numbers holds on all of them.
    numbers: Option<Vec<InsnFacts>>,
    /// Bytes of stack of the function of each slot.
    stack_bytes: Vec<u32>,
    /// Slots that were executed.
    executed: RefCell<Vec<bool>>,
    /// The conditional jump just executed.
    jumped: Cell<Option<usize>>,
}

impl Watch {
    pub(super) fn new(code: &Arc<Code>, proof: &Verified, numbers: Option<&Verified>) -> Watch {
        let facts = proof.facts().to_vec();
        let mut stack_bytes = vec![0; facts.len()];
        for function in proof.subprograms() {
            if let Some(slots) = stack_bytes.get_mut(function.start..function.end) {
                slots.fill(function.stack_bytes);
            }
        }
        Watch {
            code: Arc::clone(code),
            executed: RefCell::new(vec![false; facts.len()]),
            facts,
            numbers: numbers.map(|verified| verified.facts().to_vec()),
            stack_bytes,
            jumped: Cell::new(None),
        }
    }

    /// Whether an instruction was executed in any run so far.
    pub(super) fn has_executed(&self, slot: usize) -> bool {
        self.executed.borrow().get(slot).copied().unwrap_or_default()
    }

    /// Whether an instruction reaches an arena or a slice, for which there is no proof that atomics
    /// are aligned (`docs/differences.md`).
    pub(super) fn may_be_unaligned(&self, slot: usize) -> bool {
        let access = self.facts.get(slot).and_then(|facts| facts.access);
        matches!(access, Some(AccessFact::Arena | AccessFact::Mem | AccessFact::Mixed))
    }

    /// The way that a jump was proved not to go.
    fn branch(&self, jump: usize, slot: usize) -> Option<String> {
        let (insn, fact) = (self.code.insns().get(jump)?, self.facts.get(jump)?.branch);
        let (taken, through) = (jump as i64 + 1 + i64::from(insn.off), jump as i64 + 1);
        if taken == through {
            return None;
        }
        let wrong =
            (slot as i64 == taken && !fact.taken) || (slot as i64 == through && !fact.fallthrough);
        wrong.then(|| format!("the jump of {jump} does not lead to {slot}"))
    }

    /// An operand that is not what it was proved to be.
    fn operand(&self, insn: Insn, slot: usize, regs: &[u64; REG_COUNT]) -> Option<String> {
        let facts = self.numbers.as_ref()?.get(slot)?;
        let wrong = |reg: u8, range: Option<Range>| {
            let (value, range) = (regs[usize::from(reg)], range?);
            (!range.contains(value)).then(|| format!("r{reg} is {value:#x} and not in {range:?}"))
        };
        // A move reads no destination, and what is in a register that nothing reads is not proved.
        let reads = insn.op() != BPF_MOV || !matches!(insn.class(), BPF_ALU | BPF_ALU64);
        let dst = if reads { wrong(insn.dst, facts.dst) } else { None };
        dst.or_else(|| wrong(insn.src, facts.src))
    }

    /// An access to the function's own stack that is not where it was proved to be.
    fn stack(&self, insn: Insn, slot: usize, regs: &[u64; REG_COUNT]) -> Option<String> {
        let AccessFact::Stack { up: 0, offset } = self.facts.get(slot)?.access? else {
            return None;
        };
        let loads = insn.class() == BPF_LDX
            || (insn.mode() == BPF_ATOMIC && insn.class() == BPF_STX && insn.imm == BPF_LOAD_ACQ);
        let base = regs[usize::from(if loads { insn.src } else { insn.dst })];
        let frame = regs[usize::from(REG_FP)];
        let at = base.wrapping_add_signed(insn.off.into()).wrapping_sub(frame).cast_signed();
        let lowest = -i64::from(*self.stack_bytes.get(slot)?);
        let inside = at >= lowest && at + insn.access_bytes() as i64 <= 0;
        let is_there = offset.is_none_or(|offset| i64::from(offset) == at);
        (!(inside && is_there)).then(|| format!("the stack is touched at {at}, not {offset:?}"))
    }
}

impl Observer for Watch {
    fn observe(&self, code: &Code, slot: usize, regs: &[u64; REG_COUNT]) -> Result<(), Violation> {
        let jumped = self.jumped.take();
        if !std::ptr::eq(code, Arc::as_ptr(&self.code)) {
            return Ok(());
        }
        let (Some(&insn), Some(facts)) = (code.insns().get(slot), self.facts.get(slot)) else {
            return Ok(());
        };
        self.executed.borrow_mut()[slot] = true;
        let mut claim = jumped.and_then(|jump| self.branch(jump, slot));
        let numbers = self.numbers.as_ref().and_then(|numbers| numbers.get(slot));
        if !facts.reachable || numbers.is_some_and(|facts| !facts.reachable) {
            claim = Some("it is never executed".to_owned());
        }
        match insn.class() {
            BPF_ALU | BPF_ALU64 => claim = claim.or_else(|| self.operand(insn, slot, regs)),
            BPF_JMP | BPF_JMP32 if !matches!(insn.op(), BPF_CALL | BPF_EXIT | BPF_JA) => {
                self.jumped.set(Some(slot));
                if insn.op() != BPF_JCOND {
                    claim = claim.or_else(|| self.operand(insn, slot, regs));
                }
            }
            BPF_LDX | BPF_ST | BPF_STX => claim = claim.or_else(|| self.stack(insn, slot, regs)),
            _ => {}
        }
        claim.map_or(Ok(()), |claim| Err(Violation::Disproved { claim }))
    }
}
