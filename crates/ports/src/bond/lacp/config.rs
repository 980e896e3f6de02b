//! Settings, by the kernel's names and with its defaults.

use std::fmt;
use std::str::FromStr;

/// Settings of a bond's LACP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// MAC address of the system: `ad_actor_system`, or the bond's own.
    pub system: [u8; 6],
    /// `ad_actor_sys_prio`, 1 to 65535; lower is better.
    pub system_priority: u16,
    /// `ad_user_port_key`, 0 to 1023; higher bits are cut off.
    pub user_key: u16,
    /// `lacp_rate fast`: ask the partner for a LACPDU every second, not every 30.
    pub fast: bool,
    /// `lacp_active on`: send without hearing a partner first.
    pub active: bool,
    /// `ad_select`
    pub select: AdSelect,
    /// `min_links`: with fewer usable members the bond has no carrier. 0 counts as 1.
    pub min_links: u32,
    /// `coupled_control on`: collect and distribute at once, not one after the other.
    pub coupled: bool,
    /// `lacp_strict on`: only members that collect and distribute count for the carrier.
    pub strict: bool,
}

impl Config {
    /// The kernel's defaults for a bond with this address.
    pub fn new(system: [u8; 6]) -> Config {
        Config {
            system,
            system_priority: 0xffff,
            user_key: 0,
            fast: false,
            active: true,
            select: AdSelect::Stable,
            min_links: 0,
            coupled: true,
            strict: false,
        }
    }
}

/// The aggregate to use if the members could form several: `ad_select`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum AdSelect {
    /// The one in use, as long as it has usable members.
    #[default]
    Stable = 0,
    /// The one with the most bandwidth.
    Bandwidth = 1,
    /// The one with the most members.
    Count = 2,
    /// The one with the highest sum of the members' own port priorities.
    ActorPortPriority = 3,
}

impl AdSelect {
    /// All values, in the order of the kernel's numbers.
    pub const ALL: [AdSelect; 4] =
        [AdSelect::Stable, AdSelect::Bandwidth, AdSelect::Count, AdSelect::ActorPortPriority];

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            AdSelect::Stable => "stable",
            AdSelect::Bandwidth => "bandwidth",
            AdSelect::Count => "count",
            AdSelect::ActorPortPriority => "actor_port_prio",
        }
    }
}

impl fmt::Display for AdSelect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for a string that is not a value of `ad_select`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no ad_select {0:?}: expected stable, bandwidth, count or actor_port_prio")]
pub struct NoSuchSelect(pub String);

impl FromStr for AdSelect {
    type Err = NoSuchSelect;

    fn from_str(word: &str) -> Result<Self, NoSuchSelect> {
        let found = AdSelect::ALL.into_iter().find(|select| select.name() == word);
        found.ok_or_else(|| NoSuchSelect(word.to_owned()))
    }
}

/// A member's link, as the link monitor sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// Frames can pass.
    pub up: bool,
    /// In Mbit/s; 0 when unknown.
    pub speed_mbps: u32,
    /// A half-duplex link can't be aggregated.
    pub full_duplex: bool,
}

impl Link {
    /// A full-duplex link that is up.
    pub fn up(speed_mbps: u32) -> Link {
        Link { up: true, speed_mbps, full_duplex: true }
    }

    /// A link that is down.
    pub fn down() -> Link {
        Link::default()
    }

    /// The low six bits of a port's key: number of the speed, and whether it is full duplex.
    pub(super) fn key(self) -> u16 {
        if !self.up {
            return 0;
        }
        let speed = SPEEDS_MBPS.iter().position(|mbps| *mbps == self.speed_mbps);
        let speed = speed.map_or(0, |index| index as u16 + 1);
        speed << 1 | u16::from(self.full_duplex)
    }
}

/// Speeds in Mbit/s, in the order of the kernel's `enum ad_link_speed_type`, which counts from 1.
const SPEEDS_MBPS: [u32; 19] = [
    1, 10, 100, 1000, 2500, 5000, 10_000, 14_000, 20_000, 25_000, 40_000, 50_000, 56_000, 80_000,
    100_000, 200_000, 400_000, 800_000, 1_600_000,
];
