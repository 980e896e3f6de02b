//! Allocated objects, references to them, and kptrs: see [`crate::objects`] for their lives.

use towpath_bpf::interp::{AtomicOp, Runtime, Stop, Violation};
use towpath_bpf::proto::id;

use super::{Call, KfuncTable, Table, entry};

pub(super) const TABLE: Table = &[(id::KPTR_XCHG, entry(kptr_xchg))];

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_obj_new_impl", entry(new)),
    ("bpf_obj_drop_impl", entry(release)),
    ("bpf_percpu_obj_new_impl", entry(new_percpu)),
    ("bpf_percpu_obj_drop_impl", entry(release)),
    ("bpf_refcount_acquire_impl", entry(acquire)),
];

/// `bpf_kptr_xchg(place, ptr)`: puts a reference into a field and gives back what was there.
#[inline(always)]
fn kptr_xchg(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [place, new, ..] = args;
    let objects = &call.run.surroundings.objects;
    if new != 0 {
        objects.hang(place, new);
    }
    let old = call.run.atomic(place, 8, AtomicOp::Exchange, new)?;
    if old != 0 {
        call.run.surroundings.objects.take_down(place, old);
    }
    Ok(old)
}

/// `bpf_obj_new_impl(local_type_id, meta)`: an object of a structure of the program's BTF, or 0.
#[inline(always)]
fn new(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let bytes = size_of(call, args[0])?;
    Ok(call.run.surroundings.objects.allocate(bytes, None).unwrap_or(0))
}

/// `bpf_percpu_obj_new_impl(local_type_id, meta)`
#[inline(always)]
fn new_percpu(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let bytes = size_of(call, args[0])?;
    let workers = call.run.maps.domain().workers();
    Ok(call.run.surroundings.objects.allocate(bytes, Some(workers)).unwrap_or(0))
}

/// `bpf_obj_drop_impl(obj, meta)`
#[inline(always)]
fn release(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    call.run.surroundings.objects.release(args[0], call.run.maps.domain());
    Ok(0)
}

/// `bpf_refcount_acquire_impl(obj, meta)`: the object again, or 0 when it is about to go.
#[inline(always)]
fn acquire(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(if call.run.surroundings.objects.acquire(args[0]) { args[0] } else { 0 })
}

/// One CPU's copy of a per-CPU object. Per-CPU variables of the kernel there are none: they read as
/// zeros.
pub(super) fn percpu_address(call: &Call<'_, '_>, addr: u64, cpu: u64) -> u64 {
    let copy = call.run.surroundings.objects.percpu(addr, cpu);
    copy.unwrap_or_else(|| call.run.worker.unknown_object())
}

fn size_of(call: &mut Call<'_, '_>, type_id: u64) -> Result<usize, Stop> {
    match call.run.types.allocated {
        Some((known, size)) if known == type_id => Ok(size),
        _ => ask_size_of(call, type_id),
    }
}

fn ask_size_of(call: &mut Call<'_, '_>, type_id: u64) -> Result<usize, Stop> {
    let code = call.callbacks.code();
    let btf = code.linked().and_then(|linked| linked.btf.clone());
    let size = btf.and_then(|btf| btf.size_of(type_id as u32));
    let Some(size) = size.and_then(|size| usize::try_from(size).ok()) else {
        let (function, why) = ("bpf_obj_new", "a structure of the program");
        return Err(Violation::Argument { function, argument: 1, value: type_id, why }.into());
    };
    call.run.types.allocated = Some((type_id, size));
    Ok(size)
}
