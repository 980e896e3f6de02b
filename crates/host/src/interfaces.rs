//! Interfaces and their addresses.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_core::Parseable;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage,
};
use towpath_xdp::host::{Interface, Vlan};

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) ifindex: u32,
    pub(crate) address: IpAddr,
    pub(crate) prefix_len: u8,
    /// Rank as a source address: smaller ones are preferred.
    rank: u8,
}

impl Address {
    /// Whether another address is in its network.
    pub(crate) fn covers(&self, other: Ipv4Addr) -> bool {
        let IpAddr::V4(own) = self.address else { return false };
        let host_bits = 32_u32.saturating_sub(self.prefix_len.into());
        (own.to_bits() ^ other.to_bits()).checked_shr(host_bits).unwrap_or(0) == 0
    }

    /// Whether it can be a source address for any interface.
    pub(crate) fn is_universal(&self) -> bool {
        self.rank & !RANK_DEPRECATED == 0
    }
}

/// The interface in an `RTM_NEWLINK`.
pub(crate) fn interface(body: &[u8]) -> Option<Interface> {
    let message = LinkMessage::parse(body).ok()?;
    let mut interface = Interface {
        ifindex: message.header.index,
        name: String::new(),
        mac: [0; 6],
        mtu: 0,
        up: message.header.flags.contains(LinkFlags::Up),
        forwarding_v4: false,
        forwarding_v6: false,
        addresses: Vec::new(),
        vlan: None,
    };
    let (mut lower, mut tag, mut is_elsewhere) = (None, None, false);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name = name,
            LinkAttribute::Mtu(mtu) => interface.mtu = mtu,
            // Tunnels have shorter or longer addresses; like the kernel, this copies the bytes that
            // fit.
            LinkAttribute::Address(bytes) => {
                for (to, byte) in interface.mac.iter_mut().zip(bytes) {
                    *to = byte;
                }
            }
            LinkAttribute::Link(ifindex) => lower = Some(ifindex),
            LinkAttribute::LinkNetNsId(_) => is_elsewhere = true,
            LinkAttribute::LinkInfo(infos) => tag = infos.iter().find_map(tag_of),
            LinkAttribute::AfSpecUnspec(families) => set_forwarding(&mut interface, &families),
            _ => {}
        }
    }
    // A lower interface in another namespace has a number with another meaning here.
    if let (Some(lower), Some((id, protocol)), false) = (lower, tag, is_elsewhere) {
        interface.vlan = Some(Vlan { lower, id, protocol });
    }
    Some(interface)
}

/// A VLAN device's tag and protocol.
fn tag_of(info: &LinkInfo) -> Option<(u16, u16)> {
    let LinkInfo::Data(InfoData::Vlan(infos)) = info else { return None };
    let id = infos.iter().find_map(|info| match info {
        InfoVlan::Id(id) => Some(*id),
        _ => None,
    });
    let protocol = infos.iter().find_map(|info| match info {
        InfoVlan::Protocol(protocol) => Some(u16::from(*protocol)),
        _ => None,
    });
    Some((id?, protocol.unwrap_or(ETH_P_8021Q)))
}

/// Sets forwarding: an interface without IPv4 or IPv6 lacks the family's part, and does not forward
/// it.
fn set_forwarding(interface: &mut Interface, families: &[AfSpecUnspec]) {
    for family in families {
        match family {
            AfSpecUnspec::Inet(parts) => {
                interface.forwarding_v4 = parts
                    .iter()
                    .any(|part| matches!(part, AfSpecInet::DevConf(conf) if conf.forwarding != 0));
            }
            AfSpecUnspec::Inet6(parts) => {
                interface.forwarding_v6 = parts
                    .iter()
                    .any(|part| matches!(part, AfSpecInet6::DevConf(conf) if conf.forwarding != 0));
            }
            _ => {}
        }
    }
}

/// The address in an `RTM_NEWADDR`. The outer `None`: it can't be parsed; the inner one: it is
/// unusable.
pub(crate) fn address(body: &[u8]) -> Option<Option<Address>> {
    let message = AddressMessage::parse(body).ok()?;
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    let (mut own, mut other) = (None, None);
    for attribute in message.attributes {
        match attribute {
            AddressAttribute::Local(address) => own = Some(address),
            // On a point-to-point interface this is the other end's address.
            AddressAttribute::Address(address) => other = Some(address),
            AddressAttribute::Flags(wide) => flags = wide,
            _ => {}
        }
    }
    let unusable = AddressFlags::Tentative | AddressFlags::Dadfailed;
    let Some(address) = own.or(other).filter(|_| !flags.intersects(unusable)) else {
        return Some(None);
    };
    let is_second = message.header.flags.contains(AddressHeaderFlags::Secondary);
    let is_old = flags.contains(AddressFlags::Deprecated);
    let rank = u8::from(message.header.scope != AddressScope::Universe) << 2
        | if is_old { RANK_DEPRECATED } else { 0 }
        | u8::from(is_second);
    let ifindex = message.header.index;
    Some(Some(Address { ifindex, address, prefix_len: message.header.prefix_len, rank }))
}

/// Assigns addresses to interfaces, preferred source addresses first.
pub(crate) fn assign(interfaces: &mut [Interface], addresses: &[Address]) {
    let mut by_interface: HashMap<u32, Vec<&Address>> = HashMap::new();
    for address in addresses {
        by_interface.entry(address.ifindex).or_default().push(address);
    }
    for interface in interfaces {
        let mut own = by_interface.remove(&interface.ifindex).unwrap_or_default();
        own.sort_by_key(|address| address.rank);
        interface.addresses = own.into_iter().map(|address| address.address).collect();
    }
}

const ETH_P_8021Q: u16 = 0x8100;
const RANK_DEPRECATED: u8 = 2;
