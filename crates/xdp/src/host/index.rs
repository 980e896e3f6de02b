//! Tables over a [`Host`]: what a look-up at packet rate needs. Made once, at the first look-up.
//!
//! Routes become disjoint ranges of addresses, each with the route that wins there, so that the
//! longest prefix is found by bisection in an array of addresses. Neighbours are in an open table.

use std::net::IpAddr;

use super::fib::Route;
use super::{Host, Interface, Neighbour};

/// The tables of one host.
#[derive(Debug)]
pub(crate) struct Index {
    /// Position of each interface by its number; [`NONE`] where there is none.
    interfaces: Vec<u32>,
    /// By table number, in order.
    tables: Vec<(u32, Table)>,
    neighbours: Vec<Option<Neighbour>>,
    /// There are routes with several next hops.
    pub(crate) multipath: bool,
}

/// Routes of one table.
#[derive(Debug)]
struct Table {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

/// Where each range begins, in order and from 0, and the position of its route or [`NONE`].
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
    metric: u32,
    route: u32,
}

impl Index {
    pub(crate) fn new(host: &Host) -> Index {
        let mut numbers: Vec<u32> = host.routes.iter().map(|route| route.table).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let tables = numbers.into_iter().map(|number| (number, Table::new(host, number)));
        Index {
            interfaces: interfaces(host),
            tables: tables.collect(),
            neighbours: neighbours(host),
            multipath: host.routes.iter().any(|route| route.next_hops.len() > 1),
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

    /// As [`Host::neighbour`].
    pub(crate) fn neighbour(&self, ifindex: u32, address: IpAddr) -> Option<[u8; 6]> {
        let mask = self.neighbours.len() - 1;
        let mut at = hash(ifindex, address) as usize;
        // There is always an empty place.
        while let Some(known) = &self.neighbours[at & mask] {
            if known.ifindex == ifindex && known.address == address {
                return Some(known.mac);
            }
            at = at.wrapping_add(1);
        }
        None
    }

    /// The route with the longest prefix, and of those the one with the smallest metric.
    pub(crate) fn route<'h>(
        &self,
        host: &'h Host,
        table: u32,
        destination: IpAddr,
    ) -> Option<&'h Route> {
        let (_, table) = self.tables.iter().find(|(number, _)| *number == table)?;
        let position = match destination {
            IpAddr::V4(address) => table.v4.find(address.to_bits()),
            IpAddr::V6(address) => table.v6.find(address.to_bits()),
        };
        host.routes.get(position as usize)
    }
}

impl Table {
    fn new(host: &Host, number: u32) -> Table {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (route, position) in host.routes.iter().zip(0..) {
            if route.table != number {
                continue;
            }
            let (bits, network, into) = match route.destination {
                IpAddr::V4(network) => (32, u128::from(network.to_bits()), &mut v4),
                IpAddr::V6(network) => (128, network.to_bits(), &mut v6),
            };
            let len = route.prefix_len.min(bits);
            let host_bits = u128::MAX.checked_shr(128 - u32::from(bits - len)).unwrap_or(0);
            let first = network & !host_bits;
            let (last, metric) = (first | host_bits, route.metric);
            into.push(Prefix { first, last, len, metric, route: position });
        }
        let narrow = |(first, route): (u128, u32)| (first as u32, route);
        let (starts, routes) = ranges(v4, u32::MAX.into()).into_iter().map(narrow).unzip();
        let v4 = Ranges { starts, routes };
        let (starts, routes) = ranges(v6, u128::MAX).into_iter().unzip();
        Table { v4, v6: Ranges { starts, routes } }
    }
}

impl<A: Ord + Copy> Ranges<A> {
    #[inline]
    fn find(&self, address: A) -> u32 {
        let behind = self.starts.partition_point(|start| *start <= address);
        self.routes[behind - 1]
    }
}

/// Where ranges begin, and the route of each. Prefixes contain each other or have nothing in
/// common.
fn ranges(mut prefixes: Vec<Prefix>, last: u128) -> Vec<(u128, u32)> {
    prefixes.sort_unstable_by_key(|p| (p.first, p.len, p.metric, p.route));
    prefixes.dedup_by_key(|p| (p.first, p.len));
    let mut ranges = vec![(0, NONE)];
    let mut open: Vec<(u128, u32)> = Vec::new();
    for prefix in &prefixes {
        close(&mut open, &mut ranges, prefix.first);
        begin(&mut ranges, prefix.first, prefix.route);
        open.push((prefix.last, prefix.route));
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
    // Of several with one number the first counts.
    for (position, interface) in host.interfaces.iter().enumerate().rev() {
        if let Some(known) = positions.get_mut(interface.ifindex as usize) {
            *known = position as u32;
        }
    }
    positions
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

/// No position.
const NONE: u32 = u32::MAX;
/// Interface numbers below it have a place of their own in the index.
const DENSE_MAX: u32 = 1 << 16;
/// An odd number without a pattern (2^64 / golden ratio).
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::host::fib::RouteKind;

    fn route(destination: IpAddr, prefix_len: u8, table: u32, metric: u32) -> Route {
        Route {
            table,
            destination,
            prefix_len,
            kind: RouteKind::Unicast,
            metric,
            mtu: None,
            encapsulates: false,
            source: None,
            next_hops: vec![],
        }
    }

    /// What the index has to find, by looking at all routes.
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
            // Few different bytes: prefixes that contain each other.
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
