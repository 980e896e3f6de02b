//! Lookup tables of a [`Host`] for use at packet rate, made when a host is put in place.
//!
//! Routes become disjoint ranges of addresses, each with its best route, so that the longest prefix
//! is found by binary search. Neighbours are in an open-addressing hash table.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::fib::{Route, TABLE_LOCAL, TABLE_MAIN};
use super::{Host, Interface, Neighbour};

/// The tables of one host.
#[derive(Debug)]
pub(crate) struct Index {
    /// Index of each interface by ifindex; [`NONE`] if there is none.
    interfaces: Vec<u32>,
    /// MTUs by ifindex, or [`NONE`].
    mtus: Vec<u32>,
    /// IPv4 routes by table number, in order; `v6` has the IPv6 routes.
    v4: Vec<(u32, Ranges<u32>)>,
    v6: Vec<(u32, Ranges<u128>)>,
    /// For each route the next best one, or [`NONE`].
    behind: Vec<u32>,
    neighbours: Vec<Option<Neighbour>>,
    /// Whether there are routes with several next hops.
    pub(crate) multipath: bool,
    /// Whether there are IPv6 routes with equal prefix and metric.
    equals: bool,
}

/// Start of each range, in order and from 0, and the index of its route or [`NONE`].
#[derive(Debug)]
struct Ranges<A> {
    starts: Vec<A>,
    routes: Vec<u32>,
}

/// A route's addresses.
struct Prefix {
    first: u128,
    last: u128,
    len: u8,
    /// Orders tables that are looked up as one: the local table comes first.
    table: std::cmp::Reverse<u32>,
    metric: u32,
    route: u32,
}

impl Index {
    pub(crate) fn new(host: &Host) -> Index {
        let mut behind = vec![NONE; host.routes.len()];
        let v4 = tables(host, true).into_iter().map(|(number, prefixes)| {
            let narrow = |(first, route): (u128, u32)| (first as u32, route);
            let ranges = ranges(prefixes, u32::MAX.into(), &mut behind).into_iter().map(narrow);
            let (starts, routes) = ranges.unzip();
            (number, Ranges { starts, routes })
        });
        let v4 = v4.collect();
        let v6 = tables(host, false).into_iter().map(|(number, prefixes)| {
            let (starts, routes) = ranges(prefixes, u128::MAX, &mut behind).into_iter().unzip();
            (number, Ranges { starts, routes })
        });
        let v6 = v6.collect();
        let is_equal = |(route, &behind): (&Route, &u32)| {
            let other = host.routes.get(behind as usize);
            route.destination.is_ipv6() && other.is_some_and(|other| is_equal(route, other))
        };
        let interfaces = interfaces(host);
        Index {
            mtus: mtus(host, &interfaces),
            interfaces,
            v4,
            v6,
            neighbours: neighbours(host),
            multipath: host.routes.iter().any(|route| route.next_hops.len() > 1),
            equals: host.routes.iter().zip(&behind).any(is_equal),
            behind,
        }
    }

    /// As [`Host::interface`].
    #[inline]
    pub(crate) fn interface<'h>(&self, host: &'h Host, ifindex: u32) -> Option<&'h Interface> {
        match self.interfaces.get(ifindex as usize) {
            Some(&position) => host.interfaces.get(position as usize),
            None if ifindex < DENSE_MAX => None,
            None => host.interface(ifindex),
        }
    }

    /// An interface's MTU.
    #[inline]
    pub(crate) fn mtu(&self, host: &Host, ifindex: u32) -> Option<u32> {
        match self.mtus.get(ifindex as usize) {
            Some(&mtu) if mtu != NONE => Some(mtu),
            _ => self.interface(host, ifindex).map(|interface| interface.mtu),
        }
    }

    /// As [`Host::neighbour`].
    pub(crate) fn neighbour(&self, ifindex: u32, address: IpAddr) -> Option<[u8; 6]> {
        let mask = self.neighbours.len() - 1;
        let mut at = hash(ifindex, address) as usize;
        // There is always an empty slot.
        while let Some(known) = &self.neighbours[at & mask] {
            if known.ifindex == ifindex && known.address == address {
                return Some(known.mac);
            }
            at = at.wrapping_add(1);
        }
        None
    }

    /// The route with the longest prefix, and of those the one with the smallest metric. IPv4's
    /// local and main tables are one, as in a kernel without rules of its own.
    #[inline]
    pub(crate) fn route<'h>(
        &self,
        host: &'h Host,
        table: u32,
        destination: IpAddr,
    ) -> Option<&'h Route> {
        host.routes.get(self.position(table, destination) as usize)
    }

    /// As [`Index::route`], among the routes that lead through an interface
    /// (`fib_lookup_good_nhc`).
    pub(crate) fn route_through<'h>(
        &self,
        host: &'h Host,
        table: u32,
        destination: IpAddr,
        ifindex: u32,
    ) -> Option<&'h Route> {
        let mut position = self.position(table, destination);
        loop {
            let route = host.routes.get(position as usize)?;
            if route.kind.is_refusal() || route.hop_through(ifindex).is_some() {
                return Some(route);
            }
            position = self.behind[position as usize];
        }
    }

    /// Among IPv6 routes equal to the found one, the one that leads through an interface
    /// (`rt6_score_route`).
    #[inline]
    pub(crate) fn prefer<'h>(&self, host: &'h Host, found: &'h Route, ifindex: u32) -> &'h Route {
        if self.equals { self.prefer_slowly(host, found, ifindex) } else { found }
    }

    #[cold]
    fn prefer_slowly<'h>(&self, host: &'h Host, found: &'h Route, ifindex: u32) -> &'h Route {
        let start = host.routes.iter().position(|route| std::ptr::eq(route, found));
        let mut position = start.map_or(NONE, |position| position as u32);
        while let Some(route) = host.routes.get(position as usize)
            && is_equal(route, found)
        {
            if route.hop_through(ifindex).is_some() {
                return route;
            }
            position = self.behind[position as usize];
        }
        found
    }

    /// Whether IPv4 has routes in a table.
    pub(crate) fn has_table(&self, table: u32) -> bool {
        self.v4.iter().any(|(number, _)| *number == table)
    }

    #[inline]
    fn position(&self, table: u32, destination: IpAddr) -> u32 {
        match destination {
            IpAddr::V4(address) => {
                let table = v4_table(table);
                let table = self.v4.iter().find(|(number, _)| *number == table);
                table.map_or(NONE, |(_, ranges)| ranges.find(address.to_bits()))
            }
            IpAddr::V6(address) => {
                let table = self.v6.iter().find(|(number, _)| *number == table);
                table.map_or(NONE, |(_, ranges)| ranges.find(address.to_bits()))
            }
        }
    }
}

/// The table number for lookups of an IPv4 table: local and main are one.
fn v4_table(number: u32) -> u32 {
    if number == TABLE_LOCAL { TABLE_MAIN } else { number }
}

/// The prefixes of one family by table, in order of tables.
fn tables(host: &Host, v4: bool) -> BTreeMap<u32, Vec<Prefix>> {
    let mut tables: BTreeMap<u32, Vec<Prefix>> = BTreeMap::new();
    for (route, position) in host.routes.iter().zip(0..) {
        let (bits, network, number) = match route.destination {
            IpAddr::V4(network) if v4 => (32, network.to_bits().into(), v4_table(route.table)),
            IpAddr::V6(network) if !v4 => (128, network.to_bits(), route.table),
            _ => continue,
        };
        let len = route.prefix_len.min(bits);
        let host_bits = u128::MAX.checked_shr(128 - u32::from(bits - len)).unwrap_or(0);
        let first = network & !host_bits;
        let (last, table) = (first | host_bits, std::cmp::Reverse(route.table));
        let prefix = Prefix { first, last, len, table, metric: route.metric, route: position };
        tables.entry(number).or_default().push(prefix);
    }
    tables
}

/// Whether only the interface can tell which of two routes is better.
fn is_equal(a: &Route, b: &Route) -> bool {
    (a.destination, a.prefix_len, a.metric) == (b.destination, b.prefix_len, b.metric)
}

impl<A: Ord + Copy> Ranges<A> {
    #[inline]
    fn find(&self, address: A) -> u32 {
        let behind = self.starts.partition_point(|start| *start <= address);
        self.routes[behind - 1]
    }
}

/// Flattens nested prefixes into disjoint ranges, and fills each route's fallback into `behind`.
/// Prefixes contain each other or have nothing in common.
fn ranges(mut prefixes: Vec<Prefix>, last: u128, behind: &mut [u32]) -> Vec<(u128, u32)> {
    prefixes.sort_unstable_by_key(|p| (p.first, p.len, p.table, p.metric, p.route));
    let mut ranges = vec![(0, NONE)];
    let mut open: Vec<(u128, u32)> = Vec::new();
    let mut before: Option<&Prefix> = None;
    for prefix in &prefixes {
        let place = prefix.route as usize;
        if let Some(same) = before.filter(|p| (p.first, p.len) == (prefix.first, prefix.len)) {
            behind[place] = std::mem::replace(&mut behind[same.route as usize], prefix.route);
        } else {
            close(&mut open, &mut ranges, prefix.first);
            behind[place] = open.last().map_or(NONE, |(_, route)| *route);
            begin(&mut ranges, prefix.first, prefix.route);
            open.push((prefix.last, prefix.route));
        }
        before = Some(prefix);
    }
    while let Some((end, _)) = open.pop() {
        if end < last {
            begin(&mut ranges, end + 1, open.last().map_or(NONE, |(_, route)| *route));
        }
    }
    ranges
}

/// Ends the prefixes that lie before an address.
fn close(open: &mut Vec<(u128, u32)>, ranges: &mut Vec<(u128, u32)>, address: u128) {
    while let Some(&(end, _)) = open.last()
        && end < address
    {
        open.pop();
        begin(ranges, end + 1, open.last().map_or(NONE, |(_, route)| *route));
    }
}

fn begin(ranges: &mut Vec<(u128, u32)>, start: u128, route: u32) {
    match ranges.last_mut() {
        Some(last) if last.0 == start => last.1 = route,
        _ => ranges.push((start, route)),
    }
}

fn interfaces(host: &Host) -> Vec<u32> {
    let dense = |interface: &&Interface| interface.ifindex < DENSE_MAX;
    let most = host.interfaces.iter().filter(dense).map(|interface| interface.ifindex as usize);
    let mut positions = vec![NONE; most.max().map_or(0, |most| most + 1)];
    // If several interfaces have the same ifindex, the first is used.
    for (position, interface) in host.interfaces.iter().enumerate().rev() {
        if let Some(known) = positions.get_mut(interface.ifindex as usize) {
            *known = position as u32;
        }
    }
    positions
}

/// MTUs by number of the interface.
fn mtus(host: &Host, interfaces: &[u32]) -> Vec<u32> {
    let mtu = |&position: &u32| host.interfaces.get(position as usize).map(|found| found.mtu);
    interfaces.iter().map(|position| mtu(position).unwrap_or(NONE)).collect()
}

fn neighbours(host: &Host) -> Vec<Option<Neighbour>> {
    let places = (2 * host.neighbours.len() + 1).next_power_of_two();
    let mut table: Vec<Option<Neighbour>> = vec![None; places];
    for neighbour in &host.neighbours {
        let mut at = hash(neighbour.ifindex, neighbour.address) as usize;
        let same = |known: &Neighbour| {
            known.ifindex == neighbour.ifindex && known.address == neighbour.address
        };
        while let Some(known) = &table[at & (places - 1)]
            && !same(known)
        {
            at = at.wrapping_add(1);
        }
        let place = &mut table[at & (places - 1)];
        if place.is_none() {
            *place = Some(*neighbour);
        }
    }
    table
}

fn hash(ifindex: u32, address: IpAddr) -> u64 {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let mixed = (bits as u64 ^ u64::from(ifindex).rotate_left(32)).wrapping_mul(MIX);
    let mixed = (mixed ^ mixed >> 32 ^ (bits >> 64) as u64).wrapping_mul(MIX);
    mixed ^ mixed >> 29
}

/// No entry.
const NONE: u32 = u32::MAX;
/// Ifindexes below this are looked up directly.
const DENSE_MAX: u32 = 1 << 16;
/// An odd number without a pattern (2^64 / golden ratio).
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::host::fib::{NextHop, RouteKind};

    fn route(destination: IpAddr, prefix_len: u8, table: u32, metric: u32) -> Route {
        Route {
            table,
            destination,
            prefix_len,
            kind: RouteKind::Unicast,
            metric,
            mtu: None,
            output_mtu: None,
            encapsulates: false,
            source: None,
            next_hops: vec![],
        }
    }

    /// The route that the index must find, by a search of all routes.
    fn best(host: &Host, table: u32, address: IpAddr) -> Option<&Route> {
        let covers = |route: &Route| match (route.destination, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let bits = 32 - u32::from(route.prefix_len);
                u64::from(network.to_bits() ^ address.to_bits()) >> bits == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let bits = 128 - u32::from(route.prefix_len);
                (network.to_bits() ^ address.to_bits()).checked_shr(bits).unwrap_or(0) == 0
            }
            _ => false,
        };
        let matching = host.routes.iter().filter(|route| route.table == table && covers(route));
        matching.min_by_key(|route| (std::cmp::Reverse(route.prefix_len), route.metric))
    }

    #[test]
    fn the_longest_prefix_is_found() {
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut host = Host::default();
        for _ in 0..400 {
            let (len4, len6) = (next(33) as u8, next(129) as u8);
            // Few different bytes, so that prefixes contain each other.
            let v4 = Ipv4Addr::from([10, next(3) as u8, next(4) as u8, next(256) as u8]);
            let v6 = Ipv6Addr::from_bits((0x2001 << 112) | u128::from(next(9)) << next(100));
            let (table, metric) = (next(2) as u32, next(3) as u32);
            host.routes.push(route(v4.into(), len4, table, metric));
            host.routes.push(route(v6.into(), len6, table, metric));
        }
        let index = Index::new(&host);
        for _ in 0..4000 {
            let v4 = Ipv4Addr::from([10, next(3) as u8, next(5) as u8, next(256) as u8]);
            let v6 = Ipv6Addr::from_bits((0x2001 << 112) | u128::from(next(9)) << next(100));
            for address in [IpAddr::from(v4), v6.into()] {
                let table = next(3) as u32;
                let (found, wanted) =
                    (index.route(&host, table, address), best(&host, table, address));
                assert_eq!(found, wanted, "{address} in table {table}");
            }
        }
        for address in [IpAddr::from([255; 4]), [0xff; 16].into(), [0; 4].into()] {
            assert_eq!(index.route(&host, 0, address), best(&host, 0, address), "{address}");
        }
        // `behind` has the best route if this one is removed.
        for (position, &behind) in index.behind.iter().enumerate() {
            let mut without = host.clone();
            let route = without.routes.remove(position);
            let is_best = index.route(&host, route.table, route.destination) == Some(&route);
            if is_best {
                let wanted = best(&without, route.table, route.destination);
                let found = host.routes.get(behind as usize);
                assert_eq!(found.map(key), wanted.map(key), "behind {route:?}");
            }
        }
    }

    /// The compared properties of a found route.
    fn key(route: &Route) -> (u8, u32) {
        (route.prefix_len, route.metric)
    }

    #[test]
    fn an_interface_that_is_asked_for_decides() {
        let through = |mut route: Route, ifindex| {
            route.next_hops = vec![NextHop { ifindex, gateway: None, weight: 1 }];
            route
        };
        let v4 = |len, metric| route([10, 0, 0, 0].into(), len, TABLE_MAIN, metric);
        let v6 = route([0x20; 16].into(), 128, TABLE_MAIN, 5);
        let local = route([10, 0, 0, 0].into(), 24, TABLE_LOCAL, 9);
        let host = Host {
            routes: vec![
                through(v4(8, 0), 1),
                through(v4(24, 0), 2),
                through(v4(24, 1), 3),
                through(local, 4),
                through(v6.clone(), 1),
                through(v6, 2),
            ],
            ..Host::default()
        };
        let index = Index::new(&host);
        let to = [10, 0, 0, 9].into();
        let at = |route: Option<&Route>| route.map(|route| route.next_hops[0].ifindex);
        assert_eq!(at(index.route(&host, TABLE_MAIN, to)), Some(4), "local addresses first");
        for wanted in 1..=4 {
            let found = index.route_through(&host, TABLE_LOCAL, to, wanted);
            assert_eq!(at(found), Some(wanted));
        }
        assert_eq!(index.route_through(&host, TABLE_MAIN, to, 5), None);
        let found = index.route(&host, TABLE_MAIN, [0x20; 16].into()).unwrap();
        let preferred = [1, 2, 3].map(|ifindex| at(Some(index.prefer(&host, found, ifindex))));
        assert_eq!(preferred, [Some(1), Some(2), Some(1)]);
    }

    #[test]
    fn the_first_of_equal_neighbours_and_interfaces_counts() {
        let neighbour = |ifindex, last, mac| Neighbour {
            ifindex,
            address: [10, 0, 0, last].into(),
            mac: [mac; 6],
        };
        let interface = |ifindex, name: &str| Interface {
            ifindex,
            name: name.into(),
            ..Host::with_loopback().interfaces.remove(0)
        };
        let host = Host {
            interfaces: vec![interface(7, "a"), interface(7, "b"), interface(70_000, "c")],
            neighbours: vec![neighbour(1, 1, 1), neighbour(1, 1, 2), neighbour(2, 1, 3)],
            ..Host::default()
        };
        let index = Index::new(&host);
        assert_eq!(index.neighbour(1, [10, 0, 0, 1].into()), Some([1; 6]));
        assert_eq!(index.neighbour(2, [10, 0, 0, 1].into()), Some([3; 6]));
        assert_eq!(index.neighbour(2, [10, 0, 0, 2].into()), None);
        let name = |ifindex| index.interface(&host, ifindex).map(|found| found.name.as_str());
        assert_eq!([7, 8, 70_000, 70_001].map(name), [Some("a"), None, Some("c"), None]);
    }
}
