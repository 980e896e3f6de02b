//! The status of a bond's control side, for users.

use std::time::Duration;

use towpath_engine::port::Speed;

use super::lacp::{AggregatorState, MemberState};
use super::links::Mii;
use super::settings::Settings;

/// A bond, as `/proc/net/bonding` shows it.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// How it is set up.
    pub settings: Settings,
    /// How often its links were looked at.
    pub looks: u64,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// Its address.
    pub mac: [u8; 6],
    /// The active member, in active-backup.
    pub active: Option<String>,
    /// How often links are looked at.
    pub period: Option<Duration>,
    /// 802.3ad: the aggregate in use.
    pub aggregator: Option<AggregatorState>,
    /// Its members, in the order in which they joined.
    pub members: Vec<MemberStatus>,
}

/// A member of a bond.
#[derive(Debug, Clone)]
pub struct MemberStatus {
    /// The port's name.
    pub name: String,
    /// Its link as the monitor has it.
    pub link: Mii,
    /// How often its link was given up.
    pub failures: u32,
    /// Its own address.
    pub mac: [u8; 6],
    /// How fast its link is, while it has a carrier.
    pub speed: Option<Speed>,
    /// Frames may leave by it.
    pub can_send: bool,
    /// Whether frames that pass on it are delivered.
    pub is_active: bool,
    /// Its preference.
    pub prio: i32,
    /// 802.3ad: its port.
    pub lacp: Option<MemberState>,
}
