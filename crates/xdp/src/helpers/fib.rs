//! `bpf_fib_lookup`: where would the host send this packet?
//!
//! Answers from [`crate::host::Host`]. Order of checks, results and what is written to `params`
//! follow `bpf_ipv4_fib_lookup` and `bpf_ipv6_fib_lookup` in `net/core/filter.c`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::{Call, Table, entry};
use crate::host::fib::{NextHop, Route, RouteKind, TABLE_MAIN};
use crate::host::{Host, Interface};

pub(super) const TABLE: Table = &[(id::FIB_LOOKUP, entry(fib_lookup))];

/// `bpf_fib_lookup(ctx, params, plen, flags)`
fn fib_lookup(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, params, len, flags, _] = args;
    let (len, flags) = (len as u32, flags as u32);
    if (len as usize) < PARAMS_BYTES || flags & !FLAGS_KNOWN != 0 {
        return Ok(Errno::EINVAL.to_reg());
    }
    let mut bytes = [0; PARAMS_BYTES];
    call.run.read(params, &mut bytes)?;
    let mut request = Params(bytes);
    let surroundings = call.run.surroundings;
    match lookup(&surroundings.host, &mut request, flags) {
        Ok(result) => {
            call.write(params, &request.0)?;
            Ok(result as u64)
        }
        Err(errno) => Ok(errno.to_reg()),
    }
}

/// What a lookup ends with (`BPF_FIB_LKUP_RET_*`).
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

fn lookup(host: &Host, params: &mut Params, flags: u32) -> Result<Outcome, Errno> {
    let destination = params.destination()?;
    let interface = host.interface(params.ifindex()).ok_or(Errno::ENODEV)?;
    let forwards =
        if destination.is_ipv4() { interface.forwarding_v4 } else { interface.forwarding_v6 };
    if !forwards {
        return Ok(Outcome::ForwardingDisabled);
    }
    let table = if flags & TBID != 0 { params.table() } else { TABLE_MAIN };
    let Some(route) = best_route(host, destination, table) else {
        return Ok(Outcome::NotForwarded);
    };
    match route.kind {
        RouteKind::Blackhole => return Ok(Outcome::Blackhole),
        RouteKind::Unreachable => return Ok(Outcome::Unreachable),
        RouteKind::Prohibit => return Ok(Outcome::Prohibit),
        RouteKind::Broadcast | RouteKind::Local => return Ok(Outcome::NotForwarded),
        RouteKind::Unicast => {}
    }
    let Some(hop) = select_hop(route, params.flow_hash()) else {
        return Ok(Outcome::NotForwarded);
    };
    let Some(egress) = host.interface(hop.ifindex) else { return Ok(Outcome::NotForwarded) };
    let mtu = route.mtu.map_or(egress.mtu, |mtu| mtu.min(egress.mtu));
    if u32::from(params.total_len()) > mtu {
        params.set_mtu(mtu);
        return Ok(Outcome::FragmentationNeeded);
    }
    if route.encapsulates {
        return Ok(Outcome::UnsupportedTunnel);
    }
    Ok(forward(host, params, flags, route, hop, egress, mtu))
}

/// Fills in the way on.
fn forward(
    host: &Host,
    params: &mut Params,
    flags: u32,
    route: &Route,
    hop: NextHop,
    egress: &Interface,
    mtu: u32,
) -> Outcome {
    let Ok(destination) = params.destination() else { return Outcome::NotForwarded };
    params.set_metric(route.metric);
    params.set_ifindex(egress.ifindex);
    if flags & SRC != 0 {
        let same_family = |address: &&IpAddr| address.is_ipv4() == destination.is_ipv4();
        let own = egress.addresses.iter().find(same_family).copied();
        match route.source.or(own) {
            Some(source) => params.set_source(source),
            None => return Outcome::NoSourceAddress,
        }
    }
    let neighbour = hop.gateway.unwrap_or(destination);
    if hop.gateway.is_some() {
        params.set_destination(neighbour);
    }
    if flags & SKIP_NEIGH == 0 {
        let Some(mac) = host.neighbour(egress.ifindex, neighbour) else {
            return Outcome::NoNeighbour;
        };
        params.set_macs(egress.mac, mac);
    }
    params.clear_vlan();
    params.set_mtu(mtu);
    Outcome::Success
}

/// The longest prefix, then the smallest metric.
fn best_route(host: &Host, destination: IpAddr, table: u32) -> Option<&Route> {
    let matching =
        host.routes.iter().filter(|route| route.table == table && covers(route, destination));
    matching.min_by_key(|route| (std::cmp::Reverse(route.prefix_len), route.metric))
}

fn covers(route: &Route, address: IpAddr) -> bool {
    match (route.destination, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(route.prefix_len.min(32))).unwrap_or(0);
            (network.to_bits() ^ address.to_bits()) & mask == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let bits = 128 - u32::from(route.prefix_len.min(128));
            let mask = u128::MAX.checked_shl(bits).unwrap_or(0);
            (network.to_bits() ^ address.to_bits()) & mask == 0
        }
        _ => false,
    }
}

/// A next hop by weight, the same for all packets of a flow.
fn select_hop(route: &Route, hash: u32) -> Option<NextHop> {
    let total: u64 = route.next_hops.iter().map(|hop| u64::from(hop.weight.max(1))).sum();
    let mut point = u64::from(hash) % total.max(1);
    for hop in &route.next_hops {
        let weight = u64::from(hop.weight.max(1));
        if point < weight {
            return Some(*hop);
        }
        point -= weight;
    }
    None
}

/// `struct bpf_fib_lookup`, in the program's byte order.
struct Params([u8; PARAMS_BYTES]);

impl Params {
    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from(self.u16_at(at)) | u32::from(self.u16_at(at + 2)) << 16
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn total_len(&self) -> u16 {
        self.u16_at(TOT_LEN)
    }

    fn ifindex(&self) -> u32 {
        self.u32_at(IFINDEX)
    }

    /// Shares its place with the VLAN fields of the result.
    fn table(&self) -> u32 {
        self.u32_at(TBID_FIELD)
    }

    fn address(&self, at: usize) -> Result<IpAddr, Errno> {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.0[at..at + 16]);
        let [a, b, c, d, ..] = bytes;
        match self.0[FAMILY] {
            AF_INET => Ok(Ipv4Addr::new(a, b, c, d).into()),
            AF_INET6 => Ok(Ipv6Addr::from(bytes).into()),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    fn destination(&self) -> Result<IpAddr, Errno> {
        self.address(DESTINATION)
    }

    /// Any hash will do that is equal for equal addresses and ports.
    fn flow_hash(&self) -> u32 {
        let words = self.0[SPORT..SPORT + 4].iter().chain(&self.0[SOURCE..SOURCE + 32]);
        let hash = words
            .fold(FNV_START, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME));
        hash ^ hash >> 16
    }

    fn set_mtu(&mut self, mtu: u32) {
        self.put(TOT_LEN, &(mtu.min(u32::from(u16::MAX)) as u16).to_le_bytes());
    }

    fn set_metric(&mut self, metric: u32) {
        self.put(METRIC, &metric.to_le_bytes());
    }

    fn set_ifindex(&mut self, ifindex: u32) {
        self.put(IFINDEX, &ifindex.to_le_bytes());
    }

    fn set_source(&mut self, address: IpAddr) {
        self.set_address(SOURCE, address);
    }

    /// The gateway; its family replaces the packet's (an IPv4 route may have an IPv6 gateway).
    fn set_destination(&mut self, address: IpAddr) {
        self.0[FAMILY] = if address.is_ipv4() { AF_INET } else { AF_INET6 };
        self.set_address(DESTINATION, address);
    }

    fn set_address(&mut self, at: usize, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.put(at, &address.octets()),
            IpAddr::V6(address) => self.put(at, &address.octets()),
        }
    }

    fn set_macs(&mut self, source: [u8; 6], destination: [u8; 6]) {
        self.put(SMAC, &source);
        self.put(DMAC, &destination);
    }

    fn clear_vlan(&mut self) {
        self.put(TBID_FIELD, &[0; 4]);
    }
}

const PARAMS_BYTES: usize = 64;
const FAMILY: usize = 0;
const SPORT: usize = 2;
const TOT_LEN: usize = 6;
const IFINDEX: usize = 8;
const METRIC: usize = 12;
const SOURCE: usize = 16;
const DESTINATION: usize = 32;
const TBID_FIELD: usize = 48;
const SMAC: usize = 52;
const DMAC: usize = 58;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// `BPF_FIB_LOOKUP_SKIP_NEIGH`
const SKIP_NEIGH: u32 = 4;
/// `BPF_FIB_LOOKUP_TBID`: honoured together with `DIRECT` in the kernel, which always sets it.
const TBID: u32 = 8;
/// `BPF_FIB_LOOKUP_SRC`
const SRC: u32 = 16;
/// `DIRECT` 1, `OUTPUT` 2, `SKIP_NEIGH` 4, `TBID` 8, `SRC` 16, `MARK` 32: what 6.18 knows. There
/// are no rules here, so that `DIRECT` and `MARK` change nothing, and `OUTPUT` swaps only the hook.
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
        }
    }

    fn request(destination: [u8; 4], total_len: u16) -> Params {
        let mut params = Params([0; PARAMS_BYTES]);
        params.0[FAMILY] = AF_INET;
        params.set_ifindex(1);
        params.put(DESTINATION, &destination);
        params.put(TOT_LEN, &total_len.to_le_bytes());
        params
    }

    #[test]
    fn the_default_route_fills_in_the_next_hop() {
        let mut params = request([8, 8, 8, 8], 100);
        assert_eq!(lookup(&host(), &mut params, 0), Ok(Outcome::Success));
        assert_eq!(params.ifindex(), 2);
        assert_eq!(params.destination(), Ok([10, 0, 0, 1].into()));
        assert_eq!(params.0[SMAC..], [2, 2, 2, 2, 2, 2, 9, 9, 9, 9, 9, 9]);
        assert_eq!(params.total_len(), 1500, "mtu_result");
    }

    #[test]
    fn the_longest_prefix_and_the_mtu_decide() {
        let mut params = request([192, 0, 2, 9], 100);
        assert_eq!(lookup(&host(), &mut params, 0), Ok(Outcome::Prohibit));
        let mut params = request([8, 8, 8, 8], 1501);
        assert_eq!(lookup(&host(), &mut params, 0), Ok(Outcome::FragmentationNeeded));
        let mut params = request([8, 8, 8, 8], 1);
        params.set_ifindex(3);
        assert_eq!(lookup(&host(), &mut params, 0), Err(Errno::ENODEV));
    }
}
