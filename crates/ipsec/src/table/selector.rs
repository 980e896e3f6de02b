//! Selectors, which match the packets of a policy or an SA.

use std::net::IpAddr;

use crate::refusal::Refusal;
use crate::wire::{self, Ip};

/// The fields of a packet that policies match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Whether the packet is IPv6, not IPv4.
    pub is_v6: bool,
    /// Source address; an IPv4 address is in the low 32 bits.
    pub source: u128,
    /// Destination address; an IPv4 address is in the low 32 bits.
    pub destination: u128,
    /// Protocol after all extension headers.
    pub protocol: u8,
    /// Source port; 0 if the protocol has no ports or the packet is not the first fragment.
    pub source_port: u16,
    /// Destination port; 0 as for the source port.
    pub destination_port: u16,
}

impl Flow {
    /// The flow of an Ethernet frame.
    ///
    /// # Errors
    ///
    /// Fails if the frame is not a complete IP packet.
    #[inline]
    pub fn of_frame(bytes: &[u8]) -> Result<Flow, Refusal> {
        let ip = Ip::of_frame(bytes)?;
        wire::flow(bytes, &ip)
    }

    /// Source and destination address.
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        let address = |number: u128| match self.is_v6 {
            true => IpAddr::V6(number.into()),
            false => IpAddr::V4((number as u32).into()),
        };
        (address(self.source), address(self.destination))
    }
}

/// A range of addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// Any address of the range.
    pub address: IpAddr,
    /// Number of bits that all addresses share.
    pub len: u8,
}

/// A set of packets of one address family, given by addresses, protocol and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Source addresses.
    pub source: Prefix,
    /// Destination addresses, of the same family as the source addresses.
    pub destination: Prefix,
    /// The protocol; `None`: any.
    pub protocol: Option<u8>,
    /// The source port; `None`: any.
    pub source_port: Option<u16>,
    /// The destination port; `None`: any.
    pub destination_port: Option<u16>,
}

impl Selector {
    /// All packets from one network to another.
    pub fn between(source: Prefix, destination: Prefix) -> Selector {
        let (protocol, source_port, destination_port) = (None, None, None);
        Selector { source, destination, protocol, source_port, destination_port }
    }

    /// Whether the selector is valid: one address family, and no prefix longer than an address.
    pub(super) fn is_valid(&self) -> bool {
        self.source.address.is_ipv4() == self.destination.address.is_ipv4()
            && self.source.len <= bits(self.source.address)
            && self.destination.len <= bits(self.destination.address)
    }

    /// Whether the selector matches a packet.
    #[inline]
    pub fn contains(&self, flow: &Flow) -> bool {
        let mask = Mask::of(self);
        mask.is_v6 == flow.is_v6 && mask.apply(flow) == mask.key(self)
    }
}

/// The bits that a selector compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mask {
    pub(super) is_v6: bool,
    source: u128,
    destination: u128,
    protocol: u8,
    source_port: u16,
    destination_port: u16,
}

/// The compared bits of a selector or of a packet; all other bits are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    source: u128,
    destination: u128,
    protocol: u8,
    source_port: u16,
    destination_port: u16,
}

impl Mask {
    #[inline]
    pub(super) fn of(selector: &Selector) -> Mask {
        Mask {
            is_v6: selector.source.address.is_ipv6(),
            source: selector.source.mask(),
            destination: selector.destination.mask(),
            protocol: if selector.protocol.is_some() { u8::MAX } else { 0 },
            source_port: if selector.source_port.is_some() { u16::MAX } else { 0 },
            destination_port: if selector.destination_port.is_some() { u16::MAX } else { 0 },
        }
    }

    #[inline]
    pub(super) fn apply(&self, flow: &Flow) -> Key {
        Key {
            source: flow.source & self.source,
            destination: flow.destination & self.destination,
            protocol: flow.protocol & self.protocol,
            source_port: flow.source_port & self.source_port,
            destination_port: flow.destination_port & self.destination_port,
        }
    }

    #[inline]
    pub(super) fn key(&self, selector: &Selector) -> Key {
        Key {
            source: number(selector.source.address) & self.source,
            destination: number(selector.destination.address) & self.destination,
            protocol: selector.protocol.unwrap_or(0),
            source_port: selector.source_port.unwrap_or(0),
            destination_port: selector.destination_port.unwrap_or(0),
        }
    }
}

impl Prefix {
    #[inline]
    fn mask(&self) -> u128 {
        let bits = u32::from(bits(self.address));
        let free = bits.saturating_sub(u32::from(self.len));
        let all = u128::MAX >> (128 - bits);
        all.checked_shr(free).map_or(0, |ones| ones << free)
    }
}

/// An address as a number; an IPv4 address is in the low 32 bits.
#[inline]
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[inline]
fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
