//! Checks of one instruction: what it makes undefined, and its use of undefined bits.

use std::sync::Arc;

use towpath_bpf::insn::{
    BPF_ADD, BPF_ALU, BPF_ALU64, BPF_ATOMIC, BPF_CALL, BPF_CMPXCHG, BPF_END, BPF_EXIT, BPF_FETCH,
    BPF_JA, BPF_JCOND, BPF_JMP, BPF_JMP32, BPF_LDX, BPF_LOAD_ACQ, BPF_MEMSX, BPF_MOV, BPF_ST,
    BPF_STX, Insn, PSEUDO_CALL, REG_COUNT, REG_FP,
};
use towpath_bpf::interp::{Access, Code};

use super::bits::{self, Partial};
use super::effect::Pending;
use super::finding::Kind;
use super::lost::COUNTER_BYTES;
use super::shadow::Place;
use super::{Caller, Sanitizer};
use crate::run::Run;

impl Sanitizer {
    /// Checks the next instruction, in this slot.
    pub(crate) fn step(
        &mut self,
        run: &Run<'_>,
        code: &Code,
        slot: usize,
        regs: &[u64; REG_COUNT],
    ) {
        self.turn_to(code);
        if regs[usize::from(REG_FP)] != self.fp || self.pending.is_some() || self.fresh {
            self.settle(run, slot, regs);
        }
        self.place = Place::new(self.program, slot);
        let Some(&insn) = code.insns().get(slot) else { return };
        if usize::from(insn.dst) >= REG_COUNT {
            return;
        }
        match insn.class() {
            BPF_ALU | BPF_ALU64 => self.arithmetic(insn, regs),
            BPF_LDX => self.load(run, insn, code.access(slot), regs),
            BPF_ST | BPF_STX => self.store(run, insn, code.access(slot), regs),
            BPF_JMP | BPF_JMP32 => self.jump(run, insn, regs),
            _ => {
                self.bits[usize::from(insn.dst)] = 0;
                self.loaded_from[usize::from(insn.dst)] = 0;
            }
        }
    }

    #[inline]
    fn turn_to(&mut self, code: &Code) {
        let Some(linked) = code.linked() else { return };
        if !self.programs.get(self.program).is_some_and(|known| Arc::ptr_eq(known, linked)) {
            let known = self.programs.iter().position(|known| Arc::ptr_eq(known, linked));
            self.program = known.unwrap_or_else(|| {
                self.programs.push(Arc::clone(linked));
                self.programs.len() - 1
            });
        }
    }

    /// Follows the start of a run, a function's entry or return, or the end of a call.
    #[cold]
    fn settle(&mut self, run: &Run<'_>, slot: usize, regs: &[u64; REG_COUNT]) {
        let fp = regs[usize::from(REG_FP)];
        if self.fresh {
            return self.start(run, fp);
        }
        if fp < self.fp {
            return self.enter(fp);
        }
        while fp > self.fp && !self.callers.is_empty() {
            self.leave();
        }
        if let Some(pending) = self.pending.take() {
            self.conclude(run, &pending, slot, regs);
        }
    }

    fn start(&mut self, run: &Run<'_>, fp: u64) {
        (self.fresh, self.fp, self.pending) = (false, fp, None);
        self.bits = [0; REG_COUNT];
        self.callers.clear();
        self.records.clear();
        self.redirect = None;
        (self.packet_writer, self.locks) = (Place::default(), 0);
        self.habits.begin();
        self.loaded_from = [0; REG_COUNT];
        self.arrived_at = run.frame.data_addr();
        self.arrives(run);
        self.packet_start = run.frame.data_meta_addr().min(run.frame.data_addr());
        self.shadow.restart(fp);
        self.shadow.enter(fp);
    }

    fn enter(&mut self, fp: u64) {
        let (mut bits, mut sources) = ([0; 4], [Place::default(); 4]);
        bits.copy_from_slice(&self.bits[6..10]);
        sources.copy_from_slice(&self.sources[6..10]);
        let pending = self.pending.take();
        if pending.as_ref().is_some_and(Pending::calls_back) {
            self.bits[..6].fill(0);
        }
        self.callers.push(Caller { fp: self.fp, bits, sources, pending });
        self.fp = fp;
        self.shadow.enter(fp);
    }

    /// The running function returns.
    fn leave(&mut self) {
        if let Some(Caller { fp, bits, sources, pending }) = self.callers.pop() {
            self.fp = fp;
            self.bits[6..10].copy_from_slice(&bits);
            self.sources[6..10].copy_from_slice(&sources);
            self.pending = pending;
            self.loaded_from[6..10].fill(0);
        }
    }

    fn arithmetic(&mut self, insn: Insn, regs: &[u64; REG_COUNT]) {
        let dst = usize::from(insn.dst);
        self.made_of(insn);
        if insn.op() == BPF_END {
            self.bits[dst] = bits::swapped(insn, self.bits[dst]);
            return;
        }
        let src = self.operand(insn, regs);
        if self.bits[dst] | src.undefined == 0 {
            return;
        }
        let before = Partial { value: regs[dst], undefined: self.bits[dst] };
        if src.undefined != 0 && insn.is_reg_operand() {
            self.sources[dst] = self.sources[usize::from(insn.src)];
        }
        self.bits[dst] = bits::arithmetic(insn, before, src);
    }

    /// Follows numbers that were loaded from values of maps: a number that is only added to is a
    /// counter.
    #[inline]
    fn made_of(&mut self, insn: Insn) {
        let dst = usize::from(insn.dst);
        let from = match insn.is_reg_operand() && insn.op() != BPF_END {
            true => self.loaded_from.get(usize::from(insn.src)).copied().unwrap_or(0),
            false => 0,
        };
        if insn.op() == BPF_MOV {
            self.loaded_from[dst] = from;
            return;
        }
        let adds = insn.op() == BPF_ADD && (insn.is_reg_operand() || insn.imm > 0);
        match (self.loaded_from[dst], from) {
            (0, 0) => {}
            (0, from) if adds => self.loaded_from[dst] = from,
            (before, from) => {
                if before != 0 && !adds {
                    self.habits.used(before);
                }
                if from != 0 {
                    self.habits.used(from);
                }
            }
        }
    }

    #[inline]
    fn operand(&self, insn: Insn, regs: &[u64; REG_COUNT]) -> Partial {
        let src = usize::from(insn.src);
        if insn.is_reg_operand() && src < REG_COUNT {
            Partial { value: regs[src], undefined: self.bits[src] }
        } else {
            Partial { value: i64::from(insn.imm).cast_unsigned(), undefined: 0 }
        }
    }

    fn load(&mut self, run: &Run<'_>, insn: Insn, access: Access, regs: &[u64; REG_COUNT]) {
        let (dst, src) = (usize::from(insn.dst), usize::from(insn.src));
        if src >= REG_COUNT {
            return;
        }
        if self.bits[src] != 0 {
            self.address(src);
        }
        if access != Access::Direct {
            (self.bits[dst], self.loaded_from[dst]) = (0, 0);
            return;
        }
        let addr = displaced(insn, regs[src]);
        let is_own = self.shadow.is_of_stack(addr) || run.frame.is_in_head(addr);
        self.loaded_from[dst] = if is_own { 0 } else { addr };
        self.bits[dst] = self.loaded(dst, addr, insn);
    }

    /// Undefined bits of the loaded number; notes where they came from.
    #[inline]
    fn loaded(&mut self, dst: usize, addr: u64, insn: Insn) -> u64 {
        let len = insn.access_bytes();
        let undefined = self.shadow.load(addr, len);
        if undefined == 0 {
            return 0;
        }
        self.sources[dst] = self.shadow.source(addr).unwrap_or(self.place);
        if insn.mode() == BPF_MEMSX { bits::extended(undefined, len) } else { undefined }
    }

    fn store(&mut self, run: &Run<'_>, insn: Insn, access: Access, regs: &[u64; REG_COUNT]) {
        let (dst, src) = (usize::from(insn.dst), usize::from(insn.src));
        let is_register = insn.class() == BPF_STX && src < REG_COUNT;
        if insn.class() == BPF_STX && insn.mode() == BPF_ATOMIC {
            return self.atomic(run, insn, access, regs);
        }
        if self.bits[dst] != 0 {
            self.address(dst);
        }
        if access != Access::Direct {
            return;
        }
        let addr = displaced(insn, regs[dst]);
        let undefined = if is_register { self.bits[src] } else { 0 };
        if undefined != 0 {
            self.shadow.note_source(addr, self.sources[src]);
        }
        self.shadow.store(addr, insn.access_bytes(), undefined, self.place);
        let loaded_from = if is_register { self.loaded_from[src] } else { 0 };
        if loaded_from != 0 && loaded_from != addr {
            self.habits.used(loaded_from);
        }
        if !self.shadow.is_of_stack(addr) {
            self.stored_elsewhere(run, (addr, insn.access_bytes()), loaded_from);
        }
    }

    fn atomic(&mut self, run: &Run<'_>, insn: Insn, access: Access, regs: &[u64; REG_COUNT]) {
        let (dst, src) = (usize::from(insn.dst), usize::from(insn.src));
        if access != Access::Direct || src >= REG_COUNT {
            return;
        }
        if insn.imm == BPF_LOAD_ACQ {
            self.bits[dst] = self.loaded(dst, displaced(insn, regs[src]), insn);
            return;
        }
        let (addr, len) = (displaced(insn, regs[dst]), insn.access_bytes());
        let before = self.shadow.load(addr, len);
        let operand = self.bits[src];
        if before | operand != 0 {
            self.shadow.store(addr, len, before | operand, self.place);
        }
        if !self.shadow.is_of_stack(addr) {
            self.habits.changed();
            match i32::from(BPF_ADD) == insn.imm {
                true if len < COUNTER_BYTES => self.note_counter(run, addr, len),
                true => {}
                false => self.habits.used(addr),
            }
        }
        match insn.imm {
            BPF_CMPXCHG => self.bits[0] = before,
            imm if imm & BPF_FETCH != 0 => self.bits[src] = before,
            _ => {}
        }
    }

    fn jump(&mut self, run: &Run<'_>, insn: Insn, regs: &[u64; REG_COUNT]) {
        match insn.op() {
            BPF_CALL if insn.src == PSEUDO_CALL => {}
            BPF_CALL => self.call(run, insn, regs),
            BPF_EXIT => self.exit(run, regs),
            BPF_JA | BPF_JCOND => {}
            _ => {
                self.habits.branched(self.place);
                self.branch(insn, regs);
            }
        }
    }

    fn branch(&mut self, insn: Insn, regs: &[u64; REG_COUNT]) {
        let dst = usize::from(insn.dst);
        if self.loaded_from[dst] != 0 {
            self.habits.used(self.loaded_from[dst]);
        }
        if insn.is_reg_operand() && self.loaded_from[usize::from(insn.src)] != 0 {
            self.habits.used(self.loaded_from[usize::from(insn.src)]);
        }
        let src = self.operand(insn, regs);
        if self.bits[dst] | src.undefined == 0 {
            return;
        }
        let left = Partial { value: regs[dst], undefined: self.bits[dst] };
        if bits::decides(insn, left, src) {
            let guilty = if self.bits[dst] != 0 { dst } else { usize::from(insn.src) };
            let message = "the direction of this branch depends on bytes that were never set";
            self.of_register(Kind::Branch, guilty, 0, message.to_owned());
        }
    }

    fn exit(&mut self, run: &Run<'_>, regs: &[u64; REG_COUNT]) {
        if self.loaded_from[0] != 0 {
            self.habits.used(self.loaded_from[0]);
        }
        if self.callers.is_empty() {
            self.end(run, regs[0] as u32);
        } else {
            self.leave();
        }
    }

    /// Checks the address of an access, which must not depend on unset bits.
    #[cold]
    fn address(&mut self, register: usize) {
        let message = "the address of this access depends on bytes that were never set";
        self.of_register(Kind::Address, register, 0, message.to_owned());
    }
}

fn displaced(insn: Insn, base: u64) -> u64 {
    base.wrapping_add(i64::from(insn.off).cast_unsigned())
}
