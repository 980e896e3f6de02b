//! Spills around calls that keep their caller's registers (`bpf_fastcall`), which don't count as
//! stack.
//!
//! A compiler that knows such a call still spills live registers, for kernels that don't, to slots
//! without other uses. Linux removes the stores and loads and with them the slots
//! (`mark_fastcall_patterns`), so a program may need them beyond its 512 bytes. In Towpath the
//! instructions stay, and a frame has room for them ([`SPILL_BYTES_MAX`]).
//!
//! [`SPILL_BYTES_MAX`]: crate::insn::SPILL_BYTES_MAX

use crate::insn::*;

use super::call;
use super::env::Verifier;
use super::info::Spills;
use super::state::SLOT_BYTES;

impl Verifier<'_> {
    /// Finds the spills of every function, before paths are followed.
    pub(crate) fn mark_fastcall_spills(&mut self) {
        for index in 0..self.learned.subprogs.len() {
            let range = self.learned.subprogs[index].start..self.learned.subprogs[index].end;
            let stores = range.clone().map(|idx| self.insn_at(idx)).filter(is_spill);
            let lowest = stores.map(|store| store.off).min().unwrap_or(0).min(0);
            for idx in range {
                self.mark_spills_around(index, idx, lowest);
            }
        }
    }

    /// Marks the stores before a call and the loads behind it, in mirrored order from the lowest
    /// slot up, of registers that the call neither takes nor sets.
    fn mark_spills_around(&mut self, subprog: usize, idx: usize, lowest: i16) {
        let insn = self.insn_at(idx);
        if insn.code != (BPF_JMP | BPF_CALL) || insn.is_pseudo_call() {
            return;
        }
        let traits = call::traits(self, &insn);
        let Some(arg_count) = traits.arg_count else { return };
        let mut kept: Vec<u8> = (arg_count + 1..=ARG_COUNT_MAX).collect();
        let mut off = lowest;
        for step in 1..=usize::from(ARG_COUNT_MAX) {
            let Some(before) = idx.checked_sub(step) else { break };
            let (store, load) = (self.insn_at(before), self.insn_at(idx + step));
            let is_pair = is_spill(&store) && is_fill(&load) && store.src == load.dst;
            let Some(at) = kept.iter().position(|&regno| is_pair && regno == store.src) else {
                break;
            };
            if store.off != off || load.off != off {
                break;
            }
            kept.swap_remove(at);
            for pair in [before, idx + step] {
                self.learned.aux[pair].around_call = true;
            }
            off = off.saturating_add(SLOT_BYTES as i16);
        }
        if off == lowest {
            return;
        }
        let spills = &mut self.learned.subprogs[subprog].spills;
        spills.limit = spills.limit.min(off.into());
        spills.removed |= traits.fastcall;
        spills.needed |= !traits.fastcall;
    }

    /// Handles an access of the current instruction to a function's stack from `min` up: the spills
    /// count as stack unless it is one of them or stays above them
    /// (`check_fastcall_stack_contract`).
    pub(crate) fn check_spills_untouched(&mut self, subprog: usize, min: i64) {
        let spills = &mut self.learned.subprogs[subprog].spills;
        if spills.limit <= min || self.learned.aux[self.path.insn_idx].around_call {
            return;
        }
        *spills = Spills { limit: i64::MIN, ..Spills::default() };
        let range = self.learned.subprogs[subprog].start..self.learned.subprogs[subprog].end;
        self.learned.aux[range].iter_mut().for_each(|aux| aux.around_call = false);
    }

    /// Number of stack bytes that count: without spills that Linux removes.
    pub(crate) fn counted_stack(&self, subprog: usize) -> u32 {
        let subprog = &self.learned.subprogs[subprog];
        let Spills { limit, removed, needed } = subprog.spills;
        if removed && !needed { limit.unsigned_abs() as u32 } else { subprog.stack_depth }
    }
}

/// Whether it is `*(u64 *)(r10 + off) = r`.
fn is_spill(insn: &Insn) -> bool {
    insn.code == (BPF_STX | BPF_MEM | BPF_DW) && insn.dst == REG_FP
}

/// Whether it is `r = *(u64 *)(r10 + off)`.
fn is_fill(insn: &Insn) -> bool {
    insn.code == (BPF_LDX | BPF_MEM | BPF_DW) && insn.src == REG_FP
}

/// Number of registers that carry arguments, from r1.
const ARG_COUNT_MAX: u8 = 5;
