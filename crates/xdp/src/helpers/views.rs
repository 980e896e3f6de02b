//! Reading, writing and cutting dynptrs, and direct pointers into them.
//!
//! Kernel counterpart: the dynptr helpers and kfuncs of `kernel/bpf/helpers.c`.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::call::{Bytes, status};
use super::dynptr::{DYNPTR_SIZE_MAX, Dynptr, DynptrKind};
use super::{Call, KfuncTable, Table, entry};

pub(super) const TABLE: Table = &[
    (id::DYNPTR_FROM_MEM, entry(from_mem)),
    (id::DYNPTR_READ, entry(read)),
    (id::DYNPTR_WRITE, entry(write)),
    (id::DYNPTR_DATA, entry(data)),
];

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_dynptr_from_xdp", entry(from_xdp)),
    ("bpf_dynptr_slice", entry(slice)),
    ("bpf_dynptr_slice_rdwr", entry(slice_rdwr)),
    ("bpf_dynptr_adjust", entry(adjust)),
    ("bpf_dynptr_is_null", entry(is_null)),
    ("bpf_dynptr_is_rdonly", entry(is_rdonly)),
    ("bpf_dynptr_size", entry(size)),
    ("bpf_dynptr_clone", entry(clone)),
    ("bpf_dynptr_copy", entry(copy)),
    ("bpf_dynptr_memset", entry(memset)),
];

/// `bpf_dynptr_from_mem(data, size, flags, ptr)`
#[inline(always)]
fn from_mem(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [data, size, flags, ptr, _] = args;
    let size = size as u32;
    let refused = match (size > DYNPTR_SIZE_MAX, flags != 0) {
        (true, _) => Some(Errno::E2BIG),
        (_, true) => Some(Errno::EINVAL),
        _ => None,
    };
    let made = match refused {
        Some(_) => Dynptr::NULL,
        None => Dynptr::new(DynptrKind::Local, data, size),
    };
    made.store(call, ptr)?;
    Ok(refused.map_or(0, Errno::to_reg))
}

/// `bpf_dynptr_from_xdp(ctx, flags, ptr)`: over the whole frame, frags included.
#[inline(always)]
fn from_xdp(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [ctx, flags, ptr, ..] = args;
    if flags != 0 {
        Dynptr::NULL.store(call, ptr)?;
        return Ok(Errno::EINVAL.to_reg());
    }
    let size = call.run.frame.len() as u32;
    Dynptr::new(DynptrKind::Xdp, ctx, size).store(call, ptr)?;
    Ok(0)
}

/// `bpf_dynptr_read(dst, len, src, offset, flags)`
#[inline(always)]
fn read(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [dst, len, src, offset, flags] = args;
    let dynptr = Dynptr::load(call, src)?;
    if dynptr.data == 0 || flags != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    let (offset, len) = (u64::from(offset as u32), u64::from(len as u32));
    if let Err(errno) = check_range(dynptr, offset, len) {
        return Ok(errno.to_reg());
    }
    if dynptr.kind == DynptrKind::Xdp {
        let start = (u64::from(dynptr.offset) + offset) as usize;
        return Ok(status(call.run.load_frame(start, dst, len as usize)?));
    }
    call.copy(dynptr.addr() + offset, dst, len)?;
    Ok(0)
}

/// `bpf_dynptr_write(dst, offset, src, len, flags)`
#[inline(always)]
fn write(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [dst, offset, src, len, flags] = args;
    let dynptr = Dynptr::load(call, dst)?;
    if dynptr.data == 0 || dynptr.read_only || flags != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    let (offset, len) = (u64::from(offset as u32), u64::from(len as u32));
    if let Err(errno) = check_range(dynptr, offset, len) {
        // Checked before the read, so that a bad length causes no allocation.
        return Ok(errno.to_reg());
    }
    if dynptr.kind == DynptrKind::Xdp {
        let start = (u64::from(dynptr.offset) + offset) as usize;
        return Ok(status(call.run.store_frame(start, src, len as usize)?));
    }
    call.copy(src, dynptr.addr() + offset, len)?;
    Ok(0)
}

/// `bpf_dynptr_data(ptr, offset, len)`: a direct pointer; not into frames.
#[inline(always)]
fn data(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [ptr, offset, len, ..] = args;
    let dynptr = Dynptr::load(call, ptr)?;
    let (offset, len) = (u64::from(offset as u32), u64::from(len as u32));
    let has_memory = matches!(dynptr.kind, DynptrKind::Local | DynptrKind::Ringbuf);
    if dynptr.data == 0 || dynptr.read_only || !has_memory {
        return Ok(0);
    }
    Ok(check_range(dynptr, offset, len).map_or(0, |()| dynptr.addr() + offset))
}

/// `bpf_dynptr_slice(ptr, offset, buffer, buffer_size)`: a read-only pointer, into the frame if the
/// bytes lie in one piece, else to the buffer they were copied to; 0 if they are not accessible.
#[inline(always)]
fn slice(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [ptr, offset, buffer, len, _] = args;
    let dynptr = Dynptr::load(call, ptr)?;
    // The kernel takes 32 bits of both, and refuses lengths of more.
    let (offset, len) = (u64::from(offset as u32), u64::from(len as u32));
    if dynptr.data == 0 || check_range(dynptr, offset, len).is_err() {
        return Ok(0);
    }
    if dynptr.kind != DynptrKind::Xdp {
        return Ok(dynptr.addr() + offset);
    }
    let start = (u64::from(dynptr.offset) + offset) as usize;
    match call.run.frame.pointer(start, len as usize) {
        Err(_) => Ok(0),
        Ok(Some(addr)) => Ok(addr),
        Ok(None) if buffer == 0 => Ok(0),
        Ok(None) => match bytes(call, dynptr, offset, len)? {
            Ok(bytes) => {
                call.write(buffer, bytes.as_ref())?;
                Ok(buffer)
            }
            Err(_) => Ok(0),
        },
    }
}

/// `bpf_dynptr_slice_rdwr`: as [`slice()`], but 0 for a read-only dynptr. The program itself must
/// write back changes made in the buffer.
#[inline(always)]
fn slice_rdwr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let dynptr = Dynptr::load(call, args[0])?;
    if dynptr.data == 0 || dynptr.read_only {
        return Ok(0);
    }
    slice(call, args)
}

/// `bpf_dynptr_adjust(ptr, start, end)`
#[inline(always)]
fn adjust(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [ptr, start, end, ..] = args;
    let mut dynptr = Dynptr::load(call, ptr)?;
    let (start, end) = (start as u32, end as u32);
    if dynptr.data == 0 || start > end {
        return Ok(Errno::EINVAL.to_reg());
    }
    if start > dynptr.size || end > dynptr.size {
        return Ok(Errno::ERANGE.to_reg());
    }
    dynptr.offset += start;
    dynptr.size = end - start;
    dynptr.store(call, ptr)?;
    Ok(0)
}

/// `bpf_dynptr_is_null(ptr)`
#[inline(always)]
fn is_null(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(u64::from(Dynptr::load(call, args[0])?.data == 0))
}

/// `bpf_dynptr_is_rdonly(ptr)`
#[inline(always)]
fn is_rdonly(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let dynptr = Dynptr::load(call, args[0])?;
    Ok(u64::from(dynptr.data != 0 && dynptr.read_only))
}

/// `bpf_dynptr_size(ptr)`
#[inline(always)]
fn size(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let dynptr = Dynptr::load(call, args[0])?;
    if dynptr.data == 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    Ok(u64::from(dynptr.size))
}

/// `bpf_dynptr_clone(ptr, clone)`
#[inline(always)]
fn clone(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let dynptr = Dynptr::load(call, args[0])?;
    let null = dynptr.data == 0;
    let copy = if null { Dynptr::NULL } else { dynptr };
    copy.store(call, args[1])?;
    Ok(if null { Errno::EINVAL.to_reg() } else { 0 })
}

/// `bpf_dynptr_copy(dst, dst_off, src, src_off, size)`
#[inline(always)]
fn copy(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [dst, dst_offset, src, src_offset, size] = args;
    let (to, from) = (Dynptr::load(call, dst)?, Dynptr::load(call, src)?);
    if to.data == 0 || from.data == 0 || to.read_only {
        return Ok(Errno::EINVAL.to_reg());
    }
    let (dst_offset, src_offset, size) =
        (u64::from(dst_offset as u32), u64::from(src_offset as u32), u64::from(size as u32));
    if check_range(to, dst_offset, size).is_err() || check_range(from, src_offset, size).is_err() {
        return Ok(Errno::E2BIG.to_reg());
    }
    match bytes(call, from, src_offset, size)? {
        Ok(bytes) => put(call, to, dst_offset, bytes.as_ref()).map(status),
        Err(errno) => Ok(errno.to_reg()),
    }
}

/// `bpf_dynptr_memset(ptr, offset, size, val)`
#[inline(always)]
fn memset(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [ptr, offset, size, value, _] = args;
    let dynptr = Dynptr::load(call, ptr)?;
    if dynptr.data == 0 || dynptr.read_only {
        return Ok(Errno::EINVAL.to_reg());
    }
    let (offset, size) = (u64::from(offset as u32), u64::from(size as u32));
    if let Err(errno) = check_range(dynptr, offset, size) {
        return Ok(errno.to_reg());
    }
    let bytes = vec![value as u8; size as usize];
    put(call, dynptr, offset, &bytes).map(status)
}

/// `bpf_dynptr_check_off_len`
fn check_range(dynptr: Dynptr, offset: u64, len: u64) -> Result<(), Errno> {
    if offset + len <= u64::from(dynptr.size) { Ok(()) } else { Err(Errno::E2BIG) }
}

/// Copies bytes of a dynptr; the outer error ends the run, the inner one is the program's.
fn bytes(
    call: &Call<'_, '_>,
    dynptr: Dynptr,
    offset: u64,
    len: u64,
) -> Result<Result<Bytes, Errno>, Stop> {
    if let Err(errno) = check_range(dynptr, offset, len) {
        return Ok(Err(errno));
    }
    if dynptr.kind != DynptrKind::Xdp {
        return call.read(dynptr.addr() + offset, len as usize).map(Ok);
    }
    let mut bytes = Bytes::zeroed(len as usize);
    let start = (u64::from(dynptr.offset) + offset) as usize;
    Ok(call.run.frame.load_bytes(start, bytes.as_mut()).map(|()| bytes))
}

/// Writes bytes into a dynptr; the outer error ends the run, the inner one is the program's.
pub(super) fn put(
    call: &mut Call<'_, '_>,
    dynptr: Dynptr,
    offset: u64,
    bytes: &[u8],
) -> Result<Result<(), Errno>, Stop> {
    if let Err(errno) = check_range(dynptr, offset, bytes.len() as u64) {
        return Ok(Err(errno));
    }
    if dynptr.kind != DynptrKind::Xdp {
        call.write(dynptr.addr() + offset, bytes)?;
        return Ok(Ok(()));
    }
    let start = (u64::from(dynptr.offset) + offset) as usize;
    Ok(call.run.frame.store_bytes(start, bytes))
}
