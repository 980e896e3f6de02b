//! Who is running: the process and thread of the worker. In the kernel it is whatever task the
//! interrupt hit.

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
fn pid_tgid(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    let process = rustix::process::getpid().as_raw_nonzero().get() as u64;
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u64;
    Ok(process << 32 | thread)
}

/// `bpf_get_ns_current_pid_tgid(dev, ino, nsdata, size)`: namespaces of others are not ours to
/// tell.
fn ns_pid_tgid(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, _, nsdata, size, _] = args;
    call.write(nsdata, &vec![0; size as u32 as usize])?;
    Ok(Errno::EINVAL.to_reg())
}

/// `bpf_get_current_uid_gid()`
fn uid_gid(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    Ok(u64::from(group.as_raw()) << 32 | u64::from(user.as_raw()))
}

/// `bpf_get_current_comm(buf, size)`
fn comm(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [buf, size, ..] = args;
    let mut text = vec![0; size as u32 as usize];
    let len = NAME.len().min(text.len().saturating_sub(1));
    text[..len].copy_from_slice(&NAME[..len]);
    call.write(buf, &text)?;
    Ok(0)
}

/// `bpf_get_current_task()` and `_btf`: a task about which nothing is known.
fn task(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.run.worker.unknown_object())
}

/// `bpf_per_cpu_ptr(percpu_ptr, cpu)`
fn per_cpu(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let cpus = call.run.maps.domain().workers() as u64;
    let cpu = u64::from(args[1] as u32);
    Ok(if cpu < cpus { super::objects::percpu_address(call, args[0], cpu) } else { 0 })
}

/// `bpf_this_cpu_ptr(percpu_ptr)`
fn this_cpu(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let cpu = u64::from(call.run.worker.number());
    Ok(super::objects::percpu_address(call, args[0], cpu))
}

/// `bpf_cast_to_kern_ctx(ctx)`: a `struct xdp_buff` with the frame's pointers.
fn kernel_ctx(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    let frame = &*call.run.frame;
    let pointers = [frame.data_addr(), frame.data_end_addr(), frame.data_meta_addr()];
    Ok(call.run.worker.show_xdp_buff(pointers, frame.rx.queue_index))
}

/// `bpf_rdonly_cast(obj, type)`: the same address, read with probing loads.
fn read_only(_call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(args[0])
}

const NAME: &[u8] = b"towpath";
