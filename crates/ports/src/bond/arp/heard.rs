//! Evidence that a link works: any frame, any ARP packet, or only messages of a target.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::super::announce::solicited_node;
use super::{ArpMonitor, Time, Watched, micros};

/// The relevant fields of an ARP packet or neighbour message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Message {
    /// The sender; `to` is the target or subject.
    from: IpAddr,
    to: IpAddr,
    is_answer: bool,
}

impl ArpMonitor {
    /// Processes a frame that arrived at a member, if it is ARP or a neighbour message. Others are
    /// ignored.
    pub fn hear(&mut self, member: u32, frame: &[u8], now: Duration) {
        let now = micros(now);
        let Some(index) = self.members.iter().position(|it| it.member == member) else { return };
        let Some(message) = parse_arp(frame).or_else(|| parse_neighbour(frame)) else { return };
        if !self.validates(&self.members[index]) {
            self.members[index].last_rx = now;
            return;
        }
        let Some(target) = self.trusted_target(index, &message, now) else { return };
        let it = &mut self.members[index];
        it.last_rx = now;
        if let Some(last) = it.targets.get_mut(target) {
            *last = now;
        }
    }

    /// Notes that a member received frames of any kind since the last inspection.
    ///
    /// This suffices if `arp_validate` requires nothing.
    pub fn saw_traffic(&mut self, member: u32, now: Duration) {
        let Some(index) = self.members.iter().position(|it| it.member == member) else { return };
        if !self.validates(&self.members[index]) && !self.settings.validate.filter {
            self.members[index].last_rx = micros(now);
        }
    }

    /// The target that sent a message, if the message is trusted (`bond_arp_rcv`, `bond_na_rcv`).
    fn trusted_target(&self, index: usize, message: &Message, now: Time) -> Option<usize> {
        let Message { from, to, is_answer } = *message;
        if self.is_in_use(&self.members[index]) {
            return self.target(from, to);
        }
        let find = |who: Option<u32>| self.members.iter().find(|it| Some(it.member) == who);
        if let Some(active) = find(self.active)
            && self.last_rx(active) > active.since
        {
            // A backup hears the active member's request through the switch. That counts only while
            // the active member gets answers, or the bond would hear itself.
            return self.target(to, from);
        }
        // A switch may still send the answer to the previous port of the address.
        let asked = |candidate: &Watched| self.is_within(candidate.last_tx, 1, now);
        let may_be_late = is_answer && find(self.candidate).is_some_and(asked);
        if may_be_late { self.target(from, to) } else { None }
    }

    /// The index of target `from`, if the message is for this bond (`bond_validate_arp`).
    fn target(&self, from: IpAddr, to: IpAddr) -> Option<usize> {
        if from.is_unspecified() || !self.is_ours(to) {
            return None;
        }
        match from {
            IpAddr::V4(from) => self.settings.targets.iter().position(|target| *target == from),
            IpAddr::V6(from) => {
                let is_it = |target: &Ipv6Addr| *target == from || solicited_node(*target) == from;
                let found = self.settings.targets6.iter().position(is_it)?;
                Some(self.settings.targets.len() + found)
            }
        }
    }

    fn is_ours(&self, address: IpAddr) -> bool {
        // A bond without an address asks from the unspecified address, and is answered there.
        let is_source = match address {
            IpAddr::V4(it) => it.is_unspecified() && !self.sources.iter().any(IpAddr::is_ipv4),
            IpAddr::V6(it) => it == ALL_NODES,
        };
        is_source || self.sources.contains(&address)
    }
}

fn parse_arp(frame: &[u8]) -> Option<Message> {
    let (header, arp) = frame.split_at_checked(14)?;
    let arp: &[u8; 28] = arp.first_chunk()?;
    // IPv4 over Ethernet, with the right address sizes.
    if header[12..] != [0x08, 0x06] || arp[..6] != [0, 1, 8, 0, 6, 4] {
        return None;
    }
    let address =
        |at: usize| IpAddr::V4(Ipv4Addr::new(arp[at], arp[at + 1], arp[at + 2], arp[at + 3]));
    Some(Message { from: address(14), to: address(24), is_answer: arp[6..8] == [0, 2] })
}

/// A solicitation or advertisement without extension headers (RFC 4861 section 4).
fn parse_neighbour(frame: &[u8]) -> Option<Message> {
    let (header, packet) = frame.split_at_checked(14)?;
    let ip: &[u8; 41] = packet.first_chunk()?;
    if header[12..] != [0x86, 0xdd] || ip[6] != 58 || !matches!(ip[40], 135 | 136) {
        return None;
    }
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&ip[at..at + 16]);
        IpAddr::V6(octets.into())
    };
    Some(Message { from: address(8), to: address(24), is_answer: true })
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
