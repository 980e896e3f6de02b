//! Bonding modes, by the kernel's names and numbers.

use std::fmt;
use std::str::FromStr;

use strum::{EnumCount, IntoStaticStr, VariantArray};

/// A bond's mode: how it chooses the member that a frame leaves by (`BOND_MODE_*`).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, EnumCount, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum BondMode {
    /// Round robin.
    #[default]
    BalanceRr,
    /// One active member, until it fails.
    ActiveBackup,
    /// By a hash of the frame.
    BalanceXor,
    /// All members.
    Broadcast,
    /// By a hash, among the members of the active LACP aggregator.
    #[strum(serialize = "802.3ad")]
    Lacp,
}

impl BondMode {
    /// All modes, in the order of the kernel's numbers 0 to 4.
    pub const ALL: [BondMode; Self::COUNT] = *Self::VARIANTS.first_chunk().expect("all of them");

    /// Its name for `ip link ... type bond mode`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The mode with the kernel's number, 0 to 4.
    pub fn from_number(number: u8) -> Option<BondMode> {
        BondMode::ALL.get(usize::from(number)).copied()
    }

    /// Whether frames are spread by a hash.
    pub fn has_hash(self) -> bool {
        matches!(self, BondMode::BalanceXor | BondMode::Lacp)
    }
}

impl fmt::Display for BondMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for a string that is not a bonding mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no bonding mode {0:?}: expected balance-rr, active-backup, balance-xor, broadcast or 802.3ad"
)]
pub struct NoSuchMode(pub String);

impl FromStr for BondMode {
    type Err = NoSuchMode;

    /// Parses the kernel's name of a mode, or its number, as sysfs does.
    fn from_str(word: &str) -> Result<Self, NoSuchMode> {
        let numbered = word.parse().ok().and_then(BondMode::from_number);
        let named = || BondMode::ALL.into_iter().find(|mode| mode.name() == word);
        numbered.or_else(named).ok_or_else(|| NoSuchMode(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for mode in BondMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!((mode as u8).to_string().parse(), Ok(mode));
        }
        for word in ["", "balance-tlb", "5", "Broadcast"] {
            let refusal = word.parse::<BondMode>().expect_err(word);
            assert!(refusal.to_string().contains("expected balance-rr"), "{refusal}");
        }
    }
}
