//! Packet sockets and their options (packet(7), `include/uapi/linux/if_packet.h`).

#![expect(unsafe_code, reason = "setsockopt takes untyped addresses")]

use std::ffi::c_int;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::Fanout;

/// A packet socket that exchanges whole frames.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// An unbound socket, which receives nothing.
    pub(super) fn new() -> io::Result<Socket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Socket(socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?))
    }

    /// Enables a virtio-net header in front of each frame.
    pub(super) fn set_header(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)
    }

    /// Requests the interface's timestamps for packets in the ring, if it is set to stamp packets
    /// (`SIOCSHWTSTAMP`); otherwise they have the kernel's.
    pub(super) fn prefer_device_timestamps(&self) -> io::Result<()> {
        let wanted =
            (libc::SOF_TIMESTAMPING_RAW_HARDWARE | libc::SOF_TIMESTAMPING_SOFTWARE) as c_int;
        self.set(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &wanted)
    }

    /// Excludes frames that the interface sends.
    pub(super) fn ignore_outgoing(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)
    }

    /// Makes frames bypass the queueing discipline.
    pub(super) fn bypass_qdisc(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)
    }

    /// Sets a send buffer for a burst of large packets.
    pub(super) fn set_send_buffer(&self) -> io::Result<()> {
        // Exceeding the system's limit needs CAP_NET_ADMIN.
        let forced = self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BYTES);
        forced.or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BYTES))
    }

    /// Also receives frames for other addresses while the socket exists.
    pub(super) fn set_promiscuous(&self, ifindex: u32) -> io::Result<()> {
        // SAFETY: all zeros is a `packet_mreq`.
        let mut request: libc::packet_mreq = unsafe { zeroed() };
        request.mr_ifindex = ifindex.cast_signed();
        request.mr_type = libc::PACKET_MR_PROMISC as u16;
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Binds it to an interface, to receive frames of a protocol; of none if `protocol` is 0.
    pub(super) fn bind(&self, ifindex: u32, protocol: u16) -> io::Result<()> {
        // SAFETY: all zeros is a `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = ifindex.cast_signed();
        let size = size_of_val(&address) as libc::socklen_t;
        let address = std::ptr::from_ref(&address).cast();
        // SAFETY: the address is a `sockaddr_ll` of that size.
        check(unsafe { libc::bind(self.0.as_raw_fd(), address, size) })
    }

    /// Joins a fanout group, over whose sockets the kernel spreads frames; makes a new group
    /// without `group`. Returns the group's number.
    pub(super) fn join(&self, group: Option<u16>, fanout: Fanout) -> io::Result<u16> {
        let kind = match fanout {
            Fanout::Hash => libc::PACKET_FANOUT_HASH,
            Fanout::RoundRobin => libc::PACKET_FANOUT_LB,
            Fanout::Cpu => libc::PACKET_FANOUT_CPU,
            Fanout::Rollover => libc::PACKET_FANOUT_ROLLOVER,
            Fanout::Random => libc::PACKET_FANOUT_RND,
            Fanout::Queue => libc::PACKET_FANOUT_QM,
        };
        // All sockets of a group must agree on whether they ignore outgoing frames.
        let flags = libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING
            | if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
        let value = u32::from(group.unwrap_or(0)) | (kind | flags) << 16;
        self.set(libc::SOL_PACKET, libc::PACKET_FANOUT, &value.cast_signed())?;
        let value: c_int = self.get(libc::SOL_PACKET, libc::PACKET_FANOUT)?;
        Ok(value as u16)
    }

    /// The error since the last call, e.g. `ENETDOWN`.
    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        let errno: c_int = self.get(libc::SOL_SOCKET, libc::SO_ERROR)?;
        Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno)))
    }

    /// Bytes of its send buffer, as the kernel counts them: with the overhead of each frame.
    pub(super) fn send_buffer(&self) -> io::Result<usize> {
        let bytes: c_int = self.get(libc::SOL_SOCKET, libc::SO_SNDBUF)?;
        Ok(bytes.max(0) as usize)
    }

    /// Bytes of the send buffer in use (`SIOCOUTQ`).
    pub(super) fn unsent(&self) -> io::Result<usize> {
        let mut bytes: c_int = 0;
        // SAFETY: the kernel writes an integer there.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
        Ok(bytes.max(0) as usize)
    }

    /// Frames dropped for lack of room since the last call.
    pub(super) fn take_drops(&self) -> io::Result<u64> {
        // The kernel returns three numbers for TPACKET_V3: frames, drops, freezes.
        let [_frames, drops, _freezes]: [u32; 3] =
            self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(drops.into())
    }

    /// Sets an option whose value is an integer or a structure of integers.
    pub(super) fn set<T: Copy>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        let size = size_of::<T>() as libc::socklen_t;
        let value = std::ptr::from_ref(value).cast();
        // SAFETY: the kernel reads `size` bytes, which are there.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, value, size) })
    }

    fn get<T: Numbers>(&self, level: c_int, option: c_int) -> io::Result<T> {
        let mut value = T::default();
        let mut size = size_of::<T>() as libc::socklen_t;
        let address = std::ptr::from_mut(&mut value).cast();
        // SAFETY: the kernel writes at most `size` bytes, and any bytes are a `T`.
        check(unsafe { libc::getsockopt(self.0.as_raw_fd(), level, option, address, &mut size) })?;
        Ok(value)
    }
}

/// Types for which any bytes are a valid value.
trait Numbers: Default {}

impl Numbers for c_int {}
impl Numbers for [u32; 3] {}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Every protocol.
pub(super) const ETH_P_ALL: u16 = libc::ETH_P_ALL as u16;
const SEND_BYTES: c_int = 8 << 20;
