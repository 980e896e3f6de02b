//! The two messages of rtnetlink that attach programs and show them.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};
use towpath_bpf::Errno;

use crate::side::Xdp;

/// `RTM_SETLINK` with `IFLA_XDP`.
pub(crate) fn set_xdp(ifindex: u32, xdp: &Xdp) -> Result<(), Errno> {
    let optional = |kind: u16, value: Option<u32>| {
        value.map_or(Vec::new(), |value| attribute(kind, &value.to_ne_bytes()))
    };
    let nested = [
        optional(IFLA_XDP_FD, xdp.descriptor.map(|number| number as u32)),
        optional(IFLA_XDP_FLAGS, xdp.flags),
        optional(IFLA_XDP_EXPECTED_FD, xdp.expected.map(|number| number as u32)),
    ]
    .concat();
    let attributes = attribute(IFLA_XDP | NLA_F_NESTED, &nested);
    ask(RTM_SETLINK, NLM_F_ACK, ifindex, &attributes).map(drop)
}

/// The ids of a device's programs: generic, native.
pub(crate) fn xdp(ifindex: u32) -> Result<[u32; 2], Errno> {
    let reply = ask(RTM_GETLINK, 0, ifindex, &[])?;
    let link = reply.get(HEADER_BYTES + IFINFOMSG_BYTES..).unwrap_or_default();
    let xdp = find(link, IFLA_XDP).unwrap_or_default();
    let id = |kind| {
        let value = find(xdp, kind)?;
        value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    };
    Ok([IFLA_XDP_SKB_PROG_ID, IFLA_XDP_DRV_PROG_ID].map(|kind| id(kind).unwrap_or(0)))
}

/// The ifindex of a device's name.
pub(crate) fn index_of(name: &str) -> Result<u32, Errno> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
    let socket = socket.map_err(errno)?;
    rustix::net::netdevice::name_to_index(socket, name).map_err(errno)
}

/// Sends a message about a device; its answer.
fn ask(kind: u16, flags: u16, ifindex: u32, attributes: &[u8]) -> Result<Vec<u8>, Errno> {
    let len = (HEADER_BYTES + IFINFOMSG_BYTES + attributes.len()) as u32;
    let mut message = len.to_ne_bytes().to_vec();
    message.extend([kind, NLM_F_REQUEST | flags].iter().flat_map(|half| half.to_ne_bytes()));
    message.extend([0; 8 + 4]);
    message.extend(ifindex.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(attributes);
    let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None);
    let socket = socket.map_err(errno)?;
    rustix::net::send(&socket, &message, SendFlags::empty()).map_err(errno)?;
    let mut reply = vec![0; 1 << 16];
    let (len, _) = rustix::net::recv(&socket, &mut reply[..], RecvFlags::empty()).map_err(errno)?;
    reply.truncate(len);
    let is_error = reply.get(4..6) == Some(&NLMSG_ERROR.to_ne_bytes());
    let number = reply[HEADER_BYTES..].first_chunk().map_or(0, |b| i32::from_ne_bytes(*b));
    if is_error && number != 0 { Err(Errno(-number)) } else { Ok(reply) }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of the first attribute of a kind.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?) & !NLA_F_NESTED;
        if kind == wanted {
            return attributes.get(4..len);
        }
        attributes = attributes.get(len.max(4).next_multiple_of(4)..)?;
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

const HEADER_BYTES: usize = 16;
const IFINFOMSG_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const NLA_F_NESTED: u16 = 0x8000;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_EXPECTED_FD: u16 = 8;
