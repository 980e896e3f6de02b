//! The program's stack: contents of each byte, spilled registers, reads and writes.
//!
//! Slots are 8 bytes. A register stored to an aligned slot keeps its state, and a load restores it;
//! other stores leave data of which only zero-ness is known. The kernel's `check_stack_write`,
//! `check_stack_read` and `check_stack_range_initialized`.

use crate::errno::Errno;
use crate::insn::{BPF_ATOMIC, BPF_JMP, BPF_JMP32, BPF_MEM, BPF_ST, BPF_STX, STACK_BYTES};

use super::env::{Access, Result, Verifier};
use super::facts::StackArg;
use super::reg::{ADD_CONST, Base, Reg};
use super::rejection::Rejection;
use super::scalar::Scalar;
use super::state::{Frame, SLOT_BYTES, SlotKind, StackSlot, kind_index, slot_index};

/// Largest variable part of a useful pointer (`BPF_MAX_VAR_OFF`).
pub(crate) const VAR_OFF_MAX: i64 = 1 << 29;

/// Number of bits that any value of a scalar needs (`get_reg_width`).
pub(crate) fn value_bits(reg: &Reg) -> u32 {
    64 - reg.var.umax.leading_zeros()
}

impl Verifier<'_> {
    /// Checks that the bytes `off..off + size` (after the variable part) are on the stack, and
    /// grows the frame's state to hold them. Returns the lowest offset and the one behind the
    /// highest byte.
    pub(crate) fn check_stack_bounds(
        &mut self,
        regno: u8,
        off: i64,
        size: u32,
        what: &str,
    ) -> Result<(i64, i64)> {
        let reg = *self.reg(regno);
        let (low, high) = if reg.var.is_const() {
            (reg.var.tnum.value as i64, reg.var.tnum.value as i64)
        } else {
            (reg.var.smin, reg.var.smax)
        };
        if high >= VAR_OFF_MAX || low <= -VAR_OFF_MAX {
            let message = format!("invalid unbounded variable-offset{what} stack R{regno}");
            let hint = "compare the index with a constant bound before using it";
            return Err(self.reject_hint(Errno::EACCES, message, hint));
        }
        let (min, max) = (low + off, high + off + i64::from(size));
        if min < -(STACK_BYTES as i64) || min > -1 || max > 0 {
            let message = if reg.var.is_const() {
                format!("invalid{what} stack R{regno} off={min} size={size}")
            } else {
                let tnum = reg.var.tnum;
                format!(
                    "invalid variable-offset{what} stack R{regno} var_off=({:#x}; {:#x}) off={off} size={size}",
                    tnum.value, tnum.mask
                )
            };
            let hint = self.stack_hint(regno, (min, max), size);
            return Err(self.reject_hint(Errno::EACCES, message, &hint));
        }
        let depth = (-min) as u32;
        let subprog = self.frame_of(&reg).subprog;
        self.learned.subprogs[subprog].stack_depth =
            self.learned.subprogs[subprog].stack_depth.max(depth);
        self.check_spills_untouched(subprog, min);
        self.frame_of_mut(&reg).grow_stack((depth as usize).div_ceil(SLOT_BYTES));
        self.note_stack_reach(regno, &reg, min, max);
        Ok((min, max))
    }

    /// Records how stack bytes are accessed, for compilers.
    fn note_stack_reach(&mut self, regno: u8, reg: &Reg, min: i64, max: i64) {
        let owner = self.frame_of(reg).subprog;
        let is_own = reg.frame as usize == self.path.cur.depth() && reg.var.is_const();
        let (is_call, is_atomic) = {
            let insn = self.insn();
            let is_jump = matches!(insn.class(), BPF_JMP | BPF_JMP32);
            (is_jump, insn.class() == BPF_STX && insn.mode() == BPF_ATOMIC)
        };
        // The bounds were just checked: both are on the stack, and fit.
        let (offset, len) = (min as i16, (max - min).max(0) as u16);
        let facts = &mut self.learned.aux[self.path.insn_idx].facts;
        let is_listed = match is_own {
            false => false,
            true if is_call => facts.add_stack_arg(StackArg { register: regno, offset, len }),
            true if is_atomic || !facts.is_own_stack() => false,
            true => {
                facts.own_stack = Some((offset, len));
                true
            }
        };
        if !is_listed {
            self.learned.subprogs[owner].reached.add(min, max);
        }
    }

    /// Records an address from which a callee may read without a limit: memory for
    /// `bpf_probe_read_kernel`, compared texts, words whose bits are iterated.
    pub(crate) fn note_unchecked_address(&mut self, reg: &Reg) {
        if reg.base() != Base::Stack {
            return;
        }
        let low = if reg.var.is_const() { reg.var.tnum.value as i64 } else { reg.var.smin };
        let low = low.saturating_add(reg.off.into());
        let owner = self.frame_of(reg).subprog;
        self.learned.subprogs[owner].reached.add(low, 0);
    }

    /// A store to the stack by an instruction (`check_stack_write`).
    pub(crate) fn check_stack_write(
        &mut self,
        regno: u8,
        off: i64,
        size: u32,
        value_regno: Option<u8>,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        let (min, max) = self.check_stack_bounds(regno, off, size, " write to")?;
        let frame = reg.frame as usize;
        for spi in slot_index(max - 1)..=slot_index(min) {
            self.overwrite_dynptr(frame, spi)?;
        }
        if reg.var.is_const() {
            self.write_fixed(frame, min, size, value_regno)
        } else {
            self.write_variable(frame, min, max, value_regno)
        }
    }

    fn overwrite_dynptr(&mut self, frame: usize, spi: usize) -> Result<()> {
        let slot = self.path.cur.slot(frame, spi);
        if slot.is_some_and(|slot| slot.special() == Some(SlotKind::Dynptr)) {
            self.destroy_dynptr(frame, spi)?;
        }
        Ok(())
    }

    /// The number that a `BPF_ST` instruction stores, if the current instruction is one.
    fn stored_immediate(&self) -> Option<i32> {
        let insn = self.insn();
        (insn.class() == BPF_ST && insn.mode() == BPF_MEM).then_some(insn.imm)
    }

    fn write_fixed(
        &mut self,
        frame: usize,
        off: i64,
        size: u32,
        value_regno: Option<u8>,
    ) -> Result<()> {
        let spi = slot_index(off);
        let aligned = off % SLOT_BYTES as i64 == 0;
        let immediate = self.stored_immediate().filter(|_| value_regno.is_none());
        let value = value_regno.map(|regno| *self.reg(regno));
        let before = self.path.cur.slot(frame, spi).copied().unwrap_or(StackSlot::EMPTY);
        self.check_pointer_kept(&before, size)?;
        if size as usize == SLOT_BYTES {
            self.mark_stack_written(frame, spi);
        }
        match (value, immediate) {
            (Some(value), _) if aligned && value.is_scalar() => {
                let fits = value_bits(&value) <= size * 8;
                if fits && let Some(regno) = value_regno {
                    self.assign_scalar_id(regno);
                }
                let mut spilled = value_regno.map_or(value, |regno| *self.reg(regno));
                if !fits {
                    spilled.id = 0;
                    spilled.off = 0;
                }
                self.spill(frame, spi, &spilled, size);
            }
            (None, Some(imm)) if aligned => {
                let value = Reg::constant(i64::from(imm) as u64);
                self.spill(frame, spi, &value, size);
            }
            (Some(value), _) if is_spillable(&value) => {
                self.spill_pointer(frame, spi, &value, size)?;
            }
            (value, _) => {
                if value.is_some_and(|value| self.is_secret(&value)) {
                    return Err(self.reject(Errno::EACCES, "the stack may not hold that pointer"));
                }
                return self.write_data(frame, off, size, value_regno, immediate);
            }
        }
        self.note_stack_access(frame, spi);
        Ok(())
    }

    /// Checks that a pointer is overwritten as a whole, if pointers may not leak.
    fn check_pointer_kept(&self, slot: &StackSlot, size: u32) -> Result<()> {
        let is_pointer = slot.is_spill() && !slot.reg.is_scalar();
        if self.input.options.allow_ptr_leaks || !is_pointer || size as usize == SLOT_BYTES {
            return Ok(());
        }
        Err(self.reject(Errno::EACCES, "attempt to corrupt spilled pointer on stack"))
    }

    /// Checks a write at an unknown index against the slots it may overwrite.
    fn check_variable_write(&self, kind: SlotKind, off: i64) -> Result<()> {
        let is_data = matches!(kind, SlotKind::Misc | SlotKind::Zero);
        if !self.input.options.allow_ptr_leaks && !is_data {
            let insn = self.path.insn_idx;
            let message = format!(
                "spilled ptr in range of var-offset stack write; insn {insn}, ptr off: {off}"
            );
            return Err(self.reject(Errno::EINVAL, message));
        }
        Ok(())
    }

    fn spill_pointer(&mut self, frame: usize, spi: usize, value: &Reg, size: u32) -> Result<()> {
        if size as usize != SLOT_BYTES {
            return Err(self.reject(Errno::EACCES, "invalid size of register spill"));
        }
        if frame != self.path.cur.depth() && value.is(Base::Stack) {
            let message = "cannot spill pointers to stack into stack frame of the caller";
            return Err(self.reject(Errno::EINVAL, message));
        }
        self.spill(frame, spi, value, size);
        Ok(())
    }

    /// Saves a register in a slot (`save_register_state`).
    fn spill(&mut self, frame: usize, spi: usize, value: &Reg, size: u32) {
        let Some(slot) = self.slot_mut(frame, spi) else { return };
        scrub_special(slot);
        slot.reg = *value;
        let first = SLOT_BYTES - size as usize;
        for kind in &mut slot.kinds[first..] {
            *kind = SlotKind::Spill;
        }
        for kind in &mut slot.kinds[..first] {
            if !matches!(*kind, SlotKind::Zero | SlotKind::Invalid) {
                *kind = SlotKind::Misc;
            }
        }
    }

    fn write_data(
        &mut self,
        frame: usize,
        off: i64,
        size: u32,
        value_regno: Option<u8>,
        immediate: Option<i32>,
    ) -> Result<()> {
        let zero_reg = value_regno.filter(|&regno| self.reg(regno).is_null_const());
        let is_zero = zero_reg.is_some() || immediate == Some(0);
        if let Some(regno) = zero_reg {
            // Later states rely on the zero, so it must be compared.
            self.mark_chain_precision(regno)?;
        }
        let kind = if is_zero { SlotKind::Zero } else { SlotKind::Misc };
        let Some(slot) = self.slot_mut(frame, slot_index(off)) else { return Ok(()) };
        forget_spill(slot);
        for byte in off..off + i64::from(size) {
            slot.kinds[kind_index(byte)] = kind;
        }
        Ok(())
    }

    fn write_variable(
        &mut self,
        frame: usize,
        min: i64,
        max: i64,
        value_regno: Option<u8>,
    ) -> Result<()> {
        let zero_reg = value_regno.filter(|&regno| self.reg(regno).is_null_const());
        let immediate = self.stored_immediate().filter(|_| value_regno.is_none());
        let is_zero = zero_reg.is_some() || immediate == Some(0);
        let mut zero_used = false;
        for off in min..max {
            let index = kind_index(off);
            let Some(slot) = self.path.cur.slot(frame, slot_index(off)) else { continue };
            let kind = slot.kinds[index];
            self.check_variable_write(kind, off)?;
            let Some(slot) = self.slot_mut(frame, slot_index(off)) else { continue };
            if is_zero && kind == SlotKind::Spill && slot.reg.is_null_const() {
                zero_used = true;
                continue;
            }
            if kind == SlotKind::Spill || slot.special().is_some() {
                forget_spill(slot);
            }
            let stays_zero = is_zero && kind == SlotKind::Zero;
            zero_used |= stays_zero;
            slot.kinds[index] = if stays_zero { SlotKind::Zero } else { SlotKind::Misc };
        }
        match zero_reg {
            Some(regno) if zero_used => self.mark_chain_precision(regno),
            _ => Ok(()),
        }
    }

    /// A load from the stack by an instruction (`check_stack_read`). Sets `value_regno`.
    pub(crate) fn check_stack_read(
        &mut self,
        regno: u8,
        off: i64,
        size: u32,
        value_regno: Option<u8>,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        if reg.var.is_const() {
            let (min, _) = self.check_stack_bounds(regno, off, size, " read from")?;
            return self.read_fixed(reg.frame as usize, min, size, value_regno);
        }
        let Some(value_regno) = value_regno else {
            let message = format!(
                "variable offset stack pointer cannot be passed into helper function; R{regno}"
            );
            return Err(self.reject(Errno::EACCES, message));
        };
        self.check_stack_range_initialized(regno, off, size, Access::Read, false, false)?;
        let (min, max) = self.check_stack_bounds(regno, off, size, " read from")?;
        self.load_data(reg.frame as usize, min, max, value_regno);
        Ok(())
    }

    fn read_fixed(
        &mut self,
        frame: usize,
        off: i64,
        size: u32,
        value_regno: Option<u8>,
    ) -> Result<()> {
        let spi = slot_index(off);
        let slot = self.path.cur.slot(frame, spi).copied().unwrap_or(StackSlot::EMPTY);
        self.mark_stack_read(frame, spi);
        if !slot.is_spill() {
            self.check_data(&slot, off, size)?;
            if let Some(regno) = value_regno {
                self.load_data(frame, off, off + i64::from(size), regno);
            }
            return Ok(());
        }
        let spill_size = slot.kinds.iter().filter(|kind| **kind == SlotKind::Spill).count() as u32;
        if size as usize == SLOT_BYTES && spill_size as usize == SLOT_BYTES {
            if value_regno.is_none() && self.is_secret(&slot.reg) {
                let message = format!("leaking pointer from stack off {off}");
                return Err(self.reject(Errno::EACCES, message));
            }
            if let Some(regno) = value_regno {
                self.assign_spilled_id(frame, spi);
                let value = self.path.cur.slot(frame, spi).map_or(Reg::UNKNOWN, |slot| slot.reg);
                *self.reg_mut(regno) = value;
            }
            self.note_stack_access(frame, spi);
            return Ok(());
        }
        if !slot.reg.is_scalar() {
            let hint = "a pointer stored to the stack must be loaded back as 8 bytes";
            let message = "invalid size of register fill";
            return Err(self.reject_hint(Errno::EACCES, message, hint));
        }
        let Some(regno) = value_regno else { return Ok(()) };
        if size <= spill_size && off % SLOT_BYTES as i64 == 0 {
            self.fill_narrow(frame, spi, size, spill_size, regno);
            return Ok(());
        }
        self.fill_bytes(frame, off, size, &slot, regno)
    }

    /// Loads the low bytes of a spilled number.
    fn fill_narrow(&mut self, frame: usize, spi: usize, size: u32, spill_size: u32, regno: u8) {
        let spilled = |v: &Self| v.path.cur.slot(frame, spi).map_or(Reg::UNKNOWN, |slot| slot.reg);
        if size == 4 && spill_size == 4 && value_bits(&spilled(self)) <= 32 {
            self.assign_spilled_id(frame, spi);
        }
        let mut value = spilled(self);
        if value_bits(&value) > size * 8 {
            value.id = 0;
            value.off = 0;
        }
        *self.reg_mut(regno) = value;
        self.note_stack_access(frame, spi);
    }

    /// Loads some bytes of a slot that holds a spilled number among others.
    fn fill_bytes(
        &mut self,
        frame: usize,
        off: i64,
        size: u32,
        slot: &StackSlot,
        regno: u8,
    ) -> Result<()> {
        let kinds = (off..off + i64::from(size)).map(|byte| slot.kinds[kind_index(byte)]);
        if kinds.clone().any(|kind| kind == SlotKind::Invalid)
            && !self.input.options.allow_uninit_stack
        {
            return Err(self.unwritten(off, off, size));
        }
        let spilled = kinds.clone().filter(|kind| *kind == SlotKind::Spill).count();
        let zeros = kinds.filter(|kind| *kind == SlotKind::Zero).count();
        let all = size as usize;
        if spilled == all && slot.reg.is_null_const() {
            *self.reg_mut(regno) = Reg::constant(0);
            self.note_stack_access(frame, slot_index(off));
        } else if zeros == all {
            *self.reg_mut(regno) = Reg::constant(0);
        } else {
            self.mark_reg_unknown(regno);
        }
        Ok(())
    }

    fn unwritten(&self, off: i64, byte: i64, size: u32) -> Box<Rejection> {
        let message = format!("invalid read from stack off {off}+{} size {size}", byte - off);
        let hint = "without CAP_PERFMON (a guest's programs) stack is read only where it was \
                    written, padding too: clear it with __builtin_memset()";
        self.reject_hint(Errno::EACCES, message, hint)
    }

    /// Checks that the bytes are data, or uninitialised (which privileged programs may read).
    fn check_data(&self, slot: &StackSlot, off: i64, size: u32) -> Result<()> {
        for byte in off..off + i64::from(size) {
            let kind = slot.kinds[kind_index(byte)];
            let may_read = kind != SlotKind::Invalid || self.input.options.allow_uninit_stack;
            if !may_read {
                return Err(self.unwritten(off, byte, size));
            }
            if !matches!(kind, SlotKind::Misc | SlotKind::Zero | SlotKind::Invalid) {
                let i = byte - off;
                let message = format!("invalid read from stack off {off}+{i} size {size}");
                return Err(self.reject(Errno::EACCES, message));
            }
        }
        Ok(())
    }

    /// Loads data bytes: 0 if all are zero, else an unknown number (`mark_reg_stack_read`).
    fn load_data(&mut self, frame: usize, min: i64, max: i64, regno: u8) {
        let zero = (min..max).all(|off| {
            let slot = self.path.cur.slot(frame, slot_index(off));
            slot.is_some_and(|slot| slot.kinds[kind_index(off)] == SlotKind::Zero)
        });
        *self.reg_mut(regno) = if zero { Reg::constant(0) } else { Reg::UNKNOWN };
    }

    /// Checks bytes that a callee reads or (`access`) writes: they must hold data.
    pub(crate) fn check_stack_range_initialized(
        &mut self,
        regno: u8,
        off: i64,
        size: u32,
        access: Access,
        zero_size_allowed: bool,
        raw: bool,
    ) -> Result<()> {
        if size == 0 && !zero_size_allowed {
            return Err(self.reject(Errno::EACCES, format!("invalid zero-sized read: R{regno}")));
        }
        let reg = *self.reg(regno);
        let (min, max) = self.check_stack_bounds(regno, off, size, access.on_stack())?;
        let frame = reg.frame as usize;
        let raw = raw && reg.var.is_const();
        if !reg.var.is_const() && !self.input.options.bypass_spec_v1 {
            let message = format!(
                "R{regno} variable offset stack access prohibited for !root, var_off={:?}",
                reg.var.tnum
            );
            return Err(self.reject(Errno::EACCES, message));
        }
        for byte in min..max {
            let (spi, index) = (slot_index(byte), kind_index(byte));
            let slot = self.path.cur.slot(frame, spi).copied().unwrap_or(StackSlot::EMPTY);
            if raw {
                if slot.kinds[index] == SlotKind::Dynptr {
                    let message = format!("potential write to dynptr at off={byte} disallowed");
                    return Err(self.reject(Errno::EACCES, message));
                }
                continue;
            }
            if slot.special().is_some() {
                let at = byte - min;
                let message =
                    format!("invalid read from stack R{regno} off {min}+{at} size {size}");
                return Err(self.reject(Errno::EACCES, message));
            }
            self.check_readable(&slot, byte, min, size)?;
            // A callee that reads an address there may read the memory behind it (`%s`).
            if slot.kinds[index] == SlotKind::Spill {
                self.note_unchecked_address(&slot.reg);
            }
            if access == Access::Write
                && let Some(slot) = self.slot_mut(frame, spi)
            {
                if slot.kinds[index] == SlotKind::Spill {
                    forget_spill(slot);
                }
                slot.kinds[index] = SlotKind::Misc;
            }
            self.mark_stack_read(frame, spi);
        }
        Ok(())
    }

    /// Checks that a callee may read the byte: it was written, and is not part of an address. Linux
    /// 6.18 takes the rest of a slot for written if a number was spilled into some of it.
    fn check_readable(&self, slot: &StackSlot, byte: i64, min: i64, size: u32) -> Result<()> {
        let kind = slot.kinds[kind_index(byte)];
        let is_unwritten = kind == SlotKind::Invalid && !self.input.options.allow_uninit_stack;
        let is_address = kind == SlotKind::Spill && self.is_secret(&slot.reg);
        if is_unwritten || is_address { Err(self.unwritten(min, byte, size)) } else { Ok(()) }
    }

    /// Gives a scalar that is about to be copied an id, so that knowledge about one copy applies to
    /// the other (`assign_scalar_id_before_mov`).
    pub(crate) fn assign_scalar_id(&mut self, regno: u8) {
        let mut reg = *self.reg(regno);
        self.with_scalar_id(&mut reg);
        *self.reg_mut(regno) = reg;
    }

    fn assign_spilled_id(&mut self, frame: usize, spi: usize) {
        let Some(mut reg) = self.path.cur.slot(frame, spi).map(|slot| slot.reg) else { return };
        self.with_scalar_id(&mut reg);
        if let Some(slot) = self.slot_mut(frame, spi) {
            slot.reg = reg;
        }
    }

    fn with_scalar_id(&mut self, reg: &mut Reg) {
        if !reg.is_scalar() {
            return;
        }
        if reg.id & ADD_CONST != 0 {
            // Only one distance to the id can be kept.
            reg.id = 0;
            reg.off = 0;
        }
        if reg.id == 0 && !reg.var.is_const() {
            reg.id = self.new_id();
        }
    }

    fn slot_mut(&mut self, frame: usize, spi: usize) -> Option<&mut StackSlot> {
        self.path.cur.frames.get_mut(frame)?.stack.get_mut(spi)
    }

    /// Records a read of slot `spi` of frame `frame`: states in which it differs are not equal (the
    /// read marks of the kernel's liveness analysis).
    pub(crate) fn mark_stack_read(&mut self, frame: usize, spi: usize) {
        let bit = 1u64 << (spi & 63);
        let written = self.path.cur.frames.get(frame).is_none_or(|f| f.stack_written & bit != 0);
        if !written {
            let parent = self.path.cur.parent;
            self.mark_parents_read(parent, frame, bit);
        }
    }

    /// Marks the slots of `bits` read in a state and the states it came from. True if there are new
    /// marks.
    pub(crate) fn mark_parents_read(
        &mut self,
        mut parent: Option<usize>,
        frame: usize,
        mut bits: u64,
    ) -> bool {
        let mut changed = false;
        while let Some(id) = parent {
            let state = self.search.arena.state_mut(id);
            let Some(owner): Option<&mut Frame> = state.frames.get_mut(frame) else { break };
            bits &= !owner.stack_read;
            if bits == 0 {
                break;
            }
            owner.stack_read |= bits;
            changed = true;
            bits &= !owner.stack_written;
            parent = state.parent;
        }
        changed
    }

    /// Records that slot `spi` of frame `frame` is fully overwritten.
    pub(crate) fn mark_stack_written(&mut self, frame: usize, spi: usize) {
        if let Some(frame) = self.path.cur.frames.get_mut(frame) {
            frame.stack_written |= 1u64 << (spi & 63);
        }
    }
}

/// Whether a register keeps its pointer type on the stack (`is_spillable_regtype`).
fn is_spillable(reg: &Reg) -> bool {
    !matches!(reg.base(), Base::NotInit | Base::Scalar | Base::Dynptr)
}

/// Makes a slot of a special object data.
fn scrub_special(slot: &mut StackSlot) {
    if slot.special().is_some() {
        slot.fill(SlotKind::Misc);
    }
}

/// Makes a spilled register data (`scrub_spilled_slot`).
fn forget_spill(slot: &mut StackSlot) {
    slot.reg = Reg::NOT_INIT;
    for kind in &mut slot.kinds {
        if !matches!(kind, SlotKind::Invalid | SlotKind::Zero | SlotKind::Misc) {
            *kind = SlotKind::Misc;
        }
    }
}

/// An unknown number, as a spilled register.
pub(crate) const UNBOUND: Reg = Reg { var: Scalar::UNKNOWN, ..Reg::UNKNOWN };
