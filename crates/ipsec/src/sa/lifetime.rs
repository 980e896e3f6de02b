//! Lifetimes of an SA.

use super::config::ConfigError;

/// Limits at which an SA should be replaced, and at which it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// An SA that reaches one of these limits needs new keys, and reports an event.
    pub soft: Limits,
    /// An SA that reaches one of these limits ends.
    pub hard: Limits,
}

/// Limits of an SA. `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Bytes of IP packets, excluding ESP overhead.
    pub bytes: Option<u64>,
    /// Number of packets.
    pub packets: Option<u64>,
    /// Seconds since the SA was made.
    pub seconds: Option<u64>,
}

impl Lifetime {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let pairs = [
            ("bytes", self.soft.bytes, self.hard.bytes),
            ("packets", self.soft.packets, self.hard.packets),
            ("seconds", self.soft.seconds, self.hard.seconds),
        ];
        for (unit, soft, hard) in pairs {
            if let (Some(soft), Some(hard)) = (soft, hard)
                && soft >= hard
            {
                return Err(ConfigError::SoftAboveHard { unit, soft, hard });
            }
        }
        Ok(())
    }
}

/// Limits as numbers, with the time as a moment, and with the highest number for no limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) at: u64,
}

impl Ends {
    pub(super) fn new(limits: Limits, added: u64) -> Ends {
        Ends {
            bytes: limits.bytes.unwrap_or(u64::MAX),
            packets: limits.packets.unwrap_or(u64::MAX),
            at: limits.seconds.map_or(u64::MAX, |seconds| added.saturating_add(seconds)),
        }
    }

    /// The lower of the two limits of each kind.
    pub(super) fn first(self, other: Ends) -> Ends {
        Ends {
            bytes: self.bytes.min(other.bytes),
            packets: self.packets.min(other.packets),
            at: self.at.min(other.at),
        }
    }

    #[inline]
    pub(super) fn is_reached(&self, bytes: u64, packets: u64, now: u64) -> bool {
        bytes >= self.bytes || packets >= self.packets || now >= self.at
    }
}
