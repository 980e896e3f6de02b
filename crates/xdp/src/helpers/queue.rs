//! Functions of dequeue programs, which choose the packet that leaves next.
//!
//! No kernel has these functions: they are those of "xdp: Add packet queueing and scheduling
//! capabilities" (July 2022), as kfuncs. A packet that a program holds belongs to its worker; the
//! program refers to it by the address of its `struct xdp_md`.

use rustix::time::ClockId;
use towpath_bpf::Errno;
use towpath_bpf::interp::{Stop, Violation};
use towpath_maps::Map;

use super::{Call, KfuncTable, entry, time};
use crate::frame::Frame;
use crate::queue::FrameQueue;
use crate::run::Run;

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_packet_dequeue", entry(dequeue)),
    ("bpf_packet_drop", entry(drop_packet)),
    ("bpf_schedule_iface_dequeue", entry(schedule)),
    ("bpf_packet_store_launch_time", entry(store_launch_time_of)),
    ("bpf_xdp_store_launch_time", entry(store_launch_time)),
];

/// `bpf_packet_dequeue(ctx, map, flags, rank)`: null if there is no packet; `*rank` is then the
/// error (`-ENOENT`, `-EINVAL` for flags, `-EBUSY` if the program holds too many).
pub(crate) fn dequeue(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_packet_dequeue", &args, 2)?;
    let (address, rank) = packet(call.run, map, args[2]);
    call.write(args[3], &rank.to_le_bytes())?;
    Ok(address)
}

/// The address and rank of a packet that the program holds from now on; or 0 and the error.
#[inline]
pub(crate) fn packet(run: &mut Run<'_>, map: &Map, flags: u64) -> (u64, u64) {
    match take(run, map, flags) {
        Ok((frame, rank)) => (run.worker.hold(frame, map), rank),
        Err(errno) => (0, errno.to_reg()),
    }
}

#[inline]
fn take(run: &Run<'_>, map: &Map, flags: u64) -> Result<(Frame, u64), Errno> {
    let queue = FrameQueue::of(map).filter(|_| flags == 0).ok_or(Errno::EINVAL)?;
    if !run.worker.has_room_to_hold() {
        return Err(Errno::EBUSY);
    }
    queue.pop(now(run)).ok_or(Errno::ENOENT)
}

/// The time of the burst that the run is part of, or now.
#[inline]
fn now(run: &Run<'_>) -> u64 {
    match run.worker.held.now_ns {
        0 => time(&run.surroundings.clock, ClockId::Monotonic),
        now => now,
    }
}

/// `bpf_packet_drop(ctx, pkt)`
fn drop_packet(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    if let Some(from) = call.run.worker.held.drop_at(args[1]) {
        // A packet out of an inner map is counted by the port only.
        let map = call.run.maps.maps().iter().find(|map| map.id() == from);
        if let Some(queue) = map.and_then(|map| FrameQueue::of(map)) {
            queue.note_drop();
        }
        return Ok(0);
    }
    let (function, why) = ("bpf_packet_drop", "a packet that the program holds");
    Err(Violation::Argument { function, argument: 2, value: args[1], why }.into())
}

/// `bpf_schedule_iface_dequeue(ctx, ifindex, flags)`: `-EINVAL` for flags, `-ENODEV` without such a
/// port, `-ENOENT` if the port has no dequeue program.
fn schedule(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let (ifindex, flags) = (args[1] as u32, args[2]);
    if flags != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    let worker = &call.run.worker;
    let result = match &worker.schedules {
        None => Err(Errno::ENODEV),
        Some(schedules) => schedules.schedule(ifindex, worker.number()),
    };
    Ok(super::call::status(result))
}

/// `bpf_packet_store_launch_time(pkt, time_ns)`
fn store_launch_time_of(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    if let Some(frame) = call.run.worker.held.at_mut(args[0]) {
        frame.set_launch_time(args[1]);
        return Ok(0);
    }
    let (function, why) = ("bpf_packet_store_launch_time", "a packet that the program holds");
    Err(Violation::Argument { function, argument: 1, value: args[0], why }.into())
}

/// `bpf_xdp_store_launch_time(ctx, time_ns)`
fn store_launch_time(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    call.run.frame.set_launch_time(args[1]);
    Ok(0)
}
