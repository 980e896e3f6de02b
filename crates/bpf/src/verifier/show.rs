//! Registers and stack slots in the notation of the kernel's log, e.g. `R1=pkt(off=14,r=34)`.

use std::fmt::Write as _;

use crate::insn::REG_COUNT;

use super::env::Verifier;
use super::reg::{ADD_CONST, Base, DynptrKind, Flags, Payload, Reg, RegType};
use super::scalar::Scalar;
use super::state::{Frame, SlotKind};

/// The kernel's name of a type (`reg_type_str`).
pub(crate) fn type_name(kind: RegType) -> String {
    let prefixes = [
        (Flags::RDONLY, "rdonly_"),
        (Flags::RINGBUF, "ringbuf_"),
        (Flags::USER, "user_"),
        (Flags::PERCPU, "percpu_"),
        (Flags::UNTRUSTED, "untrusted_"),
        (Flags::TRUSTED, "trusted_"),
        (Flags::RCU, "rcu_"),
    ];
    let mut out = String::new();
    for (flag, text) in prefixes {
        if kind.has(flag) {
            out.push_str(text);
        }
    }
    out.push_str(base_name(kind.base));
    if kind.has(Flags::MAYBE_NULL) {
        out.push_str(if kind.base == Base::BtfId { "or_null_" } else { "_or_null" });
    }
    out
}

fn base_name(base: Base) -> &'static str {
    match base {
        Base::NotInit => "?",
        Base::Scalar => "scalar",
        Base::Ctx => "ctx",
        Base::Frame => "xdp_md",
        Base::ConstMapPtr => "map_ptr",
        Base::MapValue => "map_value",
        Base::MapKey => "map_key",
        Base::Stack => "fp",
        Base::PacketMeta => "pkt_meta",
        Base::Packet => "pkt",
        Base::PacketEnd => "pkt_end",
        Base::Socket => "sock",
        Base::SockCommon => "sock_common",
        Base::TcpSock => "tcp_sock",
        Base::XdpSock => "xdp_sock",
        Base::BtfId => "ptr_",
        Base::Mem => "mem",
        Base::Arena => "arena",
        Base::Buf => "buf",
        Base::Func => "func",
        Base::Dynptr => "dynptr_ptr",
    }
}

/// The kernel's name of a dynptr's kind (`dynptr_type_str`).
pub(crate) fn dynptr_name(kind: DynptrKind) -> &'static str {
    match kind {
        DynptrKind::Invalid => "<invalid>",
        DynptrKind::Local => "local",
        DynptrKind::Ringbuf => "ringbuf",
        DynptrKind::Xdp => "xdp",
    }
}

impl Verifier<'_> {
    /// One register (`print_reg_state`), without its name.
    pub(crate) fn show_reg(&self, reg: &Reg, frame: usize) -> String {
        let precise = if reg.is_scalar() && reg.precise { "P" } else { "" };
        if let Some(value) = reg.const_value() {
            return format!("{precise}{}", number(value as i64));
        }
        let mut out = format!("{precise}{}", type_name(reg.kind));
        if reg.is(Base::Arena) {
            return out;
        }
        if reg.is(Base::Stack) {
            if reg.frame as usize != frame {
                let _ = write!(out, "[{}]", reg.frame);
            }
            if let Some(off) = reg.const_offset() {
                let _ = write!(out, "{off}");
                return out;
            }
        }
        if let Some(ty) = reg.btf() {
            out.push_str(self.btf(ty.source).map_or("?", |btf| btf.name(ty.id)));
        }
        out.push('(');
        out.push_str(&self.attributes(reg).join(","));
        out.push(')');
        out
    }

    fn attributes(&self, reg: &Reg) -> Vec<String> {
        let mut out = Vec::new();
        if reg.id != 0 {
            let mut id = format!("id={}", reg.id & !ADD_CONST);
            if reg.is_scalar() && reg.id & ADD_CONST != 0 {
                let _ = write!(id, "{:+}", reg.off);
            }
            out.push(id);
        }
        if reg.ref_id != 0 {
            out.push(format!("ref_obj_id={}", reg.ref_id));
        }
        if reg.has(Flags::NON_OWN_REF) {
            out.push("non_own_ref".to_owned());
        }
        if let Some(map) = self.map_of(reg) {
            out.push(format!("map={},ks={},vs={}", map.name, map.key_size, map.value_size));
        }
        if !reg.is_scalar() && reg.off != 0 {
            out.push(format!("off={}", reg.off));
        }
        if reg.is_packet_any() {
            out.push(format!("r={}", reg.range()));
        }
        if reg.is(Base::Mem) {
            out.push(format!("sz={}", reg.mem_size()));
        }
        if let Some(kind) = reg.dynptr() {
            out.push(format!("type={}", dynptr_name(kind)));
        }
        if !reg.var.is_const() {
            show_ranges(&reg.var, &mut out);
        } else if reg.var.tnum.value != 0 {
            out.push(format!("imm={:#x}", reg.var.tnum.value));
        }
        out
    }

    /// The used registers of a frame, then its stack.
    pub(crate) fn show_frame(&self, frame: &Frame, depth: usize) -> String {
        let mut parts = Vec::new();
        for regno in 0..REG_COUNT {
            let reg = &frame.regs[regno];
            if !reg.is(Base::NotInit) {
                parts.push(format!("R{regno}={}", self.show_reg(reg, depth)));
            }
        }
        for (spi, slot) in frame.stack.iter().enumerate() {
            if slot.kinds.iter().all(|kind| *kind == SlotKind::Invalid) {
                continue;
            }
            let off = (spi as i64 + 1) * -8;
            let text = if slot.is_spill() {
                // Bytes beside a narrow spill come first: they have the higher addresses.
                let beside = slot.kinds.iter().filter(|kind| **kind != SlotKind::Spill);
                let beside: String = beside.map(|kind| kind_letter(*kind)).collect();
                beside + &self.show_reg(&slot.reg, depth)
            } else if let Payload::Iter { state, .. } = slot.reg.payload {
                format!("iter({state:?})").to_lowercase()
            } else if let (true, Some(kind)) = (slot.special().is_some(), slot.reg.dynptr()) {
                format!("dynptr_{}", dynptr_name(kind))
            } else {
                slot.kinds.iter().rev().map(|kind| kind_letter(*kind)).collect()
            };
            parts.push(format!("fp{off}={text}"));
        }
        let held = &self.path.cur.refs.list;
        if !held.is_empty() && depth == self.path.cur.depth() {
            let ids: Vec<String> = held.iter().map(|held| held.id.to_string()).collect();
            parts.push(format!("refs={}", ids.join(",")));
        }
        parts.join(" ")
    }
}

/// A number in decimal if it is short, as in `verbose_snum`.
fn number(value: i64) -> String {
    if (-0x1_0000..0x1_0000).contains(&value) { value.to_string() } else { format!("{value:#x}") }
}

fn kind_letter(kind: SlotKind) -> char {
    match kind {
        SlotKind::Invalid => '?',
        SlotKind::Spill => 'r',
        SlotKind::Misc => 'm',
        SlotKind::Zero => '0',
        SlotKind::Dynptr => 'd',
        SlotKind::Iter => 'i',
        SlotKind::Irq => 'f',
    }
}

/// Bounds that restrict the type's range, equal ones together (`print_scalar_ranges`).
fn show_ranges(s: &Scalar, out: &mut Vec<String>) {
    let bounds: [(&str, i128, bool); 8] = [
        ("smin", s.smin.into(), s.smin == i64::MIN),
        ("smax", s.smax.into(), s.smax == i64::MAX),
        ("umin", s.umin.into(), s.umin == 0),
        ("umax", s.umax.into(), s.umax == u64::MAX),
        ("smin32", s.s32_min.into(), s.s32_min == i32::MIN),
        ("smax32", s.s32_max.into(), s.s32_max == i32::MAX),
        ("umin32", s.u32_min.into(), s.u32_min == 0),
        ("umax32", s.u32_max.into(), s.u32_max == u32::MAX),
    ];
    let mut shown = [false; 8];
    for i in 0..bounds.len() {
        let (_, value, omitted) = bounds[i];
        if omitted || shown[i] {
            continue;
        }
        let mut text = String::new();
        for j in i..bounds.len() {
            if !bounds[j].2 && bounds[j].1 == value {
                shown[j] = true;
                text.push_str(bounds[j].0);
                text.push('=');
            }
        }
        let small = (-0x1_0000..0x1_0000).contains(&value);
        let shown_value = match (small, u64::try_from(value)) {
            (false, Ok(value)) => format!("{value:#x}"),
            _ => value.to_string(),
        };
        out.push(text + &shown_value);
    }
    if !s.tnum.is_unknown() {
        out.push(format!("var_off=({:#x}; {:#x})", s.tnum.value, s.tnum.mask));
    }
}
