//! Open-coded iterators: slots on the stack between `new` and `destroy`.

use crate::errno::Errno;
use crate::proto::kfunc::Iter;
use crate::proto::{KfuncFlags, KfuncProto};

use super::super::env::{Access, Result, Verifier};
use super::super::reg::{Base, BtfRef, BtfSource, Flags, IterState, Payload, Reg};
use super::super::state::SlotKind;
use super::meta::CallMeta;

impl Verifier<'_> {
    /// Checks an iterator argument (`process_iter_arg`).
    pub(super) fn process_iter(
        &mut self,
        kfunc: &KfuncProto,
        iter: Iter,
        regno: u8,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let arg = regno - 1;
        let reg = *self.reg(regno);
        if !reg.is(Base::Stack) {
            let message = format!("arg#{arg} expected pointer to an iterator on stack");
            return Err(self.reject(Errno::EINVAL, message));
        }
        if kfunc.flags.has(KfuncFlags::ITER_NEW) {
            return self.make_iter(kfunc, iter, regno);
        }
        let (frame, spi) = self.check_iter(iter, &reg, arg)?;
        for slot in 0..iter.slots() {
            self.mark_stack_read(frame, spi - slot);
        }
        meta.iter = Some((frame, spi));
        meta.ref_id = self.path.cur.slot(frame, spi).map_or(0, |slot| slot.reg.ref_id);
        if kfunc.flags.has(KfuncFlags::ITER_DESTROY) {
            self.release_reference(meta.ref_id);
            for slot in 0..iter.slots() {
                self.clear_special_slot(frame, spi - slot);
            }
        }
        Ok(())
    }

    /// Makes an iterator of stack slots (`mark_stack_slots_iter`).
    fn make_iter(&mut self, kfunc: &KfuncProto, iter: Iter, regno: u8) -> Result<()> {
        let reg = *self.reg(regno);
        let slots = iter.slots();
        let place = self.special_place(&reg, "iter", slots);
        let free = match place {
            Ok(Some((frame, spi))) => (0..slots).all(|slot| {
                let slot = self.path.cur.slot(frame, spi - slot);
                slot.is_none_or(|slot| !slot.kinds.contains(&SlotKind::Iter))
            }),
            Ok(None) => true,
            Err(_) => false,
        };
        if !free {
            let message =
                format!("expected uninitialized {} as arg #{}", type_name(iter), regno - 1);
            return Err(self.reject(Errno::EINVAL, message));
        }
        for slot in 0..slots {
            self.check_mem_access(regno, slot as i32 * 8, 8, Access::Write, None, false)?;
        }
        let Some((frame, spi)) = self.special_place(&reg, "iter", slots)? else {
            return Err(self.internal("an iterator outside of the stack"));
        };
        let flags = match kfunc.flags.has(KfuncFlags::RCU_PROTECTED) {
            true if self.in_rcu_section() => Flags::RCU,
            true => Flags::UNTRUSTED,
            false => Flags::NONE,
        };
        let id = self.acquire_reference();
        let ty = self.iter_type(iter);
        let payload = Payload::Iter { ty, state: IterState::Active, depth: 0 };
        for slot in 0..slots {
            let mut state = Reg::pointer(Base::Stack, flags, payload);
            state.ref_id = if slot == 0 { id } else { 0 };
            self.set_special_slot(frame, spi - slot, SlotKind::Iter, state);
        }
        Ok(())
    }

    /// Checks that the iterator is initialised and of this type (`is_iter_reg_valid_init`).
    fn check_iter(&self, iter: Iter, reg: &Reg, arg: u8) -> Result<(usize, usize)> {
        let uninit = || {
            self.reject(
                Errno::EINVAL,
                format!("expected an initialized {} as arg #{arg}", type_name(iter)),
            )
        };
        let Some((frame, spi)) = self.special_place(reg, "iter", iter.slots())? else {
            return Err(uninit());
        };
        let wanted = self.iter_type(iter);
        for index in 0..iter.slots() {
            let Some(slot) = self.path.cur.slot(frame, spi - index) else { return Err(uninit()) };
            if slot.reg.has(Flags::UNTRUSTED) {
                let message = format!("expected an RCU CS when using {}", iter.name());
                return Err(self.reject(Errno::EPROTO, message));
            }
            let typed = matches!(slot.reg.payload, Payload::Iter { ty, .. } if ty == wanted);
            let whole = slot.kinds.iter().all(|kind| *kind == SlotKind::Iter);
            if !typed || !whole || (slot.reg.ref_id != 0) != (index == 0) {
                return Err(uninit());
            }
        }
        Ok((frame, spi))
    }

    /// The iterator's structure; a unique number if the kernel's types lack it.
    fn iter_type(&self, iter: Iter) -> BtfRef {
        let known = self.input.prog.kernel_btf.find_composite(iter.name());
        BtfRef { source: BtfSource::Kernel, id: known.unwrap_or(u32::MAX - iter as u32) }
    }
}

/// `iter_num` of `bpf_iter_num`.
fn type_name(iter: Iter) -> &'static str {
    iter.name().trim_start_matches("bpf_")
}
