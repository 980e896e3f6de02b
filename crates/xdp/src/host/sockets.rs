//! Sockets of the host, as `bpf_sk_lookup_tcp` and its relatives find them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Host;

/// A TCP or UDP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// Its transport.
    pub transport: Transport,
    /// Local address; an address of zeros means all addresses, and that of IPv6 also accepts IPv4
    /// packets (`net.ipv6.bindv6only` is 0).
    pub local: SocketAddr,
    /// Its remote end; TCP without one listens.
    pub remote: Option<SocketAddr>,
    /// The interface it is bound to (`SO_BINDTODEVICE`), or 0.
    pub ifindex: u32,
    /// `SO_MARK`
    pub mark: u32,
}

/// The protocol of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A lookup for a packet, by its source and destination.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) transport: Transport,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// Its ingress ifindex.
    pub(crate) ifindex: u32,
}

impl Transport {
    /// Its number in IP headers.
    pub(crate) fn protocol(self) -> u8 {
        match self {
            Transport::Tcp => IPPROTO_TCP,
            Transport::Udp => IPPROTO_UDP,
        }
    }
}

impl Host {
    /// The socket for a packet: the most specific one, and of equal ones the first
    /// (`__inet_lookup`, `__udp4_lib_lookup`: sockets bound to an address come before those of all
    /// addresses).
    pub(crate) fn socket(&self, wanted: &Wanted) -> Option<&Socket> {
        let scored = self.sockets.iter().rev().filter_map(|it| Some((it.score(wanted)?, it)));
        scored.max_by_key(|(score, _)| *score).map(|(_, socket)| socket)
    }
}

impl Socket {
    /// How specifically it matches a packet; `None` if it does not.
    fn score(&self, wanted: &Wanted) -> Option<[u8; 4]> {
        let (local, to) = (self.local, wanted.destination);
        let is_all = local.ip().is_unspecified();
        let takes_address = match (local.ip(), to.ip()) {
            (IpAddr::V6(_), IpAddr::V4(_)) => is_all,
            (local, to) => is_all && local.is_ipv4() == to.is_ipv4() || local == to,
        };
        let takes = self.transport == wanted.transport
            && local.port() == to.port()
            && takes_address
            && self.remote.is_none_or(|remote| same(remote, wanted.source))
            && (self.ifindex == 0 || self.ifindex == wanted.ifindex);
        let same_family = local.is_ipv4() == to.is_ipv4();
        let score = [self.remote.is_some(), !is_all, self.ifindex != 0, same_family];
        takes.then(|| score.map(u8::from))
    }

    /// The socket as `struct bpf_sock`, in 8-byte words.
    pub(crate) fn words(&self) -> [u64; SOCK_BYTES / 8] {
        let (local_v4, local_v6) = addresses(self.local.ip());
        let remote = self.remote.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
        let (remote_v4, remote_v6) = addresses(remote.ip());
        let kind = match self.transport {
            Transport::Tcp => SOCK_STREAM,
            Transport::Udp => SOCK_DGRAM,
        };
        let state = match (self.remote, self.transport) {
            (Some(_), _) => TCP_ESTABLISHED,
            (None, Transport::Tcp) => TCP_LISTEN,
            (None, Transport::Udp) => TCP_CLOSE,
        };
        let family = if self.local.is_ipv4() { AF_INET } else { AF_INET6 };
        let mut bytes = [0; SOCK_BYTES];
        let mut put = |offset: usize, field: &[u8]| {
            bytes[offset..offset + field.len()].copy_from_slice(field);
        };
        put(0, &self.ifindex.to_le_bytes());
        put(4, &family.to_le_bytes());
        put(8, &kind.to_le_bytes());
        put(SOCK_PROTOCOL, &u32::from(self.transport.protocol()).to_le_bytes());
        put(16, &self.mark.to_le_bytes());
        put(24, &local_v4.octets());
        put(28, &local_v6.octets());
        put(44, &u32::from(self.local.port()).to_le_bytes());
        put(48, &remote.port().to_be_bytes());
        put(52, &remote_v4.octets());
        put(56, &remote_v6.octets());
        put(SOCK_STATE, &state.to_le_bytes());
        put(76, &NO_QUEUE.to_le_bytes());
        let word = |at: usize| bytes[8 * at..8 * at + 8].try_into().expect("8 bytes");
        std::array::from_fn(|at| u64::from_le_bytes(word(at)))
    }
}

/// Whether a socket of either family is connected to a packet's source.
fn same(remote: SocketAddr, source: SocketAddr) -> bool {
    remote.ip().to_canonical() == source.ip() && remote.port() == source.port()
}

/// An address for the fields of both families.
fn addresses(address: IpAddr) -> (Ipv4Addr, Ipv6Addr) {
    match address {
        IpAddr::V4(address) => (address, Ipv6Addr::UNSPECIFIED),
        IpAddr::V6(address) => (Ipv4Addr::UNSPECIFIED, address),
    }
}

/// `sizeof(struct bpf_sock)`
pub(crate) const SOCK_BYTES: usize = 80;
/// Offsets of `protocol` and `state` in it.
pub(crate) const SOCK_PROTOCOL: usize = 12;
pub(crate) const SOCK_STATE: usize = 72;
pub(crate) const IPPROTO_TCP: u8 = 6;
pub(crate) const IPPROTO_UDP: u8 = 17;
/// `sizeof(struct bpf_sock_tuple)`, of either family.
pub(crate) const TUPLE_BYTES_V4: usize = 12;
pub(crate) const TUPLE_BYTES_V6: usize = 36;
pub(crate) const TCP_LISTEN: u32 = 10;
const TCP_ESTABLISHED: u32 = 1;
const TCP_CLOSE: u32 = 7;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
/// Value for an unknown queue (`rx_queue_mapping`).
const NO_QUEUE: i32 = -1;

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(transport: Transport, local: &str, remote: Option<&str>) -> Socket {
        let address = |text: &str| text.parse().expect("an address");
        Socket {
            transport,
            local: address(local),
            remote: remote.map(address),
            ifindex: 0,
            mark: 0,
        }
    }

    #[test]
    fn the_socket_that_knows_most_of_a_packet_takes_it() {
        use Transport::{Tcp, Udp};
        let sockets = vec![
            socket(Tcp, "[::]:80", None),
            socket(Tcp, "192.0.2.2:80", None),
            socket(Tcp, "192.0.2.2:80", Some("192.0.2.1:1024")),
            socket(Udp, "0.0.0.0:53", None),
            Socket { ifindex: 7, ..socket(Udp, "0.0.0.0:53", None) },
            socket(Tcp, "[2001:db8::2]:443", None),
        ];
        let host = Host { sockets, ..Host::default() };
        let find = |transport, source: &str, destination: &str, ifindex| {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            let wanted = Wanted { transport, source, destination, ifindex };
            let found = host.socket(&wanted)?;
            host.sockets.iter().position(|socket| socket == found)
        };
        assert_eq!(find(Tcp, "192.0.2.1:1024", "192.0.2.2:80", 1), Some(2));
        assert_eq!(find(Tcp, "192.0.2.1:1025", "192.0.2.2:80", 1), Some(1));
        assert_eq!(find(Tcp, "192.0.2.1:1024", "192.0.2.3:80", 1), Some(0), "IPv4 at [::]");
        assert_eq!(find(Tcp, "[2001:db8::1]:5", "[2001:db8::9]:80", 1), Some(0));
        assert_eq!(find(Tcp, "[2001:db8::1]:5", "[2001:db8::2]:443", 1), Some(5));
        assert_eq!(find(Tcp, "[2001:db8::1]:5", "[2001:db8::3]:443", 1), None);
        assert_eq!(find(Udp, "192.0.2.1:5", "192.0.2.2:53", 1), Some(3));
        assert_eq!(find(Udp, "192.0.2.1:5", "192.0.2.2:53", 7), Some(4));
        assert_eq!(find(Udp, "[2001:db8::1]:5", "[2001:db8::2]:53", 7), None);
        assert_eq!(find(Udp, "192.0.2.1:5", "192.0.2.2:80", 1), None);
    }
}
