//! Bonds: several ports that act as one.
//!
//! A bond is a port without queues of its own. Frames that arrive at a member and pass go to the
//! bond's upper. Frames sent to the bond leave by a member chosen for each frame, as the kernel's
//! bonding driver chooses (`bond_xdp_get_xmit_slave`):
//!
//! ```text
//! frame's linear bytes -> policy -> hash -> usable member number hash % count
//! ```
//!
//! A program that is attached to a bond runs on its members. For its `XDP_TX`, too, the bond
//! chooses the member.
//!
//! Control code sets which members are usable ([`MemberState`]) and which one is active. Workers
//! get the result as a [`View`], which is made once per change and never per frame.

pub mod control;
mod dissect;
mod hash;
mod mode;
mod policy;
mod refusal;
mod view;

use std::sync::Arc;

use parking_lot::Mutex;
use towpath_xdp::Arena;

use crate::numbers::PortId;
use crate::opened::Opened;
use crate::port::{Device, Features, Rx, Speed, Tx};
use control::{Mailbox, Taps};
pub(crate) use dissect::is_neighbour_message;
pub use hash::hash;
pub use mode::{BondMode, NoSuchMode};
pub use policy::{NoSuchPolicy, XmitPolicy};
pub use refusal::{MEMBERS_MAX, NEST_MAX, Refusal};
pub use view::View;
pub(crate) use view::{Choice, Turn};

/// The operator's settings of a bond that affect frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BondOptions {
    /// How members are chosen.
    pub mode: BondMode,
    /// Fields that are hashed (`xmit_hash_policy`).
    pub policy: XmitPolicy,
    /// Consecutive frames per member in mode balance-rr; 0 chooses at random.
    pub packets_per_slave: u32,
    /// Delivers frames that arrive on inactive members, too.
    pub all_slaves_active: bool,
    /// Sends ARP and IPv6 neighbour messages by all usable members (in the kernel: mode 802.3ad
    /// only).
    pub broadcast_neighbor: bool,
    /// Makes control frames bypass programs.
    pub protect_control: bool,
    /// Frames that the control plane wants to see.
    pub taps: Taps,
}

impl Default for BondOptions {
    fn default() -> BondOptions {
        BondOptions {
            mode: BondMode::default(),
            policy: XmitPolicy::default(),
            packets_per_slave: 1,
            all_slaves_active: false,
            broadcast_neighbor: false,
            protect_control: false,
            taps: Taps::default(),
        }
    }
}

impl BondOptions {
    /// Checks that a bond with these options supports a program (`bond_xdp_check`).
    pub fn check_native(&self) -> Result<(), Refusal> {
        match self.mode {
            BondMode::Broadcast => Err(Refusal::Mode(self.mode)),
            mode if mode.has_hash() && self.policy == XmitPolicy::VlanSrcmac => {
                Err(Refusal::Policy)
            }
            _ => Ok(()),
        }
    }
}

/// A bond's configuration and state, for control code.
#[derive(Debug, Clone)]
pub struct Bond {
    pub(crate) options: BondOptions,
    pub(crate) members: Vec<Member>,
    pub(crate) active: Option<PortId>,
    pub(crate) carrier: Option<bool>,
    pub(crate) mac: Option<[u8; 6]>,
    /// The address set by the operator; `None` to use the first member's.
    pub(crate) own_mac: Option<[u8; 6]>,
    pub(crate) port: BondPort,
    pub(crate) mailbox: Arc<Mailbox>,
}

/// A member and its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The port.
    pub port: PortId,
    /// Its state.
    pub state: MemberState,
}

/// State of a member as control code determined it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberState {
    /// Its link is up, after the configured delays (`BOND_LINK_UP`, and carrier).
    pub link_up: bool,
    /// 802.3ad: it is collecting and distributing.
    pub enabled: bool,
    /// 802.3ad: it belongs to the active aggregator.
    pub aggregated: bool,
}

impl Bond {
    pub(crate) fn new(options: BondOptions, mac: Option<[u8; 6]>, port: BondPort) -> Bond {
        Bond {
            options,
            members: Vec::new(),
            active: None,
            carrier: None,
            mac,
            own_mac: mac,
            port,
            mailbox: Arc::default(),
        }
    }

    /// The bond's settings.
    pub fn options(&self) -> &BondOptions {
        &self.options
    }

    /// Its members, in the order in which they joined.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member that frames leave by in active-backup (`curr_active_slave`).
    pub fn active(&self) -> Option<PortId> {
        self.active
    }

    /// The bond's present address.
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.mac
    }

    /// The address set by the operator, if any.
    pub fn own_mac(&self) -> Option<[u8; 6]> {
        self.own_mac
    }

    /// The carrier state set by control code; `None` if it follows from the members' links.
    pub fn carrier(&self) -> Option<bool> {
        self.carrier
    }

    /// The queue of frames for the control plane.
    pub fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Whether a member is only a backup (`bond_is_active_slave` is false).
    pub fn is_backup(&self, member: &Member) -> bool {
        match self.options.mode {
            BondMode::ActiveBackup => self.active != Some(member.port),
            BondMode::Lacp => !member.state.enabled,
            _ => false,
        }
    }

    /// Unless the active member's link is up, makes the first member whose link is up the active
    /// one.
    pub(crate) fn choose_active(&mut self) {
        let is_fine = |port| self.members.iter().any(|it| it.port == port && it.state.link_up);
        if !self.active.is_some_and(is_fine) {
            self.active = self.members.iter().find(|it| it.state.link_up).map(|it| it.port);
        }
    }
}

/// The device of a bond, which reports values only and sends nothing itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct BondPort(Arc<Mutex<Shown>>);

/// The values that a bond's device reports.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    pub(crate) mac: [u8; 6],
    pub(crate) link: bool,
    pub(crate) features: Features,
    pub(crate) mtu: u32,
    pub(crate) details: Vec<(&'static str, String)>,
    /// Members that can send.
    pub(crate) senders: Vec<Arc<Opened>>,
    /// Each frame leaves by all of them.
    pub(crate) is_broadcast: bool,
}

impl BondPort {
    pub(crate) fn show(&self, shown: Shown) {
        *self.0.lock() = shown;
    }
}

impl Device for BondPort {
    fn kind(&self) -> &'static str {
        "bond"
    }

    fn queues(&self) -> u32 {
        0
    }

    fn features(&self) -> Features {
        self.0.lock().features
    }

    fn mac(&self) -> [u8; 6] {
        self.0.lock().mac
    }

    fn mtu(&self) -> u32 {
        self.0.lock().mtu
    }

    fn link(&self) -> bool {
        self.0.lock().link
    }

    /// The sum of the members' speeds; for broadcast, the slowest member's
    /// (`bond_ethtool_get_link_ksettings`).
    fn speed(&self) -> Speed {
        let (senders, is_broadcast) = {
            let shown = self.0.lock();
            (shown.senders.clone(), shown.is_broadcast)
        };
        let speeds: Vec<Speed> = senders.iter().map(|it| it.device.speed()).collect();
        let each = speeds.iter().map(|it| it.mbps);
        let mbps = if is_broadcast { each.min() } else { each.reduce(u32::saturating_add) };
        let is_full_duplex = speeds.first().is_none_or(|it| it.is_full_duplex);
        Speed { mbps: mbps.unwrap_or(0), is_full_duplex }
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> std::io::Result<Box<dyn Rx>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> std::io::Result<Box<dyn Tx>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        self.0.lock().details.clone()
    }
}
