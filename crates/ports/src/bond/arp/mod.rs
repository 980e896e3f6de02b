//! The ARP and neighbour monitor: a link counts as up while the probed targets answer.
//!
//! It does no I/O: time and frames are inputs, frames and link states are outputs. For each
//! interval the caller calls [`ArpMonitor::inspect`], chooses the active member by the resulting
//! links ([`ArpMonitor::set_active`]), and sends the frames from [`ArpMonitor::probe`]. Kernel
//! counterpart: `bond_activebackup_arp_mon` and `bond_loadbalance_arp_mon`.

mod heard;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::announce::{arp_request, solicitation};
use super::links::Mii;
use super::settings::ArpSettings;

/// ARP monitor of the members of one bond.
#[derive(Debug)]
pub struct ArpMonitor {
    settings: ArpSettings,
    /// Active-backup: only one member is in use. Otherwise all are.
    by_active: bool,
    /// Addresses of the bond, used as senders of probes.
    sources: Vec<IpAddr>,
    members: Vec<Watched>,
    active: Option<u32>,
    /// The member that is tried while none is active (`current_arp_slave`).
    candidate: Option<u32>,
}

/// A member, and the times it was last heard.
#[derive(Debug, Clone)]
struct Watched {
    member: u32,
    mac: [u8; 6],
    carrier: bool,
    link: Mii,
    failures: u32,
    /// Time at which it came up or became active.
    since: Time,
    last_rx: Time,
    last_tx: Time,
    /// Time at which each target was last heard: those of IPv4, then those of IPv6.
    targets: Vec<Time>,
}

/// Microseconds; may be before the caller's zero.
type Time = i64;

impl ArpMonitor {
    /// A monitor without members. `by_active` says that the mode is active-backup.
    pub fn new(settings: ArpSettings, by_active: bool, sources: Vec<IpAddr>) -> ArpMonitor {
        ArpMonitor {
            settings,
            by_active,
            sources,
            members: Vec::new(),
            active: None,
            candidate: None,
        }
    }

    /// Whether the monitor has these settings.
    pub fn is_for(&self, settings: &ArpSettings, by_active: bool, sources: &[IpAddr]) -> bool {
        self.settings == *settings && self.by_active == by_active && self.sources == sources
    }

    /// Adds a member, or updates a known one. `mac` is the address that it sends from, and
    /// `carrier` whether frames can leave at all.
    pub fn set_member(&mut self, member: u32, mac: [u8; 6], carrier: bool, now: Duration) {
        if let Some(known) = self.members.iter_mut().find(|it| it.member == member) {
            (known.mac, known.carrier) = (mac, carrier);
            return;
        }
        let now = micros(now);
        // Initialised as if heard just over an interval ago, which leaves it time to be heard
        // again.
        let before = now - self.interval() - 1000;
        self.members.push(Watched {
            member,
            mac,
            carrier,
            link: if carrier { Mii::Up } else { Mii::Down },
            failures: 0,
            since: now,
            last_rx: before,
            last_tx: before,
            targets: vec![before; self.settings.targets.len() + self.settings.targets6.len()],
        });
    }

    /// Removes a member.
    pub fn remove_member(&mut self, member: u32) {
        self.members.retain(|it| it.member != member);
        self.active = self.active.filter(|active| *active != member);
        self.candidate = self.candidate.filter(|candidate| *candidate != member);
    }

    /// The members that are watched, in the order in which they joined.
    pub fn members(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.iter().map(|it| it.member)
    }

    /// A member's link, and the number of its failures.
    pub fn link(&self, member: u32) -> Option<(Mii, u32)> {
        let found = self.members.iter().find(|it| it.member == member)?;
        Some((found.link, found.failures))
    }

    /// Sets the active member. Its link has two intervals to be heard.
    pub fn set_active(&mut self, active: Option<u32>, now: Duration) {
        if active == self.active {
            return;
        }
        self.active = active;
        if let Some(found) = self.members.iter_mut().find(|it| Some(it.member) == active) {
            found.since = micros(now);
            if found.link == Mii::Back {
                found.link = Mii::Up;
            }
        }
    }

    /// Decides about all links; returns whether any changed.
    pub fn inspect(&mut self, now: Duration) -> bool {
        let now = micros(now);
        let links: Vec<Option<Mii>> = self
            .members
            .iter()
            .map(|it| if self.by_active { self.judge(it, now) } else { self.judge_equal(it, now) })
            .collect();
        let mut changed = false;
        for (index, link) in links.into_iter().enumerate() {
            let Some(link) = link else { continue };
            changed = true;
            self.commit(index, link, now);
        }
        changed
    }

    /// Active-backup (`bond_ab_arp_inspect`): the new link state, if it changes.
    fn judge(&self, it: &Watched, now: Time) -> Option<Mii> {
        let last_rx = self.last_rx(it);
        if it.link != Mii::Up {
            let is_heard = it.carrier && self.is_within(last_rx, 1, now);
            return match it.link {
                _ if is_heard => Some(Mii::Up),
                Mii::Back => Some(Mii::Fail),
                _ => None,
            };
        }
        if self.is_within(it.since, 2, now) {
            return None;
        }
        let missed_max = self.missed_max();
        let is_down = if self.is_in_use(it) {
            !self.is_within(it.last_tx, missed_max, now)
                || !self.is_within(last_rx, missed_max, now)
        } else {
            // While another member is searched for, backups are not probed, and need not be heard.
            self.candidate.is_none() && !self.is_within(last_rx, missed_max + 1, now)
        };
        is_down.then_some(Mii::Down)
    }

    /// Balancing modes (`bond_loadbalance_arp_mon`): the new link state, if it changes.
    fn judge_equal(&self, it: &Watched, now: Time) -> Option<Mii> {
        let is_alive = |intervals| {
            let last_rx = self.last_rx(it);
            self.is_within(it.last_tx, intervals, now) && self.is_within(last_rx, intervals, now)
        };
        match it.link {
            Mii::Up => (!is_alive(self.missed_max())).then_some(Mii::Down),
            _ => (it.carrier && is_alive(1)).then_some(Mii::Up),
        }
    }

    fn commit(&mut self, index: usize, link: Mii, now: Time) {
        let it = &mut self.members[index];
        it.link = link;
        match link {
            Mii::Up => {
                it.since = now;
                self.candidate = None;
            }
            Mii::Down => {
                it.failures += 1;
                if self.active == Some(it.member) {
                    (self.active, self.candidate) = (None, None);
                }
            }
            Mii::Fail | Mii::Back => {
                if self.active.is_some() {
                    self.candidate = None;
                }
            }
        }
    }

    /// The probes of this interval, and the members they leave by.
    pub fn probe(&mut self, now: Duration) -> Vec<(u32, Vec<u8>)> {
        let now = micros(now);
        let asking: Vec<usize> = if self.by_active {
            self.prober(now).into_iter().collect()
        } else {
            (0..self.members.len()).filter(|index| self.members[*index].carrier).collect()
        };
        let mut frames = Vec::new();
        for index in asking {
            let it = &mut self.members[index];
            it.last_tx = now;
            let (member, mac) = (it.member, it.mac);
            frames.extend(self.questions(mac).map(|frame| (member, frame)));
        }
        frames
    }

    /// The probing member in active-backup: the active member, or each member in turn to find a new
    /// one (`bond_ab_arp_probe`).
    fn prober(&mut self, now: Time) -> Option<usize> {
        let place = |who| self.members.iter().position(|it| Some(it.member) == who);
        if self.active.is_some() {
            return place(self.active);
        }
        let count = self.members.len();
        let last = place(self.candidate).unwrap_or(0);
        for it in self.members.iter_mut().filter(|it| !it.carrier && it.link == Mii::Up) {
            it.link = Mii::Down;
            it.failures += 1;
        }
        let next = (1..=count).map(|step| (last + step) % count);
        let next = next.into_iter().find(|index| self.members[*index].carrier)?;
        let it = &mut self.members[next];
        it.link = Mii::Back;
        it.since = now;
        self.candidate = Some(it.member);
        Some(next)
    }

    /// A probe for each target, from the first address of its family.
    fn questions(&self, mac: [u8; 6]) -> impl Iterator<Item = Vec<u8>> {
        let v4 = |it: &IpAddr| if let IpAddr::V4(it) = it { Some(*it) } else { None };
        let v6 = |it: &IpAddr| if let IpAddr::V6(it) = it { Some(*it) } else { None };
        let v4 = self.sources.iter().find_map(v4).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let v6 = self.sources.iter().find_map(v6).unwrap_or(Ipv6Addr::UNSPECIFIED);
        let arp = self.settings.targets.iter().map(move |target| arp_request(mac, v4, *target));
        let targets = self.settings.targets6.iter();
        arp.chain(targets.map(move |target| solicitation(mac, v6, *target)))
    }

    /// Time at which the link was last heard in a way that counts (`slave_last_rx`).
    fn last_rx(&self, it: &Watched) -> Time {
        if self.validates(it) && self.settings.all_targets {
            return it.targets.iter().copied().min().unwrap_or(it.last_rx);
        }
        it.last_rx
    }

    /// Whether only messages of targets count on this member.
    fn validates(&self, it: &Watched) -> bool {
        let validate = self.settings.validate;
        if self.is_in_use(it) { validate.active } else { validate.backup }
    }

    fn is_in_use(&self, it: &Watched) -> bool {
        let member = Some(it.member);
        !self.by_active || self.active == member || self.candidate == member
    }

    /// Whether `last` is at most `intervals` and a half intervals ago (`bond_time_in_interval`).
    fn is_within(&self, last: Time, intervals: u8, now: Time) -> bool {
        let allowed = self.interval().saturating_mul(intervals.into());
        now <= last.saturating_add(allowed).saturating_add(self.interval() / 2)
    }

    fn interval(&self) -> Time {
        micros(self.settings.interval)
    }

    fn missed_max(&self) -> u8 {
        // One more is counted for members that are not in use.
        self.settings.missed_max().min(u8::MAX - 1)
    }
}

fn micros(time: Duration) -> Time {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4)
}
