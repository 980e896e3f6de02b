//! The reasons for which a packet is refused.

use std::fmt;

use strum::{EnumCount, IntoStaticStr, VariantArray};

/// The reason for which a packet was neither encapsulated nor decapsulated.
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
    /// The frame ends before its headers do.
    #[error("the packet is shorter than its headers say")]
    Truncated,
    /// The frame's ethertype is neither IPv4 nor IPv6.
    #[error("the packet is neither IPv4 nor IPv6")]
    NotIp,
    /// Version, header length or total length of the IP header can't be right.
    #[error("the IP header contradicts itself")]
    BadIpHeader,
    /// The checksum of the outer IPv4 header is wrong.
    #[error("the checksum of the outer IPv4 header is wrong")]
    BadIpChecksum,
    /// A fragment has no complete ESP packet, and transport mode protects whole packets only.
    #[error("the packet is a fragment")]
    Fragment,
    /// The IP protocol is neither ESP nor UDP.
    #[error("the packet is not an ESP packet")]
    NotEsp,
    /// A NAT keepalive (RFC 3948): one byte, 0xff, in UDP.
    #[error("the packet is a NAT keepalive")]
    Keepalive,
    /// A message of IKE, behind the non-ESP marker (RFC 3948).
    #[error("the packet is a message of IKE")]
    Ike,
    /// SPIs 0 to 255 are reserved.
    #[error("the SPI is one of the reserved ones, 0 to 255")]
    ReservedSpi,
    /// No SA has this SPI and destination.
    #[error("no SA has this SPI and destination")]
    UnknownSpi,
    /// An inbound SA can't send, and an outbound SA can't receive.
    #[error("the SA is for the other direction")]
    WrongDirection,
    /// The packet came in UDP and the SA has none, or the other way round, or the port is another.
    #[error("the packet's UDP encapsulation is not the one of its SA")]
    WrongEncapsulation,
    /// A hard lifetime of the SA has ended.
    #[error("the SA has expired")]
    Expired,
    /// The length can't be the one of an ESP packet of this SA.
    #[error("the length can't be the one of an ESP packet of this SA")]
    BadLength,
    /// The sequence number was received before.
    #[error("the sequence number was received before")]
    Replayed,
    /// The sequence number is older than the replay window.
    #[error("the sequence number is older than the replay window")]
    OutsideWindow,
    /// Sequence numbers start with 1.
    #[error("the sequence number is 0, and the first one is 1")]
    SequenceZero,
    /// All sequence numbers are used up; the SA must be replaced by one with other keys.
    #[error("all sequence numbers of the SA are used up: it needs new keys")]
    SequenceExhausted,
    /// The integrity check value is wrong: the packet was changed, or has another key.
    #[error("the integrity check value is wrong")]
    BadIcv,
    /// The engine couldn't do the job.
    #[error("the engine failed")]
    EngineFailed,
    /// The padding is not 1, 2, 3 and so on, or is longer than the packet.
    #[error("the padding is wrong")]
    BadPadding,
    /// The next header can't be the one of this SA's mode.
    #[error("the next header does not fit the SA's mode")]
    BadNextHeader,
    /// The packet inside is not a complete IP packet.
    #[error("the packet inside is not a complete IP packet")]
    BadInnerPacket,
    /// A dummy packet, sent to hide how much traffic there is (RFC 4303, 2.6).
    #[error("the packet is a dummy")]
    Dummy,
    /// The packet inside is outside of the SA's selector.
    #[error("the packet inside is outside of the SA's selector")]
    SelectorMismatch,
    /// The outer packet met congestion, and the packet inside can't say so (RFC 6040).
    #[error("the outer packet met congestion and the packet inside can't say so")]
    Congestion,
    /// No room in front for the headers.
    #[error("there is no room in front of the packet for the headers")]
    NoHeadroom,
    /// No room behind for padding and integrity check value.
    #[error("there is no room behind the packet for padding and integrity check value")]
    NoTailroom,
    /// The outer packet would be longer than the path's MTU.
    #[error("the encapsulated packet would be longer than the path's MTU")]
    TooBig,
    /// The outer packet would be longer than an IP packet can be.
    #[error("the encapsulated packet would be longer than an IP packet can be")]
    TooLong,
    /// No policy is for this packet.
    #[error("no policy is for this packet")]
    NoPolicy,
    /// The packet's policy is to discard it.
    #[error("the packet's policy is to discard it")]
    PolicyDiscard,
    /// The packet's policy names no SA that can be used now.
    #[error("the packet's policy has no usable SA")]
    NoSa,
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
    /// Counts one packet.
    #[inline]
    pub fn count(&mut self, reason: Refusal) {
        self.0[reason as usize] += 1;
    }

    /// Adds the counts of others.
    pub fn merge(&mut self, others: &Counters) {
        self.0.iter_mut().zip(&others.0).for_each(|(count, more)| *count += more);
    }

    /// The count of one reason.
    pub fn get(&self, reason: Refusal) -> u64 {
        self.0[reason as usize]
    }

    /// The counts of all reasons together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The reasons that were counted.
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
