//! `bpf_fdb_lookup`: the port behind which an Ethernet address is.
//!
//! The kernel has no such helper; see `docs/differences.md`.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;

use super::{Call, KfuncTable, entry};
use crate::host::Unknown;

pub(super) const KFUNCS: KfuncTable = &[("bpf_fdb_lookup", entry(lookup))];

/// `bpf_fdb_lookup(ctx, params, params_size)`
fn lookup(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, params, len, ..] = args;
    if u64::from(len as u32) != PARAMS_BYTES {
        return Ok(Errno::EINVAL.to_reg());
    }
    let question = call.read(params, IFINDEX as usize)?;
    let &[a, b, c, d, e, f, low, high] = question.as_ref() else {
        return Ok(Errno::EINVAL.to_reg());
    };
    let vlan = u16::from_ne_bytes([low, high]);
    if vlan > VLAN_MAX {
        return Ok(Errno::EINVAL.to_reg());
    }
    let Some(bridges) = &call.run.worker.bridges else { return Ok(Errno::ENODEV.to_reg()) };
    match bridges.port_behind(call.run.frame.rx.ifindex, vlan, [a, b, c, d, e, f]) {
        Ok(ifindex) => {
            call.run.put(params + IFINDEX, 4, ifindex.into())?;
            Ok(0)
        }
        Err(Unknown::Address) => Ok(Errno::ENOENT.to_reg()),
        Err(Unknown::Bridge) => Ok(Errno::ENODEV.to_reg()),
    }
}

/// `sizeof(struct bpf_fdb_lookup)`
const PARAMS_BYTES: u64 = 12;
const IFINDEX: u64 = 8;
const VLAN_MAX: u16 = 4095;
