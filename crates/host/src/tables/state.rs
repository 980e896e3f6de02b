//! Keys of interfaces, routes and neighbours, and their defaults.

use std::fmt;
use std::net::IpAddr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use towpath_maps::typed;
use towpath_xdp::host::fib::RouteKind;
use utoipa::ToSchema;

/// The host that programs see, in the words of `ip route` and `ip neigh`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HostState {
    /// Interfaces, and further properties of ports, which are interfaces anyway.
    pub interface: Vec<InterfaceEntry>,
    /// Routes of all tables.
    pub route: Vec<RouteEntry>,
    /// Neighbours with known Ethernet addresses.
    pub neighbour: Vec<NeighbourEntry>,
}

/// `[[interface]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InterfaceEntry {
    /// Number of the interface; a port has one already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<u32>,
    /// Name of the interface, which may be a port's.
    pub name: String,
    /// Ethernet address; by default the port's, else zeroes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub mac: Option<Mac>,
    /// MTU in bytes; by default the port's, else 1500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Whether it is up; by default the port's state, else true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// Whether arriving packets are forwarded; by default yes for ports, else no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<bool>,
    /// Whether arriving packets are forwarded, for IPv4 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarding_v4: Option<bool>,
    /// Whether arriving packets are forwarded, for IPv6 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarding_v6: Option<bool>,
    /// Addresses of the interface, the preferred source address of each family first.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// Makes it a VLAN device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanEntry>,
}

/// `vlan = { lower = "eth0", id = 100 }`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VlanEntry {
    /// The interface below.
    pub lower: Device,
    /// VLAN id of the tag, 1 to 4094.
    pub id: u16,
    /// EtherType of the tag.
    #[serde(default = "customer_tag")]
    pub protocol: u16,
}

/// `[[route]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteEntry {
    /// A prefix, an address, or `default`.
    pub to: String,
    /// The gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub via: Option<IpAddr>,
    /// The interface to send through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev: Option<Device>,
    /// Further next hops, or all of them.
    #[serde(default)]
    pub next_hops: Vec<NextHopEntry>,
    /// Treatment of packets.
    #[serde(default, rename = "type")]
    pub kind: RouteWord,
    /// Table of the route; by default 254, main.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Metric: of several routes to one prefix the one with the smallest counts.
    #[serde(default)]
    pub metric: u32,
    /// MTU in bytes, if it is smaller than the interface's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The preferred source address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub src: Option<IpAddr>,
    /// Whether packets are encapsulated on the way.
    #[serde(default)]
    pub encapsulates: bool,
}

/// One of several next hops of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NextHopEntry {
    /// The gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub via: Option<IpAddr>,
    /// The interface.
    pub dev: Device,
    /// Weight relative to the other next hops; 0 counts as 1.
    #[serde(default)]
    pub weight: u32,
}

/// `[[neighbour]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NeighbourEntry {
    /// IP address of the neighbour.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The interface to the neighbour.
    pub dev: Device,
    /// Ethernet address of the neighbour.
    #[schema(value_type = String)]
    pub mac: Mac,
}

/// An interface by ifindex or by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected an interface's name or ifindex")]
pub enum Device {
    /// Ifindex of the interface.
    Number(u32),
    /// Name of the interface or port.
    Name(String),
}

/// `ip route`'s words for the type of a route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RouteWord {
    /// Dropped (`-EINVAL`).
    Blackhole,
    /// Sent to all hosts on the link.
    Broadcast,
    /// Delivered to this host.
    Local,
    /// Refused (`-EACCES`).
    Prohibit,
    /// Sent to an interface.
    #[default]
    Unicast,
    /// Refused (`-EHOSTUNREACH`).
    Unreachable,
}

impl RouteWord {
    /// Whether the route is useless without a next hop.
    pub(super) fn needs_next_hop(self) -> bool {
        self == RouteWord::Unicast
    }
}

impl From<RouteWord> for RouteKind {
    fn from(word: RouteWord) -> Self {
        match word {
            RouteWord::Blackhole => RouteKind::Blackhole,
            RouteWord::Broadcast => RouteKind::Broadcast,
            RouteWord::Local => RouteKind::Local,
            RouteWord::Prohibit => RouteKind::Prohibit,
            RouteWord::Unicast => RouteKind::Unicast,
            RouteWord::Unreachable => RouteKind::Unreachable,
        }
    }
}

/// An Ethernet address, `02:00:00:00:00:01`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.map(|byte| format!("{byte:02x}")).join(":"))
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        typed::mac(&text).map(Mac).ok_or_else(|| {
            D::Error::custom(format!("mac {text:?}: expected six bytes in hex, 02:00:00:00:00:01"))
        })
    }
}

fn customer_tag() -> u16 {
    0x8100
}
