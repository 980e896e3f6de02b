//! An operator's settings of a bond: names, values and defaults of `ip link ... type bond`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use towpath_engine::bond::control::Taps;
use towpath_engine::bond::{BondMode, BondOptions};

use super::lacp::{AdSelect, Config};

/// All settings of a bond, without its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Options that affect frames.
    pub options: BondOptions,
    /// Interval of link monitoring (`miimon`); off when 0.
    pub miimon: Duration,
    /// Time a link must be up before it is used.
    pub updelay: Duration,
    /// Time a link must be down before it is given up.
    pub downdelay: Duration,
    /// Number of announcements after a fail-over (`num_grat_arp`, `num_unsol_na`).
    pub num_peer_notif: u8,
    /// Time between two of them; a tick of the monitor when 0.
    pub peer_notif_delay: Duration,
    /// Number of multicast group queries sent to the upper after a fail-over.
    pub resend_igmp: u8,
    /// Addresses that are announced.
    pub announce: Vec<IpAddr>,
    /// The member to use whenever its link is up.
    pub primary: Option<String>,
    /// When the primary member is used again after a failure.
    pub primary_reselect: PrimaryReselect,
    /// Preferences of members: the highest is taken first (`prio` of a bond's slave).
    pub prio: BTreeMap<String, i32>,
    /// The member to make active now, once.
    pub active_slave: Option<String>,
    /// Handling of the bond's address at a fail-over.
    pub fail_over_mac: FailOverMac,
    /// Fewest usable members with which the bond has a carrier.
    pub min_links: u32,
    /// The ARP and neighbour monitor.
    pub arp: ArpSettings,
    /// Settings of LACP, in mode 802.3ad.
    pub lacp: LacpSettings,
}

/// Settings of the ARP and neighbour monitor, which probes targets and considers a link up while
/// they answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArpSettings {
    /// Interval of probes (`arp_interval`); off when 0.
    pub interval: Duration,
    /// Probed IPv4 addresses (`arp_ip_target`), up to 16.
    pub targets: Vec<Ipv4Addr>,
    /// Probed IPv6 addresses (`ns_ip6_target`), up to 16.
    pub targets6: Vec<Ipv6Addr>,
    /// Validation of received frames.
    pub validate: ArpValidate,
    /// All targets must answer, not one of them (`arp_all_targets`).
    pub all_targets: bool,
    /// Intervals without an answer before a link is down; 0 is the kernel's 2.
    pub missed_max: u8,
}

/// Settings of LACP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LacpSettings {
    /// LACPDUs each second, not every 30 (`lacp_rate fast`).
    pub fast: bool,
    /// Sends without hearing a partner first (`lacp_active on`).
    pub active: bool,
    /// Criterion by which aggregates are compared (`ad_select`).
    pub select: AdSelect,
    /// `ad_actor_sys_prio`
    pub system_priority: u16,
    /// `ad_actor_system`; by default the bond's address.
    pub system: Option<[u8; 6]>,
    /// `ad_user_port_key`
    pub user_key: u16,
    /// Collects and distributes at once (`coupled_control on`).
    pub coupled: bool,
}

impl Default for LacpSettings {
    fn default() -> LacpSettings {
        LacpSettings {
            fast: false,
            active: true,
            select: AdSelect::default(),
            system_priority: u16::MAX,
            system: None,
            user_key: 0,
            coupled: true,
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            options: BondOptions::default(),
            miimon: Duration::ZERO,
            updelay: Duration::ZERO,
            downdelay: Duration::ZERO,
            num_peer_notif: 1,
            peer_notif_delay: Duration::ZERO,
            resend_igmp: 1,
            announce: Vec::new(),
            primary: None,
            primary_reselect: PrimaryReselect::default(),
            prio: BTreeMap::new(),
            active_slave: None,
            fail_over_mac: FailOverMac::default(),
            min_links: 0,
            arp: ArpSettings::default(),
            lacp: LacpSettings::default(),
        }
    }
}

impl ArpSettings {
    /// Intervals without an answer before a link is down.
    pub fn missed_max(&self) -> u8 {
        if self.missed_max == 0 { 2 } else { self.missed_max }
    }
}

impl Settings {
    /// The engine's options, with the frames that the control plane needs to see.
    pub fn engine_options(&self) -> BondOptions {
        let monitors = self.arp_period().is_some();
        let taps = Taps {
            slow: self.options.mode == BondMode::Lacp,
            arp: monitors && !self.arp.targets.is_empty(),
            neighbours: monitors && !self.arp.targets6.is_empty(),
        };
        BondOptions { taps, ..self.options.clone() }
    }

    /// The LACP configuration of a bond with this address.
    pub fn lacp_config(&self, mac: [u8; 6]) -> Config {
        let LacpSettings { fast, active, select, system_priority, system, user_key, coupled } =
            self.lacp;
        let system = system.unwrap_or(mac);
        let min_links = self.min_links;
        let usual = Config::new(system);
        Config { fast, active, select, system_priority, user_key, coupled, min_links, ..usual }
    }

    /// Interval of ARP monitoring; `None` if it is off.
    pub fn arp_period(&self) -> Option<Duration> {
        let is_there = !self.arp.targets.is_empty() || !self.arp.targets6.is_empty();
        (is_there && !self.arp.interval.is_zero()).then_some(self.arp.interval)
    }

    /// Interval of link monitoring; `None` if it is off. A mode that needs it uses 100 ms if no
    /// monitor is configured (`bond_check_params`).
    pub fn link_period(&self) -> Option<Duration> {
        match (self.miimon.is_zero(), self.arp.interval.is_zero()) {
            (false, _) => Some(self.miimon),
            (true, true) if self.options.mode == BondMode::Lacp => Some(MIIMON_FALLBACK),
            _ => None,
        }
    }
}

/// `BOND_DEFAULT_MIIMON`
const MIIMON_FALLBACK: Duration = Duration::from_millis(100);

/// A value with the kernel's names and numbers.
pub trait Word: Copy + 'static {
    /// Names in the order of the kernel's numbers, with their values.
    const WORDS: &'static [(&'static str, Self)];

    /// Parses a value's name or number.
    fn from_word(word: &str) -> Option<Self> {
        let numbered = word.parse::<usize>().ok().and_then(|number| Self::WORDS.get(number));
        let named = || Self::WORDS.iter().find(|(name, _)| *name == word);
        numbered.or_else(named).map(|&(_, value)| value)
    }
}

/// When the primary member is taken again (`primary_reselect`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrimaryReselect {
    /// As soon as its link is up.
    #[default]
    Always,
    /// When it is better than the one in use.
    Better,
    /// When the one in use fails.
    Failure,
}

impl Word for PrimaryReselect {
    const WORDS: &'static [(&'static str, Self)] =
        &[("always", Self::Always), ("better", Self::Better), ("failure", Self::Failure)];
}

/// Addresses at a fail-over (`fail_over_mac`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailOverMac {
    /// All members use the bond's address.
    #[default]
    None,
    /// The bond takes the active member's address.
    Active,
    /// A member takes the bond's address when it becomes active.
    Follow,
}

impl Word for FailOverMac {
    const WORDS: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("active", Self::Active), ("follow", Self::Follow)];
}

/// Frames that show a working link (`arp_validate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArpValidate {
    /// The active member counts as up only with answers from a target.
    pub active: bool,
    /// Backups count as up only if they hear the probes or answers.
    pub backup: bool,
    /// Without validation, only ARP counts.
    pub filter: bool,
}

impl Word for ArpValidate {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", validate(false, false, false)),
        ("active", validate(true, false, false)),
        ("backup", validate(false, true, false)),
        ("all", validate(true, true, false)),
        ("filter", validate(false, false, true)),
        ("filter_active", validate(true, false, true)),
        ("filter_backup", validate(false, true, true)),
    ];
}

const fn validate(active: bool, backup: bool, filter: bool) -> ArpValidate {
    ArpValidate { active, backup, filter }
}

/// The kernel's name of a value.
pub fn word_of<T: Word + PartialEq>(value: T) -> &'static str {
    T::WORDS.iter().find(|(_, it)| *it == value).map_or("", |(name, _)| name)
}

impl fmt::Display for FailOverMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(word_of(*self))
    }
}
