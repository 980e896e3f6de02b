//! What calls may change, as far as passes care.

use towpath_bpf::proto::{self, ArgKind, Flags, id};

use crate::xir::{Alias, Arg, Op, StackRange};

/// What a call may write. Stack bytes that an address reaches are always among it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Writes {
    /// Where the packet is, and everything else.
    pub(super) all: bool,
    /// Bytes of the packet.
    pub(super) packet: bool,
}

/// What an instruction that is a call may write; `None` for any other.
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
    Writes { all: false, packet: through_pointer || !LEAVES_PACKET.contains(&helper) }
}

/// Helpers that write nothing, or only what an argument with that purpose points to. All others
/// (`bpf_xdp_store_bytes`, `bpf_dynptr_write`, ...) may write packet bytes.
const LEAVES_PACKET: &[u32] = &[
    1, 2, 3, // map_lookup_elem, map_update_elem, map_delete_elem
    5, 6, 7, 8, // ktime_get_ns, trace_printk, get_prandom_u32, get_smp_processor_id
    23, 25, 28, // redirect, perf_event_output, csum_diff
    42, 51, 69, // get_numa_node_id, redirect_map, fib_lookup
    84, 85, 86, 99, // sk_lookup_tcp, sk_lookup_udp, sk_release, skc_lookup_tcp
    87, 88, 89, // map_push_elem, map_pop_elem, map_peek_elem
    93, 94, // spin_lock, spin_unlock
    100, 110, // tcp_check_syncookie, tcp_gen_syncookie
    118, 125, 160, 208, // jiffies64, ktime_get_boot_ns, ktime_get_coarse_ns, ktime_get_tai_ns
    130, 131, 132, 133, 134, // ringbuf_output, _reserve, _submit, _discard, _query
    163, 188, 189, // check_mtu, xdp_get_buff_len, xdp_load_bytes
    195, // map_lookup_percpu_elem
    204, 205, 206,
    207, // tcp_raw_gen_syncookie_ipv4, _ipv6, tcp_raw_check_syncookie_ipv4, _ipv6
];
