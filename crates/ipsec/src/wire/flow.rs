//! Extracts the fields of a packet that policies match.

use super::{
    IPPROTO_DCCP, IPPROTO_SCTP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_UDPLITE, Ip, Payload, Version,
    get16, get32, get128,
};
use crate::refusal::Refusal;
use crate::table::Flow;

/// Addresses, protocol and ports of a packet.
#[inline]
pub(crate) fn flow(bytes: &[u8], ip: &Ip) -> Result<Flow, Refusal> {
    if ip.is_fragment_v4() {
        return Ok(flow_of(bytes, ip, ip.protocol, ip.first_fragment_v4(), ip.end()));
    }
    flow_behind(bytes, ip, ip.first(), ip.end())
}

/// Like [`flow`], for a packet whose IP header is followed by `payload`, which ends at `end`.
#[inline]
pub(crate) fn flow_behind(
    bytes: &[u8],
    ip: &Ip,
    payload: Payload,
    end: usize,
) -> Result<Flow, Refusal> {
    let (protocol, at) = match ip.version {
        Version::V4 => (payload.protocol, Some(payload.at)),
        Version::V6 => payload.upper(bytes, end)?,
    };
    Ok(flow_of(bytes, ip, protocol, at, end))
}

#[inline]
fn flow_of(bytes: &[u8], ip: &Ip, protocol: u8, at: Option<usize>, end: usize) -> Flow {
    let has_ports = matches!(
        protocol,
        IPPROTO_TCP | IPPROTO_UDP | IPPROTO_SCTP | IPPROTO_DCCP | IPPROTO_UDPLITE
    );
    let ports = at.filter(|&at| has_ports && at + 4 <= end);
    let (source_port, destination_port) =
        ports.map_or((0, 0), |at| (get16(bytes, at), get16(bytes, at + 2)));
    let (source, destination) = match ip.version {
        Version::V4 => (get32(bytes, ip.at + 12).into(), get32(bytes, ip.at + 16).into()),
        Version::V6 => (get128(bytes, ip.at + 8), get128(bytes, ip.at + 24)),
    };
    let is_v6 = ip.version == Version::V6;
    Flow { is_v6, source, destination, protocol, source_port, destination_port }
}
