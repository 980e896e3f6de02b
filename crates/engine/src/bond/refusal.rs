//! Operations on bonds that are refused as in the kernel.

use super::mode::BondMode;

/// The reason why an operation on a bond is refused; [`Refusal::errno`] names the kernel's error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// `bond_xdp_set`: the mode cannot choose one member for a frame.
    #[error(
        "no native XDP support for the bonding mode {0}: detach the program, or choose \
         balance-rr, active-backup, balance-xor or 802.3ad"
    )]
    Mode(BondMode),
    /// `bond_option_xmit_hash_policy_set`: the policy hashes a tag that is not in the frame.
    #[error(
        "no native XDP support for xmit_hash_policy vlan+srcmac: detach the program, or choose \
         another policy"
    )]
    Policy,
    /// `bond_xdp_set`, `bond_enslave`: the member receives no frames, so that it cannot run a
    /// program.
    #[error("member {0} does not support XDP: nothing arrives at it")]
    NoXdp(String),
    /// `bond_xdp_set`, `bond_enslave`: the member has a program of its own.
    #[error("member {0} has a program of its own: unload that first")]
    OwnProgram(String),
    /// `dev_xdp_attach`: the port already runs the program of a bond around it.
    #[error("bond {0} above it has a program, which runs here: attach to {0} instead")]
    UpperHasProgram(String),
    /// `bond_enslave`: the port is a member of a bond already (`IFF_SLAVE`).
    #[error("{member} is a member of {by} already: a port can be in one bond only")]
    Taken {
        /// The port.
        member: String,
        /// The bond that has it.
        by: String,
    },
    /// `bond_enslave`: the port has an upper.
    #[error("{member} passes its frames to {upper}: take its upper away first")]
    HasUpper {
        /// The port.
        member: String,
        /// Its upper.
        upper: String,
    },
    /// A member cannot have an upper, because its frames go to its bond.
    #[error("it is a member of bond {0}: give that an upper instead")]
    Member(String),
    /// `bond_enslave`: the bond would contain itself.
    #[error("{0} cannot be a member: the bond would be inside of itself")]
    Loop(String),
    /// `__netdev_upper_dev_link`: nested too deeply.
    #[error("bonds can be members of bonds, but not more than {NEST_MAX} deep")]
    TooDeep,
    /// The bond has the most members allowed here ([`MEMBERS_MAX`]).
    #[error("a bond has at most {MEMBERS_MAX} members")]
    TooMany,
    /// The mode changes only while the bond is down (`BOND_OPTFLAG_IFDOWN`).
    #[error("its mode can change only while it is down: set it down first")]
    Up,
    /// The mode changes only while the bond has no members (`BOND_OPTFLAG_NOSLAVES`).
    #[error("its mode can change only while it has no members: take them out first")]
    NotEmpty,
    /// The port is not a member of the bond.
    #[error("{0} is not a member of this bond")]
    NotMember(String),
    /// The port is not a bond.
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

/// Deepest nesting of bonds (`MAX_NEST_DEV`).
pub const NEST_MAX: usize = 8;
/// Most members of a bond.
pub const MEMBERS_MAX: usize = 256;
const _: () = assert!(NEST_MAX < MEMBERS_MAX);
