//! Helpers about sockets of the host ([`crate::host::Socket`]).
//!
//! A program gets a copy of the socket's fields in `struct bpf_sock`, and releases it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::objects::give_up;
use super::{Call, Table, cost, entry};
use crate::host::sockets::{
    IPPROTO_TCP, SOCK_BYTES, SOCK_PROTOCOL, SOCK_STATE, TCP_LISTEN, TUPLE_BYTES_V4, TUPLE_BYTES_V6,
    Transport, Wanted,
};
use crate::objects::Shape;

pub(super) const TABLE: Table = &[
    (id::SK_LOOKUP_TCP, entry(lookup_tcp).costing(cost::of_a_walk)),
    (id::SK_LOOKUP_UDP, entry(lookup_udp).costing(cost::of_a_walk)),
    (id::SKC_LOOKUP_TCP, entry(lookup_tcp).costing(cost::of_a_walk)),
    (id::SK_RELEASE, entry(release)),
    (id::TCP_CHECK_SYNCOOKIE, entry(syncookie)),
    (id::TCP_GEN_SYNCOOKIE, entry(syncookie)),
];

/// `bpf_sk_lookup_tcp(ctx, tuple, tuple_size, netns, flags)` and `bpf_skc_lookup_tcp`: the second
/// one would also find request sockets, which do not exist here.
fn lookup_tcp(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    lookup(call, args, Transport::Tcp)
}

/// `bpf_sk_lookup_udp(ctx, tuple, tuple_size, netns, flags)`
fn lookup_udp(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    lookup(call, args, Transport::Udp)
}

/// `bpf_sk_release(sock)`
fn release(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    give_up(call.run, args[0]);
    Ok(0)
}

/// `bpf_tcp_check_syncookie(sock, iph, iph_len, th, th_len)` and `bpf_tcp_gen_syncookie`: without a
/// listener whose queue was full, the kernel makes and accepts no cookies, and so it is here.
fn syncookie(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [socket, .., tcp_bytes] = args;
    let field = |offset: usize| call.run.get(socket + offset as u64, 4);
    let listens = field(SOCK_PROTOCOL)? == u64::from(IPPROTO_TCP)
        && field(SOCK_STATE)? == u64::from(TCP_LISTEN);
    let is_right = listens && tcp_bytes as u32 >= TCP_BYTES;
    Ok(if is_right { Errno::ENOENT } else { Errno::EINVAL }.to_reg())
}

/// Looks up a socket, with the checks of `__bpf_sk_lookup` in `net/core/filter.c`.
fn lookup(call: &mut Call<'_, '_>, args: [u64; 5], transport: Transport) -> Result<u64, Stop> {
    let [_, tuple, bytes, netns, flags] = args;
    // Other namespaces have no ids here.
    if flags != 0 || netns as i32 >= 0 {
        return Ok(0);
    }
    let tuple = match bytes as u32 as usize {
        TUPLE_BYTES_V4 => addresses_v4(&call.run.view(tuple, TUPLE_BYTES_V4 as u64)?),
        TUPLE_BYTES_V6 => addresses_v6(&call.run.view(tuple, TUPLE_BYTES_V6 as u64)?),
        _ => return Ok(0),
    };
    let Some((source, destination)) = tuple else { return Ok(0) };
    let wanted = Wanted { transport, source, destination, ifindex: call.run.frame.rx.ifindex };
    let run = &mut *call.run;
    let tables = run.surroundings.host.tables(&mut run.worker.host);
    let Some(words) = tables.host.socket(&wanted).map(|socket| socket.words()) else {
        return Ok(0);
    };
    let (objects, domain) = (&run.surroundings.objects, run.maps.domain());
    let shape = Shape { bytes: SOCK_BYTES, is_counted: true, ..Shape::default() };
    let class = objects.class(shape, domain);
    let made = objects.allocate(&class, run.worker.number() as usize, domain);
    // Treated as in the kernel without memory for a reference.
    let Some(object) = made else { return Ok(0) };
    for (at, word) in words.into_iter().enumerate() {
        if let Some(place) = object.word(8 * at) {
            place.store(word, Relaxed);
        }
    }
    Ok(object.addr())
}

/// Source and destination of a `struct bpf_sock_tuple` of IPv4.
fn addresses_v4(tuple: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let (addresses, ports) = tuple.split_at_checked(8)?;
    let address = |at: usize| {
        let bytes: [u8; 4] = addresses[at..at + 4].try_into().ok()?;
        Some(IpAddr::from(Ipv4Addr::from(bytes)))
    };
    Some(with_ports(address(0)?, address(4)?, ports))
}

/// Source and destination of a `struct bpf_sock_tuple` of IPv6.
fn addresses_v6(tuple: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let (addresses, ports) = tuple.split_at_checked(32)?;
    let address = |at: usize| {
        let bytes: [u8; 16] = addresses[at..at + 16].try_into().ok()?;
        Some(IpAddr::from(Ipv6Addr::from(bytes)))
    };
    Some(with_ports(address(0)?, address(16)?, ports))
}

fn with_ports(source: IpAddr, destination: IpAddr, ports: &[u8]) -> (SocketAddr, SocketAddr) {
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    (SocketAddr::new(source, port(0)), SocketAddr::new(destination, port(2)))
}

/// `sizeof(struct tcphdr)`
const TCP_BYTES: u32 = 20;
