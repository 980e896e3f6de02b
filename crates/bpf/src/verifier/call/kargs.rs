//! Arguments of kfuncs (`check_kfunc_args`).

use crate::errno::Errno;
use crate::map::{MapType, Values};
use crate::proto::{KArg, KfuncFlags, KfuncId, KfuncProto, Ties};

use super::super::env::{Result, Verifier};
use super::super::reg::{Base, DynptrKind, Flags, IrqClass, Reg};
use super::super::show::type_name;
use super::dynptr::Wanted;
use super::field::FieldKind;
use super::lock::LockKind;
use super::meta::CallMeta;
use super::refs::is_alloc_object;

impl Verifier<'_> {
    /// Checks all arguments of a kfunc call.
    pub(super) fn check_kfunc_args(
        &mut self,
        kfunc: &'static KfuncProto,
        meta: &mut CallMeta,
    ) -> Result<()> {
        for (index, param) in kfunc.params.iter().enumerate() {
            let regno = index as u8 + 1;
            match param.kind {
                // Not checked; sizes are checked with the memory before them.
                KArg::Ignored => {
                    let address = *self.reg(regno);
                    self.note_unchecked_address(&address);
                    self.check_unchecked_address(regno, param.name)?;
                }
                KArg::Prog => {}
                KArg::Size { .. } => self.check_reg_read(regno)?,
                KArg::Scalar | KArg::Const => self.check_kfunc_scalar(param.kind, regno, meta)?,
                _ => {
                    self.check_reg_read(regno)?;
                    self.check_kfunc_pointer(kfunc, index, meta)?;
                }
            }
        }
        if kfunc.flags.has(KfuncFlags::RELEASE) && meta.release_regno.is_none() {
            let message =
                format!("release kernel function {} expects refcounted PTR_TO_BTF_ID", kfunc.name);
            return Err(self.reject(Errno::EINVAL, message));
        }
        Ok(())
    }

    fn check_kfunc_scalar(&mut self, kind: KArg, regno: u8, meta: &mut CallMeta) -> Result<()> {
        self.check_reg_read(regno)?;
        let reg = *self.reg(regno);
        if !reg.is_scalar() {
            return Err(self.reject(Errno::EINVAL, format!("R{regno} is not a scalar")));
        }
        if kind == KArg::Const {
            let Some(value) = reg.const_value() else {
                let message = format!("R{regno} must be a known constant");
                return Err(self.reject(Errno::EINVAL, message));
            };
            self.mark_chain_precision(regno)?;
            meta.constant = Some(value);
        }
        Ok(())
    }

    fn check_kfunc_pointer(
        &mut self,
        kfunc: &'static KfuncProto,
        index: usize,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let regno = index as u8 + 1;
        let kind = kfunc.params[index].kind;
        let reg = *self.reg(regno);
        let nullable = matches!(kind, KArg::ObjectOrNull(_) | KArg::DynptrOrNull)
            || kind == KArg::MemSize { optional: true };
        let wants_valid = is_trusting(kfunc) || kfunc.flags.has(KfuncFlags::RCU);
        let maybe_null = reg.is_null_const() || reg.maybe_null();
        if wants_valid && maybe_null && !nullable {
            let message = format!("Possibly NULL pointer passed to trusted arg{index}");
            return Err(self.reject_hint(Errno::EACCES, message, super::regtype::NULL_HINT));
        }
        let release = kfunc.flags.has(KfuncFlags::RELEASE) && reg.ref_id != 0;
        if reg.ref_id != 0 {
            meta.ref_id = reg.ref_id;
            if release {
                meta.release_regno = Some(regno);
            }
        }
        if nullable && reg.is_null_const() && !matches!(kind, KArg::MemSize { .. }) {
            return Ok(());
        }
        if matches!(kind, KArg::Object(_) | KArg::ObjectOrNull(_) | KArg::Alloc | KArg::PercpuAlloc)
        {
            self.check_trust(kfunc, regno)?;
        }
        self.check_arg_offset(regno, release, false)?;
        self.check_kfunc_pointee(kfunc, index, meta)
    }

    /// Checks trust: a kfunc may require objects that can't vanish (`is_kfunc_trusted_args`,
    /// `KF_RCU`).
    fn check_trust(&self, kfunc: &KfuncProto, regno: u8) -> Result<()> {
        let reg = self.reg(regno);
        let wants_rcu = kfunc.flags.has(KfuncFlags::RCU);
        if Self::is_trusted(reg) || !(is_trusting(kfunc) || wants_rcu) {
            return Ok(());
        }
        if !wants_rcu {
            let message = format!("R{regno} must be referenced or trusted");
            return Err(self.reject(Errno::EINVAL, message));
        }
        if !reg.has(Flags::RCU) {
            let message = format!("R{regno} must be a rcu pointer");
            return Err(self.reject(Errno::EINVAL, message));
        }
        Ok(())
    }

    fn check_kfunc_pointee(
        &mut self,
        kfunc: &'static KfuncProto,
        index: usize,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let regno = index as u8 + 1;
        let reg = *self.reg(regno);
        match kfunc.params[index].kind {
            KArg::Ctx => self.check_kfunc_ctx(&reg, index),
            KArg::Alloc => self.check_kfunc_alloc(&reg, index, false, meta),
            KArg::PercpuAlloc => self.check_kfunc_alloc(&reg, index, true, meta),
            KArg::Dynptr | KArg::DynptrOrNull => self.check_kfunc_dynptr(regno, meta),
            KArg::DynptrUninit => self.make_kfunc_dynptr(kfunc, regno, meta),
            KArg::Iter(iter) => self.process_iter(kfunc, iter, regno, meta),
            KArg::ListHead => self.process_graph_root(regno, FieldKind::ListHead, meta),
            KArg::RbRoot => self.process_graph_root(regno, FieldKind::RbRoot, meta),
            KArg::ListNode => self.process_list_node(regno, meta),
            KArg::RbNode => self.process_rb_node(kfunc.id, regno, meta),
            KArg::Map => self.check_kfunc_map(kfunc, &reg, regno, meta),
            KArg::Packet => self.check_kfunc_packet(&reg, index),
            KArg::Object(name) | KArg::ObjectOrNull(name) => {
                self.check_kfunc_object(kfunc, &reg, index, name)
            }
            KArg::Mem(size) => self.check_mem_reg(regno, size),
            KArg::MemSize { optional } => self.check_kfunc_buffer(kfunc, index, optional, meta),
            KArg::Callback => {
                let Some(subprog) = reg.subprog() else {
                    let message = format!("arg{index} expected pointer to func");
                    return Err(self.reject(Errno::EINVAL, message));
                };
                meta.subprog = Some(subprog);
                Ok(())
            }
            KArg::Refcounted => self.check_kfunc_refcounted(&reg, index, meta),
            KArg::ConstStr if !reg.is(Base::MapValue) || reg.kind.flags != Flags::NONE => {
                let message = format!("arg#{index} doesn't point to a const string");
                Err(self.reject(Errno::EINVAL, message))
            }
            KArg::ConstStr => self.const_str(regno).map(|_| ()),
            KArg::Workqueue => self.check_kfunc_field(index, FieldKind::Workqueue, meta),
            KArg::TaskWork => self.check_kfunc_field(index, FieldKind::TaskWork, meta),
            KArg::IrqFlag => self.check_kfunc_irq(kfunc.id, &reg, index),
            KArg::ResSpinLock => self.check_kfunc_lock(kfunc.id, &reg, index),
            KArg::Scalar | KArg::Const | KArg::Size { .. } | KArg::Ignored | KArg::Prog => Ok(()),
        }
    }

    fn check_kfunc_ctx(&self, reg: &Reg, index: usize) -> Result<()> {
        if reg.is(Base::Ctx) && !reg.maybe_null() {
            return Ok(());
        }
        let actual = type_name(reg.kind);
        let message = format!("arg#{index} expected pointer to ctx, but got {actual}");
        Err(self.reject(Errno::EINVAL, message))
    }

    fn check_kfunc_alloc(
        &self,
        reg: &Reg,
        index: usize,
        percpu: bool,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let flags = if percpu { Flags::ALLOC | Flags::PERCPU } else { Flags::ALLOC };
        let message = match (reg.is(Base::BtfId), reg.kind.flags) {
            (true, actual) if actual == flags && reg.ref_id != 0 => {
                meta.arg_btf = reg.btf();
                return Ok(());
            }
            (true, actual) if actual == flags => "allocated object must be referenced".to_owned(),
            (true, Flags::ALLOC) => format!("arg#{index} expected for bpf_obj_drop_impl()"),
            (true, actual) if actual == Flags::ALLOC | Flags::PERCPU => {
                format!("arg#{index} expected for bpf_percpu_obj_drop_impl()")
            }
            _ => format!("arg#{index} expected pointer to allocated object"),
        };
        Err(self.reject(Errno::EINVAL, message))
    }

    fn check_kfunc_dynptr(&mut self, regno: u8, meta: &mut CallMeta) -> Result<()> {
        let wanted = Wanted { uninit: false, read_only: true, kind: None, clone_ref_id: 0 };
        self.process_dynptr(regno, &wanted)?;
        meta.dynptr = Some(self.dynptr_state(regno)?);
        Ok(())
    }

    fn make_kfunc_dynptr(&mut self, kfunc: &KfuncProto, regno: u8, meta: &CallMeta) -> Result<()> {
        let (kind, clone_ref_id) = match (kfunc.id, meta.dynptr) {
            (KfuncId::DynptrFromXdp, _) => (DynptrKind::Xdp, 0),
            (_, Some(parent)) if kfunc.ties.has(Ties::FIRST) => (parent.kind, parent.ref_id),
            _ => return Err(self.internal("a clone without an original")),
        };
        let wanted = Wanted { uninit: true, read_only: false, kind: Some(kind), clone_ref_id };
        self.process_dynptr(regno, &wanted)
    }

    fn check_kfunc_packet(&self, reg: &Reg, index: usize) -> Result<()> {
        if reg.is(Base::Frame) && reg.ref_id != 0 {
            return Ok(());
        }
        let actual = type_name(reg.kind);
        let message = format!("arg#{index} expected a packet out of a queue, but got {actual}");
        Err(self.reject(Errno::EINVAL, message))
    }

    fn check_kfunc_map(
        &self,
        kfunc: &KfuncProto,
        reg: &Reg,
        regno: u8,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let (true, Some(map)) = (reg.is(Base::ConstMapPtr), reg.map()) else {
            let message = format!("pointer in R{regno} isn't map pointer");
            return Err(self.reject(Errno::EINVAL, message));
        };
        let kind = self.map_def(map).map(|def| def.kind);
        if let Some(kind) = kind.filter(|&kind| !takes(kfunc.id, kind)) {
            let message = format!("cannot pass map_type {} into func {}", kind as u32, kfunc.name);
            let hint = format!("{} does not work with {} maps", kfunc.name, kind.name());
            return Err(self.reject_hint(Errno::EINVAL, message, &hint));
        }
        let now = (map, reg.map_uid());
        if let Some(field) = meta.field_map.filter(|field| *field != now) {
            let what = if regno == 2 { "workqueue" } else { "bpf_task_work" };
            let message = format!(
                "{what} pointer in R{} map_uid={} doesn't match map pointer in R{regno} map_uid={}",
                regno - 1,
                field.1,
                now.1
            );
            return Err(self.reject(Errno::EINVAL, message));
        }
        meta.map = Some(now);
        Ok(())
    }

    /// Checks a kernel object (`process_kf_arg_ptr_to_btf_id`).
    fn check_kfunc_object(
        &self,
        kfunc: &KfuncProto,
        reg: &Reg,
        index: usize,
        wanted: &str,
    ) -> Result<()> {
        let implied = Self::implied_struct(reg.base());
        let unsafe_flags =
            reg.kind.flags.without(Flags::ALLOC | Flags::TRUSTED | Flags::NON_OWN_REF);
        let is_object = reg.is(Base::BtfId) && (unsafe_flags == Flags::NONE || reg.has(Flags::RCU));
        if !is_object && implied.is_none() {
            let actual = type_name(reg.kind);
            let message = format!("arg#{index} is {actual} expected ptr_{wanted} or socket");
            return Err(self.reject(Errno::EINVAL, message));
        }
        let actual = implied.map_or_else(|| self.struct_name(reg), str::to_owned);
        let release = kfunc.flags.has(KfuncFlags::RELEASE) && reg.ref_id != 0;
        let strict = release || is_nocast_alias(&actual, wanted);
        let fits = match implied {
            Some(name) => self.kernel_struct(name).is_ok_and(|ty| {
                let object = self.kernel_struct(wanted);
                object.is_ok_and(|object| self.is_type_at(ty, reg.off, object, strict))
            }),
            None => self.is_struct_at(reg, wanted, strict),
        };
        if fits {
            return Ok(());
        }
        let message = format!(
            "kernel function {} args#{index} expected pointer to STRUCT {wanted} but R{} has a \
             pointer to STRUCT {actual}",
            kfunc.name,
            index + 1
        );
        Err(self.reject(Errno::EINVAL, message))
    }

    /// Checks memory whose size is the next argument.
    fn check_kfunc_buffer(
        &mut self,
        kfunc: &KfuncProto,
        index: usize,
        optional: bool,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let regno = index as u8 + 1;
        let size_regno = regno + 1;
        let null = self.reg(regno).is_null_const();
        self.check_reg_read(size_regno)?;
        if !self.reg(size_regno).is_scalar() {
            let message = format!("R{size_regno} is not a scalar");
            return Err(self.reject(Errno::EINVAL, message));
        }
        if !(null && optional) {
            meta.buffer = Some(*self.reg(regno));
            self.check_kfunc_mem_size(size_regno, meta)?;
        }
        let constant =
            kfunc.params.get(index + 1).is_some_and(|p| p.kind == KArg::Size { constant: true });
        if constant {
            let Some(value) = self.reg(size_regno).const_value() else {
                let message = format!("R{size_regno} must be a known constant");
                return Err(self.reject(Errno::EINVAL, message));
            };
            // With a null buffer, no check above made the size precise.
            self.mark_chain_precision(size_regno)?;
            meta.constant = Some(value);
        }
        Ok(())
    }

    fn check_kfunc_refcounted(&self, reg: &Reg, index: usize, meta: &mut CallMeta) -> Result<()> {
        if !is_alloc_object(reg) {
            let message = format!("arg#{index} is neither owning or non-owning ref");
            return Err(self.reject(Errno::EINVAL, message));
        }
        // Linux 6.18 accepts an address inside the object, and then takes the memory there for an
        // object with a reference count.
        if reg.const_offset() != Some(0) {
            let message = format!("arg#{index} must be an object's address, not one inside it");
            return Err(self.reject(Errno::EINVAL, message));
        }
        meta.owning = !reg.has(Flags::NON_OWN_REF) && reg.ref_id != 0;
        let counted =
            self.record_of(reg).is_some_and(|record| record.unique(FieldKind::Refcount).is_some());
        if !counted {
            let message = format!("arg#{index} doesn't point to a type with bpf_refcount field");
            return Err(self.reject(Errno::EINVAL, message));
        }
        meta.arg_btf = reg.btf();
        Ok(())
    }

    fn check_kfunc_field(
        &mut self,
        index: usize,
        kind: FieldKind,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let regno = index as u8 + 1;
        let reg = self.reg(regno);
        if !reg.is(Base::MapValue) || reg.kind.flags != Flags::NONE {
            let message = format!("arg#{index} doesn't point to a map value");
            return Err(self.reject(Errno::EINVAL, message));
        }
        self.process_map_field(regno, kind, meta)
    }

    fn check_kfunc_irq(&mut self, kfunc: KfuncId, reg: &Reg, index: usize) -> Result<()> {
        if !reg.is(Base::Stack) {
            let message = format!("arg#{index} doesn't point to an irq flag on stack");
            return Err(self.reject(Errno::EINVAL, message));
        }
        let class = match kfunc {
            KfuncId::LocalIrqSave | KfuncId::LocalIrqRestore => IrqClass::Native,
            _ => IrqClass::Lock,
        };
        let save = matches!(kfunc, KfuncId::LocalIrqSave | KfuncId::ResSpinLockIrqsave);
        self.process_irq_flag(index as u8 + 1, class, save)
    }

    fn check_kfunc_lock(&mut self, kfunc: KfuncId, reg: &Reg, index: usize) -> Result<()> {
        let is_value = reg.is(Base::MapValue) && reg.kind.flags == Flags::NONE;
        let is_object = reg.is(Base::BtfId) && reg.kind.flags == Flags::ALLOC;
        if !is_value && !is_object {
            let message = format!("arg#{index} doesn't point to map value or allocated object");
            return Err(self.reject(Errno::EINVAL, message));
        }
        let irq = matches!(kfunc, KfuncId::ResSpinLockIrqsave | KfuncId::ResSpinUnlockIrqrestore);
        let take = matches!(kfunc, KfuncId::ResSpinLock | KfuncId::ResSpinLockIrqsave);
        self.process_spin_lock(index as u8 + 1, LockKind::Resilient { irq }, take)
    }
}

/// Whether arguments must be trusted: by a flag, or because the call releases them.
fn is_trusting(kfunc: &KfuncProto) -> bool {
    kfunc.flags.has(KfuncFlags::TRUSTED_ARGS) || kfunc.flags.has(KfuncFlags::RELEASE)
}

/// Whether the kfunc supports maps of that kind.
fn takes(kfunc: KfuncId, kind: MapType) -> bool {
    match kfunc {
        KfuncId::PacketDequeue => kind.values() == Values::Packets,
        KfuncId::XdpRequestTxTimestamp | KfuncId::PacketRequestTxTimestamp => {
            kind == MapType::Ringbuf
        }
        _ => true,
    }
}

/// Whether the names differ only in `___init`: then they are different types on purpose
/// (`btf_type_ids_nocast_alias`).
fn is_nocast_alias(a: &str, b: &str) -> bool {
    const SUFFIX: &str = "___init";
    a.strip_suffix(SUFFIX) == Some(b) || b.strip_suffix(SUFFIX) == Some(a)
}
