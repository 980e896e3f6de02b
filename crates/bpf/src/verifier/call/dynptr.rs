//! Dynptrs on the stack: two slots that only their helpers may access, and the slices of their
//! memory.

use crate::errno::Errno;
use crate::proto;

use super::super::env::{Access, Result, Verifier};
use super::super::reg::{Base, DynptrKind, Flags, Payload, Reg};
use super::super::show::dynptr_name;
use super::super::state::{SlotKind, StackSlot, slot_index};
use super::meta::DynptrArg;

/// Number of stack slots of a `struct bpf_dynptr`.
pub(super) const DYNPTR_SLOTS: usize = 2;
const SLOT_SIZE: i64 = 8;

/// Requirements of a call on a dynptr argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Whether the call makes a dynptr of uninitialised stack.
    pub(super) uninit: bool,
    /// Whether the call leaves the dynptr itself unchanged.
    pub(super) read_only: bool,
    /// Required kind of dynptr, if any.
    pub(super) kind: Option<DynptrKind>,
    /// For clones: the reference of the original.
    pub(super) clone_ref_id: u32,
}

/// The kind of dynptr that a helper's argument flags require.
pub(super) fn wanted_kind(flags: proto::Flags) -> Option<DynptrKind> {
    if flags.has(proto::Flags::DYNPTR_LOCAL) {
        Some(DynptrKind::Local)
    } else if flags.has(proto::Flags::DYNPTR_RINGBUF) {
        Some(DynptrKind::Ringbuf)
    } else if flags.has(proto::Flags::DYNPTR_XDP) {
        Some(DynptrKind::Xdp)
    } else {
        None
    }
}

impl Verifier<'_> {
    /// Checks a dynptr argument, or makes the dynptr (`process_dynptr_func`).
    pub(super) fn process_dynptr(&mut self, regno: u8, wanted: &Wanted) -> Result<()> {
        let arg = regno - 1;
        let reg = *self.reg(regno);
        let typed =
            reg.kind.flags == Flags::NONE && matches!(reg.base(), Base::Stack | Base::Dynptr);
        if !typed {
            let message = format!("arg#{arg} expected pointer to stack or const struct bpf_dynptr");
            return Err(self.reject(Errno::EINVAL, message));
        }
        if wanted.uninit {
            return self.make_dynptr(regno, wanted);
        }
        if reg.is(Base::Dynptr) && !wanted.read_only {
            let message = "cannot pass pointer to const bpf_dynptr, the helper mutates it";
            return Err(self.reject(Errno::EINVAL, message));
        }
        let Some(kind) = self.initialised_kind(&reg)? else {
            let message = format!("Expected an initialized dynptr as arg #{arg}");
            return Err(self.reject_hint(
                Errno::EINVAL,
                message,
                "make it first, e.g. with bpf_dynptr_from_xdp(), on every path",
            ));
        };
        if let Some(expected) = wanted.kind.filter(|expected| *expected != kind) {
            let message =
                format!("Expected a dynptr of type {} as arg #{arg}", dynptr_name(expected));
            return Err(self.reject(Errno::EINVAL, message));
        }
        if let Some((frame, spi)) = self.dynptr_place(&reg)? {
            self.mark_stack_read(frame, spi);
            self.mark_stack_read(frame, spi - 1);
        }
        Ok(())
    }

    /// Makes a dynptr of two stack slots (`mark_stack_slots_dynptr`).
    fn make_dynptr(&mut self, regno: u8, wanted: &Wanted) -> Result<()> {
        let reg = *self.reg(regno);
        let fits = reg.is(Base::Stack) && self.special_place(&reg, "dynptr", DYNPTR_SLOTS).is_ok();
        if !fits {
            let message = "Dynptr has to be an uninitialized dynptr";
            return Err(self.reject(Errno::EINVAL, message));
        }
        for off in [0, 8] {
            self.check_mem_access(regno, off, 8, Access::Write, None, false)?;
        }
        let (Some((frame, spi)), Some(kind)) = (self.dynptr_place(&reg)?, wanted.kind) else {
            return Err(self.internal("a dynptr outside of the stack, or of no kind"));
        };
        self.destroy_dynptr(frame, spi)?;
        self.destroy_dynptr(frame, spi - 1)?;
        let id = self.new_id();
        let ref_id = match kind {
            DynptrKind::Ringbuf if wanted.clone_ref_id != 0 => wanted.clone_ref_id,
            DynptrKind::Ringbuf => self.acquire_reference(),
            _ => 0,
        };
        for (spi, first_slot) in [(spi, true), (spi - 1, false)] {
            let mut state = dynptr_reg(kind, first_slot);
            state.id = id;
            state.ref_id = ref_id;
            self.set_special_slot(frame, spi, SlotKind::Dynptr, state);
        }
        Ok(())
    }

    /// State of a dynptr argument that was checked before.
    pub(super) fn dynptr_state(&self, regno: u8) -> Result<DynptrArg> {
        let reg = *self.reg(regno);
        let state = match self.dynptr_slot(&reg) {
            Some(slot) => slot.reg,
            None => reg,
        };
        let Some(kind) = state.dynptr() else {
            return Err(self.internal("a dynptr argument that is none"));
        };
        Ok(DynptrArg { kind, id: state.id, ref_id: state.ref_id, frame: state.frame })
    }

    /// The first slot of the dynptr that a stack pointer points to.
    pub(super) fn dynptr_slot(&self, reg: &Reg) -> Option<StackSlot> {
        if !reg.is(Base::Stack) {
            return None;
        }
        let (frame, spi) = self.special_place(reg, "dynptr", DYNPTR_SLOTS).ok()??;
        let slot = self.path.cur.slot(frame, spi)?;
        (slot.special() == Some(SlotKind::Dynptr)).then_some(*slot)
    }

    /// The kind of an initialised dynptr (`is_dynptr_reg_valid_init`).
    fn initialised_kind(&self, reg: &Reg) -> Result<Option<DynptrKind>> {
        if reg.is(Base::Dynptr) {
            return Ok(reg.dynptr());
        }
        let Some((frame, spi)) = self.dynptr_place(reg)? else { return Ok(None) };
        let whole = [spi, spi - 1].into_iter().all(|spi| {
            self.path
                .cur
                .slot(frame, spi)
                .is_some_and(|slot| slot.kinds.iter().all(|kind| *kind == SlotKind::Dynptr))
        });
        let first = self.path.cur.slot(frame, spi).map(|slot| slot.reg.payload);
        Ok(match first {
            Some(Payload::Dynptr { kind, first_slot: true }) if whole => Some(kind),
            _ => None,
        })
    }

    fn dynptr_place(&self, reg: &Reg) -> Result<Option<(usize, usize)>> {
        if !reg.is(Base::Stack) {
            return Ok(None);
        }
        self.special_place(reg, "dynptr", DYNPTR_SLOTS)
    }

    /// Frame and first slot of a special object of `slots` slots (`stack_slot_obj_get_spi`); `None`
    /// if the stack was never used there.
    pub(super) fn special_place(
        &self,
        reg: &Reg,
        what: &str,
        slots: usize,
    ) -> Result<Option<(usize, usize)>> {
        let Some(off) = reg.const_offset() else {
            let message = format!("{what} has to be at a constant offset");
            return Err(self.reject(Errno::EINVAL, message));
        };
        let frame = reg.frame as usize;
        let aligned = off % SLOT_SIZE == 0;
        if !aligned || off >= 0 || slot_index(off) + 1 < slots {
            let message = format!("cannot pass in {what} at an offset={off}");
            return Err(self.reject(Errno::EINVAL, message));
        }
        let spi = slot_index(off);
        let used = self.path.cur.frames.get(frame).is_some_and(|frame| spi < frame.stack.len());
        Ok(used.then_some((frame, spi)))
    }

    /// Makes a slot a part of a special object.
    pub(super) fn set_special_slot(
        &mut self,
        frame: usize,
        spi: usize,
        kind: SlotKind,
        state: Reg,
    ) {
        if let Some(slot) = self.path.cur.frames.get_mut(frame).and_then(|f| f.stack.get_mut(spi)) {
            *slot = StackSlot { reg: state, kinds: [kind; 8] };
        }
        self.mark_stack_written(frame, spi);
    }

    /// Makes a slot unused again.
    pub(super) fn clear_special_slot(&mut self, frame: usize, spi: usize) {
        if let Some(slot) = self.path.cur.frames.get_mut(frame).and_then(|f| f.stack.get_mut(spi)) {
            slot.fill(SlotKind::Invalid);
        }
        self.mark_stack_written(frame, spi);
    }

    /// Ends a dynptr that a release helper took, with its clones and slices
    /// (`unmark_stack_slots_dynptr`).
    pub(super) fn release_dynptr(&mut self, regno: u8) -> Result<bool> {
        let reg = *self.reg(regno);
        let Some((frame, spi)) = self.dynptr_place(&reg)? else {
            return Err(self.internal("released dynptr is not on the stack"));
        };
        let Some(state) = self.path.cur.slot(frame, spi).map(|slot| slot.reg) else {
            return Ok(false);
        };
        if state.dynptr() != Some(DynptrKind::Ringbuf) {
            self.forget_dynptr(frame, spi);
            return Ok(true);
        }
        if !self.release_reference(state.ref_id) {
            return Ok(false);
        }
        for (frame, spi) in self.dynptrs_of(state.ref_id) {
            self.forget_dynptr(frame, spi);
        }
        Ok(true)
    }

    /// The first slots of all dynptrs that share a reference.
    fn dynptrs_of(&self, ref_id: u32) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (index, frame) in self.path.cur.frames.iter().enumerate() {
            for (spi, slot) in frame.stack.iter().enumerate() {
                let first = matches!(slot.reg.payload, Payload::Dynptr { first_slot: true, .. });
                let is_dynptr = slot.special() == Some(SlotKind::Dynptr);
                if is_dynptr && first && slot.reg.ref_id == ref_id {
                    found.push((index, spi));
                }
            }
        }
        found
    }

    /// Makes both slots of a dynptr unused and its slices unknown numbers.
    fn forget_dynptr(&mut self, frame: usize, spi: usize) {
        let id = self.path.cur.slot(frame, spi).map_or(0, |slot| slot.reg.id);
        self.clear_special_slot(frame, spi);
        if let Some(second) = spi.checked_sub(1) {
            self.clear_special_slot(frame, second);
        }
        if id != 0 {
            self.invalidate_regs(|reg| reg.is(Base::Mem) && reg.dynptr_id() == id);
        }
    }

    /// Handles a store that is about to overwrite a slot of a dynptr
    /// (`destroy_if_dynptr_stack_slot`).
    pub(crate) fn destroy_dynptr(&mut self, frame: usize, spi: usize) -> Result<()> {
        let Some(slot) = self.path.cur.slot(frame, spi).copied() else { return Ok(()) };
        if slot.special() != Some(SlotKind::Dynptr) {
            return Ok(());
        }
        let Payload::Dynptr { kind, first_slot } = slot.reg.payload else {
            return Err(self.internal("a dynptr slot without a dynptr"));
        };
        if kind == DynptrKind::Ringbuf {
            return Err(self.reject_hint(
                Errno::EINVAL,
                "cannot overwrite referenced dynptr",
                "submit or discard the record first",
            ));
        }
        self.forget_dynptr(frame, if first_slot { spi } else { spi + 1 });
        Ok(())
    }
}

/// The state of a dynptr slot.
pub(super) fn dynptr_reg(kind: DynptrKind, first_slot: bool) -> Reg {
    Reg::pointer(Base::Dynptr, Flags::NONE, Payload::Dynptr { kind, first_slot })
}
