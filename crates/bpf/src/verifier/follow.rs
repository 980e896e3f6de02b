//! Following paths: instruction by instruction, until all of them have ended (`do_check`).

use crate::errno::Errno;
use crate::insn::*;
use crate::map::Values;

use super::access::MemAccess;
use super::call;
use super::cfg::{jump_distance, relative};
use super::env::{Access, Pending, Result, Verifier};
use super::facts::Range;
use super::loops::Loops;
use super::reg::{Base, Flags, MapRef, Payload, Reg, RegType};
use super::show::type_name;
use super::state::{NO_INSN, State};

impl Verifier<'_> {
    /// Verifies one function with all paths from its start.
    pub(crate) fn follow_function(&mut self, subprog: usize) -> Result<()> {
        self.search.pending.clear();
        self.search.arena.clear();
        self.search.loops = Loops::default();
        self.search.insns_at_last_state = self.stats.insns_processed;
        self.search.jumps_at_last_state = self.search.jumps_processed;
        self.path.prev_insn_idx = NO_INSN;
        self.path.insn_idx = self.learned.subprogs[subprog].start;
        self.path.cur = self.entry_state(subprog)?;
        loop {
            self.follow_path()?;
            self.end_path();
            let Some(pending) = self.search.pending.pop() else { return Ok(()) };
            self.path.cur = pending.state;
            self.path.insn_idx = pending.insn_idx;
            self.path.prev_insn_idx = pending.prev_insn_idx;
            self.log_path();
        }
    }

    /// Follows the path to its end: an exit, or a state that was explored before.
    fn follow_path(&mut self) -> Result<()> {
        loop {
            self.path.history_entry = false;
            self.count_instruction()?;
            self.path.cur.last_insn_idx = self.path.prev_insn_idx;
            self.path.cur.insn_idx = self.path.insn_idx;
            if self.learned.aux[self.path.insn_idx].prune_point && self.is_state_visited()? {
                self.log_safe();
                return Ok(());
            }
            if self.learned.aux[self.path.insn_idx].jump_point {
                self.note_jump();
            }
            self.log_insn();
            if !self.learned.aux[self.path.insn_idx].seen {
                self.check_reserved(&self.insn())?;
            }
            self.learned.aux[self.path.insn_idx].seen = true;
            self.learned.aux[self.path.insn_idx].facts.reachable = true;
            let Some(next) = self.check_insn()? else { return Ok(()) };
            self.path.prev_insn_idx = self.path.insn_idx;
            self.path.insn_idx = next;
        }
    }

    fn count_instruction(&mut self) -> Result<()> {
        if self.path.insn_idx >= self.input.prog.insns.len() {
            let message = format!("invalid insn idx {}", self.path.insn_idx);
            return Err(self.reject(Errno::EFAULT, message));
        }
        self.stats.insns_processed += 1;
        if self.stats.insns_processed > self.input.options.insns_processed_max {
            let count = self.stats.insns_processed;
            let message = format!("BPF program is too large. Processed {count} insn");
            let hint = "too many paths: give loops a smaller bound, or move parts into global \
                        functions, which are verified once";
            return Err(self.reject_hint(Errno::E2BIG, message, hint));
        }
        Ok(())
    }

    /// Checks the current instruction; gives the next one, or `None` at the end of the path.
    fn check_insn(&mut self) -> Result<Option<usize>> {
        let insn = self.insn();
        let next = self.path.insn_idx + 1;
        match insn.class() {
            BPF_ALU | BPF_ALU64 => self.check_alu(&insn)?,
            BPF_LDX => {
                let sign = insn.mode() == BPF_MEMSX;
                self.check_load(&insn, insn.src, insn.dst, sign, false)?;
            }
            BPF_STX if insn.mode() == BPF_ATOMIC => self.check_atomic(&insn)?,
            BPF_STX => self.check_store(&insn, Some(insn.src), false)?,
            BPF_ST => self.check_store(&insn, None, false)?,
            BPF_LD if insn.is_ld_imm64() => {
                self.check_wide(&insn)?;
                return Ok(Some(next + 1));
            }
            BPF_LD => {
                let message = "BPF_LD_[ABS|IND] instructions not allowed for this program type";
                return Err(self.reject(Errno::EINVAL, message));
            }
            _ => return self.check_jump(&insn),
        }
        Ok(Some(next))
    }

    fn check_jump(&mut self, insn: &Insn) -> Result<Option<usize>> {
        self.search.jumps_processed += 1;
        let next = self.path.insn_idx + 1;
        match insn.op() {
            BPF_CALL if insn.is_pseudo_call() => self.check_subprog_call(insn).map(Some),
            BPF_CALL if insn.is_kfunc_call() => {
                call::check_kfunc_call(self, self.path.insn_idx, insn)?;
                if self.learned.aux[self.path.insn_idx].throws {
                    return self.check_exit(true);
                }
                Ok(Some(next))
            }
            BPF_CALL => {
                call::check_helper_call(self, self.path.insn_idx, insn)?;
                if insn.is_tail_call() && self.path.cur.depth() > 0 {
                    return self.return_by_tail_call().map(Some);
                }
                Ok(Some(next))
            }
            BPF_JA => Ok(relative(self.path.insn_idx, jump_distance(insn))),
            BPF_EXIT => self.check_exit(false),
            _ => self.check_conditional_jump(insn).map(Some),
        }
    }

    /// Checks a load (`check_load_mem`).
    fn check_load(
        &mut self,
        insn: &Insn,
        address: u8,
        value: u8,
        sign_extend: bool,
        aligned: bool,
    ) -> Result<()> {
        self.check_reg_read(address)?;
        self.check_reg_write(value, false)?;
        let kind = self.reg(address).kind;
        self.check_access(MemAccess {
            regno: address,
            off: insn.off.into(),
            size: insn.access_bytes() as u32,
            access: Access::Read,
            value_regno: Some(value),
            sign_extend,
            aligned,
        })?;
        self.note_pointer_type(kind, true)
    }

    /// Checks a store (`check_store_reg`).
    fn check_store(&mut self, insn: &Insn, value: Option<u8>, aligned: bool) -> Result<()> {
        if let Some(regno) = value {
            self.check_reg_read(regno)?;
        }
        self.check_reg_read(insn.dst)?;
        let kind = self.reg(insn.dst).kind;
        self.check_access(MemAccess {
            regno: insn.dst,
            off: insn.off.into(),
            size: insn.access_bytes() as u32,
            access: Access::Write,
            value_regno: value,
            sign_extend: false,
            aligned,
        })?;
        self.note_pointer_type(kind, false)
    }

    fn check_atomic(&mut self, insn: &Insn) -> Result<()> {
        let operation = insn.imm & !BPF_FETCH;
        match insn.imm {
            BPF_LOAD_ACQ => {
                self.check_reg_read(insn.src)?;
                self.check_atomic_pointer(insn.src, "loads from")?;
                let is_arena = self.reg(insn.src).is(Base::Arena);
                self.check_load(insn, insn.src, insn.dst, false, true)?;
                if is_arena {
                    self.mark_reg_unknown(insn.dst);
                }
                return Ok(());
            }
            BPF_STORE_REL => {
                self.check_reg_read(insn.dst)?;
                self.check_atomic_pointer(insn.dst, "stores into")?;
                return self.check_store(insn, Some(insn.src), true);
            }
            BPF_XCHG | BPF_CMPXCHG => {}
            _ if [BPF_ADD, BPF_AND, BPF_OR, BPF_XOR]
                .iter()
                .any(|op| i32::from(*op) == operation) => {}
            imm => {
                let message = format!("BPF_ATOMIC uses invalid atomic opcode {imm:02x}");
                return Err(self.reject(Errno::EINVAL, message));
            }
        }
        self.check_read_modify_write(insn)
    }

    /// Checks an atomic operation as a load and a store of the same place (`check_atomic_rmw`).
    fn check_read_modify_write(&mut self, insn: &Insn) -> Result<()> {
        if insn.access_bytes() < 4 {
            return Err(self.reject(Errno::EINVAL, "invalid atomic operand size"));
        }
        self.check_reg_read(insn.src)?;
        self.check_reg_read(insn.dst)?;
        let loaded = match insn.imm {
            BPF_CMPXCHG => Some(0),
            imm if imm & BPF_FETCH != 0 => Some(insn.src),
            _ => None,
        };
        if insn.imm == BPF_CMPXCHG {
            self.check_reg_read(0)?;
            self.forbid_leak(0, "into mem")?;
        }
        self.forbid_leak(insn.src, "into mem")?;
        self.check_atomic_pointer(insn.dst, "stores into")?;
        if let Some(regno) = loaded {
            self.check_reg_write(regno, false)?;
        }
        let kind = self.reg(insn.dst).kind;
        let place = MemAccess {
            regno: insn.dst,
            off: insn.off.into(),
            size: insn.access_bytes() as u32,
            access: Access::Read,
            value_regno: None,
            sign_extend: false,
            aligned: true,
        };
        self.check_access(place)?;
        let address = *self.reg(insn.dst);
        if let Some(regno) = loaded {
            self.check_access(MemAccess { value_regno: Some(regno), ..place })?;
        }
        // The load may have overwritten the address; the store uses the previous one.
        let value = *self.reg(insn.dst);
        *self.reg_mut(insn.dst) = address;
        self.check_access(MemAccess { access: Access::Write, ..place })?;
        *self.reg_mut(insn.dst) = value;
        // If the arena has no page there, the register keeps its value, with all 64 bits. Linux
        // 6.18 assumes the loaded value.
        if let Some(regno) = loaded.filter(|_| address.is(Base::Arena)) {
            self.mark_reg_unknown(regno);
        }
        self.note_pointer_type(kind, false)
    }

    /// Checks the pointer type for an atomic operation (`atomic_ptr_type_ok`).
    fn check_atomic_pointer(&self, regno: u8, what: &str) -> Result<()> {
        let reg = self.reg(regno);
        let refused = reg.is_packet_any()
            || matches!(
                reg.base(),
                Base::Ctx
                    | Base::Frame
                    | Base::Socket
                    | Base::SockCommon
                    | Base::TcpSock
                    | Base::XdpSock
            );
        if !refused {
            return Ok(());
        }
        let name = type_name(reg.kind);
        let message = format!("BPF_ATOMIC {what} R{regno} {name} is not allowed");
        Err(self.reject(Errno::EACCES, message))
    }

    /// Checks that the type is the same on all paths, as some accesses are rewritten by type
    /// (`save_aux_ptr_type`).
    fn note_pointer_type(&mut self, kind: RegType, is_load: bool) -> Result<()> {
        let special = |kind: RegType| {
            matches!(
                kind.base,
                Base::Ctx
                    | Base::Frame
                    | Base::Socket
                    | Base::SockCommon
                    | Base::TcpSock
                    | Base::XdpSock
                    | Base::BtfId
                    | Base::Arena
            ) && !kind.has(Flags::ALLOC)
        };
        let aux = &mut self.learned.aux[self.path.insn_idx];
        let Some(before) = aux.pointer_type else {
            aux.pointer_type = Some(kind);
            return Ok(());
        };
        let both_typed = before.base == Base::BtfId && kind.base == Base::BtfId;
        if before == kind || !(special(before) || special(kind)) || (is_load && both_typed) {
            return Ok(());
        }
        let message = "same insn cannot be used with different pointers";
        Err(self.reject(Errno::EINVAL, message))
    }

    /// Checks a 64-bit immediate load (`check_ld_imm`).
    fn check_wide(&mut self, insn: &Insn) -> Result<()> {
        self.check_reg_write(insn.dst, true)?;
        let second = self.insn_at(self.path.insn_idx + 1);
        let reg = match insn.src {
            0 => {
                let high = u64::from(second.imm as u32) << 32;
                Reg::constant(high | u64::from(insn.imm as u32))
            }
            PSEUDO_BTF_ID => self.ksym_pointer(insn)?,
            PSEUDO_FUNC => self.function_pointer(insn)?,
            _ => self.map_pointer(insn, second.imm)?,
        };
        *self.reg_mut(insn.dst) = reg;
        Ok(())
    }

    fn function_pointer(&self, insn: &Insn) -> Result<Reg> {
        let Some(subprog) = self.callee(self.path.insn_idx, insn) else {
            return Err(self.internal("a function reference leads to no function"));
        };
        if self.learned.subprogs[subprog].global {
            return Err(self.reject_hint(
                Errno::EINVAL,
                "callback function not static",
                "declare the callback static",
            ));
        }
        Ok(Reg::pointer(Base::Func, Flags::NONE, Payload::Subprog(subprog)))
    }

    fn map_pointer(&self, insn: &Insn, offset: i32) -> Result<Reg> {
        let map = MapRef { index: insn.imm as u32, inner: false };
        let Some(def) = self.map_def(map) else {
            let message = format!("fd {} is not pointing to valid bpf_map", insn.imm);
            return Err(self.reject(Errno::EBADF, message));
        };
        let payload = Payload::Map { map, uid: 0 };
        if insn.is_map_ref() {
            return Ok(Reg::pointer(Base::ConstMapPtr, Flags::NONE, payload));
        }
        if def.kind.values() == Values::Pages {
            return Ok(Reg::UNKNOWN);
        }
        if !def.kind.is_array() || def.max_entries != 1 {
            let message = format!("map '{}' has no single value to point into", def.name);
            return Err(self.reject(Errno::EINVAL, message));
        }
        if u32::try_from(offset).is_ok_and(|offset| offset < def.value_size) {
            let reg = Reg::pointer(Base::MapValue, Flags::NONE, payload);
            return Ok(Reg { off: offset, ..reg });
        }
        let size = def.value_size;
        let message =
            format!("invalid access to map value pointer, value_size={size} off={offset}");
        Err(self.reject(Errno::EINVAL, message))
    }

    /// Records the operands' values for checks of the proof.
    pub(crate) fn note_operands(&mut self, insn: &Insn) {
        if !self.input.options.every_number {
            return;
        }
        let is_swap = insn.op() == BPF_END && matches!(insn.class(), BPF_ALU | BPF_ALU64);
        let dst = operand_range(self.reg(insn.dst));
        let src = (insn.is_reg_operand() && !is_swap).then(|| operand_range(self.reg(insn.src)));
        let facts = &mut self.learned.aux[self.path.insn_idx].facts;
        facts.dst = Some(facts.dst.map_or(dst, |before| before.widen(dst)));
        if let Some(src) = src {
            facts.src = Some(facts.src.map_or(src, |before| before.widen(src)));
        }
    }

    /// Records the outcomes of a conditional jump on a path.
    pub(crate) fn note_branch(&mut self, taken: bool, fallthrough: bool) {
        let branch = &mut self.learned.aux[self.path.insn_idx].facts.branch;
        branch.taken |= taken;
        branch.fallthrough |= fallthrough;
    }

    /// Checks a read of a register (`check_reg_arg(SRC_OP)`).
    pub(crate) fn check_reg_read(&self, regno: u8) -> Result<()> {
        if usize::from(regno) >= REG_COUNT {
            return Err(self.reject(Errno::EINVAL, format!("R{regno} is invalid")));
        }
        if self.reg(regno).is(Base::NotInit) {
            return Err(self.reject_hint(
                Errno::EACCES,
                format!("R{regno} !read_ok"),
                "the register has no value here: on some path it was never set, or a call \
                 destroyed it (calls keep only r6..r9); initialise the variable on every path",
            ));
        }
        Ok(())
    }

    /// Checks a write to a register (`check_reg_arg(DST_OP)`); `mark` makes it unknown.
    pub(crate) fn check_reg_write(&mut self, regno: u8, mark: bool) -> Result<()> {
        if usize::from(regno) >= REG_COUNT {
            return Err(self.reject(Errno::EINVAL, format!("R{regno} is invalid")));
        }
        if regno == REG_FP {
            return Err(self.reject(Errno::EACCES, "frame pointer is read only"));
        }
        if mark {
            self.mark_reg_unknown(regno);
        }
        Ok(())
    }

    /// Queues a path that starts in `state`, to be followed later.
    pub(crate) fn push_pending_state(
        &mut self,
        mut state: State,
        insn_idx: usize,
        prev_insn_idx: usize,
    ) -> Result<()> {
        if self.search.pending.len() >= self.input.options.pending_max {
            let message =
                format!("The sequence of {} jumps is too complex.", self.search.pending.len() + 1);
            let hint = "a loop runs so often on one path that too many others wait: give it a \
                        constant bound, or make its body a function for bpf_loop()";
            return Err(self.reject_hint(Errno::E2BIG, message, hint));
        }
        state.branches = 1;
        if let Some(parent) = state.parent {
            self.search.arena.state_mut(parent).branches += 1;
        }
        self.search.pending.push(Pending { state, insn_idx, prev_insn_idx });
        Ok(())
    }
}

fn operand_range(reg: &Reg) -> Range {
    if !reg.is_scalar() {
        return Range::UNKNOWN;
    }
    let var = &reg.var;
    Range {
        umin: var.umin,
        umax: var.umax,
        smin: var.smin,
        smax: var.smax,
        maybe_ones: var.tnum.max(),
        ones: var.tnum.value,
        low_unsigned: (var.u32_min, var.u32_max),
        low_signed: (var.s32_min, var.s32_max),
    }
}
