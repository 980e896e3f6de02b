//! Effects of calls, for passes.

use towpath_bpf::proto::{self, ArgKind, Flags, id};

use crate::xir::{Alias, Arg, Op, StackRange};

/// Memory that a call may write. It always includes stack bytes that an address reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Writes {
    /// Whether it may move the packet and write any memory.
    pub(super) all: bool,
    /// Whether it may write bytes of the packet.
    pub(super) packet: bool,
}

/// Memory that a call instruction may write; `None` for any other instruction.
pub(super) fn of_call(op: &Op) -> Option<Writes> {
    match op {
        Op::CallHelper { id, args } => Some(of_helper(*id, args)),
        Op::CallRuntime { function, .. } => {
            let packet = function.effects().writes.includes(Alias::Packet);
            Some(Writes { all: false, packet })
        }
        Op::MapLookup { .. } => Some(Writes { all: false, packet: false }),
        Op::CallKfunc { .. } | Op::Call { .. } => Some(Writes { all: true, packet: true }),
        _ => None,
    }
}

/// Named stack bytes that a call may write.
pub(super) fn written_stack(op: &Op) -> impl Iterator<Item = StackRange> {
    let args: &[Arg] = match op {
        Op::CallHelper { args, .. } | Op::CallKfunc { args, .. } | Op::CallRuntime { args, .. } => {
            args
        }
        _ => &[],
    };
    args.iter().filter_map(|arg| match arg {
        Arg::StackReadWrite(range) => Some(*range),
        Arg::Value(_) | Arg::StackRead(_) => None,
    })
}

fn of_helper(helper: u32, args: &[Arg]) -> Writes {
    let Some(proto) = proto::helper(helper) else { return Writes { all: true, packet: true } };
    // A helper with a callback runs code of the program.
    let runs_program = proto.args.iter().any(|arg| arg.kind == ArgKind::Func);
    if proto.changes_packet || runs_program || helper == id::TAIL_CALL {
        return Writes { all: true, packet: true };
    }
    let writes = |flags: Flags| flags.has(Flags::WRITE) || flags.has(Flags::UNINIT);
    let through_pointer = proto.args.iter().zip(args).any(|(proto, arg)| {
        writes(proto.flags) && proto.kind != ArgKind::Dynptr && matches!(arg, Arg::Value(_))
    });
    Writes { all: false, packet: through_pointer || !proto.keeps_packet }
}
