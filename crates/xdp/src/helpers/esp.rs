//! ESP without a detour through a port: `bpf_xdp_esp_encap` and `bpf_xdp_esp_decap`.
//!
//! The kernel has no such functions; see `docs/ipsec.md`.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;

use super::{Call, KfuncTable, call::status, entry, moving};
use crate::host::{ESP_RECORD_BYTES, EspOperation};
use crate::run::Run;

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_xdp_esp_encap", moving(encap).costing(cost_of_frame)),
    ("bpf_xdp_esp_decap", moving(decap).costing(cost_of_frame)),
    ("bpf_xdp_get_xfrm_state", entry(super::xfrm::state)),
    ("bpf_xdp_xfrm_state_release", entry(super::xfrm::release)),
];

/// `bpf_xdp_esp_encap(ctx, ifindex, meta, meta__sz)`
#[inline(always)]
fn encap(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    run(call, args, EspOperation::Encap)
}

/// `bpf_xdp_esp_decap(ctx, ifindex, meta, meta__sz)`
#[inline(always)]
fn decap(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    run(call, args, EspOperation::Decap)
}

fn run(call: &mut Call<'_, '_>, args: [u64; 5], operation: EspOperation) -> Result<u64, Stop> {
    let [_, ifindex, meta, len, _] = args;
    // A record in the packet would be overwritten, or left behind, when the packet moves.
    if len as u32 as usize != ESP_RECORD_BYTES || is_in_frame(call.run, meta) {
        return Ok(Errno::EINVAL.to_reg());
    }
    let (first, second) = (call.run.get(meta, 8)?, call.run.get(meta + 8, 8)?);
    let mut record = [0; ESP_RECORD_BYTES];
    record[..8].copy_from_slice(&first.to_ne_bytes());
    record[8..].copy_from_slice(&second.to_ne_bytes());
    let Run { worker, frame, .. } = &mut *call.run;
    let number = worker.number();
    let port = worker.esp.iter_mut().find(|(port, _)| *port == ifindex as u32);
    let Some((_, port)) = port else { return Ok(Errno::ENODEV.to_reg()) };
    let done = port.run(operation, frame, &mut record, number);
    call.write(meta, &record)?;
    Ok(status(done))
}

fn is_in_frame(run: &Run<'_>, addr: u64) -> bool {
    run.frame.is_in_head(addr) || run.frame.frags().any(|frag| frag.is_in_head(addr))
}

/// The cost of a call: some bytes of the frame in the time of an instruction.
fn cost_of_frame(run: &Run<'_>, _callee: u32, _args: &[u64; 5]) -> u64 {
    SETUP + run.frame.len() as u64 / BYTES
}

const SETUP: u64 = 300;
const BYTES: u64 = 2;
