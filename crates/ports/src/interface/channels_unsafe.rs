//! The number of an interface's receive queues (`ETHTOOL_GCHANNELS`).

#![expect(unsafe_code, reason = "ethtool's ioctl takes a pointer inside a structure")]

use std::os::fd::AsRawFd as _;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Receive queues in use; 1 when the driver does not say.
pub fn rx_queues(name: &str) -> u32 {
    channels(name).map_or(1, |channels| (channels.rx_count + channels.combined_count).max(1))
}

/// `struct ethtool_channels`.
#[derive(Default)]
#[repr(C)]
struct Channels {
    command: u32,
    rx_max: u32,
    tx_max: u32,
    other_max: u32,
    combined_max: u32,
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

fn channels(name: &str) -> Option<Channels> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).ok()?;
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    // SAFETY: plain numbers and pointers, for which zeros are values.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, &byte) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: the name ends in zero, and the data is what the command reads and writes; both live.
    let result = unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request)
    };
    (result == 0).then_some(channels)
}

const ETHTOOL_GCHANNELS: u32 = 0x3c;
