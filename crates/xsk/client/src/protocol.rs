//! The protocol between application and daemon for one socket.
//!
//! A connection of type `SOCK_SEQPACKET` is one AF_XDP socket: closing it closes the socket. The
//! daemon speaks first: a [`Greeting`] with two descriptors (`SCM_RIGHTS`), the file of the rings
//! and the application's end of the bell. Then each message is a [`Request`] and has one
//! [`Reply`]. Numbers are in the machine's byte order: both sides are on one machine.

use std::net::{IpAddr, SocketAddr};

use crate::abi;

/// First bytes of a greeting; the last one is the version.
pub const MAGIC: [u8; 8] = *b"tp-xsk\0\x01";
/// Largest message.
pub const MESSAGE_BYTES_MAX: usize = 512;

/// The daemon's first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// The socket's number; 0 when there is none, for the reason in `errno`.
    pub id: u32,
    /// 0, or a positive error number.
    pub errno: i32,
}

impl Greeting {
    /// As it is sent.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.id.to_ne_bytes());
        bytes.extend(self.errno.to_ne_bytes());
        bytes
    }

    /// From a received message.
    pub fn from_bytes(bytes: &[u8]) -> Option<Greeting> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let word = |at: usize| Some(*rest.get(at..)?.first_chunk::<4>()?);
        Some(Greeting { id: u32::from_ne_bytes(word(0)?), errno: i32::from_ne_bytes(word(4)?) })
    }
}

/// A request of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// `setsockopt` at level `SOL_XDP`. `UMEM_REG` comes with a descriptor: the memory's file.
    SetOption {
        /// The option.
        name: u32,
        /// The offset in the file at which the memory begins.
        start: u64,
        /// Its value.
        value: Vec<u8>,
    },
    /// `getsockopt`; the reply has the value.
    GetOption {
        /// The option.
        name: u32,
        /// Bytes of room for the value.
        room: u32,
    },
    /// `bind`. With `XDP_SHARED_UMEM` comes the file of the other socket's rings.
    Bind {
        /// `struct sockaddr_xdp`
        address: Vec<u8>,
    },
    /// The ifindex of a port by its name; the reply has four bytes.
    Ifindex {
        /// The name.
        name: String,
    },
    /// Have the port's frames of this queue delivered here, as libxdp's default program does.
    Steer,
    /// Put the socket into the XSKMAP of that name of a program on its port
    /// (`xsk_socket__update_xskmap`).
    Insert {
        /// The map's name.
        map: String,
        /// The key in the map.
        key: u32,
    },
    /// Deliver UDP datagrams here that arrive at the socket's queue for a local address and port.
    /// The reply has the port as four bytes.
    BindUdp(UdpBinding),
    /// Undo a [`Request::BindUdp`] of this socket.
    UnbindUdp {
        /// The bound address and port.
        address: SocketAddr,
    },
    /// Deliver only packets with the server ID of a [`Request::BindUdp`] to its group.
    DrainUdp {
        /// The bound address and port.
        address: SocketAddr,
    },
    /// The route to a destination by the socket's port; the reply has a [`Route`].
    Route {
        /// The destination.
        destination: IpAddr,
    },
}

/// A UDP address and port for a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpBinding {
    /// An address of the host, or the unspecified one for all of its family; port 0 asks for a free
    /// port.
    pub address: SocketAddr,
    /// Sockets with the same number, on the queues of one port, share their bindings.
    pub group: u64,
    /// Whether other groups of the same user that say so, too, may bind the same address and port;
    /// each flow then has one of them (`SO_REUSEPORT`).
    pub shares: bool,
    /// The group's server ID: QUIC packets with it reach the group, whatever their flow.
    pub server: Option<ServerId>,
}

/// A server ID in the connection IDs of a QUIC server, in the plaintext format of QUIC-LB
/// (draft-ietf-quic-load-balancers): an octet with the configuration in its upper three bits and
/// the number of bytes that follow in its lower five, a server ID of two bytes, and a nonce of five
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    prefix: [u8; 3],
}

impl ServerId {
    /// Length of the connection IDs, in bytes.
    pub const CONNECTION_ID_BYTES: usize = 8;

    /// A server ID under a configuration from 0 to 6; `None` if the configuration is another.
    /// Load balancers in front of the server have the same configuration.
    pub fn new(configuration: u8, server: u16) -> Option<ServerId> {
        let [high, low] = server.to_be_bytes();
        let first = configuration << 5 | (ServerId::CONNECTION_ID_BYTES - 1) as u8;
        (configuration <= 6).then_some(ServerId { prefix: [first, high, low] })
    }

    /// The first bytes of the connection IDs.
    pub fn prefix(self) -> [u8; 3] {
        self.prefix
    }

    /// From the first bytes of connection IDs; `None` if they do not have the format.
    pub fn from_prefix(prefix: [u8; 3]) -> Option<ServerId> {
        let [first, high, low] = prefix;
        let server = ServerId::new(first >> 5, u16::from_be_bytes([high, low]))?;
        (server.prefix == prefix).then_some(server)
    }
}

/// The way to a destination by a socket's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The port's Ethernet address.
    pub source_mac: [u8; 6],
    /// The Ethernet address of the destination, or of the router on the way.
    pub next_hop_mac: [u8; 6],
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// The host's address for packets to the destination.
    pub source: IpAddr,
}

impl Route {
    /// As it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = [self.source_mac, self.next_hop_mac].concat();
        bytes.extend(self.mtu.to_ne_bytes());
        bytes.extend(address_bytes(self.source));
        bytes
    }

    /// From the value of a reply.
    pub fn from_bytes(bytes: &[u8]) -> Option<Route> {
        let (source_mac, rest) = bytes.split_first_chunk()?;
        let (next_hop_mac, rest) = rest.split_first_chunk()?;
        let (mtu, rest) = rest.split_first_chunk()?;
        Some(Route {
            source_mac: *source_mac,
            next_hop_mac: *next_hop_mac,
            mtu: u32::from_ne_bytes(*mtu),
            source: address_of(rest)?,
        })
    }
}

/// The bytes of an address in network order: 4 or 16.
fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*bytes.first_chunk::<16>()?)),
        _ => None,
    }
}

impl Request {
    /// As it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let head = |operation: u32, number: u32, start: u64, rest: &[u8]| {
            let mut bytes = operation.to_ne_bytes().to_vec();
            bytes.extend(number.to_ne_bytes());
            bytes.extend(start.to_ne_bytes());
            bytes.extend(rest);
            bytes
        };
        match self {
            Request::SetOption { name, start, value } => head(SET_OPTION, *name, *start, value),
            Request::GetOption { name, room } => head(GET_OPTION, *name, u64::from(*room), &[]),
            Request::Bind { address } => head(BIND, 0, 0, address),
            Request::Ifindex { name } => head(IFINDEX, 0, 0, name.as_bytes()),
            Request::Steer => head(STEER, 0, 0, &[]),
            Request::Insert { map, key } => head(INSERT, *key, 0, map.as_bytes()),
            Request::BindUdp(UdpBinding { address, group, shares, server }) => {
                let mut flags = if *shares { UDP_REUSEPORT } else { 0 };
                flags |= if server.is_some() { UDP_SERVER_ID } else { 0 };
                let number = u32::from(address.port()) | flags << 16;
                let mut rest = address_bytes(address.ip());
                rest.extend(server.iter().flat_map(|server| server.prefix()));
                head(BIND_UDP, number, *group, &rest)
            }
            Request::UnbindUdp { address } => {
                head(UNBIND_UDP, address.port().into(), 0, &address_bytes(address.ip()))
            }
            Request::DrainUdp { address } => {
                head(DRAIN_UDP, address.port().into(), 0, &address_bytes(address.ip()))
            }
            Request::Route { destination } => head(ROUTE, 0, 0, &address_bytes(*destination)),
        }
    }

    /// From a received message; `None` when it is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<Request> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return None;
        }
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let [operation, number] = [0, 4].map(|at| abi::number(&head[at..]));
        let start = u64::from_ne_bytes(*head.last_chunk()?);
        Some(match operation {
            SET_OPTION => Request::SetOption { name: number, start, value: rest.to_vec() },
            GET_OPTION => Request::GetOption { name: number, room: u32::try_from(start).ok()? },
            BIND => Request::Bind { address: rest.to_vec() },
            IFINDEX => Request::Ifindex { name: String::from_utf8(rest.to_vec()).ok()? },
            STEER => Request::Steer,
            INSERT => Request::Insert { map: String::from_utf8(rest.to_vec()).ok()?, key: number },
            BIND_UDP => Request::BindUdp(UdpBinding::from_bytes(number, start, rest)?),
            UNBIND_UDP => Request::UnbindUdp {
                address: SocketAddr::new(address_of(rest)?, u16::try_from(number).ok()?),
            },
            DRAIN_UDP => Request::DrainUdp {
                address: SocketAddr::new(address_of(rest)?, u16::try_from(number).ok()?),
            },
            ROUTE => Request::Route { destination: address_of(rest)? },
            _ => return None,
        })
    }
}

impl UdpBinding {
    fn from_bytes(number: u32, group: u64, rest: &[u8]) -> Option<UdpBinding> {
        let flags = number >> 16;
        if flags & !(UDP_REUSEPORT | UDP_SERVER_ID) != 0 {
            return None;
        }
        let (rest, server) = match flags & UDP_SERVER_ID {
            0 => (rest, None),
            _ => {
                let (rest, prefix) = rest.split_last_chunk()?;
                (rest, Some(ServerId::from_prefix(*prefix)?))
            }
        };
        let address = SocketAddr::new(address_of(rest)?, number as u16);
        let shares = flags & UDP_REUSEPORT != 0;
        Some(UdpBinding { address, group, shares, server })
    }
}

/// An answer of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// 0, or a positive error number.
    pub errno: i32,
    /// The requested value.
    pub value: Vec<u8>,
}

impl Reply {
    /// As it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.errno.to_ne_bytes().to_vec();
        bytes.extend(&self.value);
        bytes
    }

    /// From a received message.
    pub fn from_bytes(bytes: &[u8]) -> Option<Reply> {
        let (errno, value) = bytes.split_first_chunk()?;
        Some(Reply { errno: i32::from_ne_bytes(*errno), value: value.to_vec() })
    }
}

const HEAD_BYTES: usize = 16;
const SET_OPTION: u32 = 1;
const GET_OPTION: u32 = 2;
const BIND: u32 = 3;
const IFINDEX: u32 = 4;
const STEER: u32 = 5;
const INSERT: u32 = 6;
const BIND_UDP: u32 = 7;
const UNBIND_UDP: u32 = 8;
const ROUTE: u32 = 9;
const DRAIN_UDP: u32 = 10;
/// In the flags of `BIND_UDP`, the upper half of its number: the address and port may be shared.
const UDP_REUSEPORT: u32 = 1;
/// Three bytes after the address are the first bytes of connection IDs.
const UDP_SERVER_ID: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let requests = [
            Request::SetOption { name: 4, start: 1 << 40, value: vec![7; 32] },
            Request::GetOption { name: 7, room: 48 },
            Request::Bind { address: vec![44; 16] },
            Request::Ifindex { name: "p0".into() },
            Request::Steer,
            Request::Insert { map: "sockets".into(), key: 3 },
            Request::BindUdp(UdpBinding {
                address: "10.0.0.1:4433".parse().unwrap(),
                group: u64::MAX,
                shares: true,
                server: None,
            }),
            Request::BindUdp(UdpBinding {
                address: "[2001:db8::1]:4433".parse().unwrap(),
                group: 0,
                shares: false,
                server: ServerId::new(6, 0x1234),
            }),
            Request::DrainUdp { address: "10.0.0.1:4433".parse().unwrap() },
            Request::UnbindUdp { address: "[2001:db8::1]:65535".parse().unwrap() },
            Request::Route { destination: "2001:db8::2".parse().unwrap() },
        ];
        for request in requests {
            assert_eq!(Request::from_bytes(&request.to_bytes()), Some(request));
        }
        for source in ["10.0.0.1", "2001:db8::1"] {
            let route = Route {
                source_mac: [1, 2, 3, 4, 5, 6],
                next_hop_mac: [7; 6],
                mtu: 1500,
                source: source.parse().unwrap(),
            };
            assert_eq!(Route::from_bytes(&route.to_bytes()), Some(route));
        }
        assert_eq!(Route::from_bytes(&[0; 21]), None);
        let greeting = Greeting { id: 3, errno: 24 };
        assert_eq!(Greeting::from_bytes(&greeting.to_bytes()), Some(greeting));
        let reply = Reply { errno: 22, value: vec![1, 2] };
        assert_eq!(Reply::from_bytes(&reply.to_bytes()), Some(reply));
        for bytes in [&[0; 16][..], &[1; 15], &[9; 600], b""] {
            assert_eq!(Request::from_bytes(bytes), None);
        }
    }

    #[test]
    fn server_ids_have_the_format_of_quic_lb() {
        let server = ServerId::new(2, 0x1234).unwrap();
        assert_eq!(server.prefix(), [0b010_00111, 0x12, 0x34]);
        assert_eq!(ServerId::from_prefix([0b010_00111, 0x12, 0x34]), Some(server));
        assert_eq!(ServerId::new(7, 1), None, "that configuration is for unroutable IDs");
        for first in [0b111_00111, 0b010_00110, 0xff] {
            assert_eq!(ServerId::from_prefix([first, 0, 0]), None, "{first:#010b}");
        }
    }

    #[test]
    fn bindings_with_unknown_flags_or_a_strange_server_id_are_refused() {
        let address = "10.0.0.1:4433".parse().unwrap();
        let server = ServerId::new(0, 1);
        let binding = UdpBinding { address, group: 1, shares: true, server };
        let bytes = Request::BindUdp(binding).to_bytes();
        let changed = |at: usize, to: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = to;
            Request::from_bytes(&bytes)
        };
        assert_eq!(changed(6, 4), None, "a flag");
        assert_eq!(changed(6, 1), None, "an address of seven bytes");
        assert_eq!(changed(bytes.len() - 3, 0), None, "a first octet");
        assert_eq!(Request::from_bytes(&bytes[..bytes.len() - 4]), None);
    }
}
