//! Routes of all tables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::Parseable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHop,
    RouteNextHopFlags, RouteType, RouteVia,
};
use towpath_xdp::host::fib::{NextHop, Route, RouteKind};

use crate::interfaces::Address;
use crate::nexthops::Objects;

/// A route, and the id of the next-hop object with its next hops if it has none itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    route: Route,
    object: Option<u32>,
}

/// The route in an `RTM_NEWROUTE`. The outer `None`: it can't be parsed; the inner one: look-ups
/// ignore it.
pub(crate) fn route(body: &[u8]) -> Option<Option<Found>> {
    let message = RouteMessage::parse(body).ok()?;
    let header = &message.header;
    let is_special = header.flags.contains(RouteFlags::Cloned)
        || header.source_prefix_length != 0
        || header.tos != 0;
    let (Some(kind), false) = (kind_of(header.kind), is_special) else { return Some(None) };
    let unspecified: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Some(None),
    };
    let mut route = Route {
        table: header.table.into(),
        destination: unspecified,
        prefix_len: header.destination_prefix_length,
        kind,
        metric: 0,
        mtu: None,
        output_mtu: None,
        encapsulates: false,
        source: None,
        next_hops: Vec::new(),
    };
    let mut only = Hop::default();
    let mut object = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Destination(address) => route.destination = ip(address)?,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::Metrics(metrics) => {
                (route.mtu, route.output_mtu) = (locked_mtu(metrics), mtu(metrics));
            }
            RouteAttribute::NhId(id) => object = Some(*id),
            RouteAttribute::MultiPath(hops) => add_hops(&mut route, hops),
            other => only.take(other),
        }
    }
    let is_dead = header.flags.contains(RouteFlags::Dead);
    if let (Some(ifindex), false) = (only.ifindex, is_dead) {
        route.next_hops.push(NextHop { ifindex, gateway: only.gateway, weight: 1 });
        route.encapsulates |= only.encapsulates;
    }
    let object = object.filter(|_| route.next_hops.is_empty());
    Some(Some(Found { route, object }))
}

/// Properties of one next hop, from its attributes.
#[derive(Debug, Default)]
struct Hop {
    ifindex: Option<u32>,
    gateway: Option<IpAddr>,
    encapsulates: bool,
}

impl Hop {
    fn take(&mut self, attribute: &RouteAttribute) {
        match attribute {
            RouteAttribute::Oif(ifindex) => self.ifindex = Some(*ifindex),
            RouteAttribute::Gateway(address) => self.gateway = ip(address),
            RouteAttribute::Via(RouteVia::Inet(v4)) => self.gateway = Some((*v4).into()),
            RouteAttribute::Via(RouteVia::Inet6(v6)) => self.gateway = Some((*v6).into()),
            RouteAttribute::EncapType(_) => self.encapsulates = true,
            _ => {}
        }
    }
}

fn add_hops(route: &mut Route, hops: &[RouteNextHop]) {
    for hop in hops.iter().filter(|hop| !hop.flags.contains(RouteNextHopFlags::Dead)) {
        let mut said = Hop::default();
        hop.attributes.iter().for_each(|attribute| said.take(attribute));
        route.encapsulates |= said.encapsulates;
        // `rtnh_hops` is the weight less one.
        let (ifindex, weight) = (hop.interface_index, u32::from(hop.hops) + 1);
        route.next_hops.push(NextHop { ifindex, gateway: said.gateway, weight });
    }
}

/// Only a locked MTU counts when packets are forwarded (`ip_mtu_from_fib_result`).
fn locked_mtu(metrics: &[RouteMetric]) -> Option<u32> {
    let is_lock =
        |metric: &RouteMetric| matches!(metric, RouteMetric::Lock(bits) if bits & LOCK_MTU != 0);
    let is_locked = metrics.iter().any(is_lock);
    mtu(metrics).filter(|_| is_locked)
}

fn mtu(metrics: &[RouteMetric]) -> Option<u32> {
    let mtu = metrics.iter().find_map(|metric| match metric {
        RouteMetric::Mtu(mtu) => Some(*mtu),
        _ => None,
    });
    mtu.filter(|mtu| *mtu != 0)
}

fn kind_of(kind: RouteType) -> Option<RouteKind> {
    Some(match kind {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::Local => RouteKind::Local,
        // These are not forwarded either, and look-ups use no other property.
        RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast => RouteKind::Broadcast,
        RouteType::BlackHole => RouteKind::Blackhole,
        RouteType::Unreachable => RouteKind::Unreachable,
        RouteType::Prohibit => RouteKind::Prohibit,
        RouteType::Throw => RouteKind::Throw,
        _ => return None,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

/// Routes with their next hops and sources. Routes whose next hops are all gone are left out.
pub(crate) fn resolve(found: &[Found], objects: &Objects, addresses: &[Address]) -> Vec<Route> {
    let resolve = |found: &Found| {
        let mut route = found.route.clone();
        if let Some(id) = found.object {
            let ways = objects.ways(id);
            (route.next_hops, route.encapsulates) = (ways.hops, ways.encapsulates);
        }
        if route.source.is_none() {
            route.source = source(&route, addresses);
        }
        let leads = route.kind != RouteKind::Unicast || !route.next_hops.is_empty();
        leads.then_some(route)
    };
    found.iter().filter_map(resolve).collect()
}

/// An IPv4 route's source if it is not simply the interface's first address (`inet_select_addr`):
/// the address in the gateway's network, or one of another interface if this one has none.
fn source(route: &Route, addresses: &[Address]) -> Option<IpAddr> {
    let (RouteKind::Unicast, [NextHop { ifindex, gateway, .. }]) =
        (route.kind, &route.next_hops[..])
    else {
        return None;
    };
    let mut own = addresses.iter().filter(|a| a.ifindex == *ifindex && a.address.is_ipv4());
    if let Some(IpAddr::V4(gateway)) = gateway {
        let found = own.clone().find(|address| address.covers(*gateway));
        if let Some(found) = found {
            return Some(found.address);
        }
    }
    if route.destination.is_ipv6() || own.next().is_some() {
        return None;
    }
    let any = addresses.iter().find(|address| address.address.is_ipv4() && address.is_universal());
    any.map(|address| address.address)
}

/// `1 << RTAX_MTU`.
const LOCK_MTU: u32 = 1 << 2;
