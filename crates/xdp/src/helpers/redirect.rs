//! Redirects, and whether a frame fits through an interface.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::program::MapType;
use towpath_bpf::proto::id;
use towpath_maps::Map;

use super::{Call, Table, entry};
use crate::frame::ETH_HLEN;
use crate::run::{Run, share};
use crate::verdict::{Action, Redirect, Target};

pub(super) const TABLE: Table = &[
    (id::REDIRECT, entry(redirect)),
    (id::REDIRECT_MAP, entry(redirect_map)),
    (id::CHECK_MTU, entry(check_mtu)),
];

/// `bpf_redirect(ifindex, flags)`
#[inline(always)]
fn redirect(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(to_interface(call.run, args[0], args[1]))
}

pub(crate) fn to_interface(run: &mut Run<'_>, ifindex: u64, flags: u64) -> u64 {
    if flags != 0 {
        return Action::Aborted as u64;
    }
    run.redirect_to(Redirect::Interface { ifindex: ifindex as u32 });
    Action::Redirect as u64
}

/// `bpf_redirect_map(map, key, flags)`
#[inline(always)]
fn redirect_map(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_redirect_map", &args, 1)?;
    Ok(to_map(call.run, map, args[1] as u32, args[2]))
}

/// `__bpf_xdp_redirect_map`. A miss returns the action in the low two flag bits and forgets an
/// earlier redirect.
pub(crate) fn to_map(run: &mut Run<'_>, map: &Map, key: u32, flags: u64) -> u64 {
    let known_flags = match map.kind() {
        MapType::Devmap | MapType::DevmapHash => BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS,
        _ => 0,
    };
    if flags & !(BPF_F_ACTION_MASK | known_flags) != 0 {
        return Action::Aborted as u64;
    }
    if flags & BPF_F_BROADCAST != 0 {
        let exclude_ingress = flags & BPF_F_EXCLUDE_INGRESS != 0;
        run.redirect_to(match run.index_of(map) {
            Some(map) => Redirect::Broadcast { map, exclude_ingress },
            None => inner(Target::Broadcast { map: share(map), exclude_ingress }),
        });
        return Action::Redirect as u64;
    }
    let Some(entry) = map.target(key) else {
        run.forget_redirect();
        return flags & BPF_F_ACTION_MASK;
    };
    match run.index_of(map) {
        Some(map) => run.redirect_to(Redirect::Entry { map, key, entry }),
        None => run.redirect_to(inner(Target::Entry { map: share(map), key, entry })),
    }
    Action::Redirect as u64
}

fn inner(target: Target) -> Redirect {
    Redirect::Inner(Box::new(target))
}

/// `bpf_check_mtu(ctx, ifindex, mtu_len, len_diff, flags)` (`bpf_xdp_check_mtu`): 0 when the linear
/// part, changed by `len_diff`, fits. Writes the interface's MTU to `*mtu_len`.
#[inline(always)]
fn check_mtu(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, ifindex, mtu_len_addr, len_diff, flags] = args;
    if flags != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    let frame = &*call.run.frame;
    let ifindex = if ifindex as u32 == 0 { frame.rx.ifindex } else { ifindex as u32 };
    let tables = call.run.surroundings.host.tables(&mut call.run.worker.host);
    let Some(mtu) = tables.interface(ifindex).map(|interface| interface.mtu) else {
        return Ok(Errno::ENODEV.to_reg());
    };
    let len = match call.run.get(mtu_len_addr, 4)? {
        0 => frame.linear_len() as i64,
        asked => asked as i64 + ETH_HLEN as i64,
    };
    // The kernel adds in 32-bit arithmetic.
    let len = (len as i32).wrapping_add(len_diff as i32);
    let limit = i64::from(mtu) + ETH_HLEN as i64;
    call.run.put(mtu_len_addr, 4, mtu.into())?;
    Ok(if i64::from(len) <= limit { 0 } else { BPF_MTU_CHK_RET_FRAG_NEEDED })
}

const BPF_F_ACTION_MASK: u64 = 3;
const BPF_F_BROADCAST: u64 = 8;
const BPF_F_EXCLUDE_INGRESS: u64 = 16;
const BPF_MTU_CHK_RET_FRAG_NEEDED: u64 = 1;
