//! The status of a bond, for display.

use std::time::Duration;

use towpath_engine::port::Speed;

use super::lacp::{AggregatorState, MemberState};
use super::links::Mii;
use super::settings::Settings;

/// Status of a bond, as in `/proc/net/bonding`.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Its settings.
    pub settings: Settings,
    /// Number of inspections of its links.
    pub looks: u64,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// Its address.
    pub mac: [u8; 6],
    /// The active member's name, in active-backup.
    pub active: Option<String>,
    /// Interval of link monitoring.
    pub period: Option<Duration>,
    /// 802.3ad: the aggregate in use.
    pub aggregator: Option<AggregatorState>,
    /// Its members, in the order in which they joined.
    pub members: Vec<MemberStatus>,
}

/// Status of a member.
#[derive(Debug, Clone)]
pub struct MemberStatus {
    /// The port's name.
    pub name: String,
    /// The monitor's state of its link.
    pub link: Mii,
    /// Number of times its link was given up.
    pub failures: u32,
    /// Its own address.
    pub mac: [u8; 6],
    /// Its speed, while it has a carrier.
    pub speed: Option<Speed>,
    /// Whether frames may leave by it.
    pub can_send: bool,
    /// Whether frames that pass on it are delivered.
    pub is_active: bool,
    /// Its preference (`prio`).
    pub prio: i32,
    /// 802.3ad: state of its port.
    pub lacp: Option<MemberState>,
}
