//! TX timestamps on request of programs.
//!
//! No kernel has these functions. `bpf_devtx_request_tx_timestamp` was proposed ("bpf: Netdev TX
//! metadata", S. Fomichev, June 2023), with programs attached to each device that run when it has
//! sent a packet; here the timestamp is written to a ring buffer.

use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_bpf::interp::{Stop, Violation};
use towpath_maps::Map;

use super::call::status;
use super::{Call, KfuncTable, entry};
use crate::frame::Body;
use crate::tx_timestamps::TxTimestamps;

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_xdp_request_tx_timestamp", entry(request)),
    ("bpf_packet_request_tx_timestamp", entry(request_of)),
];

/// `bpf_xdp_request_tx_timestamp(ctx, ring, cookie)`: `-EBUSY` if the frame has a request already,
/// `-ENOMEM` if too many frames with a request are in flight, `-EINVAL` if the map is not a ring
/// buffer of the program, `-EOPNOTSUPP` if there are no ports.
fn request(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let ring = ring(call, "bpf_xdp_request_tx_timestamp", &args)?;
    let requests = call.run.worker.tx_timestamps.as_deref();
    Ok(status(ask(requests, &mut *call.run.frame, ring, args[2])))
}

/// `bpf_packet_request_tx_timestamp(pkt, ring, cookie)`: the same for a packet that a dequeue
/// program holds.
fn request_of(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let function = "bpf_packet_request_tx_timestamp";
    let ring = ring(call, function, &args)?;
    let worker = &mut *call.run.worker;
    if let Some(frame) = worker.held.at_mut(args[0]) {
        return Ok(status(ask(worker.tx_timestamps.as_deref(), frame, ring, args[2])));
    }
    let why = "a packet that the program holds";
    Err(Violation::Argument { function, argument: 1, value: args[0], why }.into())
}

/// The map, if it is one of the program's own.
fn ring<'r>(
    call: &Call<'_, 'r>,
    function: &'static str,
    args: &[u64; 5],
) -> Result<Option<&'r Arc<Map>>, Stop> {
    let map = call.map(function, args, 2)?;
    Ok(call.run.maps.maps().iter().find(|own| std::ptr::eq(&***own, map)))
}

fn ask(
    requests: Option<&TxTimestamps>,
    frame: &mut Body,
    ring: Option<&Arc<Map>>,
    cookie: u64,
) -> Result<(), Errno> {
    let requests = requests.ok_or(Errno::EOPNOTSUPP)?;
    if frame.has_tx_request() {
        return Err(Errno::EBUSY);
    }
    frame.set_tx_request(requests.request(ring.ok_or(Errno::EINVAL)?, cookie)?);
    Ok(())
}
