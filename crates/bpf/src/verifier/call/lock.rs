//! Locks, RCU sections, disabled preemption and disabled interrupts: sections that must be balanced
//! and nested.

use crate::errno::Errno;
use crate::proto::KfuncId;

use super::super::env::{Access, Result, Verifier};
use super::super::reg::{Base, Flags, IrqClass, Payload, Reg};
use super::super::state::{LockOwner, Ref, RefKind, SlotKind};
use super::field::FieldKind;

/// Kind of lock that a call takes or gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LockKind {
    Spin,
    Resilient { irq: bool },
}

impl LockKind {
    fn name(self) -> &'static str {
        match self {
            LockKind::Spin => "bpf_spin",
            LockKind::Resilient { .. } => "bpf_res_spin",
        }
    }

    fn field(self) -> FieldKind {
        match self {
            LockKind::Spin => FieldKind::SpinLock,
            LockKind::Resilient { .. } => FieldKind::ResSpinLock,
        }
    }

    fn reference(self) -> RefKind {
        match self {
            LockKind::Spin => RefKind::Lock,
            LockKind::Resilient { irq: false } => RefKind::ResLock,
            LockKind::Resilient { irq: true } => RefKind::ResLockIrq,
        }
    }
}

impl Verifier<'_> {
    /// Takes or gives back the lock that a register points to (`process_spin_lock`).
    pub(super) fn process_spin_lock(
        &mut self,
        regno: u8,
        kind: LockKind,
        take: bool,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        let owner = self.check_lock_field(&reg, regno, kind)?;
        if take {
            self.check_lock_order(&reg, kind, owner)?;
            let held =
                Ref { kind: kind.reference(), id: reg.id, insn_idx: self.path.insn_idx, owner };
            let refs = &mut self.path.cur.refs;
            refs.list.push(held);
            refs.active_locks += 1;
            refs.active_lock_id = reg.id;
            refs.active_lock_owner = owner;
            return Ok(());
        }
        self.release_lock(&reg, kind, owner)?;
        self.invalidate_non_owning();
        Ok(())
    }

    /// Checks that the register points exactly to a lock.
    fn check_lock_field(&self, reg: &Reg, regno: u8, kind: LockKind) -> Result<LockOwner> {
        let name = kind.name();
        let Some(off) = reg.const_offset() else {
            let message = format!(
                "R{regno} doesn't have constant offset. {name}_lock has to be at the constant \
                 offset"
            );
            return Err(self.reject(Errno::EINVAL, message));
        };
        let owner = match (reg.base(), reg.map(), reg.btf()) {
            (Base::MapValue, Some(map), _) => LockOwner::Map(map),
            (Base::BtfId, _, Some(ty)) => LockOwner::Btf(ty.source),
            _ => return Err(self.internal("a lock outside of map values and objects")),
        };
        let field = self.record_of(reg).and_then(|record| record.unique(kind.field()));
        let Some(field) = field else {
            let (what, who) = match self.map_of(reg) {
                Some(def) => ("map", def.name.clone()),
                None => ("local", self.struct_name(reg)),
            };
            let message = format!("{what} '{who}' has no valid {name}_lock");
            return Err(self.reject(Errno::EINVAL, message));
        };
        if i64::from(field.offset) != off {
            let message = format!(
                "off {off} doesn't point to 'struct {name}_lock' that is at {}",
                field.offset
            );
            return Err(self.reject(Errno::EINVAL, message));
        }
        Ok(owner)
    }

    fn check_lock_order(&self, reg: &Reg, kind: LockKind, owner: LockOwner) -> Result<()> {
        if self.path.cur.refs.active_locks == 0 {
            return Ok(());
        }
        let list = &self.path.cur.refs.list;
        let (clash, message) = match kind {
            LockKind::Spin => (
                list.iter().any(|held| held.kind == RefKind::Lock),
                "Locking two bpf_spin_locks are not allowed",
            ),
            LockKind::Resilient { .. } => (
                list.iter().any(|held| {
                    matches!(held.kind, RefKind::ResLock | RefKind::ResLockIrq)
                        && held.id == reg.id
                        && held.owner == owner
                }),
                "Acquiring the same lock again, AA deadlock detected",
            ),
        };
        if clash { Err(self.reject(Errno::EINVAL, message)) } else { Ok(()) }
    }

    fn release_lock(&mut self, reg: &Reg, kind: LockKind, owner: LockOwner) -> Result<()> {
        let name = kind.name();
        let refs = &self.path.cur.refs;
        if refs.active_locks == 0 {
            let message = format!("{name}_unlock without taking a lock");
            return Err(self.reject(Errno::EINVAL, message));
        }
        let found = refs.list.iter().position(|held| {
            held.kind == kind.reference() && held.id == reg.id && held.owner == owner
        });
        let Some(found) = found else {
            let message = format!("{name}_unlock of different lock");
            return Err(self.reject(Errno::EINVAL, message));
        };
        if refs.active_lock_id != reg.id || refs.active_lock_owner != owner {
            let message = format!("{name}_unlock cannot be out of order");
            return Err(self.reject(Errno::EINVAL, message));
        }
        let refs = &mut self.path.cur.refs;
        refs.list.remove(found);
        refs.active_locks -= 1;
        let previous = refs.list[..found].iter().rev().find(|held| held.kind.is_lock());
        (refs.active_lock_id, refs.active_lock_owner) =
            previous.map_or((0, LockOwner::None), |held| (held.id, held.owner));
        Ok(())
    }

    /// Whether the lock of the object that contains a list or tree is held
    /// (`check_reg_allocation_locked`).
    pub(super) fn check_object_locked(&self, reg: &Reg) -> Result<bool> {
        let owner = match (reg.base(), reg.map(), reg.btf()) {
            (Base::MapValue, Some(map), _) => LockOwner::Map(map),
            (Base::BtfId, _, Some(ty)) => LockOwner::Btf(ty.source),
            _ => return Err(self.internal("a lock outside of map values and objects")),
        };
        let refs = &self.path.cur.refs;
        if refs.active_locks == 0 {
            return Ok(false);
        }
        let same = refs
            .list
            .iter()
            .any(|held| held.kind.is_lock() && held.id == reg.id && held.owner == owner);
        if !same {
            let message = "held lock and object are not in the same allocation";
            return Err(self.reject(Errno::EINVAL, message));
        }
        Ok(true)
    }

    /// Enters or leaves a section that must be balanced.
    pub(super) fn process_section(&mut self, kfunc: KfuncId) -> Result<()> {
        let name = kfunc.name();
        let refs = &mut self.path.cur.refs;
        match kfunc {
            KfuncId::RcuReadLock if refs.active_rcu_locks > 0 => {
                let message = format!("nested rcu read lock (kernel function {name})");
                return Err(self.reject(Errno::EINVAL, message));
            }
            KfuncId::RcuReadLock => refs.active_rcu_locks += 1,
            KfuncId::PreemptDisable => refs.active_preempt_locks += 1,
            KfuncId::RcuReadUnlock if refs.active_rcu_locks == 0 => {
                let message = format!("unmatched rcu read unlock (kernel function {name})");
                return Err(self.reject(Errno::EINVAL, message));
            }
            KfuncId::RcuReadUnlock => {
                refs.active_rcu_locks -= 1;
                if refs.active_rcu_locks == 0 {
                    self.distrust_rcu_pointers();
                }
            }
            KfuncId::PreemptEnable if refs.active_preempt_locks == 0 => {
                let message =
                    format!("unmatched attempt to enable preemption (kernel function {name})");
                return Err(self.reject(Errno::EINVAL, message));
            }
            KfuncId::PreemptEnable => refs.active_preempt_locks -= 1,
            _ => return Ok(()),
        }
        let is_rcu = matches!(kfunc, KfuncId::RcuReadLock | KfuncId::RcuReadUnlock);
        if is_rcu && self.in_rbtree_callback() {
            let message = "Calling bpf_rcu_read_{lock,unlock} in unnecessary rbtree callback";
            return Err(self.reject(Errno::EACCES, message));
        }
        Ok(())
    }

    /// Saves or restores the state of interrupts in a stack slot (`process_irq_flag`).
    pub(super) fn process_irq_flag(
        &mut self,
        regno: u8,
        class: IrqClass,
        save: bool,
    ) -> Result<()> {
        let arg = regno - 1;
        let reg = *self.reg(regno);
        let place = self.special_place(&reg, "irq flag", 1)?;
        if save {
            let taken = place.is_some_and(|(frame, spi)| {
                self.path
                    .cur
                    .slot(frame, spi)
                    .is_some_and(|slot| slot.kinds.contains(&SlotKind::Irq))
            });
            if taken {
                let message = format!("expected uninitialized irq flag as arg#{arg}");
                return Err(self.reject(Errno::EINVAL, message));
            }
            self.check_mem_access(regno, 0, 8, Access::Write, None, false)?;
            return self.save_irq(&reg, class);
        }
        let slot =
            place.and_then(|(frame, spi)| Some((frame, spi, *self.path.cur.slot(frame, spi)?)));
        let Some((frame, spi, slot)) =
            slot.filter(|(_, _, slot)| slot.special() == Some(SlotKind::Irq))
        else {
            let message = format!("expected an initialized irq flag as arg#{arg}");
            return Err(self.reject(Errno::EINVAL, message));
        };
        self.mark_stack_read(frame, spi);
        self.restore_irq(frame, spi, &slot.reg, class)
    }

    fn save_irq(&mut self, reg: &Reg, class: IrqClass) -> Result<()> {
        let Some((frame, spi)) = self.special_place(reg, "irq flag", 1)? else {
            return Err(self.internal("an irq flag outside of the stack"));
        };
        let id = self.new_id();
        let insn_idx = self.path.insn_idx;
        let held = Ref { kind: RefKind::Irq, id, insn_idx, owner: LockOwner::None };
        self.path.cur.refs.list.push(held);
        self.path.cur.refs.active_irq_id = id;
        let mut state = Reg::pointer(Base::Stack, Flags::NONE, Payload::Irq(class));
        state.ref_id = id;
        self.set_special_slot(frame, spi, SlotKind::Irq, state);
        Ok(())
    }

    fn restore_irq(&mut self, frame: usize, spi: usize, flag: &Reg, class: IrqClass) -> Result<()> {
        if flag.payload != Payload::Irq(class) {
            let (by, with) = match class {
                IrqClass::Native => ("lock", "native"),
                IrqClass::Lock => ("native", "lock"),
            };
            let message =
                format!("irq flag acquired by {by} kfuncs cannot be restored with {with} kfuncs");
            return Err(self.reject(Errno::EINVAL, message));
        }
        let refs = &mut self.path.cur.refs;
        let found = refs.list.iter().position(|r| r.kind == RefKind::Irq && r.id == flag.ref_id);
        let (Some(found), true) = (found, refs.active_irq_id == flag.ref_id) else {
            let active = refs.active_irq_id;
            let at = refs.list.iter().find(|r| r.id == active).map_or(0, |r| r.insn_idx);
            let message = format!(
                "cannot restore irq state out of order, expected id={active} acquired at \
                 insn_idx={at}"
            );
            return Err(self.reject(Errno::EACCES, message));
        };
        refs.list.remove(found);
        let previous = refs.list[..found].iter().rev().find(|r| r.kind == RefKind::Irq);
        refs.active_irq_id = previous.map_or(0, |held| held.id);
        self.clear_special_slot(frame, spi);
        Ok(())
    }
}
