//! One step back along a path: the registers and slots that a wanted number came from
//! (`backtrack_insn`).

use crate::insn::*;

use super::env::Verifier;
use super::state::{FRAME_COUNT_MAX, HistoryEntry, LinkedRegs};

/// r1..r5.
const ARGUMENTS: u16 = 0b11_1110;

/// The registers and slots whose precision is wanted, by frame (`struct backtrack_state`).
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) frame: usize,
    pub(crate) regs: [u16; FRAME_COUNT_MAX],
    pub(crate) slots: [u64; FRAME_COUNT_MAX],
}

/// A step back is impossible; the caller must treat every scalar as precise.
#[derive(Debug)]
pub(crate) struct Lost;

impl Wanted {
    pub(crate) fn new(frame: usize) -> Self {
        Wanted { frame, regs: [0; FRAME_COUNT_MAX], slots: [0; FRAME_COUNT_MAX] }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.regs.iter().all(|mask| *mask == 0) && self.slots.iter().all(|mask| *mask == 0)
    }

    fn has(&self, regno: u8) -> bool {
        self.regs[self.frame] & (1 << regno) != 0
    }

    pub(crate) fn add(&mut self, regno: u8) {
        self.regs[self.frame] |= 1 << regno;
    }

    fn remove(&mut self, regno: u8) {
        self.regs[self.frame] &= !(1 << regno);
    }

    /// Goes back into a callee, from the instruction after the call.
    fn enter(&mut self) -> Result<(), Lost> {
        if self.frame + 1 >= FRAME_COUNT_MAX {
            return Err(Lost);
        }
        self.frame += 1;
        Ok(())
    }

    /// Goes back out of a callee, to its caller.
    fn leave(&mut self) -> Result<(), Lost> {
        self.frame = self.frame.checked_sub(1).ok_or(Lost)?;
        Ok(())
    }

    /// Makes all linked scalars wanted if one of them is (`bt_sync_linked_regs`).
    fn sync(&mut self, linked: &LinkedRegs) {
        let items = &linked.items[..usize::from(linked.count)];
        let wanted = items.iter().any(|item| {
            let frame = usize::from(item.frame) % FRAME_COUNT_MAX;
            if item.is_reg {
                self.regs[frame] & (1 << (item.index & 15)) != 0
            } else {
                self.slots[frame] & (1 << (item.index & 63)) != 0
            }
        });
        if !wanted {
            return;
        }
        for item in items {
            let frame = usize::from(item.frame) % FRAME_COUNT_MAX;
            if item.is_reg {
                self.regs[frame] |= 1 << (item.index & 15);
            } else {
                self.slots[frame] |= 1 << (item.index & 63);
            }
        }
    }
}

impl Verifier<'_> {
    /// Goes back over the instruction at `idx`; `next` is the one executed after it.
    pub(crate) fn backtrack(
        &self,
        idx: usize,
        next: Option<usize>,
        history: Option<&HistoryEntry>,
        wanted: &mut Wanted,
    ) -> Result<(), Lost> {
        let insn = self.insn_at(idx);
        if insn.code == 0 {
            return Ok(());
        }
        if let Some(entry) = history {
            wanted.sync(&entry.linked);
        }
        match insn.class() {
            BPF_ALU | BPF_ALU64 => back_over_alu(&insn, wanted),
            BPF_LDX => back_over_load(insn.dst, history, wanted),
            BPF_STX if insn.mode() == BPF_ATOMIC => back_over_atomic(&insn, history, wanted)?,
            BPF_STX | BPF_ST => back_over_store(&insn, history, wanted)?,
            BPF_LD => {
                if wanted.has(insn.dst) {
                    if insn.mode() != BPF_IMM {
                        return Err(Lost);
                    }
                    wanted.remove(insn.dst);
                }
            }
            _ => {
                self.back_over_jump(&insn, idx, next, history, wanted)?;
                if let Some(entry) = history {
                    wanted.sync(&entry.linked);
                }
            }
        }
        Ok(())
    }

    fn back_over_jump(
        &self,
        insn: &Insn,
        idx: usize,
        next: Option<usize>,
        history: Option<&HistoryEntry>,
        wanted: &mut Wanted,
    ) -> Result<(), Lost> {
        match insn.op() {
            BPF_CALL if insn.is_pseudo_call() => self.back_over_call(insn, idx, wanted),
            BPF_CALL if self.learned.aux[idx].calls_callback && next != Some(idx + 1) => {
                // From the first instruction of a callback back to the call that runs it.
                if wanted.regs[wanted.frame] & !ARGUMENTS != 0 || wanted.slots[wanted.frame] != 0 {
                    return Err(Lost);
                }
                wanted.regs[wanted.frame] &= !ARGUMENTS;
                wanted.leave()
            }
            BPF_CALL if insn.is_tail_call() && next != Some(idx + 1) => {
                // From the instruction after a call back to the tail call that ended its function.
                self.back_over_exit(next, wanted)?;
                wanted.remove(0);
                Ok(())
            }
            BPF_CALL => {
                wanted.remove(0);
                if wanted.regs[wanted.frame] & ARGUMENTS != 0 {
                    return Err(Lost);
                }
                Ok(())
            }
            BPF_EXIT => self.back_over_exit(next, wanted),
            BPF_JA | BPF_JCOND => Ok(()),
            _ => {
                if insn.is_reg_operand() && (wanted.has(insn.dst) || wanted.has(insn.src)) {
                    if !history.is_some_and(|entry| entry.src_is_stack) {
                        wanted.add(insn.src);
                    }
                    if !history.is_some_and(|entry| entry.dst_is_stack) {
                        wanted.add(insn.dst);
                    }
                }
                Ok(())
            }
        }
    }

    fn back_over_call(&self, insn: &Insn, idx: usize, wanted: &mut Wanted) -> Result<(), Lost> {
        let callee = self.callee(idx, insn).ok_or(Lost)?;
        let regs = wanted.regs[wanted.frame];
        if self.learned.subprogs[callee].global {
            // The function's body is not on the path; the result is any number.
            if regs & ARGUMENTS != 0 {
                return Err(Lost);
            }
            wanted.remove(0);
            return Ok(());
        }
        if regs & !ARGUMENTS != 0 || wanted.slots[wanted.frame] != 0 {
            return Err(Lost);
        }
        wanted.regs[wanted.frame] = 0;
        wanted.leave()?;
        wanted.regs[wanted.frame] |= regs & ARGUMENTS;
        Ok(())
    }

    fn back_over_exit(&self, next: Option<usize>, wanted: &mut Wanted) -> Result<(), Lost> {
        let to_callback_call = next
            .is_some_and(|next| self.learned.aux.get(next).is_some_and(|aux| aux.calls_callback));
        if to_callback_call {
            wanted.regs[wanted.frame] &= !ARGUMENTS;
        }
        if wanted.regs[wanted.frame] & ARGUMENTS != 0 {
            return Err(Lost);
        }
        let returned = next.and_then(|next| next.checked_sub(1));
        let from_call = returned.is_some_and(|idx| self.insn_at(idx).is_pseudo_call());
        let result_wanted = from_call && wanted.has(0);
        wanted.remove(0);
        wanted.enter()?;
        if result_wanted {
            wanted.add(0);
        }
        Ok(())
    }
}

fn back_over_alu(insn: &Insn, wanted: &mut Wanted) {
    if !wanted.has(insn.dst) || matches!(insn.op(), BPF_END | BPF_NEG) {
        return;
    }
    if insn.op() == BPF_MOV {
        wanted.remove(insn.dst);
    }
    if insn.is_reg_operand() && insn.src != REG_FP {
        wanted.add(insn.src);
    }
}

/// A number loaded from memory is only known if it was spilled to the stack.
fn back_over_load(regno: u8, history: Option<&HistoryEntry>, wanted: &mut Wanted) {
    if !wanted.has(regno) {
        return;
    }
    wanted.remove(regno);
    if let Some((frame, spi)) = history.and_then(|entry| entry.stack_access) {
        wanted.slots[usize::from(frame) % FRAME_COUNT_MAX] |= 1 << (spi & 63);
    }
}

fn back_over_store(
    insn: &Insn,
    history: Option<&HistoryEntry>,
    wanted: &mut Wanted,
) -> Result<(), Lost> {
    if wanted.has(insn.dst) {
        // An address is wanted as a number: a difference of pointers.
        return Err(Lost);
    }
    let Some((frame, spi)) = history.and_then(|entry| entry.stack_access) else { return Ok(()) };
    let slots = &mut wanted.slots[usize::from(frame) % FRAME_COUNT_MAX];
    let bit = 1u64 << (spi & 63);
    if *slots & bit != 0 {
        *slots &= !bit;
        if insn.class() == BPF_STX {
            wanted.add(insn.src);
        }
    }
    Ok(())
}

/// Atomics give an old value that is only known if it was spilled, and leave plain data.
fn back_over_atomic(
    insn: &Insn,
    history: Option<&HistoryEntry>,
    wanted: &mut Wanted,
) -> Result<(), Lost> {
    match insn.imm {
        BPF_LOAD_ACQ => {
            back_over_load(insn.dst, history, wanted);
            return Ok(());
        }
        BPF_STORE_REL => return back_over_store(insn, history, wanted),
        _ => {}
    }
    let loaded = match insn.imm {
        BPF_CMPXCHG => Some(0),
        imm if imm & BPF_FETCH != 0 => Some(insn.src),
        _ => None,
    };
    if let Some(regno) = loaded {
        back_over_load(regno, history, wanted);
    }
    if wanted.has(insn.dst) {
        return Err(Lost);
    }
    Ok(())
}
