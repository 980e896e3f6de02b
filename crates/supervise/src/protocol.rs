//! The protocol between a door and the supervisor: the name of a door's socket, and the one message
//! that does not belong to the kernel's protocol.

/// The kind of the message that tells a door which groups of notifications a client wants: a
/// netlink header with this kind, and a mask of 32 bits. Netlink reserves kinds below 16 for
/// control messages and does not use this one.
pub const BOUND: u16 = 15;

/// Bytes of such a message.
pub const BOUND_LEN: usize = 20;

/// The message for a mask of groups.
pub fn bound(groups: [u8; 4]) -> [u8; BOUND_LEN] {
    let mut message = [0; BOUND_LEN];
    message[..4].copy_from_slice(&(BOUND_LEN as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&BOUND.to_ne_bytes());
    message[16..].copy_from_slice(&groups);
    message
}

/// The abstract name of a door's end of a socket.
///
/// IKE daemons take only messages whose sender has the port number 0 in its netlink address, which
/// is the kernel's. Family, the zero of an abstract address, and this name are as long as `struct
/// sockaddr_nl`, and the name has zeros at the place of the port number.
pub fn socket_name(number: u32) -> [u8; 9] {
    let mut name = [0; 9];
    name[NAME_ZEROS..].copy_from_slice(&number.to_ne_bytes());
    name
}

/// Whether a name was made by [`socket_name`].
pub(crate) fn is_socket_name(name: &[u8]) -> bool {
    name.len() == socket_name(0).len() && name[..NAME_ZEROS] == [0; NAME_ZEROS]
}

/// Zeros at the start of the name: padding and port number of a netlink address.
const NAME_ZEROS: usize = 5;
