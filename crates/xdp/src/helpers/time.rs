//! Clocks, random numbers, and the numbers of CPU and node.

use rustix::time::ClockId;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::{Call, Table, entry};
use crate::clock::{Clock, NS_PER_SECOND, now_ns, tai_now};

pub(super) const TABLE: Table = &[
    (id::KTIME_GET_NS, entry(ktime)),
    (id::KTIME_GET_BOOT_NS, entry(boot_time)),
    (id::KTIME_GET_COARSE_NS, entry(coarse_time)),
    (id::KTIME_GET_TAI_NS, entry(tai_time)),
    (id::JIFFIES64, entry(jiffies)),
    (id::GET_PRANDOM_U32, entry(random)),
    (id::GET_SMP_PROCESSOR_ID, entry(cpu)),
    (id::GET_NUMA_NODE_ID, entry(node)),
];

#[inline(always)]
fn ktime(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(monotonic_ns(call))
}

#[inline(always)]
fn boot_time(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(nanoseconds(call, ClockId::Boottime))
}

#[inline(always)]
fn coarse_time(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(coarse_ns(call))
}

#[inline(always)]
fn tai_time(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.run.surroundings.clock.set_time().unwrap_or_else(tai_now))
}

#[inline(always)]
fn jiffies(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(jiffies_now(&call.run.surroundings.clock))
}

/// `bpf_jiffies64`: ticks of the configured `CONFIG_HZ`; the kernel's counter starts five minutes
/// before it wraps at 32 bits (`INITIAL_JIFFIES`).
pub(crate) fn jiffies_now(clock: &Clock) -> u64 {
    let initial = u64::from((-300i32 * HZ as i32) as u32);
    // The coarse clock counts ticks, as jiffies do.
    initial + time(clock, ClockId::MonotonicCoarse) / (NS_PER_SECOND / HZ)
}

#[inline(always)]
fn random(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(u64::from(call.run.worker.random_u32()))
}

#[inline(always)]
fn cpu(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(u64::from(call.run.worker.number()))
}

#[inline(always)]
fn node(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(0)
}

/// The clock of timers.
pub(super) fn monotonic_ns(call: &Call<'_, '_>) -> u64 {
    nanoseconds(call, ClockId::Monotonic)
}

/// Monotonic time in the resolution of a tick, for connections.
pub(super) fn coarse_ns(call: &Call<'_, '_>) -> u64 {
    nanoseconds(call, ClockId::MonotonicCoarse)
}

/// The time since boot, suspension included.
pub(super) fn boot_ns(call: &Call<'_, '_>) -> u64 {
    nanoseconds(call, ClockId::Boottime)
}

/// The time since 1970.
pub(super) fn real_ns(call: &Call<'_, '_>) -> u64 {
    nanoseconds(call, ClockId::Realtime)
}

fn nanoseconds(call: &Call<'_, '_>, clock: ClockId) -> u64 {
    time(&call.run.surroundings.clock, clock)
}

/// The time that programs see.
pub(crate) fn time(clock: &Clock, id: ClockId) -> u64 {
    clock.set_time().unwrap_or_else(|| now_ns(id))
}

/// `CONFIG_HZ` of the emulated kernel.
const HZ: u64 = 250;
