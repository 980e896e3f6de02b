//! The check of a packet's length against an interface's MTU.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::{Call, Table, entry};
use crate::frame::ETH_HLEN;
use crate::run::Run;

pub(super) const TABLE: Table = &[(id::CHECK_MTU, entry(check_mtu))];

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
    match check(call.run, frame, ifindex as u32, asked, len_diff) {
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
pub(crate) fn check(
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

const BPF_MTU_CHK_RET_FRAG_NEEDED: u64 = 1;
