//! The forwarding information base: routes by longest prefix.

use std::net::IpAddr;

/// The table that lookups without a table id use (`RT_TABLE_MAIN`).
pub const TABLE_MAIN: u32 = 254;
/// The host's own and broadcast addresses (`RT_TABLE_LOCAL`).
pub const TABLE_LOCAL: u32 = 255;
/// Asked last, for IPv4 (`RT_TABLE_DEFAULT`).
pub const TABLE_DEFAULT: u32 = 253;

/// One route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Routing table, [`TABLE_MAIN`] unless said otherwise.
    pub table: u32,
    /// Network address; bits past `prefix_len` are zero.
    pub destination: IpAddr,
    /// Prefix length: the leading bits of `destination` that are compared.
    pub prefix_len: u8,
    /// The treatment of matching packets.
    pub kind: RouteKind,
    /// Priority; among equal prefixes the smallest wins. Reported as `rt_metric`.
    pub metric: u32,
    /// Largest packet on this route in bytes, if set instead of the interface's MTU. The kernel
    /// forwards by it only when it is locked (`ip route ... mtu lock 1400`).
    pub mtu: Option<u32>,
    /// The same for packets that the host itself sends, locked or not.
    pub output_mtu: Option<u32>,
    /// Encapsulates packets (light-weight tunnel), which programs cannot do.
    pub encapsulates: bool,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Next hops of packets; several for a multipath route. Unless `kind` is `Unicast` they only
    /// give the interface, for lookups that ask for one.
    pub next_hops: Vec<NextHop>,
}

/// The types of route that lookups distinguish (`RTN_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RouteKind {
    /// Dropped silently.
    Blackhole,
    /// Broadcast on the link.
    Broadcast,
    /// For this host.
    Local,
    /// Refused: administratively prohibited.
    Prohibit,
    /// Treated as if this table had no route.
    Throw,
    /// Sent on by a next hop.
    #[default]
    Unicast,
    /// Refused: host unreachable.
    Unreachable,
}

/// A next hop of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHop {
    /// Interface packets leave by.
    pub ifindex: u32,
    /// The router; `None` if the destination is on the link. An IPv4 route may have an IPv6
    /// gateway.
    pub gateway: Option<IpAddr>,
    /// Share of a multipath route, 1 or more.
    pub weight: u32,
}

impl Route {
    /// The first next hop on an interface.
    pub fn hop_through(&self, ifindex: u32) -> Option<NextHop> {
        self.next_hops.iter().find(|hop| hop.ifindex == ifindex).copied()
    }
}

impl RouteKind {
    /// Whether the lookup itself fails (`fib_props[].error`).
    pub(crate) fn is_refusal(self) -> bool {
        match self {
            RouteKind::Blackhole
            | RouteKind::Prohibit
            | RouteKind::Throw
            | RouteKind::Unreachable => true,
            RouteKind::Broadcast | RouteKind::Local | RouteKind::Unicast => false,
        }
    }
}
