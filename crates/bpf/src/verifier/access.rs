//! Memory accesses of instructions and of helper arguments (`check_mem_access`,
//! `check_helper_mem_access`).

use crate::errno::Errno;
use crate::map::Values;
use crate::map::flags::BPF_F_RDONLY_PROG;
use crate::program::{AttachType, MapDef};

use super::call;
use super::env::{Access, Result, Verifier};
use super::facts::AccessFact;
use super::reg::{Base, Flags, Payload, Reg};
use super::rejection::Rejection;
use super::show::type_name;
use super::stack::VAR_OFF_MAX;

/// `BPF_F_WRONLY_PROG` of map creation.
const MAP_WRONLY_PROG: u32 = 1 << 8;

/// One memory access of an instruction.
#[derive(Clone, Copy)]
pub(crate) struct MemAccess {
    pub(crate) regno: u8,
    pub(crate) off: i32,
    pub(crate) size: u32,
    pub(crate) access: Access,
    /// The register that a load sets, or whose value a store writes.
    pub(crate) value_regno: Option<u8>,
    pub(crate) sign_extend: bool,
    /// Whether unaligned accesses are refused (atomics; the stack always).
    pub(crate) aligned: bool,
}

impl Verifier<'_> {
    /// A load or store of `size` bytes at `regno + off`. A load sets `value_regno`; a store takes
    /// its value from it.
    pub(crate) fn check_mem_access(
        &mut self,
        regno: u8,
        off: i32,
        size: u32,
        access: Access,
        value_regno: Option<u8>,
        sign_extend: bool,
    ) -> Result<()> {
        let aligned = false;
        self.check_access(MemAccess { regno, off, size, access, value_regno, sign_extend, aligned })
    }

    /// As [`Verifier::check_mem_access`], with all parameters.
    pub(crate) fn check_access(&mut self, m: MemAccess) -> Result<()> {
        let reg = *self.reg(m.regno);
        self.check_alignment(&reg, &m)?;
        let off = i64::from(reg.off) + i64::from(m.off);
        self.note_access_fact(&reg, off);
        match reg.base() {
            _ if reg.maybe_null() => return Err(self.invalid_mem_access(m.regno, &reg)),
            Base::MapValue => self.map_value_access(&m, &reg, off)?,
            Base::MapKey => {
                self.forbid_write(&m, "write to change key")?;
                let size = self.map_of(&reg).map_or(0, |map| map.key_size);
                self.check_region(m.regno, off, m.size, size, false)?;
                self.load_unknown(&m);
            }
            Base::Mem => self.mem_access(&m, &reg, off)?,
            Base::Ctx if self.input.prog.attach == AttachType::Dequeue => {
                self.dequeue_ctx_access(&m, &reg, off)?;
            }
            Base::Ctx if self.is_syscall() => self.syscall_ctx_access(&m, &reg, off)?,
            Base::Ctx | Base::Frame => self.ctx_access(&m, &reg, off)?,
            Base::Stack if m.access == Access::Read => {
                self.check_stack_read(m.regno, off, m.size, m.value_regno)?;
            }
            Base::Stack => self.check_stack_write(m.regno, off, m.size, m.value_regno)?,
            Base::Packet | Base::PacketMeta => {
                self.forbid_stored_leak(m.access, m.value_regno, "into packet")?;
                self.check_packet_access(m.regno, off, m.size, false)?;
                self.learned.changes_packet |= reg.is(Base::Packet) && m.access == Access::Write;
                self.load_unknown(&m);
            }
            Base::Socket | Base::SockCommon | Base::TcpSock | Base::XdpSock => {
                self.sock_access(&m, &reg)?;
            }
            Base::BtfId => {
                call::check_btf_access(self, m.regno, m.off, m.size, m.access, m.value_regno)?;
            }
            Base::ConstMapPtr => {
                call::check_map_ptr_access(self, m.regno, m.off, m.size, m.access, m.value_regno)?;
            }
            Base::Arena => self.load_unknown(&m),
            _ => return Err(self.invalid_mem_access(m.regno, &reg)),
        }
        self.narrow_loaded(&m);
        Ok(())
    }

    fn invalid_mem_access(&self, regno: u8, reg: &Reg) -> Box<Rejection> {
        let void = self.void_hint(reg);
        let hint = if let Some(void) = &void {
            void
        } else if reg.maybe_null() {
            "the pointer may be NULL here: compare it with NULL first"
        } else if reg.is_scalar() {
            "this is a number, not a pointer: arithmetic or a 32-bit operation made it one, or it \
             was read from memory, where pointers are not kept"
        } else if reg.is(Base::PacketEnd) {
            "data_end is only compared: read through a pointer that begins at data"
        } else {
            ""
        };
        let name = type_name(reg.kind);
        self.reject_hint(Errno::EACCES, format!("R{regno} invalid mem access '{name}'"), hint)
    }

    /// A loaded number has as many bits as the load.
    fn narrow_loaded(&mut self, m: &MemAccess) {
        let (Access::Read, Some(regno)) = (m.access, m.value_regno) else { return };
        let reg = self.reg_mut(regno);
        if m.size >= 8 || !reg.is_scalar() {
            return;
        }
        if m.sign_extend {
            reg.id = 0;
            reg.off = 0;
            reg.var.sign_extend(m.size);
        } else {
            reg.var.truncate(m.size);
        }
    }

    fn load_unknown(&mut self, m: &MemAccess) {
        if let (Access::Read, Some(regno)) = (m.access, m.value_regno) {
            self.mark_reg_unknown(regno);
        }
    }

    fn forbid_write(&self, m: &MemAccess, what: &str) -> Result<()> {
        if m.access == Access::Write {
            let regno = m.regno;
            return Err(self.reject(Errno::EACCES, format!("{what} R{regno} not allowed")));
        }
        Ok(())
    }

    fn check_alignment(&self, reg: &Reg, m: &MemAccess) -> Result<()> {
        // Spills are tracked by slot, so the stack must be aligned; elsewhere the CPU allows any
        // alignment.
        if !(m.aligned || reg.is(Base::Stack)) || reg.is(Base::Arena) {
            return Ok(());
        }
        let fixed = i64::from(reg.off) + i64::from(m.off);
        let place = reg.var.tnum.add(super::tnum::Tnum::constant(fixed as u64));
        if place.is_aligned(u64::from(m.size)) {
            return Ok(());
        }
        let what = match reg.base() {
            Base::Stack => "stack ",
            Base::Packet | Base::PacketMeta => "packet ",
            Base::MapValue => "value ",
            Base::Ctx => "context ",
            _ => "",
        };
        let message = format!(
            "misaligned {what}access off ({:#x}; {:#x})+{}+{} size {}",
            reg.var.tnum.value, reg.var.tnum.mask, reg.off, m.off, m.size
        );
        let hint = "the address must be a multiple of the access size";
        Err(self.reject_hint(Errno::EACCES, message, hint))
    }

    fn map_value_access(&mut self, m: &MemAccess, reg: &Reg, off: i64) -> Result<()> {
        self.forbid_stored_leak(m.access, m.value_regno, "into map")?;
        self.check_map_direction(m.regno, reg, m.size, off, m.access)?;
        let size = self.map_of(reg).map_or(0, |map| map.value_size);
        self.check_region(m.regno, off, m.size, size, false)?;
        let (off32, helper) = (m.off, false);
        let handled =
            call::check_map_fields(self, m.regno, off32, m.size, m.access, m.value_regno, helper)?;
        if handled {
            return Ok(());
        }
        let known = self.frozen_value(reg, off, m);
        match (known, m.access, m.value_regno) {
            (Some(value), Access::Read, Some(regno)) => {
                *self.reg_mut(regno) = Reg::constant(value);
            }
            _ => self.load_unknown(m),
        }
        Ok(())
    }

    /// The constant that a load from `.rodata` gives (`bpf_map_direct_read`).
    fn frozen_value(&self, reg: &Reg, off: i64, m: &MemAccess) -> Option<u64> {
        let map = self.map_of(reg)?;
        if !map.is_constant() || !reg.var.is_const() {
            return None;
        }
        let start = usize::try_from(off + reg.var.tnum.value as i64).ok()?;
        let bytes = map.initial.as_ref()?.get(start..start + m.size as usize)?;
        let mut wide = [0u8; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(wide))
    }

    /// Checks that the map may be read or written by programs (`check_map_access_type`).
    fn check_map_direction(
        &self,
        regno: u8,
        reg: &Reg,
        size: u32,
        off: i64,
        access: Access,
    ) -> Result<()> {
        let Some(map) = self.map_of(reg) else { return Ok(()) };
        let (forbidden, verb) = match access {
            Access::Write => (is_read_only(map), "write into"),
            Access::Read => (map.flags & MAP_WRONLY_PROG != 0, "read from"),
        };
        if !forbidden {
            return Ok(());
        }
        let (name, value_size) = (&map.name, map.value_size);
        let message = format!(
            "{verb} map forbidden, value_size={value_size} off={off} size={size}: R{regno} is '{name}'"
        );
        Err(self.reject(Errno::EACCES, message))
    }

    fn mem_access(&mut self, m: &MemAccess, reg: &Reg, off: i64) -> Result<()> {
        if reg.has(Flags::RDONLY) && m.access == Access::Write {
            return Err(self.cannot_write(m.regno, reg));
        }
        self.forbid_stored_leak(m.access, m.value_regno, "into mem")?;
        self.learned.changes_packet |= reg.has(Flags::PACKET_SLICE) && m.access == Access::Write;
        // Untrusted memory is read by instructions that survive a fault at any address.
        if reg.has(Flags::UNTRUSTED) {
            self.forbid_part(m.regno, "is an address at which nothing may be read")?;
        } else {
            self.check_region(m.regno, off, m.size, reg.mem_size(), false)?;
        }
        self.load_unknown(m);
        Ok(())
    }

    fn cannot_write(&self, regno: u8, reg: &Reg) -> Box<Rejection> {
        let name = type_name(reg.kind);
        self.reject(Errno::EACCES, format!("R{regno} cannot write into {name}"))
    }

    fn sock_access(&mut self, m: &MemAccess, reg: &Reg) -> Result<()> {
        if m.access == Access::Write {
            return Err(self.cannot_write(m.regno, reg));
        }
        call::check_sock_access(self, m.regno, m.off, m.size, m.access)?;
        self.load_unknown(m);
        Ok(())
    }

    /// Checks an access to `struct xdp_md` (`xdp_is_valid_access`).
    fn ctx_access(&mut self, m: &MemAccess, reg: &Reg, off: i64) -> Result<()> {
        self.check_fixed_pointer(m.regno, reg)?;
        let invalid = |v: &Self| {
            let size = m.size;
            let hint = if m.access == Access::Write {
                "fields of struct xdp_md can't be written"
            } else if reg.is(Base::Frame) && off == i64::from(EGRESS_IFINDEX) {
                "where the packet is to leave is in the program's context"
            } else if off == i64::from(EGRESS_IFINDEX) {
                "egress_ifindex is only there for programs in section \"xdp/devmap\""
            } else {
                "fields of struct xdp_md are read as whole, aligned 32-bit words"
            };
            let what = if reg.is(Base::Frame) { "packet" } else { "bpf_context" };
            let message = format!("invalid {what} access off={off} size={size}");
            v.reject_hint(Errno::EACCES, message, hint)
        };
        let in_md = (0..24).contains(&off) && off % 4 == 0 && m.size == 4;
        let egress =
            off == i64::from(EGRESS_IFINDEX) && self.input.prog.attach != AttachType::Devmap;
        if !in_md || egress || m.access == Access::Write {
            return Err(invalid(self));
        }
        let base = match off {
            0 => Some(Base::Packet),
            4 => Some(Base::PacketEnd),
            8 => Some(Base::PacketMeta),
            _ => None,
        };
        if base.is_some() && m.sign_extend {
            return Err(invalid(self));
        }
        if let Some(regno) = m.value_regno {
            *self.reg_mut(regno) = match base {
                // Pointers into a packet that the program holds are invalid once the program gives
                // the packet up.
                Some(base) => {
                    let pointer = Reg::pointer(base, Flags::NONE, Payload::Range(0));
                    Reg { ref_id: reg.ref_id, ..pointer }
                }
                None => Reg::UNKNOWN,
            };
        }
        Ok(())
    }

    /// Checks an access to `struct dequeue_ctx`, which has the ifindex of the port with room.
    fn dequeue_ctx_access(&mut self, m: &MemAccess, reg: &Reg, off: i64) -> Result<()> {
        self.check_fixed_pointer(m.regno, reg)?;
        if off != 0 || m.size != 4 || m.access == Access::Write {
            let message = format!("invalid bpf_context access off={off} size={}", m.size);
            let hint = "struct dequeue_ctx has one field, egress_ifindex, to be read whole";
            return Err(self.reject_hint(Errno::EACCES, message, hint));
        }
        self.load_unknown(m);
        Ok(())
    }

    /// Checks an access to the context of a syscall program, which is as long as the program's
    /// accesses require; the user provides its bytes (`syscall_prog_is_valid_access`).
    fn syscall_ctx_access(&mut self, m: &MemAccess, reg: &Reg, off: i64) -> Result<()> {
        self.forbid_stored_leak(m.access, m.value_regno, "into ctx")?;
        self.check_fixed_pointer(m.regno, reg)?;
        let size = m.size;
        if !(0..CONTEXT_BYTES_MAX).contains(&off) || off % i64::from(size) != 0 {
            let message = format!("invalid bpf_context access off={off} size={size}");
            let hint = "the context has at most 65535 bytes, and each access is aligned";
            return Err(self.reject_hint(Errno::EACCES, message, hint));
        }
        let end = off as u32 + size;
        self.learned.context_bytes = self.learned.context_bytes.max(end);
        self.load_unknown(m);
        Ok(())
    }

    /// Checks that the pointer has no offset (`check_ptr_off_reg`).
    pub(crate) fn check_fixed_pointer(&self, regno: u8, reg: &Reg) -> Result<()> {
        let name = type_name(reg.kind);
        if reg.off < 0 {
            let message = format!("negative offset {name} ptr R{regno} off={} disallowed", reg.off);
            return Err(self.reject(Errno::EACCES, message));
        }
        if reg.off != 0 {
            let message =
                format!("dereference of modified {name} ptr R{regno} off={} disallowed", reg.off);
            return Err(self.reject(Errno::EACCES, message));
        }
        if !reg.var.tnum.equals_const(0) {
            let tnum = reg.var.tnum;
            let message = format!(
                "variable {name} access var_off=({:#x}; {:#x}) disallowed",
                tnum.value, tnum.mask
            );
            return Err(self.reject(Errno::EACCES, message));
        }
        Ok(())
    }

    /// Checks that a comparison with `data_end` proved the bytes to be inside the packet.
    pub(crate) fn check_packet_access(
        &mut self,
        regno: u8,
        off: i64,
        size: u32,
        zero_size_allowed: bool,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        if reg.var.smin < 0 {
            return Err(self.negative_index(regno));
        }
        let range = u32::try_from(reg.range()).unwrap_or(0);
        if reg.range() < 0 {
            let message = format!("R{regno} offset is outside of the packet");
            let hint = "on this path the pointer is at data_end or behind it: the comparison is \
                        the wrong way round, or this belongs into its other branch";
            return Err(self.reject_hint(Errno::EINVAL, message, hint));
        }
        self.check_span(regno, off, size, range, zero_size_allowed)
    }

    fn negative_index(&self, regno: u8) -> Box<Rejection> {
        let message = format!(
            "R{regno} min value is negative, either use unsigned index or do a if (index >=0) check."
        );
        self.reject_hint(
            Errno::EACCES,
            message,
            "make the index unsigned, or check that it is >= 0",
        )
    }

    /// Checks an access to a region of `region` bytes, with the pointer's variable part anywhere in
    /// its range (`check_mem_region_access`).
    pub(crate) fn check_region(
        &mut self,
        regno: u8,
        off: i64,
        size: u32,
        region: u32,
        zero_size_allowed: bool,
    ) -> Result<()> {
        let var = self.reg(regno).var;
        if var.smin < 0 && (var.smin == i64::MIN || var.smin.saturating_add(off) < 0) {
            return Err(self.negative_index(regno));
        }
        self.check_span(regno, var.smin.saturating_add(off), size, region, zero_size_allowed)?;
        if var.umax >= VAR_OFF_MAX as u64 {
            let message = format!(
                "R{regno} unbounded memory access, make sure to bounds check any such access"
            );
            let hint = "compare the index with the size before using it, in the same register";
            return Err(self.reject_hint(Errno::EACCES, message, hint));
        }
        self.check_span(regno, var.umax as i64 + off, size, region, zero_size_allowed)
    }

    /// Checks that `off..off + size` lies within `region` bytes (`__check_mem_access`).
    fn check_span(
        &self,
        regno: u8,
        off: i64,
        size: u32,
        region: u32,
        zero_size_allowed: bool,
    ) -> Result<()> {
        let size_ok = size > 0 || zero_size_allowed;
        if off >= 0 && size_ok && off.saturating_add(size.into()) <= i64::from(region) {
            return Ok(());
        }
        let reg = self.reg(regno);
        let (message, hint) = match reg.base() {
            Base::MapKey => (
                format!("invalid access to map key, key_size={region} off={off} size={size}"),
                "stay within the key".to_owned(),
            ),
            Base::MapValue => (
                format!("invalid access to map value, value_size={region} off={off} size={size}"),
                self.value_hint(regno, off, size, region),
            ),
            Base::Packet | Base::PacketMeta => (
                format!(
                    "invalid access to packet, off={off} size={size}, R{regno}(id={},off={off},r={})",
                    reg.id,
                    reg.range()
                ),
                self.packet_hint(regno, off, size),
            ),
            _ => (
                format!("invalid access to memory, mem_size={region} off={off} size={size}"),
                "stay within the memory that was obtained".to_owned(),
            ),
        };
        Err(self.reject_hint(Errno::EACCES, message, &hint))
    }

    /// Checks that a helper or kfunc may read or write `size` bytes at `regno`. With `raw` it fills
    /// them without reading, so that the stack may be uninitialised before; the caller then stores
    /// to them.
    pub(crate) fn check_helper_mem_access(
        &mut self,
        regno: u8,
        size: u32,
        access: Access,
        zero_size_allowed: bool,
        raw: bool,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        let off = i64::from(reg.off);
        match reg.base() {
            _ if reg.maybe_null() => {}
            Base::Packet | Base::PacketMeta => {
                self.learned.changes_packet |= reg.is(Base::Packet) && access == Access::Write;
                return self.check_packet_access(regno, off, size, zero_size_allowed);
            }
            Base::MapKey => {
                if access == Access::Write {
                    return Err(self.cannot_write(regno, &reg));
                }
                let region = self.map_of(&reg).map_or(0, |map| map.key_size);
                return self.check_region(regno, off, size, region, false);
            }
            Base::MapValue => {
                self.check_map_direction(regno, &reg, size, off, access)?;
                let region = self.map_of(&reg).map_or(0, |map| map.value_size);
                self.check_region(regno, off, size, region, zero_size_allowed)?;
                call::check_map_fields(self, regno, 0, size, access, None, true)?;
                return Ok(());
            }
            Base::Mem => {
                if reg.has(Flags::RDONLY) && access == Access::Write {
                    return Err(self.cannot_write(regno, &reg));
                }
                self.learned.changes_packet |=
                    reg.has(Flags::PACKET_SLICE) && access == Access::Write;
                return self.check_region(regno, off, size, reg.mem_size(), zero_size_allowed);
            }
            Base::Stack => {
                return self.check_stack_range_initialized(
                    regno,
                    off,
                    size,
                    access,
                    zero_size_allowed,
                    raw,
                );
            }
            Base::BtfId => return call::check_btf_access(self, regno, 0, size, access, None),
            // Their last byte: the user gives as many as the program accesses.
            Base::Ctx if self.is_syscall() && size > 0 => {
                let last = i32::try_from(size - 1).unwrap_or(i32::MAX);
                return self.check_mem_access(regno, last, 1, access, None, false);
            }
            Base::Ctx if self.is_syscall() && zero_size_allowed => return Ok(()),
            _ => {}
        }
        if zero_size_allowed && size == 0 && reg.is_null_const() {
            return Ok(());
        }
        let name = type_name(reg.kind);
        Err(self.reject(Errno::EACCES, format!("R{regno} type={name} expected=fp")))
    }

    /// Invalidates all packet pointers and slices, after a change of packet contents or bounds
    /// (`clear_all_pkt_pointers`).
    pub(crate) fn clear_all_packet_pointers(&mut self) {
        self.invalidate_regs(|reg| reg.is_packet_any() || reg.has(Flags::PACKET_SLICE));
    }

    fn note_access_fact(&mut self, reg: &Reg, off: i64) {
        let offset = reg.var.is_const().then(|| off + reg.var.tnum.value as i64);
        let offset = offset.and_then(|offset| i32::try_from(offset).ok());
        let fact = match reg.base() {
            // The only field of the dequeue context equals this field of the frame's context.
            Base::Ctx if self.input.prog.attach == AttachType::Dequeue => {
                AccessFact::Ctx { offset: EGRESS_IFINDEX }
            }
            Base::Ctx if self.is_syscall() => AccessFact::Mem,
            Base::Ctx => AccessFact::Ctx { offset: offset.unwrap_or(0) },
            Base::Frame => AccessFact::Frame { offset: offset.unwrap_or(0) },
            Base::Packet | Base::PacketMeta => AccessFact::Packet,
            Base::Stack => AccessFact::Stack {
                up: (self.path.cur.depth() as u32).saturating_sub(reg.frame),
                offset,
            },
            Base::MapValue => match reg.map() {
                Some(map) => AccessFact::MapValue { map: map.index, inner: map.inner, offset },
                None => AccessFact::Mixed,
            },
            Base::Arena => AccessFact::Arena,
            Base::BtfId if reg.has(Flags::ALLOC) => AccessFact::Mem,
            Base::BtfId if reg.has(Flags::TRUSTED) || reg.ref_id != 0 => AccessFact::Btf,
            Base::BtfId => AccessFact::ProbeRead,
            Base::Mem if reg.has(Flags::UNTRUSTED) => AccessFact::ProbeRead,
            Base::Mem | Base::MapKey => AccessFact::Mem,
            // The value that stands for a map in Towpath is no address of the kernel's structure.
            Base::ConstMapPtr => AccessFact::ProbeRead,
            _ => AccessFact::Btf,
        };
        self.learned.aux[self.path.insn_idx].facts.add_access(fact);
    }
}

/// Offset of `egress_ifindex` in `struct xdp_md`.
const EGRESS_IFINDEX: i32 = 20;

/// Maximum size in bytes of the context of a syscall program.
const CONTEXT_BYTES_MAX: i64 = 65535;

/// Whether programs may not write to the values. The values of device maps are used by the map
/// itself.
fn is_read_only(map: &MapDef) -> bool {
    let devices = map.kind.values() == Values::Device;
    map.is_constant() || devices || map.flags & BPF_F_RDONLY_PROG != 0
}
