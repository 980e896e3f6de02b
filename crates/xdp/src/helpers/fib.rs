//! `bpf_fib_lookup`: the route by which the host would send a packet.
//!
//! Answers from [`crate::host::Host`]. Order of checks, results and what is written to `params`
//! follow `bpf_ipv4_fib_lookup` and `bpf_ipv6_fib_lookup` in `net/core/filter.c`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::{Call, Table, cost, entry};
use crate::host::fib::{NextHop, Route, RouteKind, TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use crate::host::{Host, Index, Interface};
use crate::memory::{self, Grant};

pub(super) const TABLE: Table = &[(id::FIB_LOOKUP, entry(fib_lookup).costing(cost::of_a_walk))];

/// `bpf_fib_lookup(ctx, params, plen, flags)`
#[inline(always)]
fn fib_lookup(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, params, len, flags, _] = args;
    let (len, flags) = (len as u32, flags as u32);
    if (len as usize) < PARAMS_BYTES || flags & !FLAGS_KNOWN != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    let params = call.run.grant(params, PARAMS_BYTES as u64, true)?;
    let tables = call.run.surroundings.host.tables(&mut call.run.worker.host);
    let (host, index) = (&tables.host, &tables.index);
    let request = Request::read(params, index.multipath);
    Ok(match lookup(host, index, &request, flags) {
        Ok((outcome, answer)) => {
            answer.write(params);
            outcome as u64
        }
        Err(errno) => errno.to_reg(),
    })
}

/// The result of a lookup (`BPF_FIB_LKUP_RET_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Success = 0,
    Blackhole = 1,
    Unreachable = 2,
    Prohibit = 3,
    NotForwarded = 4,
    ForwardingDisabled = 5,
    UnsupportedTunnel = 6,
    NoNeighbour = 7,
    FragmentationNeeded = 8,
    NoSourceAddress = 9,
}

/// Looks up a packet's route; returns the result and the changed fields.
#[inline(always)]
fn lookup(
    host: &Host,
    index: &Index,
    request: &Request,
    flags: u32,
) -> Result<(Outcome, Answer), Errno> {
    let destination = request.destination()?;
    if !destination.is_ipv4() && request.is_strict() {
        return Ok((Outcome::NotForwarded, Answer::default()));
    }
    let interface = index.interface(host, request.ifindex).ok_or(Errno::ENODEV)?;
    let forwards =
        if destination.is_ipv4() { interface.forwarding_v4 } else { interface.forwarding_v6 };
    if !forwards {
        return Ok((Outcome::ForwardingDisabled, Answer::default()));
    }
    let names_table = flags & (DIRECT | TBID) == DIRECT | TBID;
    // The table's number is cleared in any case, because the field is shared with the VLAN fields.
    let refused = |outcome| Ok((outcome, Answer { clears_vlan: names_table, ..Answer::default() }));
    let Some(route) = find(host, index, request, destination, flags) else {
        return refused(Outcome::NotForwarded);
    };
    match route.kind {
        RouteKind::Blackhole => return refused(Outcome::Blackhole),
        RouteKind::Unreachable => return refused(Outcome::Unreachable),
        RouteKind::Prohibit => return refused(Outcome::Prohibit),
        RouteKind::Broadcast | RouteKind::Local | RouteKind::Throw => {
            return refused(Outcome::NotForwarded);
        }
        RouteKind::Unicast => {}
    }
    let bound = (flags & OUTPUT != 0).then(|| route.hop_through(request.ifindex)).flatten();
    let Some(hop) = bound.or_else(|| select_hop(route, request)) else {
        return refused(Outcome::NotForwarded);
    };
    let Some(egress) = index.interface(host, hop.ifindex) else {
        return refused(Outcome::NotForwarded);
    };
    let mtu = route.mtu.unwrap_or(egress.mtu);
    if u32::from(request.total_len) > mtu {
        let answer = Answer { mtu: Some(mtu), clears_vlan: names_table, ..Answer::default() };
        return Ok((Outcome::FragmentationNeeded, answer));
    }
    if route.encapsulates {
        return refused(Outcome::UnsupportedTunnel);
    }
    let (outcome, mut answer) = forward(index, destination, flags, route, hop, egress, mtu);
    answer.clears_vlan |= names_table;
    Ok((outcome, answer))
}

/// The best route.
#[inline]
fn find<'h>(
    host: &'h Host,
    index: &Index,
    request: &Request,
    destination: IpAddr,
    flags: u32,
) -> Option<&'h Route> {
    let in_table = |table| match destination {
        IpAddr::V4(_) if flags & OUTPUT != 0 => {
            index.route_through(host, table, destination, request.ifindex)
        }
        IpAddr::V4(_) => index.route(host, table, destination),
        IpAddr::V6(_) => index
            .route(host, table, destination)
            .map(|route| index.prefer(host, route, request.ifindex)),
    };
    if flags & DIRECT != 0 {
        return in_table(if flags & TBID != 0 { request.table } else { TABLE_MAIN });
    }
    match destination {
        // `fib_lookup`: the default table is asked when the main one has nothing or refuses.
        IpAddr::V4(_) => {
            let main = in_table(TABLE_MAIN);
            if main.is_some_and(|route| !route.kind.is_refusal()) {
                return main;
            }
            if index.has_table(TABLE_DEFAULT) { in_table(TABLE_DEFAULT) } else { main }
        }
        // `fib6_lookup`
        IpAddr::V6(_) => in_table(TABLE_LOCAL).or_else(|| in_table(TABLE_MAIN)),
    }
}

/// The result of forwarding by a route.
#[inline(always)]
fn forward(
    index: &Index,
    destination: IpAddr,
    flags: u32,
    route: &Route,
    hop: NextHop,
    egress: &Interface,
    mtu: u32,
) -> (Outcome, Answer) {
    let way = Some((egress.ifindex, route.metric));
    let mut answer = Answer { way, ..Answer::default() };
    if flags & SRC != 0 {
        let same_family = |address: &&IpAddr| address.is_ipv4() == destination.is_ipv4();
        let own = || egress.addresses.iter().find(same_family).copied();
        answer.source = route.source.or_else(own);
        if answer.source.is_none() {
            return (Outcome::NoSourceAddress, answer);
        }
    }
    answer.gateway = hop.gateway;
    if flags & SKIP_NEIGH == 0 {
        let neighbour = hop.gateway.unwrap_or(destination);
        let Some(mac) = index.neighbour(egress.ifindex, neighbour) else {
            return (Outcome::NoNeighbour, answer);
        };
        answer.macs = Some((egress.mac, mac));
    }
    answer.clears_vlan = true;
    answer.mtu = Some(mtu);
    (Outcome::Success, answer)
}

/// A next hop by weight, the same for all packets of a flow.
fn select_hop(route: &Route, request: &Request) -> Option<NextHop> {
    if let [only] = route.next_hops[..] {
        return Some(only);
    }
    let total: u64 = route.next_hops.iter().map(|hop| u64::from(hop.weight.max(1))).sum();
    let mut point = u64::from(request.flow_hash()) % total.max(1);
    for hop in &route.next_hops {
        let weight = u64::from(hop.weight.max(1));
        if point < weight {
            return Some(*hop);
        }
        point -= weight;
    }
    None
}

/// A program's request: fields of `struct bpf_fib_lookup`. Addresses are numbers, not arrays of
/// words: those would be copied with wider loads than they were written with.
#[derive(Debug, Clone, Default)]
struct Request {
    family: u8,
    total_len: u16,
    ifindex: u32,
    source: Words,
    destination: Words,
    /// Number of the table; shares its field with the VLAN fields of the result.
    table: u32,
    /// Ports in network byte order, if they matter.
    ports: u32,
}

/// An address field: IPv4 addresses are the upper half of the first number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Words(u64, u64);

/// The answer to a program: the fields that change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Answer {
    mtu: Option<u32>,
    /// Interface and metric.
    way: Option<(u32, u32)>,
    source: Option<IpAddr>,
    /// Replaces the destination; its family replaces the packet's (an IPv4 route may have an IPv6
    /// gateway).
    gateway: Option<IpAddr>,
    /// The interface's own and the neighbour's.
    macs: Option<([u8; 6], [u8; 6])>,
    clears_vlan: bool,
}

impl Request {
    /// Reads each field with the width that programs write, as a wider load would stall on store
    /// forwarding.
    #[inline(always)]
    fn read(params: Grant, with_flow: bool) -> Request {
        let family = memory::load(params.part(FAMILY, 1)) as u8;
        let with_source = with_flow || family == AF_INET6;
        Request {
            family,
            total_len: memory::load(params.part(TOT_LEN, 2)) as u16,
            ifindex: word(params, IFINDEX),
            destination: Words::read(params, DESTINATION, family),
            table: word(params, TBID_FIELD),
            source: if with_source { Words::read(params, SOURCE, family) } else { Words(0, 0) },
            ports: if with_flow { word(params, SPORT) } else { 0 },
        }
    }

    #[inline(always)]
    fn destination(&self) -> Result<IpAddr, Errno> {
        let Words(high, low) = self.destination;
        match self.family {
            AF_INET => Ok(Ipv4Addr::from_bits((high >> 32) as u32).into()),
            AF_INET6 => Ok(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into()),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// Whether the destination is an address that never leaves its link (`rt6_need_strict`).
    #[inline(always)]
    fn is_strict(&self) -> bool {
        let is_strict = |Words(high, low): Words| {
            high >> 56 == 0xff || high >> 54 == 0x3fa || (high, low) == (0, 1)
        };
        is_strict(self.source) || is_strict(self.destination)
    }

    /// A hash that is equal for equal addresses and ports.
    fn flow_hash(&self) -> u32 {
        let Request { source: Words(a, b), destination: Words(c, d), .. } = *self;
        let addresses = [a, b, c, d].into_iter().flat_map(u64::to_be_bytes);
        let hash = (self.ports.to_le_bytes().into_iter())
            .chain(addresses)
            .fold(FNV_START, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(FNV_PRIME));
        hash ^ hash >> 16
    }
}

impl Words {
    #[inline(always)]
    fn read(params: Grant, at: u64, family: u8) -> Words {
        let word = |at| u64::from(u32::from_be(word(params, at)));
        if family == AF_INET6 {
            Words(word(at) << 32 | word(at + 4), word(at + 8) << 32 | word(at + 12))
        } else {
            Words(word(at) << 32, 0)
        }
    }
}

#[inline(always)]
fn word(params: Grant, at: u64) -> u32 {
    memory::load(params.part(at, 4)) as u32
}

impl Answer {
    /// Writes each field with the width that programs read.
    #[inline(always)]
    fn write(&self, params: Grant) {
        let put = |at: u64, len: u64, value: u64| memory::store(params.part(at, len), value);
        if let Some((ifindex, metric)) = self.way {
            put(METRIC, 4, metric.into());
            put(IFINDEX, 4, ifindex.into());
        }
        if let Some(source) = self.source {
            put_address(params, SOURCE, source);
        }
        if let Some(gateway) = self.gateway {
            put(FAMILY, 1, if gateway.is_ipv4() { AF_INET } else { AF_INET6 }.into());
            put_address(params, DESTINATION, gateway);
        }
        if let Some((own, theirs)) = self.macs {
            for (at, [a, b, c, d, e, f]) in [(SMAC, own), (DMAC, theirs)] {
                put(at, 4, u32::from_le_bytes([a, b, c, d]).into());
                put(at + 4, 2, u16::from_le_bytes([e, f]).into());
            }
        }
        if self.clears_vlan {
            put(TBID_FIELD, 4, 0);
        }
        if let Some(mtu) = self.mtu {
            put(TOT_LEN, 2, mtu.min(u16::MAX.into()).into());
        }
    }
}

#[inline(always)]
fn put_address(params: Grant, at: u64, address: IpAddr) {
    let put = |at: u64, word: u32| memory::store(params.part(at, 4), word.to_be().into());
    match address {
        IpAddr::V4(address) => put(at, address.to_bits()),
        IpAddr::V6(address) => {
            for (word, at) in (0..4).map(|word| (word, at + 4 * word)) {
                put(at, (address.to_bits() >> (96 - 32 * word)) as u32);
            }
        }
    }
}

const PARAMS_BYTES: usize = 64;
const FAMILY: u64 = 0;
const SPORT: u64 = 2;
const TOT_LEN: u64 = 6;
const IFINDEX: u64 = 8;
const METRIC: u64 = 12;
const SOURCE: u64 = 16;
const DESTINATION: u64 = 32;
const TBID_FIELD: u64 = 48;
const SMAC: u64 = 52;
const DMAC: u64 = 58;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// `BPF_FIB_LOOKUP_DIRECT`: one table, whatever the rules.
const DIRECT: u32 = 1;
/// `BPF_FIB_LOOKUP_OUTPUT`: as if sent from here, through the interface.
const OUTPUT: u32 = 2;
/// `BPF_FIB_LOOKUP_SKIP_NEIGH`
const SKIP_NEIGH: u32 = 4;
/// `BPF_FIB_LOOKUP_TBID`: counts with `DIRECT` only.
const TBID: u32 = 8;
/// `BPF_FIB_LOOKUP_SRC`
const SRC: u32 = 16;
/// `DIRECT` 1, `OUTPUT` 2, `SKIP_NEIGH` 4, `TBID` 8, `SRC` 16, `MARK` 32: what 6.18 knows. There
/// are no rules here, so that `MARK` changes nothing.
const FLAGS_KNOWN: u32 = 0x3f;

const FNV_START: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        let interface = |ifindex, mac| Interface {
            ifindex,
            name: format!("eth{ifindex}"),
            mac: [mac; 6],
            mtu: 1500,
            up: true,
            forwarding_v4: true,
            forwarding_v6: false,
            addresses: vec![],
            vlan: None,
        };
        let hop = NextHop { ifindex: 2, gateway: Some([10, 0, 0, 1].into()), weight: 1 };
        let route = |destination: [u8; 4], prefix_len, kind| Route {
            table: TABLE_MAIN,
            destination: destination.into(),
            prefix_len,
            kind,
            metric: 7,
            mtu: None,
            output_mtu: None,
            encapsulates: false,
            source: None,
            next_hops: vec![hop],
        };
        Host {
            interfaces: vec![interface(1, 1), interface(2, 2)],
            routes: vec![
                route([0; 4], 0, RouteKind::Unicast),
                route([192, 0, 2, 0], 24, RouteKind::Prohibit),
            ],
            neighbours: vec![crate::host::Neighbour {
                ifindex: 2,
                address: [10, 0, 0, 1].into(),
                mac: [9; 6],
            }],
            sockets: Vec::new(),
        }
    }

    fn answer(
        ifindex: u32,
        destination: [u8; 4],
        total_len: u16,
    ) -> Result<(Outcome, Answer), Errno> {
        let destination = Words(u64::from(u32::from_be_bytes(destination)) << 32, 0);
        let request =
            Request { family: AF_INET, ifindex, destination, total_len, ..Request::default() };
        let host = host();
        lookup(&host, &Index::new(&host), &request, 0)
    }

    #[test]
    fn the_default_route_fills_in_the_next_hop() {
        let wanted = Answer {
            mtu: Some(1500),
            way: Some((2, 7)),
            source: None,
            gateway: Some([10, 0, 0, 1].into()),
            macs: Some(([2; 6], [9; 6])),
            clears_vlan: true,
        };
        assert_eq!(answer(1, [8, 8, 8, 8], 100), Ok((Outcome::Success, wanted)));
    }

    #[test]
    fn the_longest_prefix_and_the_mtu_decide() {
        let outcome = |ifindex, destination, total_len| {
            answer(ifindex, destination, total_len).map(|(outcome, _)| outcome)
        };
        assert_eq!(outcome(1, [192, 0, 2, 9], 100), Ok(Outcome::Prohibit));
        assert_eq!(outcome(1, [8, 8, 8, 8], 1501), Ok(Outcome::FragmentationNeeded));
        assert_eq!(outcome(3, [8, 8, 8, 8], 1), Err(Errno::ENODEV));
    }
}
