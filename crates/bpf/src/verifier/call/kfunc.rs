//! Calls of kfuncs: availability, effects, results (`check_kfunc_call`).

use crate::btf::Kind;
use crate::errno::Errno;
use crate::insn::Insn;
use crate::program::AttachType;
use crate::proto::{self, KArg, KRet, KfuncFlags, KfuncId, KfuncProto, Ties};
use crate::suggest;

use super::super::env::{Result, Verifier};
use super::super::reg::{Base, BtfRef, BtfSource, DynptrKind, Flags, Payload, Reg};
use super::super::scalar::Scalar;
use super::graph::element;
use super::meta::CallMeta;
use super::traits::kfunc_of;

impl Verifier<'_> {
    /// Checks a kfunc call in the current state and applies its effects.
    pub(super) fn call_kfunc(&mut self, insn: &Insn) -> Result<()> {
        let kfunc = self.available_kfunc(insn)?;
        self.fork_failed_lock(kfunc.id)?;
        let mut meta = CallMeta::default();
        self.check_kfunc_args(kfunc, &mut meta)?;
        if calls_back(kfunc.id) {
            self.call_back_from_kfunc(kfunc.id, &meta)?;
        }
        self.process_section(kfunc.id)?;
        if kfunc.flags.has(KfuncFlags::SLEEPABLE)
            && let Some(region) = self.wakeful_region()
        {
            let message = format!("kernel func {} is sleepable within {region} region", kfunc.name);
            return Err(self.reject(Errno::EACCES, message));
        }
        if kfunc.flags.has(KfuncFlags::RCU_PROTECTED) && !self.in_rcu_section() {
            let message =
                format!("kernel func {} requires RCU critical section protection", kfunc.name);
            return Err(self.reject(Errno::EACCES, message));
        }
        self.release_kfunc_arg(kfunc, &meta)?;
        if adds_to_graph(kfunc.id) {
            let held = self.reg(2).ref_id;
            self.make_non_owning(held)?;
            self.forget_reference(held);
        }
        self.finish_kfunc(kfunc, &meta)
    }

    /// The kfunc, if this program may call it here.
    fn available_kfunc(&self, insn: &Insn) -> Result<&'static KfuncProto> {
        let called = usize::try_from(insn.imm).ok().and_then(|i| self.input.prog.kfuncs.get(i));
        let name = called.map_or("unknown", |called| called.name.as_str());
        let known = kfunc_of(self, insn).filter(|kfunc| is_of_type(self.input.prog.attach, kfunc));
        let Some(kfunc) = known else {
            let message = format!("calling kernel function {name} is not allowed");
            let near = suggest::near(name, proto::kfuncs().map(|kfunc| kfunc.name));
            let near = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
            let who = if self.is_syscall() { "a syscall" } else { "an XDP" };
            let hint = format!(
                "{near}docs/helpers.md lists the kfuncs that {who} program may call; guard a weak \
                 one with bpf_ksym_exists()"
            );
            return Err(self.reject_hint(Errno::EACCES, message, &hint));
        };
        if kfunc.flags.has(KfuncFlags::SLEEPABLE) && !self.path.cur.in_sleepable {
            let message = format!("program must be sleepable to call sleepable kfunc {name}");
            return Err(self.reject(Errno::EACCES, message));
        }
        // Programs of map entries are bound to no device; frames that reach them keep their hints.
        let is_entry = matches!(self.input.prog.attach, AttachType::Devmap | AttachType::Cpumap);
        let is_bound = self.input.options.device_bound || is_entry;
        if kfunc.flags.has(KfuncFlags::DEV_BOUND) && !is_bound {
            return Err(self.reject_hint(
                Errno::EINVAL,
                "metadata kfuncs require device-bound program",
                "the program has to be bound to a port when it is loaded: towpath load --dev-bound, \
                 dev_bound = true in [[attach]], BPF_F_XDP_DEV_BOUND_ONLY by libbpf",
            ));
        }
        if kfunc.id == KfuncId::IterCssTaskNew && !self.path.cur.in_sleepable {
            let message = "css_task_iter is only allowed in bpf_lsm, bpf_iter and sleepable progs";
            return Err(self.reject(Errno::EINVAL, message));
        }
        self.check_lock_allows(allowed_under_lock(kfunc.id))?;
        Ok(kfunc)
    }

    /// Forks the path where a resilient lock fails: that path continues without the lock and with
    /// an error in r0.
    fn fork_failed_lock(&mut self, kfunc: KfuncId) -> Result<()> {
        if !takes_resilient_lock(kfunc) {
            return Ok(());
        }
        let mut failed = self.path.cur.clone();
        let regs = &mut failed.frame_mut().regs;
        for reg in &mut regs[..6] {
            *reg = Reg::NOT_INIT;
        }
        regs[0] = Reg::scalar(Scalar::signed_range(-4095, -1));
        self.push_pending_state(failed, self.path.insn_idx + 1, self.path.insn_idx)
    }

    /// Ends the reference of the argument that the kfunc takes over.
    fn release_kfunc_arg(&mut self, kfunc: &KfuncProto, meta: &CallMeta) -> Result<()> {
        let Some(regno) = meta.release_regno else { return Ok(()) };
        let held = self.reg(regno).ref_id;
        if self.release_reference(held) {
            return Ok(());
        }
        let message = format!("kfunc {} reference has not been acquired before", kfunc.name);
        Err(self.reject(Errno::EINVAL, message))
    }

    /// Sets the registers after the call.
    fn finish_kfunc(&mut self, kfunc: &KfuncProto, meta: &CallMeta) -> Result<()> {
        let mut result = self.kfunc_result(kfunc, meta)?;
        // An owned object can always be shared.
        let never_null = kfunc.id == KfuncId::RefcountAcquireImpl && meta.owning;
        let is_pointer = result.is_pointer();
        if is_pointer && kfunc.flags.has(KfuncFlags::RET_NULL) && !never_null {
            result.kind.flags = result.kind.flags.with(Flags::MAYBE_NULL);
            result.id = self.new_id();
        }
        if is_pointer && kfunc.ties.has(Ties::OWN) {
            let id = self.acquire_reference();
            result.ref_id = id;
            if result.maybe_null() {
                result.id = id;
            }
        } else if is_pointer && kfunc.ties.has(Ties::LOCK) {
            self.set_non_owning(&mut result)?;
        }
        let locked = self.record_of(&result).is_some_and(|record| record.has_lock());
        if locked && result.id == 0 {
            result.id = self.new_id();
        }
        self.clobber_caller_saved();
        *self.reg_mut(0) = result;
        self.learned.changes_packet |= may_change_packet(kfunc);
        if kfunc.flags.has(KfuncFlags::CHANGES_PACKET) {
            self.clear_all_packet_pointers();
        }
        match meta.iter.filter(|_| kfunc.flags.has(KfuncFlags::ITER_NEXT)) {
            Some((frame, spi)) => self.process_iter_next(frame, spi),
            None => Ok(()),
        }
    }

    /// The value of r0 after the call, apart from null and references.
    fn kfunc_result(&mut self, kfunc: &KfuncProto, meta: &CallMeta) -> Result<Reg> {
        Ok(match kfunc.ret {
            KRet::Void => Reg::NOT_INIT,
            KRet::Scalar if takes_resilient_lock(kfunc.id) => Reg::constant(0),
            KRet::Scalar => Reg::UNKNOWN,
            KRet::Object(name) => {
                let ty = self.kernel_struct(name)?;
                let flags = self.object_flags(kfunc, meta);
                Reg::pointer(Base::BtfId, flags, Payload::Btf(ty))
            }
            KRet::Mem(size) => {
                let payload = Payload::Mem { size, dynptr_id: 0 };
                let mut reg = Reg::pointer(Base::Mem, Flags::RDONLY, payload);
                reg.ref_id = if kfunc.ties.has(Ties::FIRST) { meta.ref_id } else { 0 };
                reg
            }
            KRet::NewObject => self.new_object(meta, false)?,
            KRet::NewPercpuObject => self.new_object(meta, true)?,
            KRet::SameObject => {
                let Some(ty) = meta.arg_btf else {
                    return Err(self.internal("a reference to an object of no type"));
                };
                Reg::pointer(Base::BtfId, Flags::ALLOC, Payload::Btf(ty))
            }
            KRet::ListNode | KRet::RbNode => match meta.root.as_ref().and_then(element) {
                Some(reg) => reg,
                None => return Err(self.internal("an element of nothing")),
            },
            KRet::KernCtx => {
                let ty = self.kernel_struct("xdp_buff")?;
                Reg::pointer(Base::BtfId, Flags::TRUSTED, Payload::Btf(ty))
            }
            KRet::Packet => Reg::pointer(Base::Frame, Flags::NONE, Payload::None),
            KRet::CastTo => self.cast_result(meta)?,
            KRet::Slice { writable } => self.slice_result(kfunc, meta, writable)?,
        })
    }

    /// Trust in the object that a kfunc returns; a reference adds trust by itself.
    fn object_flags(&self, kfunc: &KfuncProto, meta: &CallMeta) -> Flags {
        if kfunc.id == KfuncId::GetKmemCache {
            return Flags::UNTRUSTED;
        }
        if kfunc.flags.has(KfuncFlags::RCU_PROTECTED) {
            return Flags::RCU;
        }
        let iter = meta.iter.and_then(|(frame, spi)| self.path.cur.slot(frame, spi));
        match iter.filter(|_| kfunc.flags.has(KfuncFlags::ITER_NEXT)) {
            Some(slot) if slot.reg.has(Flags::RCU) => Flags::RCU,
            Some(_) => Flags::TRUSTED,
            None => Flags::NONE,
        }
    }

    /// The result of `bpf_obj_new`: an object of the type in the argument.
    fn new_object(&self, meta: &CallMeta, percpu: bool) -> Result<Reg> {
        let wrong = |message: String| self.reject(Errno::EINVAL, message);
        let Some(id) = meta.constant.and_then(|id| u32::try_from(id).ok()) else {
            return Err(wrong("local type ID argument must be in range [0, U32_MAX]".into()));
        };
        let Some(btf) = self.btf(BtfSource::Object) else {
            return Err(wrong("bpf_obj_new/bpf_percpu_obj_new requires prog BTF".into()));
        };
        let Kind::Composite { union: false, size, .. } = *btf.kind(id) else {
            return Err(wrong(
                "bpf_obj_new/bpf_percpu_obj_new type ID argument must be of a struct".into(),
            ));
        };
        let ty = BtfRef { source: BtfSource::Object, id };
        let mut flags = Flags::ALLOC;
        if percpu {
            if size > PERCPU_OBJECT_BYTES_MAX {
                return Err(wrong(format!(
                    "bpf_percpu_obj_new type size ({size}) is greater than \
                     {PERCPU_OBJECT_BYTES_MAX}"
                )));
            }
            if !is_scalar_struct(btf, id, 0) {
                return Err(wrong(
                    "bpf_percpu_obj_new type ID argument must be of a struct of scalars".into(),
                ));
            }
            if self.input.records.of_type(ty).is_some() {
                return Err(wrong(
                    "bpf_percpu_obj_new type ID argument must not contain special fields".into(),
                ));
            }
            flags = flags | Flags::PERCPU;
        }
        Ok(Reg::pointer(Base::BtfId, flags, Payload::Btf(ty)))
    }

    /// The result of `bpf_rdonly_cast`: any address as a structure of the kernel, or as memory.
    fn cast_result(&self, meta: &CallMeta) -> Result<Reg> {
        let id = meta.constant.unwrap_or(u64::MAX);
        let known =
            u32::try_from(id).ok().filter(|id| (*id as usize) < self.input.prog.kernel_btf.len());
        let Some(known) = known else {
            let message = format!("Unknown type ID {id} passed to kfunc bpf_rdonly_cast");
            return Err(self.reject(Errno::EINVAL, message));
        };
        let ty = BtfRef { source: BtfSource::Kernel, id: known };
        match self.input.prog.kernel_btf.kind(known) {
            Kind::Composite { .. } => {
                Ok(Reg::pointer(Base::BtfId, Flags::UNTRUSTED, Payload::Btf(ty)))
            }
            Kind::Void => Ok(Reg::pointer(
                Base::Mem,
                Flags::RDONLY | Flags::UNTRUSTED,
                Payload::Mem { size: 0, dynptr_id: 0 },
            )),
            _ => {
                let message = "kfunc bpf_rdonly_cast type ID argument must be of a struct or void";
                Err(self.reject(Errno::EINVAL, message))
            }
        }
    }

    /// Ties a slice to its buffer: the result may be the buffer, and becomes invalid with it. Linux
    /// 6.18 has no such rule.
    fn tie_to_buffer(&self, slice: &mut Reg, buffer: &Reg) -> Result<()> {
        if slice.ref_id != 0 && buffer.ref_id != 0 && slice.ref_id != buffer.ref_id {
            let message = "a slice can't hang on two references, its dynptr's and its buffer's";
            return Err(self.reject(Errno::EINVAL, message));
        }
        slice.ref_id |= buffer.ref_id;
        let call = if buffer.is(Base::Stack) { buffer.frame + 1 } else { buffer.frame };
        slice.frame = slice.frame.max(call);
        if buffer.is_packet_any() {
            slice.kind.flags = slice.kind.flags | Flags::PACKET_SLICE;
        }
        Ok(())
    }

    /// The result of `bpf_dynptr_slice`: memory of the constant size in the argument.
    fn slice_result(&self, kfunc: &KfuncProto, meta: &CallMeta, writable: bool) -> Result<Reg> {
        let (Some(dynptr), Some(size)) = (meta.dynptr, meta.constant) else {
            return Err(self.internal("a slice of no dynptr or size"));
        };
        let Ok(size) = u32::try_from(size) else {
            return Err(self.reject(Errno::EINVAL, format!("a slice of {size} bytes")));
        };
        let mut flags = if writable { Flags::NONE } else { Flags::RDONLY };
        if dynptr.kind == DynptrKind::Xdp {
            flags = flags | Flags::PACKET_SLICE;
        }
        let payload = Payload::Mem { size, dynptr_id: dynptr.id };
        let mut reg = Reg::pointer(Base::Mem, flags, payload);
        (reg.ref_id, reg.frame) = (dynptr.ref_id, dynptr.frame);
        if let Some(buffer) = meta.buffer.filter(|_| kfunc.ties.has(Ties::BUFFER)) {
            self.tie_to_buffer(&mut reg, &buffer)?;
        }
        Ok(reg)
    }
}

/// Whether a program of that type may call it at all: programs without a frame can't call kfuncs
/// that need one, programs with a frame can't take packets out of queues, and only programs that
/// users call make crypto contexts.
fn is_of_type(attach: AttachType, kfunc: &KfuncProto) -> bool {
    match attach {
        AttachType::Xdp | AttachType::Devmap | AttachType::Cpumap => kfunc.is_for_xdp(),
        AttachType::Dequeue => {
            let takes_ctx = kfunc.params.iter().any(|param| param.kind == KArg::Ctx);
            kfunc.takes_from_queues() || !(takes_ctx || kfunc.is_for_setup())
        }
        AttachType::Syscall => kfunc.is_for_syscalls(),
    }
}

/// Whether a structure contains only numbers, at any depth (`__btf_type_is_scalar_struct`).
fn is_scalar_struct(btf: &crate::btf::Btf, id: crate::btf::TypeId, depth: u32) -> bool {
    const NESTING_MAX: u32 = 3;
    if depth > NESTING_MAX {
        return false;
    }
    btf.members(id).iter().all(|member| {
        let mut ty = btf.resolve(member.ty);
        while let Kind::Array { elem, .. } = *btf.kind(ty) {
            ty = btf.resolve(elem);
        }
        match btf.kind(ty) {
            Kind::Int { .. } | Kind::Enum { .. } => true,
            Kind::Composite { .. } => is_scalar_struct(btf, ty, depth + 1),
            _ => false,
        }
    })
}

/// Kfuncs that write to a dynptr, which may be one over the packet. Writes to a slice of a dynptr
/// are seen at the store.
fn may_change_packet(kfunc: &KfuncProto) -> bool {
    use KfuncId::*;
    let takes_dynptr = kfunc.params.iter().any(|param| param.kind == KArg::Dynptr);
    let only_looks = matches!(
        kfunc.id,
        DynptrSlice
            | DynptrSliceRdwr
            | DynptrAdjust
            | DynptrIsNull
            | DynptrIsRdonly
            | DynptrSize
            | DynptrClone
    );
    takes_dynptr && !only_looks
}

fn calls_back(kfunc: KfuncId) -> bool {
    use KfuncId::*;
    matches!(
        kfunc,
        RbtreeAddImpl | WqSetCallbackImpl | TaskWorkScheduleSignalImpl | TaskWorkScheduleResumeImpl
    )
}

fn adds_to_graph(kfunc: KfuncId) -> bool {
    use KfuncId::*;
    matches!(kfunc, ListPushFrontImpl | ListPushBackImpl | RbtreeAddImpl)
}

fn takes_resilient_lock(kfunc: KfuncId) -> bool {
    matches!(kfunc, KfuncId::ResSpinLock | KfuncId::ResSpinLockIrqsave)
}

/// Kfuncs that may be called with a lock held (`kfunc_spin_allowed`).
fn allowed_under_lock(kfunc: KfuncId) -> bool {
    use KfuncId::*;
    matches!(
        kfunc,
        ListPushFrontImpl
            | ListPushBackImpl
            | ListPopFront
            | ListPopBack
            | ListFront
            | ListBack
            | RbtreeAddImpl
            | RbtreeRemove
            | RbtreeFirst
            | RbtreeRoot
            | RbtreeLeft
            | RbtreeRight
            | RefcountAcquireImpl
            | IterNumNew
            | IterNumNext
            | IterNumDestroy
            | ResSpinLock
            | ResSpinUnlock
            | ResSpinLockIrqsave
            | ResSpinUnlockIrqrestore
            | StreamVprintkImpl
    )
}

/// `BPF_GLOBAL_PERCPU_MA_MAX_SIZE` of the kernel.
const PERCPU_OBJECT_BYTES_MAX: u32 = 512;
