//! Helpers for parts of a host's stack that Towpath does not have: tasks and cgroups, the kernel's
//! own socket types, keys, and a flow table.
//!
//! Each result is the kernel's own for "there is no such object", so programs behave as there.
//! Functions that need an object, e.g. to release one, are also listed: the verifier types them,
//! and no run reaches them.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::{Call, KfuncTable, Table, entry};

pub(super) const TABLE: Table = &[
    (id::SKC_TO_TCP_SOCK, entry(null)),
    (id::SKC_TO_TCP6_SOCK, entry(null)),
    (id::SKC_TO_TCP_TIMEWAIT_SOCK, entry(null)),
    (id::SKC_TO_TCP_REQUEST_SOCK, entry(null)),
    (id::SKC_TO_UDP6_SOCK, entry(null)),
    (id::SKC_TO_UNIX_SOCK, entry(null)),
    (id::SKC_TO_MPTCP_SOCK, entry(null)),
    (id::GET_CGROUP_CLASSID, entry(null)),
    (id::GET_CURRENT_CGROUP_ID, entry(null)),
    (id::GET_CURRENT_ANCESTOR_CGROUP_ID, entry(null)),
    (id::CURRENT_TASK_UNDER_CGROUP, entry(invalid)),
    (id::TASK_STORAGE_GET, entry(null)),
    (id::TASK_STORAGE_DELETE, entry(not_found)),
    (id::CGRP_STORAGE_GET, entry(null)),
    (id::CGRP_STORAGE_DELETE, entry(not_found)),
    (id::PERF_EVENT_READ, entry(not_found)),
    (id::PERF_EVENT_READ_VALUE, entry(not_found)),
    (id::SEND_SIGNAL, entry(not_permitted)),
    (id::SEND_SIGNAL_THREAD, entry(not_permitted)),
    (id::GET_TASK_STACK, entry(not_supported)),
    (id::GET_BRANCH_SNAPSHOT, entry(not_found)),
    (id::TASK_PT_REGS, entry(null)),
    (id::FIND_VMA, entry(not_found)),
    (id::SNPRINTF_BTF, entry(not_supported)),
];

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_xdp_flow_lookup", entry(flow_lookup)),
    ("bpf_task_acquire", entry(null)),
    ("bpf_task_release", entry(null)),
    ("bpf_task_from_pid", entry(null)),
    ("bpf_task_from_vpid", entry(null)),
    ("bpf_task_under_cgroup", entry(null)),
    ("bpf_task_get_cgroup1", entry(null)),
    ("bpf_cgroup_acquire", entry(null)),
    ("bpf_cgroup_release", entry(null)),
    ("bpf_cgroup_ancestor", entry(null)),
    ("bpf_cgroup_from_id", entry(null)),
    ("bpf_cgroup_read_xattr", entry(no_data)),
    ("bpf_send_signal_task", entry(not_permitted)),
    ("bpf_lookup_system_key", entry(null)),
    ("bpf_key_put", entry(null)),
    ("bpf_get_kmem_cache", entry(null)),
    ("crash_kexec", entry(null)),
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

/// `bpf_xdp_flow_lookup(ctx, fib_tuple, opts, opts_len)`: sets `opts->error` to the reason.
fn flow_lookup(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, _, opts, len, _] = args;
    let error = if len as u32 == FLOW_OPTS_BYTES { Errno::ENOENT } else { Errno::EINVAL };
    write_error(call, opts, 0, error)
}

fn write_error(call: &Call<'_, '_>, opts: u64, offset: u64, error: Errno) -> Result<u64, Stop> {
    call.write(opts + offset, &(-error.0).to_le_bytes())?;
    Ok(0)
}

/// `sizeof(struct bpf_flowtable_opts)`
const FLOW_OPTS_BYTES: u32 = 4;
