//! References: resources that a program holds and must release (`struct bpf_reference_state`).

use crate::errno::Errno;

use super::super::env::{Result, Verifier};
use super::super::reg::{Base, Flags, Reg};
use super::super::state::{LockOwner, Ref, RefKind, SlotKind, State};

impl Verifier<'_> {
    /// Records that the current instruction acquired an object (`acquire_reference`).
    pub(crate) fn acquire_reference(&mut self) -> u32 {
        let id = self.new_id();
        let insn_idx = self.path.insn_idx;
        let held = Ref { kind: RefKind::Ptr, id, insn_idx, owner: LockOwner::None };
        self.path.cur.refs.list.push(held);
        id
    }

    /// Ends a reference and invalidates every pointer to the object (`release_reference`). False if
    /// it isn't held.
    pub(super) fn release_reference(&mut self, id: u32) -> bool {
        if !self.forget_reference(id) {
            return false;
        }
        self.invalidate_regs(|reg| reg.ref_id == id);
        true
    }

    /// Ends a reference without touching registers (`release_reference_nomark`).
    pub(crate) fn forget_reference(&mut self, id: u32) -> bool {
        let list = &mut self.path.cur.refs.list;
        let before = list.len();
        list.retain(|held| !(held.kind == RefKind::Ptr && held.id == id));
        list.len() != before
    }

    /// Handles an object that went into a list or tree: pointers stay usable, but only while the
    /// lock is held (`ref_convert_owning_non_owning`).
    pub(super) fn make_non_owning(&mut self, id: u32) -> Result<()> {
        if id == 0 {
            return Err(self.internal("an owning reference has no id"));
        }
        // The type decides the flags; all pointers of one reference have the same type.
        let Some(first) = self.path.cur.all_regs().find(|reg| reg.ref_id == id).copied() else {
            return Ok(());
        };
        let flags = self.non_owning_flags(&first)?;
        for reg in self.path.cur.all_regs_mut().filter(|reg| reg.ref_id == id) {
            reg.ref_id = 0;
            reg.kind.flags = reg.kind.flags.with(flags);
        }
        Ok(())
    }

    /// Makes a pointer a non-owning reference (`ref_set_non_owning`).
    pub(super) fn set_non_owning(&self, reg: &mut Reg) -> Result<()> {
        reg.kind.flags = reg.kind.flags.with(self.non_owning_flags(reg)?);
        Ok(())
    }

    fn non_owning_flags(&self, reg: &Reg) -> Result<Flags> {
        if self.path.cur.refs.active_locks == 0 {
            return Err(self.internal("a non-owning reference outside of a locked section"));
        }
        let counted = self
            .record_of(reg)
            .is_some_and(|record| record.unique(super::field::FieldKind::Refcount).is_some());
        Ok(if counted { Flags::NON_OWN_REF | Flags::RCU } else { Flags::NON_OWN_REF })
    }

    /// Invalidates non-owning references at the release of the lock (`invalidate_non_owning_refs`).
    pub(super) fn invalidate_non_owning(&mut self) {
        self.invalidate_regs(|reg| reg.has(Flags::NON_OWN_REF));
    }

    /// Whether RCU protects typed pointers here: XDP programs can't sleep, so all of one is a read
    /// section, except for callbacks that may sleep (`in_rcu_cs`).
    pub(super) fn in_rcu_section(&self) -> bool {
        let refs = &self.path.cur.refs;
        refs.active_rcu_locks > 0 || refs.active_locks > 0 || !self.path.cur.in_sleepable
    }

    /// Marks pointers untrusted after the last RCU section ended: their objects may be gone
    /// (`check_kfunc_call`).
    pub(super) fn distrust_rcu_pointers(&mut self) {
        for_each_reg_and_iter(&mut self.path.cur, |reg| {
            if reg.has(Flags::RCU) {
                let flags = reg.kind.flags.without(Flags::RCU | Flags::MAYBE_NULL);
                reg.kind.flags = flags.with(Flags::UNTRUSTED);
            }
        });
    }

    /// Invalidates r0 to r5, which a call destroys.
    pub(super) fn clobber_caller_saved(&mut self) {
        for regno in 0..=5 {
            self.mark_reg_not_init(regno);
        }
    }

    /// Checks that a function may be called while a spin lock is held (`do_check_insn`).
    pub(super) fn check_lock_allows(&self, allowed: bool) -> Result<()> {
        if self.path.cur.refs.active_locks > 0 && !allowed {
            return Err(self.reject_hint(
                Errno::EINVAL,
                "function calls are not allowed while holding a lock",
                "call bpf_spin_unlock() first: under a lock only list, tree and lock functions \
                 may be called",
            ));
        }
        Ok(())
    }
}

/// Visits registers, spilled registers, and iterators, whose state resembles that of a pointer.
fn for_each_reg_and_iter(state: &mut State, mut change: impl FnMut(&mut Reg)) {
    for frame in &mut state.frames {
        frame.regs.iter_mut().for_each(&mut change);
        for slot in &mut frame.stack {
            if slot.is_spill() || slot.special() == Some(SlotKind::Iter) {
                change(&mut slot.reg);
            }
        }
    }
}

/// Whether it is an object of `bpf_obj_new`, or an element of a list or tree
/// (`type_is_ptr_alloc_obj`).
pub(super) fn is_alloc_object(reg: &Reg) -> bool {
    reg.is(Base::BtfId) && reg.has(Flags::ALLOC)
}
