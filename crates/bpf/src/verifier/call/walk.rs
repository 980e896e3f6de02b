//! Typed pointers: the members of a structure by offset, and the results of loads from them
//! (`btf_struct_walk`, `check_ptr_to_btf_access`).

use crate::btf::{Btf, Kind, Member, TypeId};
use crate::errno::Errno;

use super::super::env::{Access, Result, Verifier};
use super::super::reg::{Base, BtfRef, BtfSource, Flags, Payload, Reg};
use super::trust::{Trust, field_trust};

/// Kind of member at an offset of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemberKind {
    Scalar,
    /// A structure starts here.
    Struct(TypeId),
    /// A pointer to a structure, with the member's name; its type tags give flags.
    Pointer {
        to: TypeId,
        member: String,
        within: TypeId,
    },
    /// A pointer to something else.
    OtherPointer,
}

/// Position of a walk.
struct Walk<'b> {
    btf: &'b Btf,
    ty: TypeId,
    off: u32,
    size: u32,
    flags: Flags,
}

/// Result of one step: the end of the walk, or a nested structure.
enum Step {
    Found(MemberKind),
    Into(TypeId, u32),
    Wrong(Errno, String),
}

/// Finds the member at `off..off + size` of structure `ty` (`btf_struct_walk`). Adds
/// [`Flags::UNTRUSTED`] if the walk crosses a union, and the flags of type tags.
pub(super) fn struct_walk(
    btf: &Btf,
    ty: TypeId,
    off: u32,
    size: u32,
    flags: &mut Flags,
) -> Result<MemberKind, (Errno, String)> {
    let mut walk = Walk { btf, ty, off, size, flags: *flags };
    // Each step goes one structure deeper, and BTF nesting is bounded when parsed.
    loop {
        let step = walk.step();
        *flags = walk.flags;
        match step {
            Step::Found(place) => return Ok(place),
            Step::Into(ty, off) => {
                walk.ty = ty;
                walk.off = off;
            }
            Step::Wrong(errno, message) => return Err((errno, message)),
        }
    }
}

impl Walk<'_> {
    fn step(&mut self) -> Step {
        let ty = self.btf.resolve(self.ty);
        let name = self.btf.name(ty);
        let Kind::Composite { union, size, members } = self.btf.kind(ty) else {
            return Step::Wrong(Errno::EINVAL, format!("Type '{name}' is not a struct"));
        };
        if *union && members.len() != 1 {
            // It is unknown which member of a union is valid.
            self.flags = self.flags.with(Flags::UNTRUSTED);
        }
        if self.off.saturating_add(self.size) > *size {
            return self.flexible_array(name, members);
        }
        for member in members.iter() {
            if self.off + self.size <= member.bit_offset / 8 {
                break;
            }
            if let Some(step) = self.member(ty, name, member) {
                return step;
            }
        }
        let message = format!("struct {name} doesn't have field at offset {}", self.off);
        Step::Wrong(Errno::EINVAL, message)
    }

    /// A step behind the end of the structure: only an array of unknown length can be there.
    fn flexible_array(&self, name: &str, members: &[Member]) -> Step {
        let beyond = Step::Wrong(
            Errno::EACCES,
            format!("access beyond struct {name} at off {} size {}", self.off, self.size),
        );
        let Some(last) = members.last() else { return beyond };
        let Kind::Array { elem, count: 0, .. } = *self.btf.resolved(last.ty) else {
            return beyond;
        };
        let start = last.bit_offset / 8;
        if self.off < start {
            return beyond;
        }
        let elem = self.btf.resolve(elem);
        match self.btf.kind(elem) {
            Kind::Int { .. } => Step::Found(MemberKind::Scalar),
            Kind::Composite { size, .. } if *size > 0 => {
                Step::Into(elem, (self.off - start) % *size)
            }
            _ => beyond,
        }
    }

    /// The step into one member; `None` if `off` lies elsewhere.
    fn member(&self, within: TypeId, name: &str, member: &Member) -> Option<Step> {
        let start = member.bit_offset / 8;
        if member.bit_size != 0 {
            let end = (member.bit_offset + member.bit_size).div_ceil(8);
            // The compiler reads the whole unit around a bit-field.
            let covers = self.off <= start && end <= self.off + self.size;
            return covers.then_some(Step::Found(MemberKind::Scalar));
        }
        if self.off < start {
            let message = format!("struct {name} doesn't have field at offset {}", self.off);
            return Some(Step::Wrong(Errno::EINVAL, message));
        }
        let bytes = u32::try_from(self.btf.size_of(member.ty)?).ok()?;
        let end = start.checked_add(bytes)?;
        if self.off >= end {
            return None;
        }
        let (elem, elem_bytes) = self.element(member.ty, bytes);
        let start = start + (self.off - start).checked_div(elem_bytes)? * elem_bytes;
        match self.btf.resolved(elem) {
            Kind::Composite { .. } if self.off == start => {
                Some(Step::Found(MemberKind::Struct(self.btf.resolve(elem))))
            }
            Kind::Composite { .. } => Some(Step::Into(elem, self.off - start)),
            Kind::Ptr(to) => {
                if elem_bytes != self.size || self.off != start {
                    let message = format!(
                        "cannot access ptr member {} with moff {start} in struct {name} with \
                         off {} size {}",
                        member.name, self.off, self.size
                    );
                    return Some(Step::Wrong(Errno::EACCES, message));
                }
                Some(Step::Found(self.pointer(*to, within, member)))
            }
            _ if self.off + self.size > end && !self.flags.has(Flags::UNTRUSTED) => {
                let message = format!(
                    "access beyond the end of member {} (mend:{end}) in struct {name} with \
                     off {} size {}",
                    member.name, self.off, self.size
                );
                Some(Step::Wrong(Errno::EACCES, message))
            }
            _ => Some(Step::Found(MemberKind::Scalar)),
        }
    }

    /// The element type of nested arrays, and its size.
    fn element(&self, ty: TypeId, bytes: u32) -> (TypeId, u32) {
        let mut ty = self.btf.resolve(ty);
        let mut count = 1u32;
        while let Kind::Array { elem, count: more, .. } = *self.btf.kind(ty) {
            count = count.saturating_mul(more);
            ty = self.btf.resolve(elem);
        }
        (ty, bytes / count.max(1))
    }

    fn pointer(&self, to: TypeId, within: TypeId, member: &Member) -> MemberKind {
        match self.btf.resolved(to) {
            Kind::Composite { .. } => {
                MemberKind::Pointer { to, member: member.name.to_string(), within }
            }
            _ => MemberKind::OtherPointer,
        }
    }
}

/// Flags from the type tag of a pointed-to type.
fn tag_flags(btf: &Btf, to: TypeId) -> Flags {
    match (btf.kind(to), btf.name(to)) {
        (Kind::TypeTag(_), "user") => Flags::USER,
        (Kind::TypeTag(_), "percpu") => Flags::PERCPU,
        (Kind::TypeTag(_), "rcu") => Flags::RCU,
        _ => Flags::NONE,
    }
}

/// Result of a load from a typed pointer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Loaded {
    Scalar,
    Object(BtfRef, Flags),
    /// An address of memory without a structure: readable, not trusted.
    Untrusted,
}

impl Loaded {
    /// The result as a register (`mark_btf_ld_reg`).
    pub(super) fn into_reg(self, v: &mut Verifier<'_>) -> Reg {
        match self {
            Loaded::Scalar => Reg::UNKNOWN,
            Loaded::Object(ty, flags) => {
                let mut reg = Reg::pointer(Base::BtfId, flags, Payload::Btf(ty));
                if flags.has(Flags::MAYBE_NULL) {
                    reg.id = v.new_id();
                }
                reg
            }
            Loaded::Untrusted => Reg::pointer(
                Base::Mem,
                Flags::RDONLY | Flags::UNTRUSTED,
                Payload::Mem { size: 0, dynptr_id: 0 },
            ),
        }
    }
}

impl Verifier<'_> {
    /// Checks a load from, or store to, a typed pointer (`check_ptr_to_btf_access`).
    pub(super) fn check_object_access(
        &mut self,
        regno: u8,
        off: i32,
        size: u32,
        access: Access,
        value_regno: Option<u8>,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        let name = self.struct_name(&reg);
        self.forbid_struct(&name)?;
        let Some(ty) = reg.btf() else {
            return Err(self.internal("a typed pointer without a type"));
        };
        if ty.source == BtfSource::Kernel && !self.input.prog.is_gpl_compatible() {
            let message =
                format!("Cannot access kernel 'struct {name}' from non-GPL compatible program");
            return Err(self.reject(Errno::EINVAL, message));
        }
        let start = i64::from(off) + i64::from(reg.off);
        self.check_object_offset(&reg, regno, start, off, &name)?;
        if reg.has(Flags::ALLOC) {
            let protected = reg.kind.flags.intersects(Flags::NON_OWN_REF | Flags::RCU);
            if !protected && reg.ref_id == 0 {
                let message = format!("R{regno} is an allocated object that is not held");
                return Err(self.reject(Errno::EFAULT, message));
            }
        } else if access == Access::Write {
            return self.check_kernel_write(ty.source, &name, start, size);
        }
        let loaded = self.walk_object(&reg, ty, start as u32, size)?;
        if let (Access::Read, Some(value_regno)) = (access, value_regno) {
            *self.reg_mut(value_regno) = loaded.into_reg(self);
        }
        Ok(())
    }

    fn check_object_offset(
        &self,
        reg: &Reg,
        regno: u8,
        start: i64,
        off: i32,
        name: &str,
    ) -> Result<()> {
        if start < 0 {
            let message = format!("R{regno} is ptr_{name} invalid negative access: off={start}");
            return Err(self.reject(Errno::EACCES, message));
        }
        if !reg.var.tnum.equals_const(0) {
            let message = format!(
                "R{regno} is ptr_{name} invalid variable offset: off={off}, var_off={:?}",
                reg.var.tnum
            );
            return Err(self.reject(Errno::EACCES, message));
        }
        for (flag, what) in [(Flags::USER, "user"), (Flags::PERCPU, "percpu")] {
            if reg.has(flag) {
                let message = format!("R{regno} is ptr_{name} access {what} memory: off={off}");
                return Err(self.reject_hint(
                    Errno::EACCES,
                    message,
                    "use bpf_probe_read_user() or bpf_per_cpu_ptr() / bpf_this_cpu_ptr()",
                ));
            }
        }
        Ok(())
    }

    /// Checks a write to a kernel structure: XDP programs may write only a connection's mark
    /// (`nfct_btf_struct_access`).
    fn check_kernel_write(
        &self,
        source: BtfSource,
        name: &str,
        start: i64,
        size: u32,
    ) -> Result<()> {
        let is_conn = name == "nf_conn" || name == "nf_conn___init";
        if source != BtfSource::Kernel || !is_conn {
            return Err(self.reject(Errno::EACCES, "only read is supported"));
        }
        let btf = &self.input.prog.kernel_btf;
        let mark = btf
            .find_composite("nf_conn")
            .and_then(|ty| btf.member(ty, "mark"))
            .map(|mark| i64::from(mark.bit_offset / 8));
        match mark {
            Some(mark) if start == mark && size <= 4 => Ok(()),
            Some(mark) if start == mark => {
                let message = format!(
                    "write access at off {start} with size {size} beyond the member of nf_conn \
                     ended at {}",
                    mark + 4
                );
                Err(self.reject(Errno::EACCES, message))
            }
            _ => {
                let message = format!("no write support to nf_conn at off {start}");
                Err(self.reject(Errno::EACCES, message))
            }
        }
    }

    /// Finds the member at an offset of an object, and the trust in it when loaded.
    fn walk_object(&self, reg: &Reg, ty: BtfRef, off: u32, size: u32) -> Result<Loaded> {
        if reg.has(Flags::ALLOC) {
            self.check_alloc_fields(ty, off, size)?;
        }
        let Some(btf) = self.btf(ty.source) else {
            return Err(self.internal("a typed pointer without type information"));
        };
        let (mut id, mut off, mut flags) = (ty.id, off, Flags::NONE);
        loop {
            let place = struct_walk(btf, id, off, size, &mut flags)
                .map_err(|(errno, message)| self.reject(errno, message))?;
            match place {
                MemberKind::Struct(inner) => {
                    id = inner;
                    off = 0;
                }
                MemberKind::Scalar => return Ok(Loaded::Scalar),
                // The program wrote the member itself: it is a number.
                _ if reg.has(Flags::ALLOC) => return Ok(Loaded::Scalar),
                MemberKind::OtherPointer => return Ok(Loaded::Untrusted),
                MemberKind::Pointer { to, member, within } => {
                    flags = flags.with(tag_flags(btf, to));
                    let to = btf.resolve(to);
                    let flags = self.loaded_flags(reg, flags, btf.name(within), &member);
                    return Ok(Loaded::Object(BtfRef { source: ty.source, id: to }, flags));
                }
            }
        }
    }

    /// Trust in a pointer that was loaded from an object.
    fn loaded_flags(&self, reg: &Reg, flags: Flags, within: &str, member: &str) -> Flags {
        if reg.has(Flags::UNTRUSTED) {
            return Flags::UNTRUSTED;
        }
        if !Self::is_trusted(reg) && !reg.has(Flags::RCU) {
            return flags.without(TRUST_FLAGS);
        }
        let trust = field_trust(within, member);
        match trust {
            Trust::Trusted => return flags | Flags::TRUSTED,
            Trust::TrustedOrNull => return flags | Flags::TRUSTED | Flags::MAYBE_NULL,
            _ => {}
        }
        if !self.in_rcu_section() || reg.maybe_null() {
            return Flags::UNTRUSTED;
        }
        match trust {
            Trust::Rcu => flags | Flags::RCU,
            Trust::RcuOrNull => (flags | Flags::RCU | Flags::MAYBE_NULL).without(Flags::UNTRUSTED),
            _ if flags.has(Flags::RCU) => flags | Flags::RCU | Flags::MAYBE_NULL,
            _ if flags.intersects(Flags::PERCPU | Flags::USER) => flags,
            _ => flags.without(TRUST_FLAGS),
        }
    }

    /// Checks that no special field of the program's own objects is accessed: only kfuncs may do
    /// that.
    fn check_alloc_fields(&self, ty: BtfRef, off: u32, size: u32) -> Result<()> {
        let Some(record) = self.input.records.of_type(ty) else { return Ok(()) };
        for field in &record.fields {
            if off < field.offset + field.size && field.offset < off + size {
                let message = format!("direct access to {} is disallowed", field.kind.name());
                return Err(self.reject(Errno::EACCES, message));
            }
        }
        Ok(())
    }

    /// Whether the object at a typed pointer's offset is a `struct wanted`, or starts with one
    /// unless `strict` (`btf_struct_ids_match`).
    pub(super) fn is_struct_at(&self, reg: &Reg, wanted: &str, strict: bool) -> bool {
        let Some(ty) = reg.btf() else { return false };
        ty.source == BtfSource::Kernel
            && self.starts_with(ty, reg.off, strict, |btf, id| btf.name(id) == wanted)
    }

    /// As [`Verifier::is_struct_at`], for a type by id.
    pub(super) fn is_type_at(&self, ty: BtfRef, off: i32, wanted: BtfRef, strict: bool) -> bool {
        match wanted.source {
            _ if ty.source != wanted.source => false,
            BtfSource::Kernel => {
                let name = self.input.prog.kernel_btf.name(wanted.id);
                self.starts_with(ty, off, strict, |btf, id| btf.name(id) == name)
            }
            BtfSource::Object => self.starts_with(ty, off, strict, |_, id| id == wanted.id),
        }
    }

    fn starts_with(
        &self,
        ty: BtfRef,
        off: i32,
        strict: bool,
        matches: impl Fn(&Btf, TypeId) -> bool,
    ) -> bool {
        let (Some(btf), Ok(mut off)) = (self.btf(ty.source), u32::try_from(off)) else {
            return false;
        };
        let mut id = btf.resolve(ty.id);
        if off == 0 && matches(btf, id) {
            return true;
        }
        if strict {
            return false;
        }
        let mut flags = Flags::NONE;
        // Each iteration goes into a nested structure; BTF nesting is bounded.
        while let Ok(MemberKind::Struct(inner)) = struct_walk(btf, id, off, 1, &mut flags) {
            if matches(btf, inner) {
                return true;
            }
            id = inner;
            off = 0;
        }
        false
    }
}

/// Flags that `clear_trusted_flags` removes: a pointer that a union made untrusted stays so.
const TRUST_FLAGS: Flags = Flags::TRUSTED.with(Flags::RCU);
