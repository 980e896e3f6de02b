//! ESP packets, recognised before their SA is known.

use crate::refusal::Refusal;
use crate::sa::SPI_RESERVED_MAX;
use crate::wire::{self, IPPROTO_ESP, IPPROTO_UDP, Ip, UDP_LEN, Version, Walk};

use super::{ESP_LEN, Layout};

/// The headers of an ESP packet, in IP or in UDP.
#[derive(Debug, Clone, Copy)]
pub struct Esp {
    pub(super) layout: Layout,
    /// Offset of the ESP header.
    pub(super) at: u32,
    /// The lower half of the sequence number.
    pub(super) sequence: u32,
    spi: u32,
    destination: u128,
}

impl Esp {
    /// Finds the ESP header of an Ethernet frame with up to two VLAN tags. A UDP packet is taken
    /// for ESP in UDP on any port; the SA checks the port later.
    ///
    /// # Errors
    ///
    /// Fails if the packet is not ESP. [`Refusal::Keepalive`] and [`Refusal::Ike`] are the reasons
    /// for packets that share ESP's UDP port.
    #[inline]
    pub fn of_frame(bytes: &[u8]) -> Result<Esp, Refusal> {
        Esp::in_ip(bytes, &Ip::of_frame(bytes)?)
    }

    /// Like [`Esp::of_frame`], for a frame whose IP header is known.
    #[inline]
    pub(crate) fn in_ip(bytes: &[u8], ip: &Ip) -> Result<Esp, Refusal> {
        if !ip.has_good_checksum(bytes) {
            return Err(Refusal::BadIpChecksum);
        }
        let payload = ip.payload(bytes, Walk::Payload)?;
        let is_udp = match payload.protocol {
            IPPROTO_ESP => false,
            IPPROTO_UDP => true,
            _ => return Err(Refusal::NotEsp),
        };
        let at = if is_udp { in_udp(bytes, payload.at, ip.end())? } else { payload.at };
        if at + ESP_LEN > ip.end() {
            return Err(Refusal::BadLength);
        }
        let spi = wire::get32(bytes, at);
        if spi <= SPI_RESERVED_MAX {
            return Err(Refusal::ReservedSpi);
        }
        let layout = Layout {
            version: ip.version,
            is_udp,
            class: ip.class,
            ip_at: ip.at as u8,
            payload_at: payload.at as u32,
            protocol_at: payload.protocol_at as u32,
            end: ip.end() as u32,
        };
        let destination = match ip.version {
            Version::V4 => wire::get32(bytes, ip.at + 16).into(),
            Version::V6 => wire::get128(bytes, ip.at + 24),
        };
        let sequence = wire::get32(bytes, at + 4);
        Ok(Esp { layout, at: at as u32, sequence, spi, destination })
    }

    /// Security parameters index.
    pub fn spi(&self) -> u32 {
        self.spi
    }

    /// Whether the packet came in UDP.
    pub fn is_udp(&self) -> bool {
        self.layout.is_udp
    }

    #[inline]
    pub(crate) fn key(&self) -> (u128, u32, bool) {
        (self.destination, self.spi, self.layout.version == Version::V6)
    }
}

/// The offset of ESP in the UDP packet at `at`, in an IP packet that ends at `end`.
#[inline]
fn in_udp(bytes: &[u8], at: usize, end: usize) -> Result<usize, Refusal> {
    if at + UDP_LEN > end {
        return Err(Refusal::Truncated);
    }
    let len = usize::from(wire::get16(bytes, at + 4));
    if len != end - at {
        return Err(Refusal::BadLength);
    }
    let esp = at + UDP_LEN;
    if end - esp == 1 && bytes[esp] == KEEPALIVE {
        return Err(Refusal::Keepalive);
    }
    if end - esp < 4 {
        return Err(Refusal::BadLength);
    }
    if wire::get32(bytes, esp) == NON_ESP_MARKER {
        return Err(Refusal::Ike);
    }
    Ok(esp)
}

const KEEPALIVE: u8 = 0xff;
const NON_ESP_MARKER: u32 = 0;
