//! The helpers an XDP program may call, by family (`xdp_func_proto` and `bpf_base_func_proto`).

mod alloc;
mod base;
mod maps;
mod net;
mod sock;
mod trace;
mod xdp;

use super::{Arg, ArgKind, Backing, Capability, Flags, HelperProto, Ret, RetKind, Ties, id};

/// All tables.
pub(super) const TABLES: &[&[HelperProto]] =
    &[xdp::TABLE, net::TABLE, sock::TABLE, maps::TABLE, base::TABLE, alloc::TABLE, trace::TABLE];

/// A plain helper with integer result, no privilege and full fidelity; the builders below change
/// that.
const fn helper(id: u32, args: &'static [Arg], summary: &'static str) -> HelperProto {
    HelperProto {
        id,
        name: match id::name(id) {
            Some(name) => name,
            None => panic!("a table row has a number that no helper has"),
        },
        gpl_only: false,
        capability: Capability::Net,
        args,
        ret: INTEGER,
        ties: Ties::NONE,
        pkt_access: false,
        changes_packet: false,
        keeps_packet: false,
        might_sleep: false,
        summary,
        backing: Backing::Full,
    }
}

impl HelperProto {
    const fn gpl(self) -> Self {
        HelperProto { gpl_only: true, ..self }
    }

    const fn cap_bpf(self) -> Self {
        HelperProto { capability: Capability::Bpf, ..self }
    }

    const fn cap_perfmon(self) -> Self {
        HelperProto { capability: Capability::Perfmon, ..self }
    }

    const fn ret(self, ret: Ret) -> Self {
        HelperProto { ret, ..self }
    }

    const fn ties(self, ties: Ties) -> Self {
        HelperProto { ties, ..self }
    }

    const fn pkt(self) -> Self {
        HelperProto { pkt_access: true, ..self }
    }

    const fn changes_packet(self) -> Self {
        HelperProto { changes_packet: true, ..self }
    }

    const fn keeps_packet(self) -> Self {
        HelperProto { keeps_packet: true, ..self }
    }

    const fn sleeps(self) -> Self {
        HelperProto { might_sleep: true, ..self }
    }

    const fn backed(self, backing: Backing) -> Self {
        HelperProto { backing, ..self }
    }
}

const INTEGER: Ret = Ret::new(RetKind::Integer);
const VOID: Ret = Ret::new(RetKind::Void);
const VALUE_OR_NULL: Ret = Ret::new(RetKind::MapValue).with(Flags::NULL);

const MAP: Arg = Arg::new(ArgKind::ConstMapPtr);
const KEY: Arg = Arg::new(ArgKind::MapKey);
const VALUE: Arg = Arg::new(ArgKind::MapValue);
const ANY: Arg = Arg::new(ArgKind::Anything);
const CTX: Arg = Arg::new(ArgKind::Ctx);
const MEM_READ: Arg = Arg::new(ArgKind::Mem).with(Flags::RDONLY);
const MEM_WRITE: Arg = Arg::new(ArgKind::Mem).with(Flags::WRITE);
const MEM_UNINIT: Arg = Arg::new(ArgKind::Mem).with(Flags::UNINIT).with(Flags::WRITE);
const SIZE: Arg = Arg::new(ArgKind::ConstSize);
const SIZE_OR_ZERO: Arg = Arg::new(ArgKind::ConstSizeOrZero);
const FUNC: Arg = Arg::new(ArgKind::Func);
const STACK_OR_NULL: Arg = Arg::new(ArgKind::Stack).with(Flags::NULL);
const DYNPTR: Arg = Arg::new(ArgKind::Dynptr);
