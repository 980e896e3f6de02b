//! What a host's stack would answer, where Towpath has none: no sockets, no tasks or cgroups to
//! look up, no keys, no flow table, no security associations.
//!
//! Each answer is the kernel's own for "there is no such thing", so programs take the way they take
//! there. What is never reachable without an object (releasing one, say) is here too: the verifier
//! types it, and no run gets that far.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::{Call, KfuncTable, Table};

pub(super) const TABLE: Table = &[
    (id::SK_LOOKUP_TCP, null),
    (id::SK_LOOKUP_UDP, null),
    (id::SKC_LOOKUP_TCP, null),
    (id::SK_RELEASE, null),
    (id::SKC_TO_TCP_SOCK, null),
    (id::SKC_TO_TCP6_SOCK, null),
    (id::SKC_TO_TCP_TIMEWAIT_SOCK, null),
    (id::SKC_TO_TCP_REQUEST_SOCK, null),
    (id::SKC_TO_UDP6_SOCK, null),
    (id::SKC_TO_UNIX_SOCK, null),
    (id::SKC_TO_MPTCP_SOCK, null),
    (id::TCP_CHECK_SYNCOOKIE, invalid),
    (id::TCP_GEN_SYNCOOKIE, invalid),
    (id::GET_CGROUP_CLASSID, null),
    (id::GET_CURRENT_CGROUP_ID, null),
    (id::GET_CURRENT_ANCESTOR_CGROUP_ID, null),
    (id::CURRENT_TASK_UNDER_CGROUP, invalid),
    (id::TASK_STORAGE_GET, null),
    (id::TASK_STORAGE_DELETE, not_found),
    (id::CGRP_STORAGE_GET, null),
    (id::CGRP_STORAGE_DELETE, not_found),
    (id::PERF_EVENT_READ, not_found),
    (id::PERF_EVENT_READ_VALUE, not_found),
    (id::SEND_SIGNAL, not_permitted),
    (id::SEND_SIGNAL_THREAD, not_permitted),
    (id::GET_TASK_STACK, not_supported),
    (id::GET_BRANCH_SNAPSHOT, not_found),
    (id::TASK_PT_REGS, null),
    (id::FIND_VMA, not_found),
    (id::SNPRINTF_BTF, not_supported),
];

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_xdp_flow_lookup", flow_lookup),
    ("bpf_xdp_get_xfrm_state", xfrm_state),
    ("bpf_xdp_xfrm_state_release", null),
    ("bpf_xdp_metadata_rx_timestamp", no_hint),
    ("bpf_xdp_metadata_rx_hash", no_hint),
    ("bpf_xdp_metadata_rx_vlan_tag", no_hint),
    ("bpf_crypto_encrypt", invalid),
    ("bpf_crypto_decrypt", invalid),
    ("bpf_task_acquire", null),
    ("bpf_task_release", null),
    ("bpf_task_from_pid", null),
    ("bpf_task_from_vpid", null),
    ("bpf_task_under_cgroup", null),
    ("bpf_task_get_cgroup1", null),
    ("bpf_cgroup_acquire", null),
    ("bpf_cgroup_release", null),
    ("bpf_cgroup_ancestor", null),
    ("bpf_cgroup_from_id", null),
    ("bpf_cgroup_read_xattr", no_data),
    ("bpf_send_signal_task", not_permitted),
    ("bpf_lookup_system_key", null),
    ("bpf_key_put", null),
    ("bpf_get_kmem_cache", null),
    ("crash_kexec", null),
];

fn null(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(0)
}

fn invalid(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(Errno::EINVAL.to_reg())
}

fn not_found(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(Errno::ENOENT.to_reg())
}

fn not_permitted(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(Errno::EPERM.to_reg())
}

fn not_supported(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(Errno::EOPNOTSUPP.to_reg())
}

fn no_data(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(Errno::ENODATA.to_reg())
}

/// A receive hint: frames of a capture or buffer carry none (`-ENODATA` is what veth answers for
/// frames that never were socket buffers).
fn no_hint(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(Errno::ENODATA.to_reg())
}

/// `bpf_xdp_flow_lookup(ctx, fib_tuple, opts, opts_len)`: `opts->error` says why there is nothing.
fn flow_lookup(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, _, opts, len, _] = args;
    let error = if len as u32 == FLOW_OPTS_BYTES { Errno::ENOENT } else { Errno::EINVAL };
    write_error(call, opts, 0, error)
}

/// `bpf_xdp_get_xfrm_state(ctx, opts, opts_size)`: `opts->error` says why there is nothing.
fn xfrm_state(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, opts, len, ..] = args;
    let error = if len as u32 >= XFRM_OPTS_BYTES { Errno::ENOENT } else { Errno::EINVAL };
    write_error(call, opts, 0, error)
}

fn write_error(call: &Call<'_, '_>, opts: u64, offset: u64, error: Errno) -> Result<u64, Stop> {
    call.write(opts + offset, &(-error.0).to_le_bytes())?;
    Ok(0)
}

/// `sizeof(struct bpf_flowtable_opts)`
const FLOW_OPTS_BYTES: u32 = 4;
/// `BPF_XFRM_STATE_OPTS_SZ`, up to and without padding.
const XFRM_OPTS_BYTES: u32 = 20;
