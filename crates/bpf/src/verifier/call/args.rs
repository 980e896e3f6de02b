//! Arguments of helpers (`check_func_arg`).

use crate::errno::Errno;
use crate::map::{Host, Values};
use crate::proto::{self, Arg, ArgKind, HelperProto, id};

use super::super::env::{Access, Result, Verifier};
use super::super::reg::{Base, Reg};
use super::super::show::type_name;
use super::field::FieldKind;
use super::lock::LockKind;
use super::meta::CallMeta;

impl Verifier<'_> {
    /// Checks argument `index` of a helper call.
    pub(super) fn check_helper_arg(
        &mut self,
        helper: &HelperProto,
        index: usize,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let regno = index as u8 + 1;
        let mut arg = helper.args[index];
        self.check_reg_read(regno)?;
        let reg = *self.reg(regno);
        if arg.kind == ArgKind::Anything {
            self.forbid_leak(regno, "into helper function")?;
            self.note_unchecked_address(&reg);
            return Ok(());
        }
        if reg.is_packet_any() && !helper.pkt_access {
            return Err(self.reject_hint(
                Errno::EACCES,
                "helper access to the packet is not allowed",
                "this helper does not take packet memory: copy the bytes to the stack first",
            ));
        }
        if arg.kind == ArgKind::MapValue {
            arg = self.map_value_arg(helper, arg, meta)?;
        }
        let null = reg.is_null_const() && arg.flags.has(proto::Flags::NULL);
        let release = arg.flags.has(proto::Flags::RELEASE);
        if !null {
            self.check_reg_type(helper, &arg, regno, meta)?;
            self.check_arg_offset(regno, release, arg.kind == ArgKind::Dynptr)?;
        }
        if release {
            self.note_release(&arg, regno, meta)?;
        }
        if reg.ref_id != 0 && arg.kind != ArgKind::KptrXchgDest {
            if meta.ref_id != 0 {
                let message = format!(
                    "more than one arg with ref_obj_id R{regno} {} {}",
                    reg.ref_id, meta.ref_id
                );
                return Err(self.reject(Errno::EACCES, message));
            }
            meta.ref_id = reg.ref_id;
        }
        self.check_arg_value(helper, &arg, index, null, meta)
    }

    /// The argument in place of a map value, which depends on the kind of map
    /// (`resolve_map_arg_type`).
    fn map_value_arg(&self, helper: &HelperProto, arg: Arg, meta: &CallMeta) -> Result<Arg> {
        let Some(def) = meta.map.and_then(|(map, _)| self.map_def(map)) else {
            return Err(self.reject(Errno::EACCES, "invalid map_ptr to access map->value"));
        };
        Ok(match def.kind.values() {
            Values::Host(Host::Socket) => Arg::new(ArgKind::BtfIdSockCommon),
            Values::Members if helper.id == id::MAP_PEEK_ELEM => Arg::new(ArgKind::MapValue),
            _ => arg,
        })
    }

    /// Checks that a release argument holds a reference.
    fn note_release(&self, arg: &Arg, regno: u8, meta: &mut CallMeta) -> Result<()> {
        let reg = self.reg(regno);
        if arg.kind == ArgKind::Dynptr {
            if !reg.is(Base::Stack) {
                let message = "cannot release unowned const bpf_dynptr";
                return Err(self.reject(Errno::EINVAL, message));
            }
            let held = self.dynptr_slot(reg).is_some_and(|slot| slot.reg.ref_id != 0);
            if !held {
                let message = format!("arg {regno} is an unacquired reference");
                return Err(self.reject(Errno::EINVAL, message));
            }
        } else if reg.ref_id == 0 && !reg.is_null_const() {
            let message = format!("R{regno} must be referenced when passed to release function");
            return Err(self.reject(Errno::EINVAL, message));
        }
        meta.release_regno = Some(regno);
        Ok(())
    }

    /// Checks the memory or object that the argument points to, or its value.
    fn check_arg_value(
        &mut self,
        helper: &HelperProto,
        arg: &Arg,
        index: usize,
        null: bool,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let regno = index as u8 + 1;
        let reg = *self.reg(regno);
        let write = arg.flags.has(proto::Flags::WRITE);
        match arg.kind {
            ArgKind::ConstMapPtr => self.note_map(&reg, meta),
            ArgKind::MapKey => self.check_map_key(regno, meta),
            ArgKind::MapValue if null => Ok(()),
            ArgKind::MapValue => {
                let size = self.meta_map(meta)?.value_size;
                let raw = arg.flags.has(proto::Flags::UNINIT);
                self.check_call_memory(regno, size, direction(write), false, raw, meta)
            }
            ArgKind::PercpuBtfId => {
                meta.ret_btf = reg.btf();
                Ok(())
            }
            ArgKind::SpinLock => {
                if self.in_rbtree_callback() {
                    let message = "can't spin_{lock,unlock} in rbtree cb";
                    return Err(self.reject(Errno::EACCES, message));
                }
                self.process_spin_lock(regno, LockKind::Spin, helper.id == id::SPIN_LOCK)
            }
            ArgKind::Timer => self.process_map_field(regno, FieldKind::Timer, meta),
            ArgKind::Func => {
                meta.subprog = reg.subprog();
                Ok(())
            }
            ArgKind::Mem => self.check_mem_arg(arg, regno, null, meta),
            ArgKind::ConstSize | ArgKind::ConstSizeOrZero => {
                let memory = helper.args[index - 1];
                let write = memory.flags.has(proto::Flags::WRITE);
                let zero_ok = arg.kind == ArgKind::ConstSizeOrZero;
                self.check_mem_size(regno, direction(write), zero_ok, meta)
            }
            ArgKind::Dynptr => self.check_dynptr_arg(arg, regno, meta),
            ArgKind::ConstAllocSizeOrZero => {
                let Some(size) = reg.const_value() else {
                    let message = format!("R{regno} is not a known constant'");
                    return Err(self.reject(Errno::EACCES, message));
                };
                meta.ret_size = self.alloc_size(regno, size)?;
                self.mark_chain_precision(regno)
            }
            ArgKind::ConstStr => self.const_str(regno).map(|_| ()),
            ArgKind::KptrXchgDest => self.process_kptr(regno, meta),
            ArgKind::Anything
            | ArgKind::Ctx
            | ArgKind::SockCommon
            | ArgKind::BtfIdSockCommon
            | ArgKind::BtfId
            | ArgKind::RingbufMem
            | ArgKind::Stack => Ok(()),
        }
    }

    /// Checks memory of a fixed size; other memory is checked with the size argument that follows.
    fn check_mem_arg(
        &mut self,
        arg: &Arg,
        regno: u8,
        null: bool,
        meta: &mut CallMeta,
    ) -> Result<()> {
        meta.raw_mode = arg.flags.has(proto::Flags::UNINIT);
        if !arg.flags.has(proto::Flags::FIXED) || null {
            return Ok(());
        }
        let access = direction(arg.flags.has(proto::Flags::WRITE));
        self.check_call_memory(regno, arg.size, access, false, meta.raw_mode, meta)?;
        if arg.flags.has(proto::Flags::ALIGNED) {
            self.check_arg_alignment(regno, arg.size)?;
        }
        Ok(())
    }

    /// Checks alignment to `size`, as far as it is known (`check_ptr_alignment`, strict).
    fn check_arg_alignment(&self, regno: u8, size: u32) -> Result<()> {
        let reg = self.reg(regno);
        // Stack, values and records start aligned; a packet 2 bytes off (`NET_IP_ALIGN`).
        let base = if reg.is_packet() { 2 } else { 0 };
        let offset = super::super::tnum::Tnum::constant(i64::from(reg.off) as u64 + base);
        if reg.var.tnum.add(offset).is_aligned(u64::from(size)) {
            return Ok(());
        }
        let kind = type_name(reg.kind);
        let message = format!("misaligned {kind} access off {} size {size}", reg.off);
        Err(self.reject(Errno::EACCES, message))
    }

    /// Records the map argument; a timer's map must be the same (`ARG_CONST_MAP_PTR`).
    fn note_map(&mut self, reg: &Reg, meta: &mut CallMeta) -> Result<()> {
        let Some(map) = reg.map() else {
            return Err(self.internal("a map pointer without a map"));
        };
        let now = (map, reg.map_uid());
        if let Some(field) = meta.field_map.filter(|field| *field != now) {
            let message = format!(
                "timer pointer in R1 map_uid={} doesn't match map pointer in R2 map_uid={}",
                field.1, now.1
            );
            return Err(self.reject(Errno::EINVAL, message));
        }
        meta.map = Some(now);
        Ok(())
    }

    /// Checks a dynptr argument of a helper.
    fn check_dynptr_arg(&mut self, arg: &Arg, regno: u8, meta: &mut CallMeta) -> Result<()> {
        let wanted = super::dynptr::Wanted {
            uninit: arg.flags.has(proto::Flags::UNINIT),
            read_only: arg.flags.has(proto::Flags::RDONLY),
            kind: super::dynptr::wanted_kind(arg.flags),
            clone_ref_id: 0,
        };
        self.process_dynptr(regno, &wanted)?;
        if !wanted.uninit {
            meta.dynptr = Some(self.dynptr_state(regno)?);
        }
        Ok(())
    }

    fn alloc_size(&self, regno: u8, size: u64) -> Result<u32> {
        u32::try_from(size).map_err(|_too_large| {
            self.reject(Errno::EACCES, format!("R{regno} asks for {size} bytes of memory"))
        })
    }
}

fn direction(write: bool) -> Access {
    if write { Access::Write } else { Access::Read }
}
