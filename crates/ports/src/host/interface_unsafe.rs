//! An interface of the host, read and changed with `ioctl(2)` (netdevice(7)).
//!
//! A socket remembers the namespace it was made in, so an [`Interface`] can be used from any
//! thread. Every request here reads and writes one `struct ifreq`, or a structure whose address
//! is in it.

#![expect(unsafe_code, reason = "ioctl takes untyped addresses")]

use std::ffi::{c_char, c_ulong};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use towpath_engine::port::Speed;

use super::carrier::Carrier;

/// An interface, by name.
#[derive(Debug)]
pub(crate) struct Interface {
    control: OwnedFd,
    carrier: Carrier,
    name: String,
    /// The MTU as last read; 0 before the first read.
    mtu: AtomicU32,
}

impl Interface {
    /// The interface with this name in the calling thread's namespace; it need not exist yet.
    pub(crate) fn new(name: &str) -> io::Result<Interface> {
        let control =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let (carrier, mtu) = (Carrier::new()?, AtomicU32::new(0));
        Ok(Interface { control, carrier, name: name.to_owned(), mtu })
    }

    /// Its ifindex.
    pub(crate) fn index(&self) -> io::Result<u32> {
        let request = self.request(libc::SIOCGIFINDEX, self.empty())?;
        // SAFETY: the kernel stored the index there.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex }.cast_unsigned())
    }

    /// Its MTU as last read; `None` before the first read.
    pub(crate) fn mtu(&self) -> Option<u32> {
        Some(self.mtu.load(Ordering::Relaxed)).filter(|&mtu| mtu != 0)
    }

    /// Reads its MTU, which others may change (`ip link set mtu`).
    pub(crate) fn look_at_mtu(&self) {
        if let Ok(request) = self.request(libc::SIOCGIFMTU, self.empty()) {
            // SAFETY: the kernel stored the MTU there.
            let mtu = unsafe { request.ifr_ifru.ifru_mtu }.cast_unsigned();
            self.mtu.store(mtu, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let mut request = self.empty();
        request.ifr_ifru.ifru_mtu = mtu.cast_signed();
        self.request(libc::SIOCSIFMTU, request)?;
        self.mtu.store(mtu, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn mac(&self) -> io::Result<[u8; 6]> {
        let request = self.request(libc::SIOCGIFHWADDR, self.empty())?;
        // SAFETY: the kernel stored the address there.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        Ok(std::array::from_fn(|at| address.sa_data[at].to_ne_bytes()[0]))
    }

    pub(crate) fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        let mut request = self.empty();
        // SAFETY: all zeros is a `sockaddr`.
        let mut address: libc::sockaddr = unsafe { zeroed() };
        address.sa_family = libc::ARPHRD_ETHER;
        for (to, byte) in address.sa_data.iter_mut().zip(mac) {
            *to = c_char::from_ne_bytes([byte]);
        }
        request.ifr_ifru.ifru_hwaddr = address;
        self.request(libc::SIOCSIFHWADDR, request).map(drop)
    }

    /// Its flags (`IFF_*`).
    pub(crate) fn flags(&self) -> io::Result<i32> {
        let request = self.request(libc::SIOCGIFFLAGS, self.empty())?;
        // SAFETY: the kernel stored the flags there.
        Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
    }

    /// Sets it up (`ip link set up`).
    pub(crate) fn set_up(&self) -> io::Result<()> {
        self.set_state(true)
    }

    /// Sets it up or down (`ip link set`).
    pub(crate) fn set_state(&self, up: bool) -> io::Result<()> {
        let flags = self.flags()? & !libc::IFF_UP;
        let mut request = self.empty();
        request.ifr_ifru.ifru_flags = (flags | if up { libc::IFF_UP } else { 0 }) as i16;
        self.request(libc::SIOCSIFFLAGS, request).map(drop)
    }

    /// Whether frames can leave and arrive now.
    pub(crate) fn has_link(&self) -> bool {
        self.carrier.is_there(&self.name).unwrap_or(false)
    }

    /// An on-off setting of `ethtool -k`, by its `ETHTOOL_G*` number.
    pub(crate) fn ethtool(&self, command: u32) -> io::Result<bool> {
        let mut value = EthtoolValue { command, data: 0 };
        let mut request = self.empty();
        request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut value).cast();
        self.request(SIOCETHTOOL, request)?;
        Ok(value.data != 0)
    }

    /// Switches such a setting on or off, by its `ETHTOOL_S*` number.
    pub(crate) fn set_ethtool(&self, command: u32, on: bool) -> io::Result<()> {
        let mut value = EthtoolValue { command, data: u32::from(on) };
        let mut request = self.empty();
        request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut value).cast();
        self.request(SIOCETHTOOL, request).map(drop)
    }

    /// Receive queues in use; 1 if the driver does not report them.
    pub(crate) fn rx_queues(&self) -> u32 {
        self.channels().map_or(1, |it| (it.rx_count.saturating_add(it.combined_count)).max(1))
    }

    /// Largest number of receive queues (`ethtool -L`), at least the number in use.
    pub(crate) fn rx_queues_max(&self) -> u32 {
        let [rx, _, _, combined] = self.channels().map_or([0; 4], |it| it.limits);
        rx.saturating_add(combined).max(self.rx_queues())
    }

    /// Its channels; `None` if its driver does not report them.
    fn channels(&self) -> Option<EthtoolChannels> {
        let mut channels = EthtoolChannels { command: ETHTOOL_GCHANNELS, ..Default::default() };
        let mut request = self.empty();
        request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut channels).cast();
        let known = self.request(SIOCETHTOOL, request).is_ok();
        known.then_some(channels)
    }

    /// Speed and duplex (`ethtool`), if its driver reports them and its link is up.
    pub(crate) fn speed(&self) -> Option<Speed> {
        let mut link = EthtoolLink { command: ETHTOOL_GSET, ..Default::default() };
        let mut request = self.empty();
        request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut link).cast();
        self.request(SIOCETHTOOL, request).ok()?;
        let mbps = u32::from(link.speed_high) << 16 | u32::from(link.speed);
        let is_known = (1..=i32::MAX as u32).contains(&mbps) && link.duplex <= DUPLEX_FULL;
        is_known.then_some(Speed { mbps, is_full_duplex: link.duplex == DUPLEX_FULL })
    }

    fn empty(&self) -> libc::ifreq {
        // SAFETY: all zeros is an `ifreq`.
        let mut request: libc::ifreq = unsafe { zeroed() };
        // The name was checked to be shorter; the last byte stays zero.
        for (to, byte) in
            request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(self.name.bytes())
        {
            *to = c_char::from_ne_bytes([byte]);
        }
        request
    }

    fn request(&self, number: c_ulong, mut request: libc::ifreq) -> io::Result<libc::ifreq> {
        // SAFETY: all requests of this module take an `ifreq`; an address in it is that of a
        // structure that lives in the caller.
        let result = unsafe { libc::ioctl(self.control.as_raw_fd(), number as _, &mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(request) }
    }
}

/// `struct ethtool_value`
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// `struct ethtool_channels`
#[derive(Default)]
#[repr(C)]
struct EthtoolChannels {
    command: u32,
    /// Largest numbers of channels: rx, tx, other, combined.
    limits: [u32; 4],
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

/// `struct ethtool_cmd`
#[derive(Default)]
#[repr(C)]
struct EthtoolLink {
    command: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    duplex: u8,
    /// Port, address, transceiver, autonegotiation, MDIO.
    others: [u8; 5],
    /// Most packets until an interrupt: sent, received.
    packets_max: [u32; 2],
    speed_high: u16,
    crossover: [u8; 2],
    partner_advertising: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<EthtoolLink>() == 44);

/// `ETHTOOL_GSET`
const ETHTOOL_GSET: u32 = 0x1;
const DUPLEX_FULL: u8 = 1;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const SIOCETHTOOL: c_ulong = 0x8946;
/// `ETHTOOL_GTSO`: the device segments large TCP packets.
pub(crate) const ETHTOOL_GTSO: u32 = 0x1e;
