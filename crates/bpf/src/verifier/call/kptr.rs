//! Special fields of map values: kernel pointers in them, timers and work queues.

use crate::errno::Errno;
use crate::insn::{BPF_LDX, BPF_MEM, BPF_ST, BPF_STX};

use super::super::env::{Result, Verifier};
use super::super::reg::{Base, BtfRef, BtfSource, Flags, Reg};
use super::super::show::type_name;
use super::field::{Field, FieldKind, FieldType};
use super::meta::CallMeta;
use super::walk::Loaded;

impl Verifier<'_> {
    /// Checks that the register points to the timer, work queue or task work of a map value
    /// (`process_timer_func`, `process_wq_func`, `process_task_work_func`).
    pub(super) fn process_map_field(
        &mut self,
        regno: u8,
        kind: FieldKind,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        let name = kind.name();
        let Some(off) = reg.const_offset() else {
            let message = format!(
                "R{regno} doesn't have constant offset. {name} has to be at the constant offset"
            );
            return Err(self.reject(Errno::EINVAL, message));
        };
        let (Some(map), Some(def)) = (reg.map(), self.map_of(&reg)) else {
            return Err(self.internal("a map value without a map"));
        };
        if def.btf.is_none() {
            let message = format!("map '{}' has to have BTF in order to use {name}", def.name);
            return Err(self.reject(Errno::EINVAL, message));
        }
        let Some(field) = self.record_of(&reg).and_then(|record| record.unique(kind)) else {
            let message = format!("map '{}' has no valid {name}", def.name);
            return Err(self.reject(Errno::EINVAL, message));
        };
        if i64::from(field.offset) != off {
            let message =
                format!("off {off} doesn't point to 'struct {name}' that is at {}", field.offset);
            return Err(self.reject(Errno::EINVAL, message));
        }
        meta.field_map = Some((map, reg.map_uid()));
        Ok(())
    }

    /// Checks the destination of `bpf_kptr_xchg` (`process_kptr_func`).
    pub(super) fn process_kptr(&mut self, regno: u8, meta: &mut CallMeta) -> Result<()> {
        let reg = *self.reg(regno);
        if let Some(def) = self.map_of(&reg).filter(|def| def.btf.is_none()) {
            let message =
                format!("map '{}' has to have BTF in order to use bpf_kptr_xchg", def.name);
            return Err(self.reject(Errno::EINVAL, message));
        }
        if reg.is(Base::MapValue) {
            meta.map = reg.map().map(|map| (map, reg.map_uid()));
        }
        let Some(off) = reg.const_offset() else {
            let message = format!(
                "R{regno} doesn't have constant offset. kptr has to be at the constant offset"
            );
            return Err(self.reject(Errno::EINVAL, message));
        };
        let record = self.record_of(&reg).filter(|record| record.has(FieldKind::is_kptr));
        let Some(record) = record else {
            return Err(self.reject(Errno::EINVAL, format!("R{regno} has no valid kptr")));
        };
        let Some(field) = record.find(off, FieldKind::is_kptr) else {
            return Err(self.reject(Errno::EACCES, format!("off={off} doesn't point to kptr")));
        };
        if field.kind == FieldKind::KptrUnref {
            let message = format!("off={off} kptr isn't referenced kptr");
            return Err(self.reject(Errno::EACCES, message));
        }
        meta.kptr = Some(field);
        Ok(())
    }

    /// Checks that a pointer may be stored in a kptr field (`map_kptr_match_type`).
    pub(super) fn check_kptr_match(&self, field: &Field, reg: &Reg, regno: u8) -> Result<()> {
        let FieldType::Kptr(wanted) = field.target else {
            return Err(self.internal("a kptr field without a type"));
        };
        let mut allowed = Flags::MAYBE_NULL;
        if Self::is_kernel_object(reg) {
            allowed = allowed | Flags::TRUSTED | Flags::RCU;
            if field.kind == FieldKind::KptrUnref {
                allowed = allowed | Flags::UNTRUSTED;
            }
        } else {
            allowed = allowed | Flags::ALLOC;
            if field.kind == FieldKind::KptrPercpu {
                allowed = allowed | Flags::PERCPU;
            }
        }
        let clean = reg.kind.flags.without(allowed) == Flags::NONE;
        let strict = field.kind != FieldKind::KptrUnref;
        if reg.is(Base::BtfId) && clean {
            self.check_pointer_offset(reg, regno, true)?;
            let fits = reg.btf().is_some_and(|ty| self.is_type_at(ty, reg.off, wanted, strict));
            // Per-CPU objects and single ones are not interchangeable.
            let percpu = reg.has(Flags::PERCPU) == (field.kind == FieldKind::KptrPercpu);
            if fits && percpu {
                return Ok(());
            }
        }
        let expected = self.btf(wanted.source).map_or("", |btf| btf.name(wanted.id));
        let actual = type_name(reg.kind);
        let name = self.struct_name(reg);
        let message =
            format!("invalid kptr access, R{regno} type={actual}{name} expected=ptr_{expected}");
        Err(self.reject(Errno::EACCES, message))
    }

    /// Checks a direct access to `size` bytes at `off` of a map value (see `check_map_fields`).
    pub(super) fn check_field_access(
        &mut self,
        regno: u8,
        off: i32,
        size: u32,
        value_regno: Option<u8>,
        helper: bool,
    ) -> Result<bool> {
        let reg = *self.reg(regno);
        let Some(record) = self.record_of(&reg) else { return Ok(false) };
        let base = i64::from(off) + i64::from(reg.off);
        let first = reg.var.smin.saturating_add(base);
        let end = i128::from(reg.var.umax) + i128::from(base) + i128::from(size);
        for field in &record.fields {
            let overlaps =
                first < i64::from(field.offset + field.size) && i128::from(field.offset) < end;
            if !overlaps {
                continue;
            }
            self.check_overlap(&reg, field, base, size, helper)?;
            self.access_kptr(field, value_regno)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Checks that only a whole pointer field is accessed, and only by an instruction.
    fn check_overlap(
        &self,
        reg: &Reg,
        field: &Field,
        base: i64,
        size: u32,
        helper: bool,
    ) -> Result<()> {
        let name = field.kind.name();
        let message = if !field.kind.is_pointer() {
            format!("{name} cannot be accessed directly by load/store")
        } else if helper {
            format!("{name} cannot be accessed indirectly by helper")
        } else if !reg.var.is_const() {
            format!("{name} access cannot have variable offset")
        } else if base + reg.var.tnum.value as i64 != i64::from(field.offset) {
            let at = base + reg.var.tnum.value as i64;
            format!("{name} access misaligned expected={} off={at}", field.offset)
        } else if size != 8 {
            format!("{name} access size must be BPF_DW")
        } else {
            return Ok(());
        };
        Err(self.reject(Errno::EACCES, message))
    }

    /// Checks a load or store of a pointer field by the current instruction
    /// (`check_map_kptr_access`).
    fn access_kptr(&mut self, field: &Field, value_regno: Option<u8>) -> Result<()> {
        let insn = self.insn();
        let class = insn.class();
        if insn.mode() != BPF_MEM {
            let message = "kptr in map can only be accessed using BPF_MEM instruction mode";
            return Err(self.reject(Errno::EACCES, message));
        }
        if class != BPF_LDX && matches!(field.kind, FieldKind::KptrRef | FieldKind::KptrPercpu) {
            return Err(self.reject_hint(
                Errno::EACCES,
                "store to referenced kptr disallowed",
                "use bpf_kptr_xchg(), which hands over the reference",
            ));
        }
        if class != BPF_LDX && field.kind == FieldKind::Uptr {
            return Err(self.reject(Errno::EACCES, "store to uptr disallowed"));
        }
        match (class, value_regno) {
            (BPF_LDX, Some(value_regno)) => {
                let FieldType::Kptr(ty) = field.target else {
                    return Err(self.internal("a kptr field without a type"));
                };
                let flags = self.loaded_kptr_flags(field, ty);
                let reg = Loaded::Object(ty, flags).into_reg(self);
                *self.reg_mut(value_regno) = reg;
                Ok(())
            }
            (BPF_STX, Some(value_regno)) => {
                let value = *self.reg(value_regno);
                if value.is_null_const() {
                    return Ok(());
                }
                self.check_kptr_match(field, &value, value_regno)
            }
            (BPF_ST, _) if insn.imm != 0 => {
                let message =
                    format!("BPF_ST imm must be 0 when storing to kptr at off={}", field.offset);
                Err(self.reject(Errno::EACCES, message))
            }
            (BPF_ST, _) => Ok(()),
            _ => {
                let message = "kptr in map can only be accessed using BPF_LDX/BPF_STX/BPF_ST";
                Err(self.reject(Errno::EACCES, message))
            }
        }
    }

    /// Trust in a pointer that was loaded from a map value (`btf_ld_kptr_type`).
    fn loaded_kptr_flags(&self, field: &Field, ty: BtfRef) -> Flags {
        let protected = match field.kind {
            FieldKind::KptrPercpu => true,
            FieldKind::KptrRef => self.is_rcu_protected(ty),
            _ => false,
        };
        if !protected || !self.in_rcu_section() {
            return Flags::MAYBE_NULL | Flags::UNTRUSTED;
        }
        let flags = Flags::MAYBE_NULL | Flags::RCU;
        match (field.kind, ty.source) {
            (FieldKind::KptrPercpu, _) => flags | Flags::PERCPU,
            (_, BtfSource::Object) => flags | Flags::ALLOC,
            (_, BtfSource::Kernel) => flags,
        }
    }

    /// Whether objects of a type stay in memory until the RCU section ends
    /// (`rcu_protected_object`).
    fn is_rcu_protected(&self, ty: BtfRef) -> bool {
        const PROTECTED: [&str; 4] = ["task_struct", "cgroup", "bpf_cpumask", "bpf_crypto_ctx"];
        ty.source == BtfSource::Object
            || PROTECTED.contains(&self.input.prog.kernel_btf.name(ty.id))
    }
}
