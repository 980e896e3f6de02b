//! Look-ups of the way to a destination through a port, in the host's tables.

use std::net::IpAddr;

use towpath_xdp::host::fib::{Route, RouteKind};
use towpath_xdp::host::{Interface, Tables};
use towpath_xsk::Errno;

/// The way to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    /// The destination, or the router on the way.
    pub(super) next_hop: IpAddr,
    /// The next hop's Ethernet address, if it is known.
    pub(super) mac: Option<[u8; 6]>,
    pub(super) source: IpAddr,
    pub(super) source_mac: [u8; 6],
    pub(super) mtu: u32,
}

/// Finds the way to a destination through the port with this ifindex.
///
/// # Errors
///
/// Fails as `connect` does on a socket that is bound to the interface, and with `EOPNOTSUPP` for
/// the host's own addresses.
pub(super) fn find(tables: &Tables, ifindex: u32, destination: IpAddr) -> Result<Way, Errno> {
    if destination.is_unspecified() || is_for_many(destination) {
        return Err(Errno::NETUNREACH);
    }
    let interface = tables.interface(ifindex).ok_or(Errno::NETUNREACH)?;
    let best = tables.route(destination);
    let is_local = best.is_some_and(|route| route.kind == RouteKind::Local);
    if is_local || destination.is_loopback() || interface.addresses.contains(&destination) {
        return Err(Errno::OPNOTSUPP);
    }
    if best.is_some_and(|route| route.kind == RouteKind::Broadcast) {
        return Err(Errno::NETUNREACH);
    }
    let route = tables.route_through(destination, ifindex).ok_or(Errno::NETUNREACH)?;
    match route.kind {
        RouteKind::Unicast if !route.encapsulates => {}
        RouteKind::Prohibit => return Err(Errno::ACCESS),
        RouteKind::Unreachable => return Err(Errno::HOSTUNREACH),
        _ => return Err(Errno::NETUNREACH),
    }
    let hop = route.hop_through(ifindex).ok_or(Errno::NETUNREACH)?;
    let next_hop = hop.gateway.unwrap_or(destination);
    let source = source(tables, interface, route, destination).ok_or(Errno::ADDRNOTAVAIL)?;
    Ok(Way {
        next_hop,
        mac: tables.neighbour(ifindex, next_hop),
        source,
        source_mac: interface.mac,
        mtu: route.output_mtu.unwrap_or(interface.mtu).min(interface.mtu),
    })
}

/// Whether an address is multicast, or the broadcast address 255.255.255.255.
pub(super) fn is_for_many(address: IpAddr) -> bool {
    address.is_multicast() || matches!(address, IpAddr::V4(address) if address.is_broadcast())
}

/// The preferred source address: the route's, the interface's, or that of another interface.
fn source(
    tables: &Tables,
    interface: &Interface,
    route: &Route,
    destination: IpAddr,
) -> Option<IpAddr> {
    let is_alike = |address: &&IpAddr| address.is_ipv4() == destination.is_ipv4();
    let own = || interface.addresses.iter().filter(is_alike);
    let wants_link_local = is_link_local(destination);
    let of_scope = || own().find(|address| is_link_local(**address) == wants_link_local);
    let others = || {
        let interfaces = tables.host().interfaces.iter();
        let addresses = interfaces.flat_map(|interface| &interface.addresses).filter(is_alike);
        addresses.copied().find(|address| !address.is_loopback() && !is_link_local(*address))
    };
    let found = route.source.or_else(|| of_scope().copied());
    match destination {
        // An IPv6 host prefers another interface's global address to a link-local one.
        IpAddr::V6(_) if !wants_link_local => {
            found.or_else(others).or_else(|| own().next().copied())
        }
        _ => found.or_else(|| own().next().copied()).or_else(others),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
