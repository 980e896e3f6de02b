//! Neighbours with a usable Ethernet address.

use std::net::IpAddr;

use netlink_packet_core::Parseable;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use towpath_xdp::host::Neighbour;

/// The neighbour in an `RTM_NEWNEIGH`. The outer `None`: it can't be parsed; the inner one: no
/// packets can be sent to it.
pub(crate) fn neighbour(body: &[u8]) -> Option<Option<Neighbour>> {
    let message = NeighbourMessage::parse(body).ok()?;
    let is_valid = u16::from(message.header.state) & NUD_VALID != 0;
    let (mut address, mut mac) = (None, None);
    for attribute in message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                address = Some(IpAddr::V4(v4));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                address = Some(IpAddr::V6(v6));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.first_chunk().copied(),
            _ => {}
        }
    }
    let ifindex = message.header.ifindex;
    let known = address.zip(mac).filter(|_| is_valid);
    Some(known.map(|(address, mac)| Neighbour { ifindex, address, mac }))
}

/// `NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY`.
const NUD_VALID: u16 = 0xde;
