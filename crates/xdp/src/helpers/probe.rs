//! Reads of memory that may be inaccessible (`bpf_probe_read_*`).
//!
//! Kernel memory, here, is the memory that the run may access: maps, frames, objects. Reads of all
//! other memory, and of user space, return `EFAULT` with the destination zeroed, as for a bad
//! address in the kernel.

use memchr::memchr;
use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::dynptr::Dynptr;
use super::{Call, KfuncTable, Table, entry};
use crate::memory;

pub(super) const TABLE: Table = &[
    (id::PROBE_READ_KERNEL, entry(kernel)),
    (id::PROBE_READ_KERNEL_STR, entry(kernel_str)),
    (id::PROBE_READ_USER, entry(user)),
    (id::PROBE_READ_USER_STR, entry(user)),
    (id::COPY_FROM_USER, entry(user)),
    (id::COPY_FROM_USER_TASK, entry(user)),
];

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_probe_read_kernel_dynptr", entry(kernel_dynptr)),
    ("bpf_probe_read_kernel_str_dynptr", entry(kernel_str_dynptr)),
    ("bpf_probe_read_user_dynptr", entry(no_user_memory)),
    ("bpf_probe_read_user_str_dynptr", entry(no_user_memory)),
    ("bpf_copy_from_user_str", entry(no_user_memory)),
    ("bpf_copy_from_user_dynptr", entry(no_user_memory)),
    ("bpf_copy_from_user_str_dynptr", entry(no_user_memory)),
    ("bpf_copy_from_user_task_str", entry(no_user_memory)),
    ("bpf_copy_from_user_task_dynptr", entry(no_user_memory)),
    ("bpf_copy_from_user_task_str_dynptr", entry(no_user_memory)),
];

/// `bpf_probe_read_kernel(dst, size, unsafe_ptr)`
fn kernel(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [dst, size, src, ..] = args;
    let size = size as u32 as usize;
    if size == 0 {
        return Ok(0);
    }
    let Some(from) = call.run.grant_reading(src, size as u64) else {
        return refuse(call, dst, size);
    };
    memory::transfer(from, call.run.grant(dst, size as u64, true)?);
    Ok(0)
}

/// `bpf_probe_read_kernel_str(dst, size, unsafe_ptr)`: returns the length with its NUL.
fn kernel_str(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [dst, size, src, ..] = args;
    let size = size as u32 as usize;
    let Some(most) = size.checked_sub(1) else { return Ok(0) };
    let Some(text) = text_at(call, src, most) else { return refuse(call, dst, size) };
    let len = text.len() as u64;
    if len > 0 {
        call.write(dst, &text)?;
    }
    call.write(dst + len, &[0])?;
    Ok(len + 1)
}

/// Any read of user memory.
fn user(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    refuse(call, args[0], args[1] as u32 as usize)
}

/// `bpf_probe_read_kernel_dynptr(dptr, off, size, unsafe_ptr)`
fn kernel_dynptr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [dynptr, offset, size, src, _] = args;
    let size = size as u32 as usize;
    let Ok(bytes) = call.read_unproved(src, size) else { return Ok(Errno::EFAULT.to_reg()) };
    put(call, dynptr, offset as u32, bytes.as_ref(), 0)
}

/// `bpf_probe_read_kernel_str_dynptr(dptr, off, size, unsafe_ptr)`
fn kernel_str_dynptr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [dynptr, offset, size, src, _] = args;
    let Some(most) = (size as u32 as usize).checked_sub(1) else {
        return put(call, dynptr, offset as u32, &[], 0);
    };
    let Some(mut text) = text_at(call, src, most) else {
        return Ok(Errno::EFAULT.to_reg());
    };
    text.push(0);
    put(call, dynptr, offset as u32, &text, text.len() as u64)
}

fn no_user_memory(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(Errno::EFAULT.to_reg())
}

fn put(
    call: &mut Call<'_, '_>,
    dynptr: u64,
    offset: u32,
    bytes: &[u8],
    done: u64,
) -> Result<u64, Stop> {
    let view = Dynptr::load(call, dynptr)?;
    if view.data == 0 || view.read_only {
        return Ok(Errno::EINVAL.to_reg());
    }
    match super::views::put(call, view, u64::from(offset), bytes)? {
        Ok(()) => Ok(done),
        Err(errno) => Ok(errno.to_reg()),
    }
}

/// Text of at most `most` bytes, without the NUL at its end.
fn text_at(call: &Call<'_, '_>, addr: u64, most: usize) -> Option<Vec<u8>> {
    let mut known = Vec::new();
    while known.len() < most {
        let looked_at = known.len();
        if !call.run.copy_more(addr, &mut known, most - looked_at) {
            return None;
        }
        if let Some(end) = memchr(0, &known[looked_at..]) {
            known.truncate(looked_at + end);
            break;
        }
    }
    Some(known)
}

fn refuse(call: &Call<'_, '_>, dst: u64, size: usize) -> Result<u64, Stop> {
    call.write(dst, &vec![0; size])?;
    Ok(Errno::EFAULT.to_reg())
}
