//! Match of registers and arguments (`check_reg_type` and `check_func_arg_reg_off`).

use crate::errno::Errno;
use crate::proto::{self, Arg, ArgKind, HelperProto, id};

use super::super::env::{Result, Verifier};
use super::super::reg::{Base, BtfRef, BtfSource, Flags, Reg, RegType};
use super::super::show::type_name;
use super::meta::CallMeta;
use super::refs::is_alloc_object;

impl Verifier<'_> {
    /// Checks that the register's type is one that the argument accepts (`check_reg_type`).
    pub(super) fn check_reg_type(
        &self,
        helper: &HelperProto,
        arg: &Arg,
        regno: u8,
        meta: &CallMeta,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        let mut flags = reg.kind.flags;
        if arg.flags.has(proto::Flags::RDONLY) {
            flags = flags.without(Flags::RDONLY);
        }
        if arg.flags.has(proto::Flags::NULL) {
            flags = flags.without(Flags::MAYBE_NULL);
        }
        if arg.kind == ArgKind::Mem {
            flags = flags.without(Flags::PACKET_SLICE);
        }
        // Objects of the program may go into kptr fields, as kernel objects may.
        if helper.id == id::KPTR_XCHG && regno == 2 && flags.has(Flags::ALLOC) {
            flags = flags.without(Flags::ALLOC | Flags::PERCPU);
        }
        let kind = RegType::new(reg.base(), flags);
        let wanted = compatible(arg.kind);
        if !wanted.contains(&kind) {
            let expected: Vec<String> = wanted.iter().map(|kind| type_name(*kind)).collect();
            let actual = type_name(reg.kind);
            let message = format!("R{regno} type={actual} expected={}", expected.join(", "));
            return Err(self.reject_hint(Errno::EACCES, message, hint_for(&reg, arg)));
        }
        if reg.is(Base::BtfId) { self.check_object_type(helper, arg, regno, meta) } else { Ok(()) }
    }

    /// Checks that a typed pointer points to the right type.
    fn check_object_type(
        &self,
        helper: &HelperProto,
        arg: &Arg,
        regno: u8,
        meta: &CallMeta,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        if compatible(arg.kind) == MEM {
            if !arg.flags.has(proto::Flags::RDONLY) {
                let kind = type_name(reg.kind);
                let name = helper.name.trim_start_matches("bpf_");
                let message =
                    format!("{name}() may write into memory pointed by R{regno} type={kind}");
                return Err(self.reject(Errno::EACCES, message));
            }
            return Ok(());
        }
        if reg.has(Flags::PERCPU) && !reg.has(Flags::ALLOC) {
            return Ok(());
        }
        let release = arg.flags.has(proto::Flags::RELEASE);
        if reg.maybe_null() && (!arg.flags.has(proto::Flags::NULL) || release) {
            let message = format!("Possibly NULL pointer passed to helper arg{regno}");
            return Err(self.reject_hint(Errno::EACCES, message, NULL_HINT));
        }
        if reg.has(Flags::ALLOC) {
            return match meta.kptr {
                Some(field) if helper.id == id::KPTR_XCHG && regno == 2 => {
                    self.check_kptr_match(&field, &reg, regno)
                }
                _ => Ok(()),
            };
        }
        if helper.id == id::KPTR_XCHG {
            let Some(field) = meta.kptr else {
                return Err(self.internal("bpf_kptr_xchg without a kptr field"));
            };
            return self.check_kptr_match(&field, &reg, regno);
        }
        let wanted = arg.btf.unwrap_or("sock_common");
        let strict = release && helper.id != id::SK_RELEASE;
        if !self.is_struct_at(&reg, wanted, strict) {
            let actual = self.struct_name(&reg);
            let message = format!("R{regno} is of type {actual} but {wanted} is expected");
            return Err(self.reject(Errno::EACCES, message));
        }
        Ok(())
    }

    /// Checks an argument of a global function that is a kernel object (`__arg_trusted`): an object
    /// that the program or the kernel holds, or that RCU protects, of the type or starting with it.
    pub(crate) fn check_object_arg(&self, regno: u8, ty: BtfRef, nullable: bool) -> Result<()> {
        let reg = self.reg(regno);
        let absent = if nullable { Flags::MAYBE_NULL } else { Flags::NONE };
        if !OBJECT.contains(&RegType::new(reg.base(), reg.kind.flags.without(absent))) {
            let expected: Vec<String> = OBJECT.iter().map(|kind| type_name(*kind)).collect();
            let actual = type_name(reg.kind);
            let message = format!("R{regno} type={actual} expected={}", expected.join(", "));
            let hint = if reg.maybe_null() { NULL_HINT } else { "" };
            return Err(self.reject_hint(Errno::EACCES, message, hint));
        }
        if !reg.btf().is_some_and(|actual| self.is_type_at(actual, reg.off, ty, false)) {
            let (actual, wanted) = (self.struct_name(reg), self.input.prog.kernel_btf.name(ty.id));
            let message = format!("R{regno} is of type {actual} but {wanted} is expected");
            return Err(self.reject(Errno::EACCES, message));
        }
        self.check_arg_offset(regno, false, false)
    }

    /// Checks the offset of a pointer argument (`check_func_arg_reg_off`).
    pub(super) fn check_arg_offset(&self, regno: u8, release: bool, dynptr: bool) -> Result<()> {
        let reg = self.reg(regno);
        if release {
            if dynptr && reg.is(Base::Stack) {
                return Ok(());
            }
            if reg.off != 0 {
                let message = format!(
                    "R{regno} must have zero offset when passed to release func or trusted arg \
                     to kfunc"
                );
                return Err(self.reject(Errno::EINVAL, message));
            }
            return self.check_pointer_offset(reg, regno, false);
        }
        let any_offset = match reg.base() {
            Base::Stack | Base::Packet | Base::PacketMeta | Base::MapKey | Base::MapValue => {
                reg.kind.flags == Flags::NONE
            }
            Base::Mem | Base::Buf => !reg.maybe_null(),
            Base::Arena | Base::Scalar => true,
            _ => false,
        };
        if any_offset {
            return Ok(());
        }
        let unsafe_flags = Flags::MAYBE_NULL | Flags::UNTRUSTED | Flags::PERCPU | Flags::USER;
        let fixed_ok = reg.is(Base::BtfId) && !reg.kind.flags.intersects(unsafe_flags);
        self.check_pointer_offset(reg, regno, fixed_ok)
    }

    /// Checks that there is no variable offset, and a fixed one only if `fixed_ok`
    /// (`__check_ptr_off_reg`).
    pub(crate) fn check_pointer_offset(&self, reg: &Reg, regno: u8, fixed_ok: bool) -> Result<()> {
        let kind = type_name(reg.kind);
        if reg.off < 0 {
            let message = format!("negative offset {kind} ptr R{regno} off={} disallowed", reg.off);
            return Err(self.reject(Errno::EACCES, message));
        }
        if !fixed_ok && reg.off != 0 {
            let message =
                format!("dereference of modified {kind} ptr R{regno} off={} disallowed", reg.off);
            return Err(self.reject_hint(
                Errno::EACCES,
                message,
                "pass the pointer as it was obtained, without adding to it",
            ));
        }
        if !reg.var.tnum.equals_const(0) {
            let message = format!("variable {kind} access var_off={:?} disallowed", reg.var.tnum);
            return Err(self.reject(Errno::EACCES, message));
        }
        Ok(())
    }

    /// Name of the structure that a typed pointer points to.
    pub(super) fn struct_name(&self, reg: &Reg) -> String {
        let name = reg.btf().and_then(|ty| Some(self.btf(ty.source)?.name(ty.id).to_owned()));
        name.unwrap_or_default()
    }

    /// The kernel structure that a pointer of this type also points to (`reg2btf_ids`).
    pub(super) fn implied_struct(base: Base) -> Option<&'static str> {
        match base {
            Base::Socket => Some("sock"),
            Base::SockCommon => Some("sock_common"),
            Base::TcpSock => Some("tcp_sock"),
            Base::ConstMapPtr => Some("bpf_map"),
            _ => None,
        }
    }

    /// Whether a kfunc may rely on the object (`is_trusted_reg`).
    pub(super) fn is_trusted(reg: &Reg) -> bool {
        let trusted = Flags::ALLOC | Flags::TRUSTED | Flags::NON_OWN_REF;
        let clean = reg.kind.flags.without(trusted) == Flags::NONE;
        reg.ref_id != 0
            || (Self::implied_struct(reg.base()).is_some() && clean)
            || (reg.kind.flags.intersects(trusted) && clean)
    }

    /// Special fields of the map value or object that a register points into (`reg_btf_record`).
    pub(super) fn record_of(&self, reg: &Reg) -> Option<std::rc::Rc<super::field::Record>> {
        match reg.base() {
            Base::MapValue => self.input.records.of_map(reg.map()?),
            Base::BtfId if is_alloc_object(reg) => self.input.records.of_type(reg.btf()?),
            _ => None,
        }
    }

    /// Whether the register points to an object of the kernel, not of the program.
    pub(super) fn is_kernel_object(reg: &Reg) -> bool {
        reg.btf().is_some_and(|ty| ty.source == BtfSource::Kernel)
    }
}

/// The register types that fit a kind of argument (`compatible_reg_types`).
fn compatible(kind: ArgKind) -> &'static [RegType] {
    match kind {
        ArgKind::MapKey | ArgKind::MapValue | ArgKind::Mem => MEM,
        ArgKind::ConstSize | ArgKind::ConstSizeOrZero | ArgKind::ConstAllocSizeOrZero => SCALAR,
        ArgKind::Anything => SCALAR,
        ArgKind::ConstMapPtr => const { &[RegType::plain(Base::ConstMapPtr)] },
        ArgKind::Ctx => const { &[RegType::plain(Base::Ctx)] },
        ArgKind::SockCommon => SOCK,
        ArgKind::BtfIdSockCommon => SOCK_OR_BTF,
        ArgKind::BtfId => OBJECT,
        ArgKind::SpinLock => LOCKED,
        ArgKind::KptrXchgDest => LOCKED,
        ArgKind::RingbufMem => const { &[RegType::new(Base::Mem, Flags::RINGBUF)] },
        ArgKind::PercpuBtfId => PERCPU,
        ArgKind::Func => const { &[RegType::plain(Base::Func)] },
        ArgKind::Stack => const { &[RegType::plain(Base::Stack)] },
        ArgKind::ConstStr | ArgKind::Timer => const { &[RegType::plain(Base::MapValue)] },
        ArgKind::Dynptr => const { &[RegType::plain(Base::Stack), RegType::plain(Base::Dynptr)] },
    }
}

/// Advice on the most frequent mistakes.
fn hint_for(reg: &Reg, arg: &Arg) -> &'static str {
    match (reg.base(), arg.kind) {
        _ if reg.maybe_null() => NULL_HINT,
        (_, ArgKind::ConstMapPtr) => "pass the address of a map (`&my_map`)",
        (_, ArgKind::Ctx) => "pass the program's own context, unchanged",
        (Base::PacketEnd, _) => "data_end is only for comparisons; pass a pointer into the packet",
        (Base::Scalar, ArgKind::Mem | ArgKind::MapKey | ArgKind::MapValue) => {
            "a number is not an address: pass a pointer to the stack, a map value or the packet"
        }
        _ => "",
    }
}

pub(super) const NULL_HINT: &str = "compare the pointer with NULL before using it";

const MEM: &[RegType] = &[
    RegType::plain(Base::Stack),
    RegType::plain(Base::Packet),
    RegType::plain(Base::PacketMeta),
    RegType::plain(Base::MapKey),
    RegType::plain(Base::MapValue),
    RegType::plain(Base::Mem),
    RegType::new(Base::Mem, Flags::RINGBUF),
    RegType::plain(Base::Buf),
    RegType::new(Base::BtfId, Flags::TRUSTED),
];
const SCALAR: &[RegType] = &[RegType::plain(Base::Scalar)];
const SOCK: &[RegType] = &[
    RegType::plain(Base::SockCommon),
    RegType::plain(Base::Socket),
    RegType::plain(Base::TcpSock),
    RegType::plain(Base::XdpSock),
];
const SOCK_OR_BTF: &[RegType] = &[
    RegType::plain(Base::SockCommon),
    RegType::plain(Base::Socket),
    RegType::plain(Base::TcpSock),
    RegType::plain(Base::XdpSock),
    RegType::plain(Base::BtfId),
    RegType::new(Base::BtfId, Flags::TRUSTED),
];
const OBJECT: &[RegType] = &[
    RegType::plain(Base::BtfId),
    RegType::new(Base::BtfId, Flags::TRUSTED),
    RegType::new(Base::BtfId, Flags::RCU),
];
const LOCKED: &[RegType] =
    &[RegType::plain(Base::MapValue), RegType::new(Base::BtfId, Flags::ALLOC)];
const PERCPU: &[RegType] = &[
    RegType::new(Base::BtfId, Flags::PERCPU),
    RegType::new(Base::BtfId, Flags::PERCPU.with(Flags::RCU)),
    RegType::new(Base::BtfId, Flags::PERCPU.with(Flags::TRUSTED)),
];
