//! Reasons for refusing a packet.

use std::fmt;

use strum::{EnumCount, IntoStaticStr, VariantArray};

/// Why a packet was neither encapsulated nor decapsulated.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    thiserror::Error,
    EnumCount,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// The frame ends before the end that its headers give.
    #[error("the packet is shorter than its headers say")]
    Truncated,
    /// The frame's ethertype is neither IPv4 nor IPv6.
    #[error("the packet is neither IPv4 nor IPv6")]
    NotIp,
    /// The version, header length or total length in the IP header is invalid.
    #[error("the IP header contradicts itself")]
    BadIpHeader,
    /// The checksum of the outer IPv4 header is wrong.
    #[error("the checksum of the outer IPv4 header is wrong")]
    BadIpChecksum,
    /// The packet is a fragment, which holds no complete ESP packet and which transport mode does
    /// not protect.
    #[error("the packet is a fragment")]
    Fragment,
    /// The IP protocol is neither ESP nor UDP.
    #[error("the packet is not an ESP packet")]
    NotEsp,
    /// A NAT keepalive (RFC 3948): one byte, 0xff, in UDP.
    #[error("the packet is a NAT keepalive")]
    Keepalive,
    /// An IKE message, after the non-ESP marker (RFC 3948).
    #[error("the packet is an IKE message")]
    Ike,
    /// The SPI is 0 to 255, which are reserved.
    #[error("the SPI is reserved (0 to 255)")]
    ReservedSpi,
    /// No SA has this SPI and destination.
    #[error("no SA has this SPI and destination")]
    UnknownSpi,
    /// The SA is inbound and the packet is to be sent, or the other way round.
    #[error("the SA is for the other direction")]
    WrongDirection,
    /// The packet is UDP-encapsulated and the SA is not, or the other way round, or the ports
    /// differ.
    #[error("the packet's UDP encapsulation differs from the SA's")]
    WrongEncapsulation,
    /// A hard lifetime of the SA has ended.
    #[error("the SA has expired")]
    Expired,
    /// The length is impossible for an ESP packet of this SA.
    #[error("the length is impossible for an ESP packet of this SA")]
    BadLength,
    /// The sequence number was received before.
    #[error("the sequence number was received before")]
    Replayed,
    /// The sequence number is older than the replay window.
    #[error("the sequence number is older than the replay window")]
    OutsideWindow,
    /// The sequence number is 0; the first one is 1.
    #[error("the sequence number is 0; the first one is 1")]
    SequenceZero,
    /// All sequence numbers are used up; the SA must be replaced by an SA with other keys.
    #[error("all sequence numbers of the SA are used up: it must be replaced")]
    SequenceExhausted,
    /// The integrity check value is wrong: the packet was changed, or was protected with another
    /// key.
    #[error("the integrity check value is wrong")]
    BadIcv,
    /// The engine failed to run the job.
    #[error("the engine failed")]
    EngineFailed,
    /// The padding bytes are not 1, 2, 3 and so on, or the padding is longer than the packet.
    #[error("the padding is wrong")]
    BadPadding,
    /// The next header does not fit the SA's mode.
    #[error("the next header does not fit the SA's mode")]
    BadNextHeader,
    /// The inner packet is not a complete IP packet.
    #[error("the inner packet is not a complete IP packet")]
    BadInnerPacket,
    /// A dummy packet, sent to hide the volume of traffic (RFC 4303, 2.6).
    #[error("the packet is a dummy")]
    Dummy,
    /// The inner packet does not match the SA's selector.
    #[error("the inner packet does not match the SA's selector")]
    SelectorMismatch,
    /// The outer packet is marked with congestion, and the inner packet does not support ECN
    /// (RFC 6040).
    #[error("the outer packet is marked with congestion and the inner one does not support ECN")]
    Congestion,
    /// There is no room in front of the packet for the headers.
    #[error("there is no room in front of the packet for the headers")]
    NoHeadroom,
    /// There is no room after the packet for padding and integrity check value.
    #[error("there is no room after the packet for padding and integrity check value")]
    NoTailroom,
    /// The outer packet would be longer than the path's MTU.
    #[error("the encapsulated packet would be longer than the path's MTU")]
    TooBig,
    /// The outer packet would be longer than an IP packet can be.
    #[error("the encapsulated packet would be longer than an IP packet can be")]
    TooLong,
    /// No policy matches the packet.
    #[error("no policy matches the packet")]
    NoPolicy,
    /// The packet's policy discards it.
    #[error("the packet's policy discards it")]
    PolicyDiscard,
    /// The packet's policy has no usable SA now.
    #[error("the packet's policy has no usable SA")]
    NoSa,
    /// Another worker, or the port's queue, takes sequence numbers of the SA now.
    #[error("another worker or the port's queue uses the SA")]
    Busy,
}

impl Refusal {
    /// The reason as one word, for metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// All reasons.
    pub const ALL: &'static [Refusal] = Refusal::VARIANTS;
}

/// A count for each reason.
#[derive(Clone)]
pub struct Counters([u64; Refusal::COUNT]);

impl Default for Counters {
    fn default() -> Self {
        Counters([0; Refusal::COUNT])
    }
}

impl Counters {
    /// Counts one packet that was refused for this reason.
    #[inline]
    pub fn count(&mut self, reason: Refusal) {
        self.0[reason as usize] += 1;
    }

    /// Adds the counts of `others`.
    pub fn merge(&mut self, others: &Counters) {
        self.0.iter_mut().zip(&others.0).for_each(|(count, more)| *count += more);
    }

    /// The count of one reason.
    pub fn get(&self, reason: Refusal) -> u64 {
        self.0[reason as usize]
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The reasons whose count is not 0, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Refusal, u64)> {
        let all = Refusal::ALL.iter().map(|&reason| (reason, self.get(reason)));
        all.filter(|&(_, count)| count > 0)
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(reason, count)| (reason.name(), count))).finish()
    }
}
