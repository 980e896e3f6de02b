//! What the kernel refuses to do with a bond, and why.

use super::mode::BondMode;

/// A refusal in the kernel's sense; [`Refusal::errno`] is its error number's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// `bond_xdp_set`: the mode cannot choose one member for a frame.
    #[error(
        "no native XDP support for the bonding mode {0}: detach the program, or choose \
         balance-rr, active-backup, balance-xor or 802.3ad"
    )]
    Mode(BondMode),
    /// `bond_option_xmit_hash_policy_set`: the tag it hashes is not in the frame.
    #[error(
        "no native XDP support for xmit_hash_policy vlan+srcmac: detach the program, or choose \
         another policy"
    )]
    Policy,
    /// `bond_xdp_set`, `bond_enslave`: a member that nothing arrives at.
    #[error("member {0} does not support XDP: nothing arrives at it")]
    NoXdp(String),
    /// `bond_xdp_set`, `bond_enslave`: a program would have to make room.
    #[error("member {0} has a program of its own: unload that first")]
    OwnProgram(String),
    /// `dev_xdp_attach`: a program is there already, delegated.
    #[error("bond {0} above it has a program, which runs here: attach to {0} instead")]
    UpperHasProgram(String),
    /// `bond_enslave`: `IFF_SLAVE` is set.
    #[error("{member} is a member of {by} already: a port can be in one bond only")]
    Taken {
        /// The port.
        member: String,
        /// The bond that has it.
        by: String,
    },
    /// `bond_enslave`: it passes frames to somebody else.
    #[error("{member} passes its frames to {upper}: take its upper away first")]
    HasUpper {
        /// The port.
        member: String,
        /// Its upper.
        upper: String,
    },
    /// A member's frames go to its bond.
    #[error("it is a member of bond {0}: give that an upper instead")]
    Member(String),
    /// `bond_enslave`: a bond in itself.
    #[error("{0} cannot be a member: the bond would be inside of itself")]
    Loop(String),
    /// `__netdev_upper_dev_link`: nested too deeply.
    #[error("bonds can be members of bonds, but not more than {NEST_MAX} deep")]
    TooDeep,
    /// A limit of ours.
    #[error("a bond has at most {MEMBERS_MAX} members")]
    TooMany,
    /// `BOND_OPTFLAG_IFDOWN`
    #[error("its mode can change only while it is down: set it down first")]
    Up,
    /// `BOND_OPTFLAG_NOSLAVES`
    #[error("its mode can change only while it has no members: take them out first")]
    NotEmpty,
    /// A port that it does not have.
    #[error("{0} is not a member of this bond")]
    NotMember(String),
    /// A port of another kind.
    #[error("not a bond")]
    NotBond,
}

impl Refusal {
    /// The name of the kernel's error number.
    pub fn errno(&self) -> &'static str {
        match self {
            Refusal::Mode(_) | Refusal::Policy | Refusal::NoXdp(_) | Refusal::OwnProgram(_) => {
                "EOPNOTSUPP"
            }
            Refusal::UpperHasProgram(_) => "EEXIST",
            Refusal::Taken { .. } | Refusal::HasUpper { .. } | Refusal::Up => "EBUSY",
            Refusal::Loop(_) => "ELOOP",
            Refusal::TooDeep | Refusal::TooMany => "EMLINK",
            Refusal::NotEmpty => "ENOTEMPTY",
            Refusal::Member(_) | Refusal::NotMember(_) | Refusal::NotBond => "EINVAL",
        }
    }
}

/// Bonds may be members of bonds, so deep (`MAX_NEST_DEV`).
pub const NEST_MAX: usize = 8;
/// Members of one bond.
pub const MEMBERS_MAX: usize = 256;
const _: () = assert!(NEST_MAX < MEMBERS_MAX);
