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
    upper(bytes, ip).map(|upper| flow_of(bytes, ip, upper, ip.end()))
}

/// Like [`flow`], for a packet whose IP header is followed by `payload`, which ends at `end`.
#[inline]
pub(crate) fn flow_behind(
    bytes: &[u8],
    ip: &Ip,
    payload: Payload,
    end: usize,
) -> Result<Flow, Refusal> {
    upper_behind(bytes, ip, payload, end).map(|upper| flow_of(bytes, ip, upper, end))
}

/// The protocol of a packet after all extension headers, and its header's offset. The offset is
/// `None` for all fragments but the first.
#[inline(always)]
pub(crate) fn upper(bytes: &[u8], ip: &Ip) -> Result<(u8, Option<usize>), Refusal> {
    if ip.is_fragment_v4() {
        return Ok((ip.protocol, ip.first_fragment_v4()));
    }
    upper_behind(bytes, ip, ip.first(), ip.end())
}

#[inline(always)]
fn upper_behind(
    bytes: &[u8],
    ip: &Ip,
    payload: Payload,
    end: usize,
) -> Result<(u8, Option<usize>), Refusal> {
    match ip.version {
        Version::V4 => Ok((payload.protocol, Some(payload.at))),
        Version::V6 => payload.upper(bytes, end),
    }
}

/// The flow of a packet whose header above IP is `upper`. Inlined, so that its fields stay in
/// registers.
#[inline(always)]
pub(crate) fn flow_of(
    bytes: &[u8],
    ip: &Ip,
    (protocol, at): (u8, Option<usize>),
    end: usize,
) -> Flow {
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
