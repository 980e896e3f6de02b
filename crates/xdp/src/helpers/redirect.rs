//! Redirects to interfaces and to entries of maps.

use towpath_bpf::interp::Stop;
use towpath_bpf::map::Values;
use towpath_bpf::proto::id;
use towpath_maps::Map;

use super::{Call, KfuncTable, Table, entry};
use crate::run::{Run, share};
use crate::verdict::{Action, RedirectTarget};

pub(super) const TABLE: Table =
    &[(id::REDIRECT, entry(redirect)), (id::REDIRECT_MAP, entry(redirect_map))];

pub(super) const KFUNCS: KfuncTable = &[("bpf_redirect_xsk", entry(redirect_xsk))];

/// `bpf_redirect(ifindex, flags)`
#[inline(always)]
fn redirect(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(to_interface(call.run, args[0], args[1]))
}

pub(crate) fn to_interface(run: &mut Run<'_>, ifindex: u64, flags: u64) -> u64 {
    if flags != 0 {
        return Action::Aborted as u64;
    }
    run.targets.set(run.index, RedirectTarget::Interface { ifindex: ifindex as u32 });
    Action::Redirect as u64
}

/// `bpf_redirect_map(map, key, flags)`
#[inline(always)]
fn redirect_map(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_redirect_map", &args, 1)?;
    Ok(to_map(call.run, map, args[1] as u32, args[2]))
}

/// `bpf_redirect_xsk(ctx, map, key, flags)`: `bpf_redirect_map` for XSKMAPs only. The engine
/// determines itself whether a queue has a single socket.
fn redirect_xsk(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_redirect_xsk", &args, 2)?;
    if map.kind().values() != Values::Socket {
        return Ok(Action::Aborted as u64);
    }
    Ok(to_map(call.run, map, args[2] as u32, args[3]))
}

/// `__bpf_xdp_redirect_map`. A miss returns the action in the low two flag bits and forgets an
/// earlier redirect.
pub(crate) fn to_map(run: &mut Run<'_>, map: &Map, key: u32, flags: u64) -> u64 {
    let can_broadcast = map.kind().values() == Values::Device;
    let known_flags = if can_broadcast { BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS } else { 0 };
    if flags & !(BPF_F_ACTION_MASK | known_flags) != 0 {
        return Action::Aborted as u64;
    }
    if flags & BPF_F_BROADCAST != 0 {
        let exclude_ingress = flags & BPF_F_EXCLUDE_INGRESS != 0;
        let map = number_of(run, map);
        run.targets.set(run.index, RedirectTarget::Broadcast { map, exclude_ingress });
        return Action::Redirect as u64;
    }
    let Some(entry) = map.target(key) else {
        run.targets.forget(run.index);
        return flags & BPF_F_ACTION_MASK;
    };
    let map = number_of(run, map);
    run.targets.set(run.index, RedirectTarget::Entry { map, key, entry });
    Action::Redirect as u64
}

/// The number of a map among the targets of the running burst.
#[inline]
fn number_of(run: &mut Run<'_>, map: &Map) -> u32 {
    match run.index_of(map) {
        Some(index) => index,
        None => run.targets.keep(share(map)),
    }
}

const BPF_F_ACTION_MASK: u64 = 3;
const BPF_F_BROADCAST: u64 = 8;
const BPF_F_EXCLUDE_INGRESS: u64 = 16;
