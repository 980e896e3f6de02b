//! Functions that compiled code calls directly, without a helper's number and checks, because the
//! verifier has proved what a helper would check.

#![expect(unsafe_code, reason = "is called from machine code with addresses and its own state")]

use towpath_bpf::Errno;
use towpath_bpf::proto::id;
use towpath_jit::{Callee, Direct, Machine};
use towpath_maps::Map;
use towpath_maps::ringbuf::Ringbuf;

use super::live_unsafe::{call, run_of, run_of_frame, run_of_index};
use crate::frame::Body;
use crate::helpers::{self, direct};

/// The table of these functions.
pub(super) const DIRECT: Direct = Direct {
    csum_diff,
    ktime,
    jiffies,
    random,
    redirect,
    redirect_map,
    load_bytes,
    store_bytes,
    check_mtu,
    ring_reserve,
    ring_submit,
    ring_discard,
};

/// Functions for helpers that only affect the running frame: they never stop a run, and need no
/// reference to it.
pub(super) fn of_frame(helper: u32) -> Option<Callee> {
    Some(match helper {
        id::XDP_ADJUST_HEAD => adjust_head,
        id::XDP_ADJUST_META => adjust_meta,
        id::XDP_ADJUST_TAIL => adjust_tail,
        _ => return None,
    })
}

/// Functions for kfuncs that do not depend on the run's frame.
pub(super) fn of_kfunc(number: u32) -> Option<Callee> {
    let dequeue = helpers::kfunc_number("bpf_packet_dequeue");
    (dequeue == Some(number)).then_some(packet_dequeue)
}

unsafe extern "C" fn packet_dequeue(
    machine: *mut Machine,
    ctx: u64,
    map: u64,
    flags: u64,
    rank: u64,
    r5: u64,
) -> u64 {
    // SAFETY: called by compiled code, with the machine it was entered with.
    let run = unsafe { run_of(machine) };
    if !run.proved {
        // SAFETY: as above; `run` is not used any more.
        return unsafe {
            call(machine, direct::packet_dequeue_checked, [ctx, map, flags, rank, r5])
        };
    }
    // SAFETY: as in `redirect_map`.
    let map = unsafe { &*(map as *const Map) };
    let (address, value) = direct::packet_dequeue(run, map, flags);
    // SAFETY: the verifier proved 8 bytes writable; they may lie anywhere.
    unsafe { (rank as *mut u64).write_unaligned(value) };
    address
}

/// Helpers `(ctx, delta)` that move an end of the running frame.
macro_rules! moving {
    ($($name:ident),*) => {
        $(
            unsafe extern "C" fn $name(
                machine: *mut Machine,
                _ctx: u64,
                delta: u64,
                _: u64,
                _: u64,
                _: u64,
            ) -> u64 {
                // SAFETY: called by compiled code, with the machine it was entered with, which has
                // the record of the running frame: its body. No reference to it is in use: the run
                // has one to the pointer that owns it.
                let frame = unsafe { &mut *(*machine).packet.cast_mut().cast::<Body>() };
                frame.$name(delta as i32).map_or_else(Errno::to_reg, |()| 0)
            }
        )*
    };
}

moving!(adjust_head, adjust_meta, adjust_tail);

/// The bytes a program passes.
///
/// # Safety
///
/// The verifier proved `len` bytes at `address` readable; no other code writes them while the
/// function runs, except other workers' races on map values, which are the program's own.
unsafe fn bytes<'a>(address: u64, len: u64) -> &'a [u8] {
    // Sizes are 32-bit numbers, and a buffer of none may have no address.
    match len as u32 as usize {
        0 => &[],
        // SAFETY: the caller's promise.
        len => unsafe { std::slice::from_raw_parts(address as *const u8, len) },
    }
}

unsafe extern "C" fn csum_diff(from: u64, from_size: u64, to: u64, to_size: u64, seed: u64) -> u64 {
    // SAFETY: called by compiled code with what the verifier proved.
    let (from, to) = unsafe { (bytes(from, from_size), bytes(to, to_size)) };
    u64::from(direct::difference(from, to, seed as u32))
}

unsafe extern "C" fn ktime(machine: *mut Machine) -> u64 {
    // SAFETY: called by compiled code, with the machine it was entered with.
    unsafe { run_of(machine) }.monotonic_ns()
}

unsafe extern "C" fn jiffies(machine: *mut Machine) -> u64 {
    // SAFETY: called by compiled code, with the machine it was entered with.
    let now = direct::jiffies(&unsafe { run_of(machine) }.surroundings.clock);
    // SAFETY: as above.
    unsafe { (*machine).jiffies = now };
    now
}

unsafe extern "C" fn random(machine: *mut Machine) -> u64 {
    // SAFETY: called by compiled code, with the machine it was entered with.
    let run = unsafe { run_of(machine) };
    u64::from(run.worker.random_u32())
}

unsafe extern "C" fn redirect(machine: *mut Machine, ifindex: u64, flags: u64) -> u64 {
    // SAFETY: called by compiled code, with the machine it was entered with.
    direct::redirect(unsafe { run_of_index(machine) }, ifindex, flags)
}

unsafe extern "C" fn redirect_map(machine: *mut Machine, map: u64, key: u64, flags: u64) -> u64 {
    // SAFETY: called by compiled code, with the machine it was entered with; a map in a register is
    // the address of one that lives longer than this function runs.
    let (run, map) = unsafe { (run_of_index(machine), &*(map as *const Map)) };
    direct::redirect_map(run, map, key as u32, flags)
}

unsafe extern "C" fn check_mtu(
    machine: *mut Machine,
    ifindex: u64,
    len: u64,
    change: u64,
    flags: u64,
) -> u64 {
    if flags != 0 {
        return Errno::EINVAL.to_reg();
    }
    // SAFETY: called by compiled code, with the machine it was entered with, which has the record
    // of the running frame.
    let (run, packet) = unsafe { (run_of(machine), &*(*machine).packet) };
    let linear = (packet.data_end - packet.data) as usize;
    let frame = direct::Linear { len: linear, ifindex: packet.ingress_ifindex };
    let len = len as *mut u32;
    // SAFETY: the verifier proved 4 bytes readable and writable; they may lie anywhere.
    let asked = unsafe { len.read_unaligned() };
    match direct::check_mtu(run, frame, ifindex as u32, asked, change) {
        Err(errno) => errno.to_reg(),
        Ok((mtu, result)) => {
            // SAFETY: as above.
            unsafe { len.write_unaligned(mtu) };
            result
        }
    }
}

unsafe extern "C" fn ring_reserve(machine: *mut Machine, map: u64, size: u64) -> u64 {
    // SAFETY: as in `redirect_map`. A record is noted for the run, whichever frame that is about:
    // it is given back before the frame's program ends, or when it is ended.
    let (run, map) = unsafe { (run_of(machine), &*(map as *const Map)) };
    map.ringbuf().and_then(|ring| direct::ring_reserve(run, ring, size)).unwrap_or(0)
}

unsafe extern "C" fn ring_submit(machine: *mut Machine, record: u64) -> u64 {
    // SAFETY: called by compiled code, with the machine it was entered with.
    direct::ring_commit(unsafe { run_of(machine) }, record, Ringbuf::submit);
    0
}

unsafe extern "C" fn ring_discard(machine: *mut Machine, record: u64) -> u64 {
    // SAFETY: called by compiled code, with the machine it was entered with.
    direct::ring_commit(unsafe { run_of(machine) }, record, Ringbuf::discard);
    0
}

unsafe extern "C" fn load_bytes(machine: *mut Machine, offset: u64, buf: u64, len: u64) -> u64 {
    // SAFETY: called by compiled code, with the machine it was entered with.
    let run = unsafe { run_of_frame(machine) };
    let (offset, len) = (offset as u32 as usize, len as u32 as usize);
    match run.frame.pointer(offset, len) {
        Err(errno) => errno.to_reg(),
        Ok(Some(from)) => {
            // SAFETY: bytes of the frame, and a buffer that the verifier proved writable. It may be
            // a part of the packet, so they may overlap.
            unsafe { std::ptr::copy(from as *const u8, buf as *mut u8, len) };
            0
        }
        Ok(None) => {
            let mut bytes = vec![0; len];
            let loaded = run.frame.load_bytes(offset, &mut bytes);
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buf as *mut u8, len) };
            loaded.map_or_else(|errno| errno.to_reg(), |()| 0)
        }
    }
}

unsafe extern "C" fn store_bytes(machine: *mut Machine, offset: u64, buf: u64, len: u64) -> u64 {
    // SAFETY: called by compiled code, with the machine it was entered with.
    let run = unsafe { run_of_frame(machine) };
    let (offset, len) = (offset as u32 as usize, len as u32 as usize);
    match run.frame.pointer(offset, len) {
        Err(errno) => errno.to_reg(),
        Ok(Some(to)) => {
            // SAFETY: bytes of the frame, and a buffer that the verifier proved readable. It may be
            // a part of the packet, so they may overlap.
            unsafe { std::ptr::copy(buf as *const u8, to as *mut u8, len) };
            0
        }
        Ok(None) => {
            // SAFETY: as above.
            let bytes = unsafe { bytes(buf, len as u64) }.to_vec();
            run.frame.store_bytes(offset, &bytes).map_or_else(|errno| errno.to_reg(), |()| 0)
        }
    }
}
