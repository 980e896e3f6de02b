//! Control flow of the program: functions, jumps that stay inside them, reachable code, and the
//! places where states are compared (the kernel's `check_subprogs` and `check_cfg`).

use std::collections::BTreeSet;

use crate::btf::Linkage;
use crate::errno::Errno;
use crate::insn::*;

use super::call::{self, CallTraits};
use super::env::{Result, Verifier};
use super::info::Subprog;

/// Largest number of functions of one program (`BPF_MAX_SUBPROGS`).
const SUBPROGS_MAX: usize = 256;

/// Possible next instructions after an instruction, inside its function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Successors {
    items: [usize; 2],
    count: usize,
}

impl Successors {
    fn push(&mut self, idx: usize) {
        self.items[self.count] = idx;
        self.count += 1;
    }

    pub(crate) fn as_slice(&self) -> &[usize] {
        &self.items[..self.count]
    }
}

impl Verifier<'_> {
    /// Finds functions, checks all jumps, and marks places for the main pass.
    pub(crate) fn check_cfg(&mut self) -> Result<()> {
        self.find_subprograms()?;
        self.find_exception_callback()?;
        self.check_jumps()?;
        self.mark_points();
        self.check_reachable()?;
        self.merge_callee_effects();
        self.compute_scc();
        self.compute_live_registers();
        Ok(())
    }

    /// Index of the function that contains an instruction.
    pub(crate) fn subprog_of(&self, idx: usize) -> usize {
        self.learned.subprogs.partition_point(|subprog| subprog.start <= idx).saturating_sub(1)
    }

    /// Index of the function that starts at an instruction.
    pub(crate) fn subprog_at(&self, idx: usize) -> Option<usize> {
        self.learned.subprogs.binary_search_by_key(&idx, |subprog| subprog.start).ok()
    }

    /// Index of the function that a call or function reference refers to.
    pub(crate) fn callee(&self, idx: usize, insn: &Insn) -> Option<usize> {
        self.subprog_at(relative(idx, insn.imm.into())?)
    }

    /// Next instructions, with calls falling through.
    pub(crate) fn successors(&self, idx: usize) -> Successors {
        let insn = self.insn_at(idx);
        let mut out = Successors::default();
        let is_jump = matches!(insn.class(), BPF_JMP | BPF_JMP32);
        if is_jump && insn.op() == BPF_EXIT {
            return out;
        }
        let jumps = is_jump && insn.op() != BPF_CALL;
        if !(jumps && insn.op() == BPF_JA) {
            out.push(idx + if insn.is_ld_imm64() { 2 } else { 1 });
        }
        if jumps && let Some(target) = relative(idx, jump_distance(&insn)) {
            out.push(target);
        }
        out
    }

    /// Properties of the call at an instruction; defaults for other instructions.
    pub(crate) fn call_traits(&self, insn: &Insn) -> CallTraits {
        if insn.is_helper_call() || insn.is_kfunc_call() {
            call::traits(self, insn)
        } else {
            CallTraits::default()
        }
    }

    fn find_subprograms(&mut self) -> Result<()> {
        let count = self.input.prog.insns.len();
        let mut starts = BTreeSet::from([0]);
        starts.extend(self.input.prog.functions.iter().map(|function| function.start as usize));
        for idx in self.insn_starts() {
            let insn = self.insn_at(idx);
            if !insn.is_pseudo_call() && !insn.is_func_ref() {
                continue;
            }
            let target = relative(idx, insn.imm.into()).filter(|&target| target < count);
            let Some(target) = target else {
                return Err(self.reject_at(idx, Errno::EINVAL, "call to invalid destination"));
            };
            starts.insert(target);
        }
        starts.retain(|&start| start < count);
        if starts.len() > SUBPROGS_MAX {
            return Err(self.rejection_at(None, Errno::E2BIG, "too many subprograms".into(), ""));
        }
        let starts: Vec<usize> = starts.into_iter().collect();
        let ends = starts.iter().copied().skip(1).chain([count]);
        self.learned.subprogs =
            starts.iter().zip(ends).map(|(&start, end)| self.new_subprog(start, end)).collect();
        Ok(())
    }

    fn new_subprog(&self, start: usize, end: usize) -> Subprog {
        let function = self.input.prog.functions.iter().position(|f| f.start as usize == start);
        let linkage = function.map(|index| self.input.prog.functions[index].linkage);
        Subprog {
            start,
            end,
            function,
            global: start == 0 || linkage == Some(Linkage::Global),
            ..Subprog::default()
        }
    }

    /// Slots that begin an instruction.
    fn insn_starts(&self) -> impl Iterator<Item = usize> + use<> {
        let wide: Vec<bool> = self.input.prog.insns.iter().map(|insn| insn.is_ld_imm64()).collect();
        let mut idx = 0;
        std::iter::from_fn(move || {
            let start = idx;
            idx += if *wide.get(start)? { 2 } else { 1 };
            Some(start)
        })
    }

    /// Checks that jumps stay inside their function, and that no function runs past its end.
    fn check_jumps(&mut self) -> Result<()> {
        let starts: BTreeSet<usize> = self.insn_starts().collect();
        for idx in starts.iter().copied() {
            let insn = self.insn_at(idx);
            let subprog = &self.learned.subprogs[self.subprog_of(idx)];
            let (start, end) = (subprog.start, subprog.end);
            let is_jump = matches!(insn.class(), BPF_JMP | BPF_JMP32);
            let is_last = idx + if insn.is_ld_imm64() { 2 } else { 1 } >= end;
            if is_last && !(is_jump && matches!(insn.op(), BPF_JA | BPF_EXIT)) {
                return Err(self.reject_at(idx, Errno::EINVAL, "last insn is not an exit or jmp"));
            }
            if !is_jump || matches!(insn.op(), BPF_CALL | BPF_EXIT) {
                continue;
            }
            let target = relative(idx, jump_distance(&insn));
            let Some(target) = target.filter(|target| (start..end).contains(target)) else {
                let to = idx as i64 + 1 + jump_distance(&insn);
                let message = format!("jump out of range from insn {idx} to {to}");
                return Err(self.reject_at(idx, Errno::EINVAL, message));
            };
            if !starts.contains(&target) {
                return Err(self.reject_at(
                    idx,
                    Errno::EINVAL,
                    "jump into the middle of ldimm64 insn",
                ));
            }
        }
        for subprog in &self.learned.subprogs {
            if !starts.contains(&subprog.start) {
                let message = "call into the middle of ldimm64 insn";
                return Err(self.reject_at(subprog.start, Errno::EINVAL, message));
            }
        }
        Ok(())
    }

    /// Marks prune points, recorded jumps and forced checkpoints (as `visit_insn` does).
    fn mark_points(&mut self) {
        for idx in self.insn_starts() {
            let insn = self.insn_at(idx);
            if insn.is_func_ref() {
                self.mark_call_points(idx, &insn, true);
            }
            if !matches!(insn.class(), BPF_JMP | BPF_JMP32) {
                continue;
            }
            match insn.op() {
                BPF_EXIT => {}
                BPF_CALL => {
                    let traits = self.call_traits(&insn);
                    self.mark_special_calls(idx, &traits);
                    self.mark_call_points(idx, &insn, insn.is_pseudo_call());
                }
                op => {
                    if op != BPF_JA {
                        self.learned.aux[idx].prune_point = true;
                        self.learned.aux[idx].force_checkpoint |= op == BPF_JCOND;
                    }
                    if let Some(target) = relative(idx, jump_distance(&insn)) {
                        self.mark_jump_target(target);
                    }
                }
            }
        }
    }

    fn mark_special_calls(&mut self, idx: usize, traits: &CallTraits) {
        let aux = &mut self.learned.aux[idx];
        aux.iter_next = traits.iter_next;
        aux.throws = traits.throws;
        if traits.calls_back_async || traits.iter_next || traits.calls_back_sync {
            aux.prune_point = true;
        }
        if traits.calls_back_sync || traits.iter_next {
            aux.force_checkpoint = true;
        }
        if traits.calls_back_sync {
            aux.calls_callback = true;
            aux.jump_point = true;
        }
        let subprog = self.subprog_of(idx);
        let subprog = &mut self.learned.subprogs[subprog];
        subprog.changes_packet |= traits.changes_packet;
        subprog.might_sleep |= traits.might_sleep;
        subprog.might_throw |= traits.throws;
    }

    /// Marks the points of a call: a return is a jump, and the callee's entry is a place to compare
    /// states.
    fn mark_call_points(&mut self, idx: usize, insn: &Insn, enters: bool) {
        self.mark_jump_target(idx + if insn.is_ld_imm64() { 2 } else { 1 });
        if enters && let Some(target) = relative(idx, insn.imm.into()) {
            self.learned.aux[idx].prune_point = true;
            self.mark_jump_target(target);
        }
    }

    fn mark_jump_target(&mut self, idx: usize) {
        if let Some(aux) = self.learned.aux.get_mut(idx) {
            aux.prune_point = true;
            aux.jump_point = true;
        }
    }

    /// Checks that every instruction is reachable by jumps, calls and function references.
    fn check_reachable(&mut self) -> Result<()> {
        let mut reached = vec![false; self.input.prog.insns.len()];
        let mut todo = vec![0];
        if let Some(callback) = self.learned.exception_callback {
            todo.push(self.learned.subprogs[callback].start);
        }
        while let Some(idx) = todo.pop() {
            if idx >= reached.len() || std::mem::replace(&mut reached[idx], true) {
                continue;
            }
            let insn = self.insn_at(idx);
            if insn.is_ld_imm64() {
                reached[idx + 1] = true;
            }
            if insn.is_pseudo_call() || insn.is_func_ref() {
                todo.extend(relative(idx, insn.imm.into()));
            }
            todo.extend_from_slice(self.successors(idx).as_slice());
        }
        match reached.iter().position(|reached| !reached) {
            Some(idx) => Err(self.reject_at(idx, Errno::EINVAL, format!("unreachable insn {idx}"))),
            None => Ok(()),
        }
    }

    /// Adds to each function the effects of the functions it calls or refers to
    /// (`merge_callee_effects`).
    fn merge_callee_effects(&mut self) {
        let calls: Vec<(usize, usize)> = self
            .insn_starts()
            .filter_map(|idx| {
                let insn = self.insn_at(idx);
                let calls = insn.is_pseudo_call() || insn.is_func_ref();
                Some((self.subprog_of(idx), calls.then(|| self.callee(idx, &insn))??))
            })
            .collect();
        let mut changed = true;
        while changed {
            changed = false;
            for &(caller, callee) in &calls {
                let from = &self.learned.subprogs[callee];
                let (packet, sleep, throw) =
                    (from.changes_packet, from.might_sleep, from.might_throw);
                let to = &mut self.learned.subprogs[caller];
                let before = (to.changes_packet, to.might_sleep, to.might_throw);
                to.changes_packet |= packet;
                to.might_sleep |= sleep;
                to.might_throw |= throw;
                changed |= before != (to.changes_packet, to.might_sleep, to.might_throw);
            }
        }
    }
}

/// The slot `distance` behind the one after `idx`.
pub(crate) fn relative(idx: usize, distance: i64) -> Option<usize> {
    usize::try_from(idx as i64 + 1 + distance).ok()
}

/// Distance of a jump: `gotol` (JMP32|JA) has it in the immediate.
pub(crate) fn jump_distance(insn: &Insn) -> i64 {
    if insn.class() == BPF_JMP32 && insn.op() == BPF_JA { insn.imm.into() } else { insn.off.into() }
}
