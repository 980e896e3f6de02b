//! Calls of helpers: availability, effects, results (`check_helper_call`).

use crate::errno::Errno;
use crate::map::flags::BPF_F_INNER_MAP;
use crate::map::{Host, Values};
use crate::object::POISON_CALL;
use crate::program::AttachType;
use crate::proto::{self, ArgKind, HelperProto, RetKind, Ties, id};

use super::super::env::{Result, Verifier};
use super::super::facts::MapFact;
use super::super::reg::{Base, BtfRef, BtfSource, DynptrKind, Flags, MapRef, Payload, Reg};
use super::super::rejection::Rejection;
use super::super::scalar::Scalar;
use super::super::show::type_name;
use super::field::{FieldKind, FieldType};
use super::meta::CallMeta;
use crate::btf::Kind;

impl Verifier<'_> {
    /// Checks a helper call in the current state and applies its effects.
    pub(super) fn call_helper(&mut self, number: u32) -> Result<()> {
        let helper = self.available_helper(number)?;
        let mut meta = CallMeta::default();
        for index in 0..helper.args.len() {
            self.check_helper_arg(helper, index, &mut meta)?;
        }
        // Printed text may lie behind an address (`%pI4`, `%s`).
        for regno in helper.args.len() as u8 + 1..=helper.args_passed() as u8 {
            let reg = *self.reg(regno);
            self.note_unchecked_address(&reg);
        }
        self.check_map_use(helper, &meta)?;
        self.note_facts(helper, &meta)?;
        self.mark_raw_memory(&meta)?;
        self.apply_release(helper, &meta)?;
        self.apply_effects(helper, &mut meta)?;
        self.finish_helper(helper, &meta)
    }

    /// Rejection of an unknown helper number, which is the program's own, or which the linker put
    /// in place of an access without a CO-RE answer. For the latter the message has the relocation,
    /// as in libbpf.
    fn unknown_helper(&self, number: u32) -> Box<Rejection> {
        let at = self.path.insn_idx;
        let unresolved = self.input.prog.unresolved.iter().find(|it| it.insn as usize == at);
        let Some(unresolved) = unresolved.filter(|_| number == POISON_CALL as u32) else {
            return self.reject(Errno::EINVAL, format!("invalid func unknown#{number}"));
        };
        self.reject_hint(
            Errno::EINVAL,
            format!("unresolved CO-RE relocation {}", unresolved.what),
            "the kernel's types (the running kernel's, or those of --btf) have no such thing: check \
             the name, or guard the access with bpf_core_field_exists(), bpf_core_type_exists() or \
             bpf_core_enum_value_exists()",
        )
    }

    /// The helper, if this program may call it here.
    fn available_helper(&self, number: u32) -> Result<&'static HelperProto> {
        let known =
            proto::helper(number).filter(|helper| is_of_type(self.input.prog.attach, helper));
        let Some(helper) = known else {
            return Err(match proto::helper_name(number) {
                Some(name) => self.reject_hint(
                    Errno::EINVAL,
                    format!("program of this type cannot use helper {name}#{number}"),
                    match self.input.prog.attach {
                        AttachType::Dequeue => {
                            "it works on the program's frame, and this one has none: \
                             bpf_packet_dequeue() gives packets"
                        }
                        AttachType::Syscall => {
                            "docs/helpers.md lists the helpers that a syscall program may call"
                        }
                        _ => "the helper exists, but not for XDP programs: see docs/helpers.md",
                    },
                ),
                None => self.unknown_helper(number),
            });
        };
        if helper.capability == proto::Capability::Perfmon && !self.input.options.allow_ptr_leaks {
            let message =
                format!("program of this type cannot use helper {}#{number}", helper.name);
            let hint = "it is for programs with CAP_PERFMON, which a guest's are not";
            return Err(self.reject_hint(Errno::EINVAL, message, hint));
        }
        if helper.gpl_only && !self.input.prog.is_gpl_compatible() {
            return Err(self.reject_hint(
                Errno::EINVAL,
                "cannot call GPL-restricted function from non-GPL compatible program",
                &format!(
                    "{} asks for a GPL-compatible licence: char _license[] SEC(\"license\") = \
                     \"GPL\" (or \"Dual MIT/GPL\", ...)",
                    helper.name
                ),
            ));
        }
        if helper.might_sleep && !self.path.cur.in_sleepable {
            let message = "helper call might sleep in a non-sleepable prog";
            return Err(self.reject(Errno::EINVAL, message));
        }
        if helper.might_sleep
            && let Some(region) = self.wakeful_region()
        {
            let message = format!("sleepable helper {}#{number} in {region} region", helper.name);
            return Err(self.reject(Errno::EINVAL, message));
        }
        self.check_lock_allows(matches!(number, id::SPIN_UNLOCK | id::KPTR_XCHG))?;
        Ok(helper)
    }

    /// Whether a call that sleeps is allowed here.
    pub(crate) fn can_sleep_here(&self) -> bool {
        self.path.cur.in_sleepable && self.wakeful_region().is_none()
    }

    /// The section in which nothing may sleep, if this is one.
    pub(super) fn wakeful_region(&self) -> Option<&'static str> {
        let refs = &self.path.cur.refs;
        match refs {
            _ if refs.active_rcu_locks > 0 => Some("rcu_read_lock"),
            _ if refs.active_preempt_locks > 0 => Some("non-preemptible"),
            _ if refs.active_irq_id != 0 => Some("IRQ-disabled"),
            _ => None,
        }
    }

    /// Checks kind and direction of the map (`check_map_func_compatibility`, `record_func_map`).
    fn check_map_use(&self, helper: &HelperProto, meta: &CallMeta) -> Result<()> {
        let Some(def) = meta.map.and_then(|(map, _)| self.map_def(map)) else { return Ok(()) };
        const RDONLY_PROG: u32 = 1 << 7;
        let changes =
            [id::MAP_DELETE_ELEM, id::MAP_UPDATE_ELEM, id::MAP_PUSH_ELEM, id::MAP_POP_ELEM];
        if def.flags & RDONLY_PROG != 0 && changes.contains(&helper.id) {
            return Err(self.reject(Errno::EACCES, "write into map forbidden"));
        }
        if !def.kind.takes(helper.id) {
            let message = format!(
                "cannot pass map_type {} into func {}#{}",
                def.kind as u32, helper.name, helper.id
            );
            let hint = format!("{} does not work with {} maps", helper.name, def.kind.name());
            return Err(self.reject_hint(Errno::EINVAL, message, &hint));
        }
        Ok(())
    }

    /// Records the map and key of the call, for compilers.
    fn note_facts(&mut self, helper: &HelperProto, meta: &CallMeta) -> Result<()> {
        let Some((map, _)) = meta.map else { return Ok(()) };
        let mut key = meta.const_key;
        if helper.id == id::TAIL_CALL {
            let bound = self.map_def(map).map_or(0, |def| u64::from(def.max_entries));
            key = self.reg(3).const_value().filter(|index| *index < bound);
            if key.is_some() {
                self.mark_chain_precision(3)?;
            }
        }
        let insn_idx = self.path.insn_idx;
        let before = self.learned.aux[insn_idx].facts.map.and_then(MapFact::example);
        let is_other = before.is_some_and(|before| before != (map.index, map.inner));
        if helper.id == id::TAIL_CALL && is_other && !self.input.options.bypass_spec_v1 {
            // The index is masked by the size of one array.
            return Err(self.reject(Errno::EINVAL, "tail_call abusing map_ptr"));
        }
        let before = before.and_then(|(index, inner)| self.map_def(MapRef { index, inner }));
        let is_like = self.map_def(map).zip(before).is_some_and(|(def, other)| def.is_like(other));
        let facts = &mut self.learned.aux[insn_idx].facts;
        facts.add_map(map.index, map.inner, is_like);
        facts.add_key(key);
        Ok(())
    }

    /// Ends the reference of a release argument.
    fn apply_release(&mut self, helper: &HelperProto, meta: &CallMeta) -> Result<()> {
        let Some(regno) = meta.release_regno else { return Ok(()) };
        let is_dynptr = helper.args[usize::from(regno) - 1].kind == ArgKind::Dynptr;
        let done = if is_dynptr {
            self.release_dynptr(regno)?
        } else if meta.ref_id != 0 && helper.id == id::KPTR_XCHG {
            self.give_to_map(meta.ref_id)
        } else if meta.ref_id != 0 {
            self.release_reference(meta.ref_id)
        } else {
            self.reg(regno).is_null_const()
        };
        if done {
            return Ok(());
        }
        let message =
            format!("func {}#{} reference has not been acquired before", helper.name, helper.id);
        Err(self.reject(Errno::EINVAL, message))
    }

    /// Transfers an object to a map. Per-CPU objects stay readable under RCU.
    fn give_to_map(&mut self, ref_id: u32) -> bool {
        if !self.forget_reference(ref_id) {
            return false;
        }
        let in_rcu = self.in_rcu_section();
        let useless = self.useless();
        for reg in self.path.cur.all_regs_mut().filter(|reg| reg.ref_id == ref_id) {
            if in_rcu && reg.has(Flags::ALLOC | Flags::PERCPU) {
                reg.ref_id = 0;
                reg.kind.flags = reg.kind.flags.without(Flags::ALLOC).with(Flags::RCU);
            } else {
                *reg = useless;
            }
        }
        true
    }

    /// Applies effects that only one helper has.
    fn apply_effects(&mut self, helper: &HelperProto, meta: &mut CallMeta) -> Result<()> {
        match helper.id {
            id::TAIL_CALL => self.check_resource_leak(false, "tail_call"),
            id::FOR_EACH_MAP_ELEM
            | id::TIMER_SET_CALLBACK
            | id::FIND_VMA
            | id::LOOP
            | id::USER_RINGBUF_DRAIN => self.call_back_from_helper(helper, meta),
            id::SNPRINTF => self.check_snprintf(),
            id::DYNPTR_FROM_MEM if !self.reg(1).is(Base::MapValue) => {
                let kind = type_name(self.reg(1).kind);
                let message = format!("Unsupported reg type {kind} for bpf_dynptr_from_mem data");
                Err(self.reject(Errno::EACCES, message))
            }
            id::DYNPTR_WRITE => match meta.dynptr {
                Some(dynptr) if dynptr.kind == DynptrKind::Invalid => {
                    Err(self.internal("a dynptr of no kind"))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Sets the registers after the call.
    fn finish_helper(&mut self, helper: &HelperProto, meta: &CallMeta) -> Result<()> {
        let percpu_object = helper
            .args
            .first()
            .is_some_and(|arg| arg.kind == ArgKind::PercpuBtfId && self.reg(1).has(Flags::RCU));
        let result = self.helper_result(helper, meta, percpu_object)?;
        self.clobber_caller_saved();
        *self.reg_mut(0) = result;
        // The reference of a dynptr that a call makes is kept in the dynptr's slots.
        let is_pointer = self.reg(0).is_pointer();
        let is_own = is_pointer && helper.ties.has(Ties::OWN);
        if is_own || self.acquires_socket(helper, meta) {
            let id = self.acquire_reference();
            let reg = self.reg_mut(0);
            reg.id = id;
            reg.ref_id = id;
        } else if helper.ties.has(Ties::FIRST) {
            self.reg_mut(0).ref_id = meta.ref_id;
        }
        // Code after a tail call runs only if the call failed, and then the packet is unchanged.
        self.learned.changes_packet |= may_change_packet(helper.id);
        if helper.changes_packet && helper.id != id::TAIL_CALL {
            self.clear_all_packet_pointers();
        }
        Ok(())
    }

    /// The value of r0 after the call.
    fn helper_result(
        &mut self,
        helper: &HelperProto,
        meta: &CallMeta,
        percpu_object: bool,
    ) -> Result<Reg> {
        let null = helper.ret.flags.has(proto::Flags::NULL);
        let flags = if null { Flags::MAYBE_NULL } else { Flags::NONE };
        let mut reg = match helper.ret.kind {
            RetKind::Integer => Reg::scalar(integer_range(helper.id, meta)),
            RetKind::Void => Reg::NOT_INIT,
            RetKind::MapValue => return self.map_value_result(helper, meta, flags),
            RetKind::Socket => Reg::pointer(Base::Socket, flags, Payload::None),
            RetKind::SockCommon => Reg::pointer(Base::SockCommon, flags, Payload::None),
            RetKind::Mem => self.memory_result(helper, meta, flags),
            RetKind::MemOrBtfId => {
                let is_object = percpu_object && helper.ties.has(Ties::RCU);
                self.percpu_result(meta, flags, is_object)?
            }
            RetKind::BtfId(name) => self.object_result(helper, name, meta, flags)?,
        };
        if reg.maybe_null() {
            reg.id = self.new_id();
        }
        Ok(reg)
    }

    fn map_value_result(
        &mut self,
        helper: &HelperProto,
        meta: &CallMeta,
        flags: Flags,
    ) -> Result<Reg> {
        let Some((map, uid)) = meta.map else {
            return Err(self.internal("a map value without a map"));
        };
        let bound = self.entries_of(map);
        let found =
            helper.id == id::MAP_LOOKUP_ELEM && meta.const_key.is_some_and(|key| key < bound);
        let flags = if found { flags.without(Flags::MAYBE_NULL) } else { flags };
        let mut reg = Reg::pointer(Base::MapValue, flags, Payload::Map { map, uid });
        let locked = self.record_of(&reg).is_some_and(|record| record.has_lock());
        if reg.maybe_null() || locked {
            reg.id = self.new_id();
        }
        Ok(reg)
    }

    /// Number of elements that an array certainly has. For an inner map only the template is known,
    /// and the map may be smaller: any with `BPF_F_INNER_MAP`, and all that are not plain arrays.
    fn entries_of(&self, map: MapRef) -> u64 {
        let Some(def) = self.map_def(map) else { return 0 };
        let may_differ = map.inner && !def.kind.is_array();
        if may_differ || def.flags & BPF_F_INNER_MAP != 0 { 0 } else { def.max_entries.into() }
    }

    fn memory_result(&self, helper: &HelperProto, meta: &CallMeta, flags: Flags) -> Reg {
        let ringbuf = helper.ret.flags.has(proto::Flags::RINGBUF);
        let flags = if ringbuf { flags | Flags::RINGBUF } else { flags };
        let dynptr = meta.dynptr.filter(|_| helper.ties.has(Ties::DYNPTR));
        let dynptr_id = dynptr.map_or(0, |dynptr| dynptr.id);
        let payload = Payload::Mem { size: meta.ret_size, dynptr_id };
        let mut reg = Reg::pointer(Base::Mem, flags, payload);
        reg.ref_id = dynptr.map_or(0, |dynptr| dynptr.ref_id);
        reg.frame = dynptr.map_or(0, |dynptr| dynptr.frame);
        reg
    }

    /// The result for a per-cpu variable: a structure, or plain memory.
    fn percpu_result(&self, meta: &CallMeta, flags: Flags, object: bool) -> Result<Reg> {
        let (Some(ty), Some(btf)) = (meta.ret_btf, meta.ret_btf.and_then(|ty| self.btf(ty.source)))
        else {
            return Err(self.reject(Errno::EACCES, "Helper has invalid btf_id in R1"));
        };
        let id = btf.resolve(ty.id);
        let ty = BtfRef { source: ty.source, id };
        if matches!(btf.kind(id), Kind::Composite { .. }) {
            let flags = if object { flags | Flags::ALLOC | Flags::RCU } else { flags };
            return Ok(Reg::pointer(Base::BtfId, flags, Payload::Btf(ty)));
        }
        let Some(size) = btf.size_of(id).and_then(|size| u32::try_from(size).ok()) else {
            let message = format!("unable to resolve the size of type '{}'", btf.name(id));
            return Err(self.reject(Errno::EINVAL, message));
        };
        let payload = Payload::Mem { size, dynptr_id: 0 };
        Ok(Reg::pointer(Base::Mem, flags | Flags::RDONLY, payload))
    }

    fn object_result(
        &self,
        helper: &HelperProto,
        name: &str,
        meta: &CallMeta,
        flags: Flags,
    ) -> Result<Reg> {
        let trusted = helper.ret.flags.has(proto::Flags::TRUSTED);
        let mut flags = if trusted { flags | Flags::TRUSTED } else { flags };
        let ty = match meta.kptr.filter(|_| helper.id == id::KPTR_XCHG) {
            Some(field) => {
                let FieldType::Kptr(ty) = field.target else {
                    return Err(self.internal("a kptr field without a type"));
                };
                if ty.source == BtfSource::Object {
                    flags = flags | Flags::ALLOC;
                    if field.kind == FieldKind::KptrPercpu {
                        flags = flags | Flags::PERCPU;
                    }
                }
                ty
            }
            None => self.kernel_struct(name)?,
        };
        Ok(Reg::pointer(Base::BtfId, flags, Payload::Btf(ty)))
    }

    /// Whether the call takes a reference to a socket: a lookup in a map of sockets
    /// (`is_acquire_function`).
    fn acquires_socket(&self, helper: &HelperProto, meta: &CallMeta) -> bool {
        let def = meta.map.and_then(|(map, _)| self.map_def(map));
        helper.id == id::MAP_LOOKUP_ELEM
            && def.is_some_and(|def| def.kind.values() == Values::Host(Host::Socket))
    }
}

/// Whether a helper writes to the packet, moves its edges, or has another program do so.
fn may_change_packet(helper: u32) -> bool {
    matches!(
        helper,
        id::XDP_STORE_BYTES
            | id::XDP_ADJUST_HEAD
            | id::XDP_ADJUST_TAIL
            | id::DYNPTR_WRITE
            | id::TAIL_CALL
    )
}

/// Range of an integer result (`do_refine_retval_range`).
fn integer_range(helper: u32, meta: &CallMeta) -> Scalar {
    const ERRNO_MAX: i64 = 4095;
    let reads_up_to_size = [id::GET_TASK_STACK, id::PROBE_READ_USER_STR, id::PROBE_READ_KERNEL_STR];
    if reads_up_to_size.contains(&helper) {
        let most = i64::try_from(meta.size_max).unwrap_or(i64::MAX);
        return Scalar::signed_range(-ERRNO_MAX, most);
    }
    if helper == id::GET_SMP_PROCESSOR_ID {
        return Scalar::unsigned_range(0, WORKER_COUNT_MAX - 1);
    }
    Scalar::UNKNOWN
}

/// Bound of `bpf_get_smp_processor_id`: the kernel uses its number of CPUs, Towpath the largest
/// number of workers.
const WORKER_COUNT_MAX: u64 = 1024;

/// Whether a program of that type may call it: programs without a frame can't call helpers that
/// work on frames.
fn is_of_type(attach: AttachType, helper: &HelperProto) -> bool {
    let redirects = matches!(helper.id, id::REDIRECT | id::REDIRECT_MAP);
    let takes_ctx = helper.args.iter().any(|arg| arg.kind == ArgKind::Ctx);
    match attach {
        AttachType::Xdp | AttachType::Devmap | AttachType::Cpumap => true,
        AttachType::Dequeue => !(redirects || takes_ctx),
        AttachType::Syscall => helper.is_for_syscalls(),
    }
}
