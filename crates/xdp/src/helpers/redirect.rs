//! Redirects, and the MTU check of interfaces.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::map::Values;
use towpath_bpf::proto::id;
use towpath_maps::Map;

use super::{Call, KfuncTable, Table, entry};
use crate::frame::ETH_HLEN;
use crate::run::{Run, share};
use crate::verdict::{Action, RedirectTarget};

pub(super) const TABLE: Table = &[
    (id::REDIRECT, entry(redirect)),
    (id::REDIRECT_MAP, entry(redirect_map)),
    (id::CHECK_MTU, entry(check_mtu)),
];

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

/// `bpf_check_mtu(ctx, ifindex, mtu_len, len_diff, flags)` (`bpf_xdp_check_mtu`): 0 when the linear
/// part, changed by `len_diff`, fits. Writes the interface's MTU to `*mtu_len`.
#[inline(always)]
fn check_mtu(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, ifindex, mtu_len_addr, len_diff, flags] = args;
    if flags != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    let asked = call.run.get(mtu_len_addr, 4)? as u32;
    let frame = Linear { len: call.run.frame.linear_len(), ifindex: call.run.frame.rx.ifindex };
    match mtu(call.run, frame, ifindex as u32, asked, len_diff) {
        Err(errno) => Ok(errno.to_reg()),
        Ok((mtu, result)) => {
            call.run.put(mtu_len_addr, 4, mtu.into())?;
            Ok(result)
        }
    }
}

/// The properties of a frame that `bpf_check_mtu` reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linear {
    /// Bytes of the linear part.
    pub(crate) len: usize,
    /// Its ingress ifindex.
    pub(crate) ifindex: u32,
}

/// The MTU of an interface (0: the ingress one), and the result of `bpf_check_mtu` for a packet of
/// `asked` bytes (0: the linear part) that gets `change` bytes longer.
#[inline]
pub(crate) fn mtu(
    run: &mut Run<'_>,
    frame: Linear,
    ifindex: u32,
    asked: u32,
    change: u64,
) -> Result<(u32, u64), Errno> {
    let ifindex = if ifindex == 0 { frame.ifindex } else { ifindex };
    let tables = run.surroundings.host.tables(&mut run.worker.host);
    let mtu = tables.mtu(ifindex).ok_or(Errno::ENODEV)?;
    let len = match asked {
        0 => frame.len as i64,
        asked => i64::from(asked) + ETH_HLEN as i64,
    };
    // The kernel adds in 32-bit arithmetic.
    let len = (len as i32).wrapping_add(change as i32);
    let limit = i64::from(mtu) + ETH_HLEN as i64;
    Ok((mtu, if i64::from(len) <= limit { 0 } else { BPF_MTU_CHK_RET_FRAG_NEEDED }))
}

const BPF_F_ACTION_MASK: u64 = 3;
const BPF_F_BROADCAST: u64 = 8;
const BPF_F_EXCLUDE_INGRESS: u64 = 16;
const BPF_MTU_CHK_RET_FRAG_NEEDED: u64 = 1;
