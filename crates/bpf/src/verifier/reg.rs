//! The verifier's knowledge about one register: its type, and the numbers that qualify it.
//!
//! The kernel's `struct bpf_reg_state` and `enum bpf_reg_type`, with the union turned into an enum
//! so that a map pointer's map can't be read as a packet pointer's range.

use std::ops::BitOr;

use crate::btf::TypeId;

use super::scalar::Scalar;

/// The type of a register without its flags (`base_type()` of the kernel's `bpf_reg_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Base {
    /// Never written, and not readable.
    NotInit,
    /// A number, not usable as an address.
    Scalar,
    /// `struct xdp_md *`, or `struct dequeue_ctx *`.
    Ctx,
    /// `struct xdp_md *` of a packet that the program took out of a queue and holds.
    Frame,
    /// A map (not its contents): `CONST_PTR_TO_MAP`.
    ConstMapPtr,
    MapValue,
    MapKey,
    /// Frame pointer plus offset; [`Reg::frame`] names the frame.
    Stack,
    PacketMeta,
    Packet,
    PacketEnd,
    Socket,
    SockCommon,
    TcpSock,
    XdpSock,
    /// A typed kernel (or allocated object) pointer.
    BtfId,
    /// A region of known size.
    Mem,
    Arena,
    Buf,
    /// Address of a function of the program: a callback.
    Func,
    /// `CONST_PTR_TO_DYNPTR`: a dynptr handed to a callback or global function.
    Dynptr,
}

/// Modifiers of a type (`enum bpf_type_flag`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub(crate) struct Flags(pub(crate) u32);

impl Flags {
    pub(crate) const NONE: Flags = Flags(0);
    pub(crate) const MAYBE_NULL: Flags = Flags(1 << 0);
    pub(crate) const RDONLY: Flags = Flags(1 << 1);
    pub(crate) const RINGBUF: Flags = Flags(1 << 2);
    pub(crate) const USER: Flags = Flags(1 << 3);
    pub(crate) const PERCPU: Flags = Flags(1 << 4);
    pub(crate) const UNTRUSTED: Flags = Flags(1 << 5);
    pub(crate) const ALLOC: Flags = Flags(1 << 6);
    pub(crate) const TRUSTED: Flags = Flags(1 << 7);
    pub(crate) const RCU: Flags = Flags(1 << 8);
    pub(crate) const NON_OWN_REF: Flags = Flags(1 << 9);
    /// For `Mem`: bytes of the frame, invalid when the frame changes (`DYNPTR_TYPE_XDP`).
    pub(crate) const PACKET_SLICE: Flags = Flags(1 << 10);

    pub(crate) const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        self.with(other)
    }
}

/// Base type and flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct RegType {
    pub(crate) base: Base,
    pub(crate) flags: Flags,
}

impl RegType {
    pub(crate) const fn new(base: Base, flags: Flags) -> Self {
        RegType { base, flags }
    }

    pub(crate) const fn plain(base: Base) -> Self {
        RegType { base, flags: Flags::NONE }
    }

    pub(crate) const fn has(self, flag: Flags) -> bool {
        self.flags.has(flag)
    }
}

/// One of the object's maps, or the template of its inner maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct MapRef {
    /// Index into [`crate::Linked::maps`].
    pub(crate) index: u32,
    /// Whether it is the inner map of `index`.
    pub(crate) inner: bool,
}

/// Type table of a type id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum BtfSource {
    /// [`crate::Linked::kernel_btf`].
    Kernel,
    /// [`crate::Linked::btf`]: types the program defines (`bpf_obj_new`).
    Object,
}

/// A type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct BtfRef {
    pub(crate) source: BtfSource,
    pub(crate) id: TypeId,
}

/// `enum bpf_dynptr_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum DynptrKind {
    Invalid,
    Local,
    Ringbuf,
    Xdp,
}

/// `enum bpf_iter_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum IterState {
    Active,
    Drained,
}

/// Kfuncs that saved an interrupt state: `local_irq_save`, or a resilient spin lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum IrqClass {
    Native,
    Lock,
}

/// The part of a register that depends on its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payload {
    None,
    /// For packet pointers: number of bytes from `id`'s base that are proved to be inside the
    /// packet; or one of [`AT_PKT_END`], [`BEYOND_PKT_END`].
    Range(i32),
    /// For map pointers, values and keys. `uid` distinguishes lookups of inner maps.
    Map {
        map: MapRef,
        uid: u32,
    },
    Btf(BtfRef),
    /// For `Mem`: its size in bytes, and the dynptr that it is a slice of (0: none).
    Mem {
        size: u32,
        dynptr_id: u32,
    },
    Dynptr {
        kind: DynptrKind,
        first_slot: bool,
    },
    Iter {
        ty: BtfRef,
        state: IterState,
        depth: u32,
    },
    Irq(IrqClass),
    /// For `Func`: index of the subprogram.
    Subprog(usize),
}

/// The packet pointer is at or behind `data_end` (`pkt > pkt_end` did not hold: `>=`).
pub(crate) const AT_PKT_END: i32 = -1;
/// The packet pointer is behind `data_end`.
pub(crate) const BEYOND_PKT_END: i32 = -2;
/// In [`Reg::id`] of scalars: the value is that of the id plus [`Reg::off`], in 64 bits.
pub(crate) const ADD_CONST_64: u32 = 1 << 31;
/// As [`ADD_CONST_64`], with a sum of 32 bits; the id's value has 32 bits, too.
pub(crate) const ADD_CONST_32: u32 = 1 << 30;
/// Either flag (`BPF_ADD_CONST`).
pub(crate) const ADD_CONST: u32 = ADD_CONST_64 | ADD_CONST_32;

/// One register, or one spilled to a stack slot (`struct bpf_reg_state`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Reg {
    pub(crate) kind: RegType,
    /// Fixed part of a pointer's offset; for a scalar with [`ADD_CONST`], its distance to the id.
    pub(crate) off: i32,
    /// A scalar's value, or the variable part of a pointer's offset.
    pub(crate) var: Scalar,
    pub(crate) payload: Payload,
    /// Registers of equal id have equal value (scalars), base (packet) or null-ness.
    pub(crate) id: u32,
    /// The reference that this pointer holds (0: none), `ref_obj_id`.
    pub(crate) ref_id: u32,
    /// For stack pointers: the frame that they point into. For other pointers: the call whose end
    /// invalidates them, as its depth plus 1 (0: none), for [`crate::proto::Ties::CALLBACK`] and a
    /// slice's buffer.
    pub(crate) frame: u32,
    /// Whether the verdict on the path depended on this scalar's value.
    pub(crate) precise: bool,
    /// The call that made the register useless, for hints.
    pub(crate) void: Void,
}

/// The call that made a pointer useless. It plays no part in comparisons of registers: it adds no
/// knowledge about their values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Void {
    /// Slot of the call.
    pub(crate) by: Option<usize>,
    /// Whether it was a pointer into the packet.
    pub(crate) of_packet: bool,
}

impl PartialEq for Void {
    fn eq(&self, _other: &Void) -> bool {
        true
    }
}

impl Reg {
    /// An unreadable register.
    pub(crate) const NOT_INIT: Reg = Reg {
        kind: RegType::plain(Base::NotInit),
        off: 0,
        var: Scalar::UNKNOWN,
        payload: Payload::None,
        id: 0,
        ref_id: 0,
        frame: 0,
        precise: false,
        void: Void { by: None, of_packet: false },
    };

    /// An unknown number.
    pub(crate) const UNKNOWN: Reg = Reg { kind: RegType::plain(Base::Scalar), ..Reg::NOT_INIT };

    /// A known number.
    pub(crate) fn constant(value: u64) -> Reg {
        Reg { kind: RegType::plain(Base::Scalar), var: Scalar::constant(value), ..Reg::NOT_INIT }
    }

    /// A number within `var`.
    pub(crate) fn scalar(var: Scalar) -> Reg {
        Reg { kind: RegType::plain(Base::Scalar), var, ..Reg::NOT_INIT }
    }

    /// A pointer with offset 0.
    pub(crate) fn pointer(base: Base, flags: Flags, payload: Payload) -> Reg {
        Reg { kind: RegType::new(base, flags), var: Scalar::constant(0), payload, ..Reg::NOT_INIT }
    }

    pub(crate) fn base(&self) -> Base {
        self.kind.base
    }

    pub(crate) fn is(&self, base: Base) -> bool {
        self.kind.base == base
    }

    pub(crate) fn has(&self, flag: Flags) -> bool {
        self.kind.flags.has(flag)
    }

    pub(crate) fn is_scalar(&self) -> bool {
        self.kind.base == Base::Scalar
    }

    pub(crate) fn is_pointer(&self) -> bool {
        !matches!(self.kind.base, Base::Scalar | Base::NotInit)
    }

    pub(crate) fn maybe_null(&self) -> bool {
        self.has(Flags::MAYBE_NULL)
    }

    /// Whether it is `data`, `data_meta` or `data_end` (`reg_is_pkt_pointer_any`).
    pub(crate) fn is_packet_any(&self) -> bool {
        matches!(self.kind.base, Base::Packet | Base::PacketMeta | Base::PacketEnd)
    }

    /// Whether it is `data` or `data_meta`.
    pub(crate) fn is_packet(&self) -> bool {
        matches!(self.kind.base, Base::Packet | Base::PacketMeta)
    }

    /// The value of a scalar, if known.
    pub(crate) fn const_value(&self) -> Option<u64> {
        (self.is_scalar() && self.var.tnum.is_const()).then_some(self.var.tnum.value)
    }

    /// Whether it is the known scalar 0 (`register_is_null`).
    pub(crate) fn is_null_const(&self) -> bool {
        self.const_value() == Some(0)
    }

    /// The map of a map pointer, value or key.
    pub(crate) fn map(&self) -> Option<MapRef> {
        match self.payload {
            Payload::Map { map, .. } => Some(map),
            _ => None,
        }
    }

    pub(crate) fn map_uid(&self) -> u32 {
        match self.payload {
            Payload::Map { uid, .. } => uid,
            _ => 0,
        }
    }

    /// The type of a typed pointer.
    pub(crate) fn btf(&self) -> Option<BtfRef> {
        match self.payload {
            Payload::Btf(ty) => Some(ty),
            _ => None,
        }
    }

    /// A packet pointer's proved range; 0 for others.
    pub(crate) fn range(&self) -> i32 {
        match self.payload {
            Payload::Range(range) => range,
            _ => 0,
        }
    }

    pub(crate) fn mem_size(&self) -> u32 {
        match self.payload {
            Payload::Mem { size, .. } => size,
            _ => 0,
        }
    }

    pub(crate) fn dynptr_id(&self) -> u32 {
        match self.payload {
            Payload::Mem { dynptr_id, .. } => dynptr_id,
            _ => 0,
        }
    }

    /// The dynptr kind of a dynptr slot or `Dynptr` register.
    pub(crate) fn dynptr(&self) -> Option<DynptrKind> {
        match self.payload {
            Payload::Dynptr { kind, .. } => Some(kind),
            _ => None,
        }
    }

    /// The function a `Func` register points to.
    pub(crate) fn subprog(&self) -> Option<usize> {
        match self.payload {
            Payload::Subprog(subprog) => Some(subprog),
            _ => None,
        }
    }

    /// Offset of a pointer whose variable part is known.
    pub(crate) fn const_offset(&self) -> Option<i64> {
        let variable = self.var.tnum.is_const().then_some(self.var.tnum.value as i64)?;
        i64::from(self.off).checked_add(variable)
    }
}
