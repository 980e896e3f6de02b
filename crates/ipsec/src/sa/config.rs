//! The description of an SA, and errors in it.

use std::net::IpAddr;

use super::lifetime::Lifetime;
use crate::suite::{KeyError, Keys, Suite};
use crate::table::Selector;

/// The description of an SA. [`Config::inbound`] and [`Config::outbound`] set defaults for the
/// fields that they do not take.
#[derive(Debug, Clone)]
pub struct Config {
    /// Security parameters index: not 0 to 255.
    pub spi: u32,
    /// Whether the SA sends or receives.
    pub direction: Direction,
    /// Outer source address.
    pub source: IpAddr,
    /// Outer destination address.
    pub destination: IpAddr,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// Algorithms.
    pub suite: Suite,
    /// Keys. Two SAs must never have the same keys. An SA that begins again under the same keys, as
    /// an SA with static keys does after a restart, uses different nonces, but its peer takes its
    /// packets for replays.
    pub keys: Keys,
    /// UDP encapsulation (RFC 3948).
    pub encapsulation: Option<Encapsulation>,
    /// Sequence numbers.
    pub replay: Replay,
    /// When the SA should be replaced, and when it must not be used any more.
    pub lifetime: Lifetime,
    /// The only packets that an inbound SA may carry; `None` allows all.
    pub selector: Option<Selector>,
    /// Packets that an inbound SA may carry: at least one of these selectors contains them. `None`
    /// is no restriction. [`Sa::set_allowed`](crate::Sa::set_allowed) changes it.
    pub allowed: Option<Vec<Selector>>,
    /// Names the policies that an outbound SA serves ([`Action::Protect`](crate::Action::Protect)).
    pub reqid: u32,
    /// MTU of the path in bytes: the longest outer IP packet. 0 is no limit but that of IP.
    pub pmtu: u16,
}

/// Whether an SA sends or receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The SA decapsulates.
    Inbound,
    /// The SA encapsulates.
    Outbound,
}

/// Tunnel or transport mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// ESP protects a whole IP packet, after an outer IP header of its own.
    Tunnel(Tunnel),
    /// ESP protects the payload of the IP packet, and keeps the IP header.
    Transport,
}

/// Properties of a tunnel (RFC 4301, 5.1.2; RFC 6040).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnel {
    /// DSCP of the outer header.
    pub dscp: Dscp,
    /// Whether the DSCP of the outer header replaces the inner one on decapsulation.
    pub decap_dscp: bool,
    /// Whether ECN passes between the headers (RFC 6040). Otherwise the outer header is Not-ECT.
    pub ecn: bool,
    /// Don't Fragment in an outer IPv4 header.
    pub df: Df,
    /// TTL or hop limit of the outer header.
    pub hop_limit: u8,
    /// Inner packets are padded to a multiple of this number of bytes, so that their lengths reveal
    /// less (traffic flow confidentiality, RFC 4303, 2.7). 0 and 1: no padding.
    pub tfc_padding: u16,
}

impl Default for Tunnel {
    fn default() -> Tunnel {
        Tunnel {
            dscp: Dscp::Copy,
            decap_dscp: false,
            ecn: true,
            df: Df::Copy,
            hop_limit: 64,
            tfc_padding: 0,
        }
    }
}

/// DSCP of the outer header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dscp {
    /// Copied from the inner header.
    Copy,
    /// This value, 0 to 63.
    Set(u8),
}

/// Don't Fragment in the outer IPv4 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Df {
    /// Copied from the inner IPv4 header; set for IPv6, which routers do not fragment.
    Copy,
    /// Always set.
    Set,
    /// Never set.
    Clear,
}

/// UDP ports in the encapsulated packets of an SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encapsulation {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

/// Sequence numbers of an SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// Size of the window in which an inbound SA detects replayed sequence numbers: 32 to 4096; 0:
    /// no protection.
    pub window: u32,
    /// Whether sequence numbers have 64 bits, of which packets carry the lower half (RFC 4303,
    /// 2.2.1).
    pub esn: bool,
    /// The last sequence number sent, or the highest one received. 0 for a new SA.
    pub last: u64,
}

impl Default for Replay {
    fn default() -> Replay {
        Replay { window: 64, esn: false, last: 0 }
    }
}

impl Config {
    /// An inbound SA in tunnel mode.
    pub fn inbound(spi: u32, source: IpAddr, to: IpAddr, suite: Suite, keys: Keys) -> Config {
        Config {
            spi,
            direction: Direction::Inbound,
            source,
            destination: to,
            mode: Mode::Tunnel(Tunnel::default()),
            suite,
            keys,
            encapsulation: None,
            replay: Replay::default(),
            lifetime: Lifetime::default(),
            selector: None,
            allowed: None,
            reqid: 0,
            pmtu: 0,
        }
    }

    /// An outbound SA in tunnel mode.
    pub fn outbound(spi: u32, source: IpAddr, to: IpAddr, suite: Suite, keys: Keys) -> Config {
        Config { direction: Direction::Outbound, ..Config::inbound(spi, source, to, suite, keys) }
    }

    /// Checks all values but the lengths of keys.
    ///
    /// # Errors
    ///
    /// Fails with the first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.spi <= SPI_RESERVED_MAX {
            return Err(ConfigError::ReservedSpi(self.spi));
        }
        if self.source.is_ipv4() != self.destination.is_ipv4() {
            let (from, to) = (self.source, self.destination);
            return Err(ConfigError::Families { from, to });
        }
        for address in [self.source, self.destination] {
            if address.is_unspecified() {
                return Err(ConfigError::Unspecified(address));
            }
        }
        self.check_replay()?;
        self.lifetime.check()?;
        if let Some(Encapsulation { source_port, destination_port }) = self.encapsulation
            && (source_port == 0 || destination_port == 0)
        {
            return Err(ConfigError::PortZero);
        }
        if let Mode::Tunnel(tunnel) = self.mode {
            if let Dscp::Set(dscp) = tunnel.dscp
                && dscp > DSCP_MAX
            {
                return Err(ConfigError::Dscp(dscp));
            }
            if tunnel.hop_limit == 0 {
                return Err(ConfigError::HopLimit);
            }
        }
        let smallest = if self.destination.is_ipv4() { PMTU_MIN_V4 } else { PMTU_MIN_V6 };
        if self.pmtu != 0 && self.pmtu < smallest {
            return Err(ConfigError::Pmtu { pmtu: self.pmtu, smallest });
        }
        Ok(())
    }

    fn check_replay(&self) -> Result<(), ConfigError> {
        let Replay { window, esn, last } = self.replay;
        if window != 0 && !(WINDOW_MIN..=WINDOW_MAX).contains(&window) {
            return Err(ConfigError::Window(window));
        }
        if esn && window == 0 && self.direction == Direction::Inbound {
            return Err(ConfigError::EsnWithoutWindow);
        }
        if !esn && last > u64::from(u32::MAX) {
            return Err(ConfigError::SequenceTooHigh(last));
        }
        Ok(())
    }
}

/// Errors in the description of an SA.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The SPI is reserved.
    #[error("SPI {0} is reserved: the SPI of an SA is 256 or higher")]
    ReservedSpi(u32),
    /// The addresses have different families.
    #[error("source {from} and destination {to} have different address families")]
    Families {
        /// Outer source address.
        from: IpAddr,
        /// Outer destination address.
        to: IpAddr,
    },
    /// An address is unspecified.
    #[error("{0} is not a valid end of an SA: source and destination need addresses")]
    Unspecified(IpAddr),
    /// The keys don't fit the suite.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The size of the window is invalid.
    #[error("a replay window must have 32 to 4096 numbers, or 0 for no protection, not {0}")]
    Window(u32),
    /// Extended sequence numbers can't be recovered without a window.
    #[error("an inbound SA with extended sequence numbers needs a replay window")]
    EsnWithoutWindow,
    /// The last sequence number does not fit 32 bits, and the SA does not use extended ones.
    #[error("sequence number {0} needs extended sequence numbers")]
    SequenceTooHigh(u64),
    /// A soft limit is not below its hard limit.
    #[error("the soft limit of {soft} {unit} is not below the hard limit of {hard}")]
    SoftAboveHard {
        /// The limited quantity: `bytes`, `packets` or `seconds`.
        unit: &'static str,
        /// Soft limit.
        soft: u64,
        /// Hard limit.
        hard: u64,
    },
    /// A UDP port is 0.
    #[error("a port of the UDP encapsulation is 0")]
    PortZero,
    /// The DSCP has more than 6 bits.
    #[error("a DSCP must be 0 to 63, not {0}")]
    Dscp(u8),
    /// The hop limit is 0, with which no packet of the tunnel would arrive.
    #[error("the hop limit of a tunnel must be at least 1")]
    HopLimit,
    /// The path MTU is below the minimum of its address family.
    #[error("the path MTU must be at least {smallest} bytes, not {pmtu}")]
    Pmtu {
        /// The given MTU.
        pmtu: u16,
        /// The smallest allowed MTU.
        smallest: u16,
    },
}

/// The highest reserved SPI (RFC 4303, 2.1).
pub const SPI_RESERVED_MAX: u32 = 255;
/// The smallest replay window, in sequence numbers (RFC 4303, 3.4.3).
pub const WINDOW_MIN: u32 = 32;
const WINDOW_MAX: u32 = 4096;
const DSCP_MAX: u8 = 63;
/// RFC 791: every IPv4 module must forward packets of 68 bytes.
const PMTU_MIN_V4: u16 = 68;
/// RFC 8200: every IPv6 link has an MTU of at least 1280 bytes.
const PMTU_MIN_V6: u16 = 1280;
