//! The current task: the process and thread of the worker. In the kernel it is the interrupted
//! task.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::{Call, KfuncTable, Table, entry};

pub(super) const TABLE: Table = &[
    (id::GET_CURRENT_PID_TGID, entry(pid_tgid)),
    (id::GET_NS_CURRENT_PID_TGID, entry(ns_pid_tgid)),
    (id::GET_CURRENT_UID_GID, entry(uid_gid)),
    (id::GET_CURRENT_COMM, entry(comm)),
    (id::GET_CURRENT_TASK, entry(task)),
    (id::GET_CURRENT_TASK_BTF, entry(task)),
    (id::PER_CPU_PTR, entry(per_cpu)),
    (id::THIS_CPU_PTR, entry(this_cpu)),
];

pub(super) const KFUNCS: KfuncTable =
    &[("bpf_cast_to_kern_ctx", entry(kernel_ctx)), ("bpf_rdonly_cast", entry(read_only))];

/// `bpf_get_current_pid_tgid()`
#[inline(always)]
fn pid_tgid(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    let ask = || {
        let process = rustix::process::getpid().as_raw_nonzero().get() as u64;
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        process << 32 | thread
    };
    Ok(*call.run.pid_tgid.get_or_insert_with(ask))
}

/// `bpf_get_ns_current_pid_tgid(dev, ino, nsdata, size)`: supports the process's own namespace
/// only.
#[inline(always)]
fn ns_pid_tgid(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, _, nsdata, size, _] = args;
    call.write(nsdata, &vec![0; size as u32 as usize])?;
    Ok(Errno::EINVAL.to_reg())
}

/// `bpf_get_current_uid_gid()`
#[inline(always)]
fn uid_gid(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    let ask = || {
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        u64::from(group.as_raw()) << 32 | u64::from(user.as_raw())
    };
    Ok(*call.run.uid_gid.get_or_insert_with(ask))
}

/// `bpf_get_current_comm(buf, size)`
#[inline(always)]
fn comm(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [buf, size, ..] = args;
    let mut text = super::call::Bytes::zeroed(size as u32 as usize);
    let text = text.as_mut();
    let len = NAME.len().min(text.len().saturating_sub(1));
    text[..len].copy_from_slice(&NAME[..len]);
    call.write(buf, text)?;
    Ok(0)
}

/// `bpf_get_current_task()` and `_btf`: a task without known contents.
#[inline(always)]
fn task(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.run.worker.unknown_object())
}

/// `bpf_per_cpu_ptr(percpu_ptr, cpu)`
#[inline(always)]
fn per_cpu(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let cpus = call.run.maps.domain().workers() as u64;
    let cpu = u64::from(args[1] as u32);
    Ok(if cpu < cpus { super::objects::percpu_address(call, args[0], cpu) } else { 0 })
}

/// `bpf_this_cpu_ptr(percpu_ptr)`
#[inline(always)]
fn this_cpu(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let cpu = u64::from(call.run.worker.number());
    Ok(super::objects::percpu_address(call, args[0], cpu))
}

/// `bpf_cast_to_kern_ctx(ctx)`: a `struct xdp_buff` with the frame's pointers.
#[inline(always)]
fn kernel_ctx(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    let frame = &*call.run.frame;
    let pointers = [frame.data_addr(), frame.data_end_addr(), frame.data_meta_addr()];
    Ok(call.run.worker.show_xdp_buff(pointers, frame.rx.queue_index))
}

/// `bpf_rdonly_cast(obj, type)`: the same address, read with probing loads.
#[inline(always)]
fn read_only(_call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(args[0])
}

const NAME: &[u8] = b"towpath";
