//! Queries of programs about IPsec: states for `bpf_xdp_get_xfrm_state`, and ESP for
//! `bpf_xdp_esp_encap` and `bpf_xdp_esp_decap`.

use std::fmt;
use std::net::IpAddr;

use towpath_bpf::Errno;

use crate::frame::Body;

/// The security associations of a port, implemented by the port kinds that have some. Each worker
/// has its own.
pub trait Esp: fmt::Debug + Send + Sync {
    /// The SA with this SPI and outer destination.
    fn state(&self, spi: u32, destination: IpAddr) -> Option<EspState>;

    /// Encapsulates or decapsulates a frame at once, in its own buffer. `record` is a
    /// `struct towpath_esp_meta` with the program's choice of an SA, and afterwards with the
    /// outcome. `worker` is the number of the calling worker.
    ///
    /// # Errors
    ///
    /// The reason of a refusal. A frame that was refused before the cryptography is unchanged; in
    /// one that was refused after it, the protected part is zeros.
    fn run(
        &mut self,
        operation: EspOperation,
        frame: &mut Body,
        record: &mut [u8; ESP_RECORD_BYTES],
        worker: u32,
    ) -> Result<(), Errno>;
}

/// An operation on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EspOperation {
    /// Encapsulate and encrypt.
    Encap,
    /// Decrypt and decapsulate.
    Decap,
}

/// An SA at one moment, in the words of the kernel's `struct xfrm_state`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EspState {
    /// SPI, in the machine's byte order.
    pub spi: u32,
    /// Outer source address.
    pub source: IpAddr,
    /// Outer destination address.
    pub destination: IpAddr,
    /// The number by which policies name the SA.
    pub reqid: u32,
    /// Tunnel or transport mode.
    pub is_tunnel: bool,
    /// Whether the SA decapsulates.
    pub is_inbound: bool,
    /// Whether a hard limit was reached.
    pub is_expired: bool,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Size of the replay window.
    pub window: u32,
    /// The last sequence number sent.
    pub sent: u64,
    /// The highest sequence number received.
    pub received: u64,
    /// Bytes of packets so far.
    pub bytes: u64,
    /// Packets so far.
    pub packets: u64,
    /// Time at which the SA was made, in seconds since 1970.
    pub added: u64,
    /// Time of the last packet, in seconds since 1970; 0 if there was none.
    pub used: u64,
    /// Limits after which the SA needs new keys.
    pub soft: EspLimits,
    /// Limits after which the SA ends.
    pub hard: EspLimits,
}

/// Limits of an SA; `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EspLimits {
    /// Bytes.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
    /// Seconds since the SA was made.
    pub seconds: Option<u64>,
}

/// `sizeof(struct towpath_esp_meta)`
pub const ESP_RECORD_BYTES: usize = 16;
