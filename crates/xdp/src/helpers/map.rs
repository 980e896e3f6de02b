//! Helpers on maps.

use std::ops::ControlFlow;

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::map::Values;
use towpath_bpf::proto::id;
use towpath_maps::Map;

use super::call::{Bytes, status};
use super::{Call, Table, cost, entry};
use crate::run::Extra;

pub(super) const TABLE: Table = &[
    (id::MAP_LOOKUP_ELEM, entry(lookup)),
    (id::MAP_LOOKUP_PERCPU_ELEM, entry(lookup_percpu)),
    (id::MAP_UPDATE_ELEM, entry(update)),
    (id::MAP_DELETE_ELEM, entry(delete)),
    (id::MAP_PUSH_ELEM, entry(push)),
    (id::MAP_POP_ELEM, entry(pop)),
    (id::MAP_PEEK_ELEM, entry(peek)),
    (id::FOR_EACH_MAP_ELEM, entry(for_each).costing(cost::by_elements)),
];

/// `bpf_map_lookup_elem(map, key)`
#[inline(always)]
fn lookup(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_map_lookup_elem", &args, 1)?;
    let key = call.read(args[1], map.key_size() as usize)?;
    let value = map.lookup(worker(call), key.as_ref());
    Ok(value.map_or(0, |value| value.as_ptr() as u64))
}

/// `bpf_map_lookup_percpu_elem(map, key, cpu)`
#[inline(always)]
fn lookup_percpu(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_map_lookup_percpu_elem", &args, 1)?;
    let key = call.read(args[1], map.key_size() as usize)?;
    let value = map.lookup_percpu(key.as_ref(), args[2] as u32);
    Ok(value.map_or(0, |value| value.as_ptr() as u64))
}

/// `bpf_map_update_elem(map, key, value, flags)`
#[inline(always)]
fn update(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_map_update_elem", &args, 1)?;
    let key = call.read(args[1], map.key_size() as usize)?;
    let value = call.read(args[2], map.value_size() as usize)?;
    Ok(status(map.update(worker(call), key.as_ref(), value.as_ref(), args[3])))
}

/// `bpf_map_delete_elem(map, key)`
#[inline(always)]
fn delete(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_map_delete_elem", &args, 1)?;
    let key = call.read(args[1], map.key_size() as usize)?;
    Ok(status(map.delete(worker(call), key.as_ref())))
}

/// `bpf_map_push_elem(map, value, flags)`
#[inline(always)]
fn push(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_map_push_elem", &args, 1)?;
    let value = call.read(args[1], map.value_size() as usize)?;
    Ok(status(map.push(value.as_ref(), args[2])))
}

/// `bpf_map_pop_elem(map, value)`
#[inline(always)]
fn pop(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_map_pop_elem", &args, 1)?;
    let mut value = Bytes::zeroed(map.value_size() as usize);
    let result = map.pop(value.as_mut());
    call.write(args[1], value.as_ref())?;
    Ok(status(result))
}

/// `bpf_map_peek_elem(map, value)`: for a bloom filter the value is the query, and is unchanged.
#[inline(always)]
fn peek(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_map_peek_elem", &args, 1)?;
    if map.kind().values() == Values::Members {
        let mut value = call.read(args[1], map.value_size() as usize)?;
        return Ok(status(map.peek(value.as_mut())));
    }
    let mut value = Bytes::zeroed(map.value_size() as usize);
    let result = map.peek(value.as_mut());
    call.write(args[1], value.as_ref())?;
    Ok(status(result))
}

/// `bpf_for_each_map_elem(map, callback, context, flags)`: the callback gets map, key, value and
/// context; a return value other than 0 ends the walk. Returns the number of elements visited.
#[inline(always)]
fn for_each(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_for_each_map_elem", &args, 1)?;
    let [handle, callback, context, flags, _] = args;
    if flags != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    match walk(call, map, [handle, callback, context]) {
        Ok(Ok(visited)) => Ok(visited),
        Ok(Err(errno)) => Ok(errno.to_reg()),
        Err(stop) => Err(stop),
    }
}

fn walk(
    call: &mut Call<'_, '_>,
    map: &Map,
    [handle, callback, context]: [u64; 3],
) -> Result<Result<u64, Errno>, Stop> {
    // Keys of arrays exist only as numbers, so the callback gets a temporary copy, as in the
    // kernel.
    let mut lent = call.run.worker.lend(map.key_size() as usize);
    let extra = Extra { addr: lent.addr(), len: u64::from(map.key_size()), writable: false };
    call.run.extras.push(extra);
    let mut stop = None;
    let visited = map.for_each(worker(call), |element| {
        let key = match element.key_address {
            Some(key) => key.as_ptr() as u64,
            None => {
                lent.bytes_mut()[..element.key.len()].copy_from_slice(element.key);
                lent.addr()
            }
        };
        let args = [handle, key, element.value.as_ptr() as u64, context, 0];
        match call.callback(callback, args) {
            Ok(0) => ControlFlow::Continue(()),
            Ok(_) => ControlFlow::Break(()),
            Err(reason) => {
                stop = Some(reason);
                ControlFlow::Break(())
            }
        }
    });
    call.run.extras.retain(|known| *known != extra);
    call.run.worker.put_away(lent);
    match stop {
        Some(reason) => Err(reason),
        None => Ok(visited),
    }
}

fn worker(call: &Call<'_, '_>) -> usize {
    call.run.worker.number() as usize
}
