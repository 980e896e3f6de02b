//! Timers, work queues and task work: see [`crate::timers`] for when they run.

use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::call::status;
use super::time::{boot_ns, monotonic_ns, real_ns};
use super::{Call, KfuncTable, Table, entry};
use crate::run::share;
use crate::timers::{Callback, Word};

pub(super) const TABLE: Table = &[
    (id::TIMER_INIT, entry(init)),
    (id::TIMER_SET_CALLBACK, entry(set_callback)),
    (id::TIMER_START, entry(start)),
    (id::TIMER_CANCEL, entry(cancel)),
];

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_wq_init", entry(wq_init)),
    ("bpf_wq_set_callback_impl", entry(wq_set_callback)),
    ("bpf_wq_start", entry(wq_start)),
    ("bpf_task_work_schedule_signal_impl", entry(task_work)),
    ("bpf_task_work_schedule_resume_impl", entry(task_work)),
];

/// `bpf_timer_init(timer, map, flags)`: the flags are a clock.
fn init(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_timer_init", &args, 2)?;
    let behind = |clock: u64| monotonic_ns(call) as i64 - clock as i64;
    let to_monotonic = match args[2] {
        CLOCK_MONOTONIC => 0,
        CLOCK_REALTIME => behind(real_ns(call)),
        CLOCK_BOOTTIME => behind(boot_ns(call)),
        _ => return Ok(Errno::EINVAL.to_reg()),
    };
    let map = share(map);
    begin(call, args[0], map, to_monotonic)
}

fn begin(
    call: &mut Call<'_, '_>,
    place: u64,
    map: Arc<towpath_maps::Map>,
    to_monotonic: i64,
) -> Result<u64, Stop> {
    let word = word(call, place)?;
    Ok(status(call.run.surroundings.timers.init(word, map, to_monotonic)))
}

fn word(call: &Call<'_, '_>, place: u64) -> Result<Word, Stop> {
    Ok(Word::new(call.run.grant(place, 8, true)?))
}

/// `bpf_timer_set_callback(timer, callback)`
fn set_callback(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let code = call.callbacks.code();
    let surroundings = call.run.surroundings;
    // The callback runs later, with the maps of its own program.
    let Some(callee) = surroundings.programs.of_code(&code) else {
        return Ok(Errno::EINVAL.to_reg());
    };
    let maps = Arc::clone(&callee.maps);
    let callback = Callback { code, maps, function: args[1] };
    Ok(status(surroundings.timers.set_callback(args[0], callback)))
}

/// `bpf_timer_start(timer, nsecs, flags)`
fn start(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [timer, when, flags, ..] = args;
    if flags & !(F_ABS | F_CPU_PIN) != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    let word = word(call, timer)?;
    let now = call.run.monotonic_ns();
    let timers = &call.run.surroundings.timers;
    Ok(status(timers.start(word, when, flags & F_ABS != 0, now)))
}

/// `bpf_timer_cancel(timer)`: 1 if the timer was pending.
fn cancel(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(match call.run.surroundings.timers.cancel(args[0]) {
        Ok(waiting) => waiting.into(),
        Err(errno) => errno.to_reg(),
    })
}

/// `bpf_wq_init(wq, map, flags)`
fn wq_init(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_wq_init", &args, 2)?;
    if args[2] as u32 != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    let map = share(map);
    begin(call, args[0], map, 0)
}

/// `bpf_wq_set_callback_impl(wq, callback, flags, aux)`
fn wq_set_callback(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    if args[2] as u32 != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    set_callback(call, args)
}

/// `bpf_wq_start(wq, flags)`
fn wq_start(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    if args[1] as u32 != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    start(call, [args[0], 0, 0, 0, 0])
}

/// `bpf_task_work_schedule_*_impl(task, work, map, callback, aux)`
fn task_work(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, work, _, callback, _] = args;
    let map = call.map("bpf_task_work_schedule", &args, 3)?;
    let map = share(map);
    let begun = begin(call, work, map, 0)?;
    if begun != 0 {
        return Ok(begun);
    }
    set_callback(call, [work, callback, 0, 0, 0])?;
    start(call, [work, 0, 0, 0, 0])
}

const CLOCK_REALTIME: u64 = 0;
const CLOCK_MONOTONIC: u64 = 1;
const CLOCK_BOOTTIME: u64 = 7;
/// `BPF_F_TIMER_ABS`
const F_ABS: u64 = 1;
/// `BPF_F_TIMER_CPU_PIN`: ignored, as a timer runs on any worker.
const F_CPU_PIN: u64 = 2;
