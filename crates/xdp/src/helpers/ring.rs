//! Ring buffers and perf events: data exchanged between programs and user space.

use std::ops::ControlFlow;
use std::ptr::NonNull;

use towpath_bpf::Errno;
use towpath_bpf::interp::{Stop, Violation};
use towpath_bpf::proto::id;
use towpath_maps::ringbuf::Ringbuf;

use super::call::{Bytes, status};
use super::dynptr::{DYNPTR_BYTES, DYNPTR_SIZE_MAX, Dynptr, DynptrKind};
use super::{Call, Table, entry};
use crate::run::{Extra, Record, Run};

pub(super) const TABLE: Table = &[
    (id::RINGBUF_OUTPUT, entry(output)),
    (id::RINGBUF_RESERVE, entry(reserve)),
    (id::RINGBUF_SUBMIT, entry(submit)),
    (id::RINGBUF_DISCARD, entry(discard)),
    (id::RINGBUF_QUERY, entry(query)),
    (id::RINGBUF_RESERVE_DYNPTR, entry(reserve_dynptr)),
    (id::RINGBUF_SUBMIT_DYNPTR, entry(submit_dynptr)),
    (id::RINGBUF_DISCARD_DYNPTR, entry(discard_dynptr)),
    (id::USER_RINGBUF_DRAIN, entry(drain)),
    (id::PERF_EVENT_OUTPUT, entry(perf_output)),
];

/// `bpf_ringbuf_output(ringbuf, data, size, flags)`
#[inline(always)]
fn output(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let ring = ringbuf("bpf_ringbuf_output", call, &args)?;
    let data = call.run.view(args[1], args[2].min(RECORD_BYTES_MAX))?;
    Ok(status(ring.output(&data, args[3])))
}

/// `bpf_ringbuf_reserve(ringbuf, size, flags)`: the record's address, or 0.
#[inline(always)]
fn reserve(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let ring = ringbuf("bpf_ringbuf_reserve", call, &args)?;
    if args[2] != 0 {
        return Ok(0);
    }
    Ok(reserve_record(call.run, ring, args[1]).unwrap_or(0))
}

/// A record's address, if there is room.
#[inline(always)]
pub(crate) fn reserve_record<'r>(run: &mut Run<'r>, ring: &'r Ringbuf, size: u64) -> Option<u64> {
    let addr = ring.reserve(size)?.as_ptr() as u64;
    run.records.push(Record { addr, len: size, ring });
    Some(addr)
}

/// `bpf_ringbuf_submit(data, flags)`
#[inline(always)]
fn submit(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    give_back("bpf_ringbuf_submit", call, args[0], Ringbuf::submit)
}

/// `bpf_ringbuf_discard(data, flags)`
#[inline(always)]
fn discard(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    give_back("bpf_ringbuf_discard", call, args[0], Ringbuf::discard)
}

#[inline]
fn give_back(
    function: &'static str,
    call: &mut Call<'_, '_>,
    addr: u64,
    finish: fn(&Ringbuf, NonNull<u8>) -> Result<(), Errno>,
) -> Result<u64, Stop> {
    if commit(call.run, addr, finish) {
        return Ok(0);
    }
    let why = "a record this program has reserved";
    Err(Violation::Argument { function, argument: 1, value: addr, why }.into())
}

/// Takes a reserved record from the program and passes it to `finish`; `false` if the program has
/// no record at the address.
#[inline(always)]
pub(crate) fn commit(
    run: &mut Run<'_>,
    addr: u64,
    finish: fn(&Ringbuf, NonNull<u8>) -> Result<(), Errno>,
) -> bool {
    // In most cases it is the last record.
    let record = match run.records.pop_if(|record| record.addr == addr) {
        Some(record) => record,
        None => match run.records.iter().rposition(|record| record.addr == addr) {
            Some(at) => run.records.swap_remove(at),
            None => return false,
        },
    };
    let Some(sample) = NonNull::new(addr as *mut u8) else { return false };
    // Both return nothing to the program; the ring refuses only what it did not reserve.
    let _refused = finish(record.ring, sample);
    true
}

/// `bpf_ringbuf_query(ringbuf, what)`
#[inline(always)]
fn query(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(ringbuf("bpf_ringbuf_query", call, &args)?.query(args[1]))
}

/// `bpf_ringbuf_reserve_dynptr(ringbuf, size, flags, ptr)`: on failure the dynptr is null.
#[inline(always)]
fn reserve_dynptr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let ring = ringbuf("bpf_ringbuf_reserve_dynptr", call, &args)?;
    let [_, size, flags, ptr, _] = args;
    let size = size as u32;
    let refused = if flags != 0 {
        Some(Errno::EINVAL)
    } else if size > DYNPTR_SIZE_MAX {
        Some(Errno::E2BIG)
    } else {
        None
    };
    if let Some(errno) = refused {
        Dynptr::NULL.store(call, ptr)?;
        return Ok(errno.to_reg());
    }
    match reserve_record(call.run, ring, u64::from(size)) {
        Some(addr) => {
            Dynptr::new(DynptrKind::Ringbuf, addr, size).store(call, ptr)?;
            Ok(0)
        }
        None => {
            Dynptr::NULL.store(call, ptr)?;
            Ok(Errno::EINVAL.to_reg())
        }
    }
}

/// `bpf_ringbuf_submit_dynptr(ptr, flags)`
#[inline(always)]
fn submit_dynptr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    release_dynptr(call, args, submit)
}

/// `bpf_ringbuf_discard_dynptr(ptr, flags)`
#[inline(always)]
fn discard_dynptr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    release_dynptr(call, args, discard)
}

fn release_dynptr(
    call: &mut Call<'_, '_>,
    args: [u64; 5],
    finish: impl Fn(&mut Call<'_, '_>, [u64; 5]) -> Result<u64, Stop>,
) -> Result<u64, Stop> {
    let dynptr = Dynptr::load(call, args[0])?;
    if dynptr.data != 0 {
        finish(call, [dynptr.data, args[1], 0, 0, 0])?;
        Dynptr::NULL.store(call, args[0])?;
    }
    Ok(0)
}

/// `bpf_user_ringbuf_drain(map, callback, context, flags)`: the callback gets a dynptr over each
/// sample and the context; a return value other than 0 ends the walk.
#[inline(always)]
fn drain(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_user_ringbuf_drain", &args, 1)?;
    let [_, callback, context, flags, _] = args;
    let Some(ring) = map.user_ringbuf() else { return Ok(Errno::EINVAL.to_reg()) };
    if ring.is_idle(flags) {
        return Ok(0);
    }
    let mut lent = call.run.worker.lend(DYNPTR_BYTES);
    let view = Extra { addr: lent.addr(), len: DYNPTR_BYTES as u64, writable: false };
    let mut stop = None;
    let result = ring.drain(flags, |sample, size| {
        let addr = sample.as_ptr() as u64;
        let dynptr = Dynptr::new(DynptrKind::Local, addr, size);
        lent.bytes_mut()[..DYNPTR_BYTES].copy_from_slice(&dynptr.to_bytes());
        let data = Extra { addr, len: u64::from(size), writable: true };
        call.run.extras.extend([view, data]);
        let returned = call.callback(callback, [lent.addr(), context, 0, 0, 0]);
        call.run.extras.retain(|extra| *extra != view && *extra != data);
        match returned {
            Ok(0) => ControlFlow::Continue(()),
            Ok(_) => ControlFlow::Break(()),
            Err(reason) => {
                stop = Some(reason);
                ControlFlow::Break(())
            }
        }
    });
    call.run.worker.put_away(lent);
    match (stop, result) {
        (Some(reason), _) => Err(reason),
        (None, Ok(shown)) => Ok(shown),
        (None, Err(errno)) => Ok(errno.to_reg()),
    }
}

/// `bpf_perf_event_output(ctx, map, flags, data, size)`: the low half of `flags` is the slot, the
/// next 20 bits how many bytes of the packet follow the data.
#[inline(always)]
fn perf_output(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_perf_event_output", &args, 2)?;
    let [_, _, flags, data, size] = args;
    if flags & !(INDEX_MASK | PACKET_LEN_MASK) != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    let packet_len = ((flags & PACKET_LEN_MASK) >> PACKET_LEN_SHIFT) as usize;
    if packet_len != 0 && packet_len > call.run.frame.len() {
        return Ok(Errno::EFAULT.to_reg());
    }
    let data = call.run.view(data, size.min(RECORD_BYTES_MAX))?;
    let Some(perf) = map.perf() else { return Ok(Errno::EINVAL.to_reg()) };
    let worker = call.run.worker.number() as usize;
    // Without a listener, the program gets the error before any copy.
    let mut sample = match perf.reserve(worker, flags & INDEX_MASK, data.len() + packet_len) {
        Ok(sample) => sample,
        Err(errno) => return Ok(errno.to_reg()),
    };
    sample.push(&data);
    if packet_len != 0 {
        let mut packet = Bytes::zeroed(packet_len);
        call.run.frame.copy_bytes(packet.as_mut());
        sample.push(packet.as_ref());
    }
    sample.commit();
    Ok(0)
}

#[inline(always)]
fn ringbuf<'r>(
    function: &'static str,
    call: &Call<'_, 'r>,
    args: &[u64; 5],
) -> Result<&'r Ringbuf, Stop> {
    let map = call.map(function, args, 1)?;
    map.ringbuf().ok_or_else(|| {
        let why = "a ring buffer";
        Violation::Argument { function, argument: 1, value: args[0], why }.into()
    })
}

/// Largest size of a record. Sizes are bounded by the readable memory behind them; this limit keeps
/// a bad size from being taken for an address range.
const RECORD_BYTES_MAX: u64 = 1 << 29;
const INDEX_MASK: u64 = 0xffff_ffff;
const PACKET_LEN_MASK: u64 = 0xf_ffff << PACKET_LEN_SHIFT;
const PACKET_LEN_SHIFT: u32 = 32;
