//! Bonds: the member that a frame leaves by, the program that runs, and refused changes.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test")]

mod delivery;
mod model;
mod monitors;
mod preferences;
mod programs;
mod refusals;
#[path = "../engine/wire.rs"]
mod wire;

use towpath_engine::bond::control::Taps;
use towpath_engine::bond::{BondMode, BondOptions, MemberState, XmitPolicy};
use towpath_engine::counters::DropReason;
use towpath_engine::{Engine, PortId, PortOptions, UpperName};
use wire::{Wire, engine, packet, settled};

/// A bond and the far ends of its members.
pub(crate) struct Bonded {
    pub(crate) engine: Engine,
    pub(crate) bond: PortId,
    pub(crate) members: Vec<Wire>,
    /// A port whose upper is the bond.
    pub(crate) below: Wire,
}

/// Ifindex of the bond.
pub(crate) const BOND: u32 = 50;

pub(crate) fn bonded(options: BondOptions, members: u32) -> Bonded {
    let engine = engine(1);
    let bond = add_bond(&engine, "bond0", BOND, options);
    let members = (0..members).map(|n| Wire::new(&engine, &format!("m{n}"), 11 + n));
    let members: Vec<Wire> = members.collect();
    let below = Wire::new(&engine, "below", 99);
    engine
        .change(|config| {
            members.iter().try_for_each(|it| config.enslave(bond, it.port))?;
            config.set_upper(below.port, UpperName::Named("bond0".to_owned()))
        })
        .unwrap();
    Bonded { engine, bond, members, below }
}

pub(crate) fn add_bond(engine: &Engine, name: &str, ifindex: u32, options: BondOptions) -> PortId {
    let port = PortOptions { ifindex: Some(ifindex), ..PortOptions::new(name) };
    engine.change(|config| config.add_bond(port, options, None)).unwrap()
}

pub(crate) fn mode(mode: BondMode) -> BondOptions {
    BondOptions { mode, ..BondOptions::default() }
}

pub(crate) fn drops(engine: &Engine, port: PortId, why: DropReason) -> u64 {
    engine.read(|_, snapshot| {
        let counters = &snapshot.port(port).unwrap().opened.counters;
        counters.iter().map(|c| c.drops[why as usize].get() + c.tx_drops[why as usize].get()).sum()
    })
}

impl Bonded {
    /// Sends these numbered packets through the bond; returns the numbers that left by each member.
    pub(crate) fn spread(&mut self, numbers: std::ops::Range<u8>) -> Vec<Vec<u8>> {
        let before = self.sent();
        let packets: Vec<_> = numbers.map(|n| packet(2, n)).collect();
        self.below.send(&packets);
        settled(&self.engine, self.below.port, before + packets.len() as u64);
        self.received()
    }

    fn sent(&self) -> u64 {
        self.engine.read(|_, snapshot| {
            let counters = &snapshot.port(self.below.port).unwrap().opened.counters;
            counters.iter().map(|c| c.rx_packets.get()).sum()
        })
    }

    /// Byte 15 of the frames that each member sent.
    pub(crate) fn received(&mut self) -> Vec<Vec<u8>> {
        let numbers = |wire: &mut Wire| wire.received().iter().map(|p| p[15]).collect();
        self.members.iter_mut().map(numbers).collect()
    }

    pub(crate) fn link(&self, member: usize, link_up: bool) {
        let member = self.members[member].port;
        let state = MemberState { link_up, enabled: true, aggregated: true };
        self.engine.change(|config| config.set_member(self.bond, member, state)).unwrap();
    }
}

/// `bond_rr_gen_slave_id`: the first frame is number 1, so it goes to the second of two.
#[test]
fn balance_rr_takes_turns() {
    let mut bond = bonded(mode(BondMode::BalanceRr), 3);
    assert_eq!(bond.spread(1..8), [vec![3, 6], vec![1, 4, 7], vec![2, 5]]);
    bond.link(1, false);
    // Numbers 8 to 13: the turns of the second are the third's.
    assert_eq!(bond.spread(8..14), [vec![9, 12], vec![], vec![8, 10, 11, 13]]);
    bond.link(0, false);
    bond.link(2, false);
    assert_eq!(bond.spread(0..2), [vec![], vec![], vec![]] as [Vec<u8>; 3]);
    assert_eq!(drops(&bond.engine, bond.bond, DropReason::NoMember), 2);
    bond.link(1, true);
    assert_eq!(bond.spread(0..2), [vec![], vec![0, 1], vec![]]);
}

#[test]
fn packets_per_slave_are_sent_in_a_row() {
    let options = BondOptions { packets_per_slave: 3, ..BondOptions::default() };
    let mut bond = bonded(options, 2);
    // The counter starts at 1, so the first run is one shorter.
    assert_eq!(bond.spread(1..10), [vec![1, 2, 6, 7, 8], vec![3, 4, 5, 9]]);
    let random = BondOptions { packets_per_slave: 0, ..BondOptions::default() };
    let mut bond = bonded(random, 2);
    let spread = bond.spread(0..200);
    assert!(spread.iter().all(|member| member.len() > 50), "{spread:?}");
}

/// IGMP is not spread: the switch would see a group's member move about.
#[test]
fn igmp_stays_with_one_member() {
    let mut bond = bonded(mode(BondMode::BalanceRr), 3);
    let active = bond.members[2].port;
    bond.engine.change(|config| config.set_active(bond.bond, Some(active))).unwrap();
    let mut igmp = packet(2, 7);
    igmp[12..14].copy_from_slice(&[8, 0]);
    igmp[23] = 2;
    bond.below.send(&[igmp.clone(), igmp.clone(), igmp]);
    settled(&bond.engine, bond.below.port, 3);
    assert_eq!(bond.received(), [vec![], vec![], vec![7, 7, 7]]);
}

#[test]
fn active_backup_uses_one_and_drops_what_passes_on_others() {
    let mut bond = bonded(mode(BondMode::ActiveBackup), 2);
    let mut above = Wire::new(&bond.engine, "above", 98);
    let upper = UpperName::Named("above".to_owned());
    bond.engine.change(|config| config.set_upper(bond.bond, upper)).unwrap();
    assert_eq!(bond.spread(0..3), [vec![0, 1, 2], vec![]]);
    bond.members[0].send(&[packet(0, 1)]);
    bond.members[1].send(&[packet(0, 2)]);
    settled(&bond.engine, bond.members[0].port, 1);
    settled(&bond.engine, bond.members[1].port, 1);
    assert_eq!(above.received(), [packet(0, 1)]);
    assert_eq!(drops(&bond.engine, bond.members[1].port, DropReason::Inactive), 1);
    let second = bond.members[1].port;
    bond.engine.change(|config| config.set_active(bond.bond, Some(second))).unwrap();
    assert_eq!(bond.spread(0..3), [vec![], vec![0, 1, 2]]);
    let options = BondOptions { all_slaves_active: true, ..mode(BondMode::ActiveBackup) };
    bond.engine.change(|config| config.set_bond_options(bond.bond, options)).unwrap();
    bond.members[0].send(&[packet(0, 3)]);
    settled(&bond.engine, bond.members[0].port, 2);
    assert_eq!(above.received(), [packet(0, 3)]);
    // A member that goes takes nothing with it.
    bond.engine.remove_port(second).unwrap();
    bond.members.truncate(1);
    assert_eq!(bond.spread(0..3), [vec![0, 1, 2]]);
}

#[test]
fn balance_xor_hashes_among_usable_members() {
    let options = BondOptions { policy: XmitPolicy::Layer2, ..mode(BondMode::BalanceXor) };
    let mut bond = bonded(options, 2);
    // layer2: 1 ^ 2 ^ 0x88b5, odd or even as the last byte of the destination is.
    let to = |last: u8| {
        let mut packet = packet(2, last);
        packet[5] = last;
        packet
    };
    bond.below.send(&(0..6).map(to).collect::<Vec<_>>());
    settled(&bond.engine, bond.below.port, 6);
    assert_eq!(bond.received(), [vec![1, 3, 5], vec![0, 2, 4]]);
    bond.link(0, false);
    bond.below.send(&(0..6).map(to).collect::<Vec<_>>());
    settled(&bond.engine, bond.below.port, 12);
    assert_eq!(bond.received(), [vec![], vec![0, 1, 2, 3, 4, 5]]);
}

#[test]
fn broadcast_sends_to_all_that_work() {
    let mut bond = bonded(mode(BondMode::Broadcast), 3);
    bond.link(1, false);
    assert_eq!(bond.spread(0..2), [vec![0, 1], vec![], vec![0, 1]]);
    assert_eq!(bond.engine.conservation().created, 2);
    bond.link(0, false);
    bond.link(2, false);
    assert_eq!(bond.spread(0..2), [vec![], vec![], vec![]] as [Vec<u8>; 3]);
    assert_eq!(drops(&bond.engine, bond.bond, DropReason::NoMember), 2);
}

/// 802.3ad: only ports that LACP put into the active aggregator.
#[test]
fn lacp_decides_who_is_used_and_gets_its_frames() {
    let taps = Taps { slow: true, ..Taps::default() };
    let mut bond = bonded(BondOptions { taps, ..mode(BondMode::Lacp) }, 2);
    let second = bond.members[1].port;
    assert_eq!(bond.spread(0..3), [vec![], vec![]] as [Vec<u8>; 2], "nobody agreed to anything");
    bond.link(0, true);
    let state = MemberState { link_up: true, enabled: true, aggregated: false };
    bond.engine.change(|config| config.set_member(bond.bond, second, state)).unwrap();
    assert_eq!(bond.spread(0..3), [vec![0, 1, 2], vec![]]);
    let mut lacpdu = packet(2, 1);
    lacpdu[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 2]);
    lacpdu[12..14].copy_from_slice(&[0x88, 9]);
    bond.members[1].send(&[lacpdu.clone(), packet(2, 9)]);
    settled(&bond.engine, second, 2);
    let mailbox = bond.engine.read(|config, _| config.bond(bond.bond).unwrap().mailbox().clone());
    let mail = mailbox.wait(std::time::Duration::ZERO);
    assert_eq!(mail.len(), 1);
    assert_eq!((mail[0].port, &mail[0].packet[..]), (second, &lacpdu[..]));
    assert_eq!(drops(&bond.engine, bond.bond, DropReason::NoUpper), 1, "the other packet passed");
    // Control code answers out of the member it wants.
    assert!(bond.engine.inject(second, &lacpdu));
    let mut answer = Vec::new();
    wire::wait_for("the answer", || {
        answer.extend(bond.members[1].received());
        !answer.is_empty()
    });
    assert_eq!(answer, [lacpdu]);
    assert_eq!(bond.engine.conservation().missing(), 0);
}

#[test]
fn a_bond_in_a_bridge_is_one_port() {
    let mut bond = bonded(mode(BondMode::BalanceRr), 2);
    let engine = &bond.engine;
    engine.change(|c| c.add_bridge("br0", std::time::Duration::from_secs(300))).unwrap();
    let mut other = Wire::new(engine, "other", 97);
    let br0 = || UpperName::Named("br0".to_owned());
    engine
        .change(|config| {
            config.set_upper(bond.bond, br0())?;
            config.set_upper(other.port, br0())
        })
        .unwrap();
    let frame = |dest: u8, source: u8| {
        let mut frame = packet(0, 0);
        (frame[5], frame[11]) = (dest, source);
        frame
    };
    bond.members[1].send(&[frame(2, 1)]);
    settled(engine, bond.members[1].port, 1);
    assert_eq!(other.received(), [frame(2, 1)], "flooded, but not back into the bond");
    assert_eq!(bond.received(), [vec![], vec![]] as [Vec<u8>; 2]);
    other.send(&[frame(1, 2), frame(1, 2)]);
    settled(&bond.engine, other.port, 2);
    assert_eq!(bond.received().iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn features_are_what_all_members_have() {
    let bond = bonded(mode(BondMode::BalanceRr), 2);
    let features = |bond: &Bonded| {
        bond.engine.read(|_, snapshot| {
            let slot = snapshot.port(bond.bond).unwrap();
            (slot.is_target, slot.features, slot.opened.device.mac(), slot.opened.device.link())
        })
    };
    let (is_target, all, mac, link) = features(&bond);
    assert!(is_target && all.tx_frags && all.rx_frags && !all.zero_copy && link);
    assert_eq!(mac, [2, 0, 0, 0, 0, 0xa], "the first member's");
    bond.engine
        .change(|config| bond.members.iter().try_for_each(|it| config.release(bond.bond, it.port)))
        .unwrap();
    let (is_target, none, mac, link) = features(&bond);
    assert!(!is_target && !none.tx_frags && mac == [0; 6] && !link);
    let broadcast = bonded(mode(BondMode::Broadcast), 2);
    assert!(!features(&broadcast).0, "no XDP with that mode");
}
