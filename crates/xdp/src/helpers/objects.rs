//! Allocated objects, references to them, and kptrs: see [`crate::objects`] for their lives.

use std::sync::Arc;

use towpath_bpf::interp::{AtomicOp, Runtime, Stop, Violation};
use towpath_bpf::proto::id;

use super::{Call, KfuncTable, Table, entry};
use crate::objects::{Class, Object};
use crate::run::Run;

pub(super) const TABLE: Table = &[(id::KPTR_XCHG, entry(kptr_xchg))];

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_obj_new_impl", entry(new)),
    ("bpf_obj_drop_impl", entry(release)),
    ("bpf_percpu_obj_new_impl", entry(new_percpu)),
    ("bpf_percpu_obj_drop_impl", entry(release)),
    ("bpf_refcount_acquire_impl", entry(acquire)),
];

/// `bpf_kptr_xchg(place, ptr)`: stores a reference in a field and returns the previous one.
#[inline(always)]
fn kptr_xchg(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [place, new, ..] = args;
    Ok(call.run.atomic(place, 8, AtomicOp::Exchange, new)?)
}

/// `bpf_obj_new_impl(local_type_id, meta)`: an object of a structure of the program's BTF, or 0.
#[inline(always)]
fn new(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    allocate(call, args[0], false)
}

/// `bpf_percpu_obj_new_impl(local_type_id, meta)`
#[inline(always)]
fn new_percpu(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    allocate(call, args[0], true)
}

/// `bpf_obj_drop_impl(obj, meta)`
#[inline(always)]
fn release(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    give_up(call.run, args[0]);
    Ok(0)
}

/// `bpf_refcount_acquire_impl(obj, meta)`: the object again, or 0 if it is being freed.
#[inline(always)]
fn acquire(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let object = call.run.object(args[0]);
    Ok(if object.is_some_and(|object| object.acquire()) { args[0] } else { 0 })
}

/// One CPU's copy of a per-CPU object. The kernel's per-CPU variables do not exist here, and read
/// as zeros.
pub(super) fn percpu_address(call: &Call<'_, '_>, addr: u64, cpu: u64) -> u64 {
    let copy = call.run.surroundings.objects.percpu(addr, cpu);
    copy.unwrap_or_else(|| call.run.worker.unknown_object())
}

/// Releases the program's reference to an object.
#[inline]
pub(super) fn give_up(run: &Run<'_>, addr: u64) {
    release_found(run, run.object(addr));
}

/// Releases the program's reference to the object that contains a node. The kernel's verifier
/// writes the node's offset into the call; programs leave that argument 0.
#[cold]
pub(super) fn give_up_around(run: &Run<'_>, node: u64) {
    release_found(run, run.surroundings.objects.find(node));
}

#[inline]
fn release_found(run: &Run<'_>, object: Option<Object<'_>>) {
    if let Some(object) = object {
        run.surroundings.objects.release(object, run.worker.number() as usize);
    }
}

fn allocate(call: &mut Call<'_, '_>, type_id: u64, is_percpu: bool) -> Result<u64, Stop> {
    let known = |(id, percpu, _): &&(u64, bool, Arc<Class>)| (*id, *percpu) == (type_id, is_percpu);
    if !call.run.types.allocated.iter().any(|entry| known(&entry)) {
        let Some(class) = class_of(call, type_id, is_percpu)? else { return Ok(0) };
        call.run.types.allocated.push((type_id, is_percpu, class));
    }
    let run = &*call.run;
    let class = run.types.allocated.iter().find(known).map(|(_, _, class)| class);
    let (worker, domain) = (run.worker.number() as usize, run.maps.domain());
    let made = class.and_then(|class| run.surroundings.objects.allocate(class, worker, domain));
    Ok(made.map_or(0, |object| object.addr()))
}

/// The class of a structure's objects; `None` for one that is too large.
#[cold]
fn class_of(
    call: &mut Call<'_, '_>,
    type_id: u64,
    is_percpu: bool,
) -> Result<Option<Arc<Class>>, Stop> {
    let code = call.callbacks.code();
    let known = code.linked().and_then(|linked| Some((linked.btf.as_ref()?, &linked.kernel_btf)));
    let known = known.filter(|(types, _)| types.size_of(type_id as u32).is_some());
    let Some((types, kernel)) = known else {
        let (function, why) = ("bpf_obj_new", "a structure of the program");
        return Err(Violation::Argument { function, argument: 1, value: type_id, why }.into());
    };
    let (objects, domain) = (&call.run.surroundings.objects, call.run.maps.domain());
    Ok(objects.class_of(types, kernel, type_id as u32, is_percpu, domain))
}
