//! The transmit hash policies, by the kernel's names and numbers.

use std::fmt;
use std::str::FromStr;

use strum::{EnumCount, IntoStaticStr, VariantArray};

/// A transmit hash policy: the fields of a frame that select the member.
///
/// Kernel counterpart: `BOND_XMIT_POLICY_*`, `xmit_hash_policy` of `ip link`. The numbers are the
/// kernel's, which do not follow the order of the names.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, EnumCount, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum XmitPolicy {
    /// Ethernet addresses and type.
    #[default]
    Layer2 = 0,
    /// Addresses and ports of the outer IP header.
    #[strum(serialize = "layer3+4")]
    Layer34 = 1,
    /// Ethernet and IP addresses.
    #[strum(serialize = "layer2+3")]
    Layer23 = 2,
    /// As [`XmitPolicy::Layer23`], with the IP addresses of the innermost header.
    #[strum(serialize = "encap2+3")]
    Encap23 = 3,
    /// As [`XmitPolicy::Layer34`], of the innermost header.
    #[strum(serialize = "encap3+4")]
    Encap34 = 4,
    /// Source Ethernet address and VLAN tag; not supported with a program, because the tag may have
    /// been stripped.
    #[strum(serialize = "vlan+srcmac")]
    VlanSrcmac = 5,
}

impl XmitPolicy {
    /// All policies, in the order of their numbers.
    pub const ALL: [XmitPolicy; Self::COUNT] = *Self::VARIANTS.first_chunk().expect("all of them");

    /// The kernel's name, as in `/sys/class/net/*/bonding/xmit_hash_policy`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The policy with the kernel's number, 0 to 5.
    pub fn from_number(number: u8) -> Option<XmitPolicy> {
        XmitPolicy::ALL.get(usize::from(number)).copied()
    }
}

impl fmt::Display for XmitPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for a string that is not a transmit policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no transmit policy {0:?}: expected layer2, layer3+4, layer2+3, encap2+3, encap3+4 or \
     vlan+srcmac"
)]
pub struct NoSuchPolicy(pub String);

impl FromStr for XmitPolicy {
    type Err = NoSuchPolicy;

    /// Parses the kernel's name of a policy, or its number, as sysfs does.
    fn from_str(word: &str) -> Result<Self, NoSuchPolicy> {
        let numbered = word.parse().ok().and_then(XmitPolicy::from_number);
        let named = || XmitPolicy::ALL.into_iter().find(|policy| policy.name() == word);
        numbered.or_else(named).ok_or_else(|| NoSuchPolicy(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for policy in XmitPolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert_eq!(XmitPolicy::from_number(policy as u8), Some(policy));
            assert_eq!((policy as u8).to_string().parse(), Ok(policy));
        }
        for word in ["", "layer3", "6", "LAYER2", "-1"] {
            let refusal = word.parse::<XmitPolicy>().expect_err(word);
            assert!(refusal.to_string().contains("expected layer2, layer3+4"), "{refusal}");
        }
    }
}
