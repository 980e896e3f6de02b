//! Keys of interfaces, routes and neighbours, and their defaults.

use std::fmt;
use std::net::IpAddr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use towpath_maps::typed;
use towpath_xdp::host::fib::RouteKind;
use utoipa::ToSchema;

/// The host that programs are to see, in the words of `ip route` and `ip neigh`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HostState {
    /// Interfaces, and more about ports that are interfaces anyway.
    pub interface: Vec<InterfaceEntry>,
    /// Routes of all tables.
    pub route: Vec<RouteEntry>,
    /// Neighbours whose Ethernet address is known.
    pub neighbour: Vec<NeighbourEntry>,
}

/// `[[interface]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InterfaceEntry {
    /// Its number; a port has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ifindex: Option<u32>,
    /// Its name, perhaps a port's.
    pub name: String,
    /// Its Ethernet address: the port's, else zeroes, when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub mac: Option<Mac>,
    /// Bytes: the port's, else 1500, when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The port's, else true, when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// Whether packets that arrive are forwarded: yes for ports, else no, when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<bool>,
    /// The same for IPv4 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarding_v4: Option<bool>,
    /// The same for IPv6 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarding_v6: Option<bool>,
    /// Its own addresses, the preferred source address of each family first.
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
    /// Its tag, 1 to 4094.
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
    /// The interface that leads there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev: Option<Device>,
    /// More ways, or all of them.
    #[serde(default)]
    pub next_hops: Vec<NextHopEntry>,
    /// What becomes of packets.
    #[serde(default, rename = "type")]
    pub kind: RouteWord,
    /// The table it is in; 254, main, when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Of several routes to one prefix the smallest counts.
    #[serde(default)]
    pub metric: u32,
    /// Bytes that fit, if fewer than through its interface.
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

/// One of several ways of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NextHopEntry {
    /// The gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub via: Option<IpAddr>,
    /// The interface.
    pub dev: Device,
    /// Its share beside the others'; 0 is 1.
    #[serde(default)]
    pub weight: u32,
}

/// `[[neighbour]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NeighbourEntry {
    /// Its IP address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The interface it is behind.
    pub dev: Device,
    /// Its Ethernet address.
    #[schema(value_type = String)]
    pub mac: Mac,
}

/// An interface by ifindex or by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected an interface's name or ifindex")]
pub enum Device {
    /// Its ifindex.
    Number(u32),
    /// Its name, or a port's.
    Name(String),
}

/// `ip route`'s words for the type of a route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RouteWord {
    /// Dropped (`-EINVAL`).
    Blackhole,
    /// To everybody on the link.
    Broadcast,
    /// For this host.
    Local,
    /// Refused (`-EACCES`).
    Prohibit,
    /// To an interface.
    #[default]
    Unicast,
    /// Refused (`-EHOSTUNREACH`).
    Unreachable,
}

impl RouteWord {
    /// Whether it leads nowhere without one.
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
