//! Lifetimes of an SA.

use super::config::ConfigError;

/// When an SA should be replaced, and when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// Reaching one of these is an event: time for new keys.
    pub soft: Limits,
    /// Reaching one of these ends the SA.
    pub hard: Limits,
}

/// Limits of an SA. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Bytes of IP packets, without what ESP adds.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
    /// Seconds after the SA was made.
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

/// Limits with the time as a moment, and the highest number instead of none.
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

    /// The earlier end of each kind.
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
