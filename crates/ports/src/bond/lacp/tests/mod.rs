//! Bonds that are connected to each other, and a simulated clock.

mod partners;
mod selection;
mod timing;

use std::time::Duration;

use super::*;
use pdu::{Lacpdu, PortInfo, build, parse};

/// Two bonds, and cables between members of the same number.
struct Pair {
    ends: [Lacp; 2],
    now: Duration,
    /// Cables that lose all frames, while both ends see a link.
    dead: Vec<u32>,
    /// LACPDUs that each end sent, with their time and member.
    sent: [Vec<(Duration, u32, Lacpdu)>; 2],
}

impl Pair {
    fn new(configs: [Config; 2], links: u32) -> Pair {
        let mut ends = configs.map(Lacp::new);
        for (side, end) in ends.iter_mut().enumerate() {
            for member in 0..links {
                end.add(member, address(side, member), 255, Link::up(10_000));
            }
        }
        Pair { ends, now: Duration::ZERO, dead: Vec::new(), sent: [Vec::new(), Vec::new()] }
    }

    fn run(&mut self, seconds: f64) {
        let until = self.now + Duration::from_secs_f64(seconds);
        while self.now < until {
            self.ends.iter_mut().for_each(|end| end.tick(self.now));
            self.carry();
            self.now += TICK;
        }
    }

    fn carry(&mut self) {
        for side in 0..2 {
            for (member, frame) in self.ends[side].take_frames() {
                if let Some(Pdu::Lacp(lacpdu)) = parse(&frame) {
                    self.sent[side].push((self.now, member, lacpdu));
                }
                if !self.dead.contains(&member) {
                    let other = &mut self.ends[1 - side];
                    let is_there = other.members().any(|state| state.member == member);
                    assert_eq!(other.receive(member, &frame), is_there);
                }
            }
        }
    }

    /// Pulls a cable out, or puts it back.
    fn link(&mut self, member: u32, link: Link) {
        self.ends.iter_mut().for_each(|end| end.link(member, link));
    }

    fn usable(&self) -> [Vec<u32>; 2] {
        [self.ends[0].usable(), self.ends[1].usable()]
    }
}

fn system(side: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, side as u8 + 1]
}

fn address(side: usize, member: u32) -> [u8; 6] {
    [2, 0, 0, 1, side as u8, member as u8]
}

fn config(side: usize) -> Config {
    Config { fast: true, ..Config::new(system(side)) }
}

fn slow(side: usize) -> Config {
    Config::new(system(side))
}

fn passive(side: usize) -> Config {
    Config { active: false, ..config(side) }
}

fn member(lacp: &Lacp, member: u32) -> MemberState {
    lacp.members().find(|state| state.member == member).expect("a member")
}

/// A bond alone, with members that are up.
fn alone(config: Config, links: u32) -> Lacp {
    let mut lacp = Lacp::new(config);
    for member in 0..links {
        lacp.add(member, address(0, member), 255, Link::up(10_000));
    }
    lacp
}

/// A LACPDU of a partner that is in sync with this bond.
fn partner_of(lacp: &Lacp, of: u32, system: u8, key: u16) -> Vec<u8> {
    let actor = PortInfo {
        system_priority: 0xffff,
        system: [2, 0, 0, 0, 9, system],
        key,
        port_priority: 255,
        port: of as u16 + 1,
        state: State(0x3f),
    };
    build([2, 0, 0, 0, 9, 9], &Lacpdu { actor, partner: member(lacp, of).actor }).to_vec()
}

/// Lets `seconds` pass while partners of the given systems answer on members 0, 1, ...
fn run_with(lacp: &mut Lacp, from: Duration, seconds: u64, partners: &[(u8, u16)]) -> Duration {
    let mut now = from;
    let until = now + Duration::from_secs(seconds);
    while now < until {
        lacp.tick(now);
        if now.subsec_millis() == 0 {
            for (index, (system, key)) in partners.iter().enumerate() {
                let frame = partner_of(lacp, index as u32, *system, *key);
                assert!(lacp.receive(index as u32, &frame));
            }
        }
        now += TICK;
    }
    now
}
