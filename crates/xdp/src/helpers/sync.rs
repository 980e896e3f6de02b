//! Read-side sections, disabled preemption and interrupts, and the resilient spin lock.
//!
//! A worker is never preempted by another program and frees no memory while a program runs, so the
//! sections are always in force and entering them has no effect.

use towpath_bpf::interp::Stop;

use super::{Call, KfuncTable, entry};
use crate::memory;

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_rcu_read_lock", entry(nothing)),
    ("bpf_rcu_read_unlock", entry(nothing)),
    ("bpf_preempt_disable", entry(nothing)),
    ("bpf_preempt_enable", entry(nothing)),
    ("bpf_local_irq_save", entry(save)),
    ("bpf_local_irq_restore", entry(nothing)),
    ("bpf_res_spin_lock", entry(lock)),
    ("bpf_res_spin_unlock", entry(unlock)),
    ("bpf_res_spin_lock_irqsave", entry(lock_irqsave)),
    ("bpf_res_spin_unlock_irqrestore", entry(unlock)),
];

#[inline(always)]
fn nothing(_call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(0)
}

/// `bpf_local_irq_save(flags)`
#[inline(always)]
fn save(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    call.write(args[0], &0u64.to_le_bytes())?;
    Ok(0)
}

/// `bpf_res_spin_lock(lock)`: 0 when taken, which always succeeds, because the verifier allows no
/// second lock that could deadlock with the first.
#[inline(always)]
fn lock(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    memory::lock(call.run.grant_lock("bpf_res_spin_lock", args[0])?);
    Ok(0)
}

/// `bpf_res_spin_lock_irqsave(lock, flags)`
#[inline(always)]
fn lock_irqsave(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    save(call, [args[1], 0, 0, 0, 0])?;
    lock(call, args)
}

/// `bpf_res_spin_unlock(lock)` and its `_irqrestore` form.
#[inline(always)]
fn unlock(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    memory::unlock(call.run.grant_lock("bpf_res_spin_unlock", args[0])?);
    Ok(0)
}
