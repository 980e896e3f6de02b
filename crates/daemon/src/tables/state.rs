//! The shape of the file: what may be written, and what is assumed when it is not.

use std::net::IpAddr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use towpath_xdp::host::fib::RouteKind;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FibFile {
    #[serde(default)]
    pub(super) interface: Vec<InterfaceEntry>,
    #[serde(default)]
    pub(super) route: Vec<RouteEntry>,
    #[serde(default)]
    pub(super) neighbour: Vec<NeighbourEntry>,
}

/// `[[interface]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InterfaceEntry {
    pub(super) ifindex: u32,
    pub(super) name: String,
    #[serde(default)]
    pub(super) mac: Mac,
    #[serde(default = "ethernet_mtu")]
    pub(super) mtu: u32,
    #[serde(default = "yes")]
    pub(super) up: bool,
    /// For both families, unless said for one of them.
    #[serde(default)]
    pub(super) forwarding: bool,
    pub(super) forwarding_v4: Option<bool>,
    pub(super) forwarding_v6: Option<bool>,
    #[serde(default)]
    pub(super) addresses: Vec<IpAddr>,
    pub(super) vlan: Option<VlanEntry>,
}

/// `vlan = { lower = "eth0", id = 100 }`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VlanEntry {
    pub(super) lower: Device,
    pub(super) id: u16,
    #[serde(default = "customer_tag")]
    pub(super) protocol: u16,
}

/// `[[route]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteEntry {
    pub(super) to: String,
    pub(super) via: Option<IpAddr>,
    pub(super) dev: Option<Device>,
    #[serde(default)]
    pub(super) next_hops: Vec<NextHopEntry>,
    #[serde(default, rename = "type")]
    pub(super) kind: RouteWord,
    pub(super) table: Option<u32>,
    #[serde(default)]
    pub(super) metric: u32,
    pub(super) mtu: Option<u32>,
    pub(super) src: Option<IpAddr>,
    #[serde(default)]
    pub(super) encapsulates: bool,
}

/// One of several ways of a route.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NextHopEntry {
    pub(super) via: Option<IpAddr>,
    pub(super) dev: Device,
    #[serde(default)]
    pub(super) weight: u32,
}

/// `[[neighbour]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NeighbourEntry {
    pub(super) address: IpAddr,
    pub(super) dev: Device,
    pub(super) mac: Mac,
}

/// An interface by ifindex or by name.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected an interface's name or ifindex")]
pub(super) enum Device {
    Number(u32),
    Name(String),
}

/// `ip route`'s words for the type of a route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RouteWord {
    Blackhole,
    Broadcast,
    Local,
    Prohibit,
    #[default]
    Unicast,
    Unreachable,
}

impl RouteWord {
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
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mac(pub(super) [u8; 6]);

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_mac(&text).map(Mac).ok_or_else(|| {
            D::Error::custom(format!("mac {text:?}: expected six bytes in hex, 02:00:00:00:00:01"))
        })
    }
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

fn ethernet_mtu() -> u32 {
    1500
}

fn yes() -> bool {
    true
}

fn customer_tag() -> u16 {
    0x8100
}
