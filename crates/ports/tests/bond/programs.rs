//! A program on a bond (what the kernel's selftest `xdp_bonding` pins, and more).

use towpath_bpf::program::MapType;
use towpath_engine::bond::control::Taps;
use towpath_engine::bond::{BondMode, BondOptions};
use towpath_engine::counters::DropReason;
use towpath_engine::{Hook, UpperName};
use towpath_workload::small;

use crate::wire::{Wire, attach, load, packet, set_target, settled};
use crate::{BOND, Bonded, add_bond, bonded, drops, mode};

const PASS: u32 = 1 << 2;
const TX: u8 = 3;

/// Lets packets arrive at a member; returns the packets that each member sent.
fn arrive(
    bond: &mut Bonded,
    member: usize,
    verdict: u8,
    numbers: std::ops::Range<u8>,
) -> Vec<Vec<u8>> {
    let port = bond.members[member].port;
    let before = bond.engine.read(|_, snapshot| {
        let counters = &snapshot.port(port).unwrap().opened.counters;
        counters.iter().map(|c| c.rx_packets.get()).sum::<u64>()
    });
    let packets: Vec<_> = numbers.map(|n| packet(verdict, n)).collect();
    bond.members[member].send(&packets);
    settled(&bond.engine, port, before + packets.len() as u64);
    bond.received()
}

#[test]
fn tx_leaves_by_the_bonds_choice() {
    let mut bond = bonded(mode(BondMode::BalanceRr), 2);
    attach(&bond.engine, bond.bond, &[(&load(small::returns_byte(14)), PASS)]);
    assert_eq!(arrive(&mut bond, 0, TX, 1..5), [vec![2, 4], vec![1, 3]]);
    assert_eq!(arrive(&mut bond, 1, TX, 5..9), [vec![6, 8], vec![5, 7]]);
    let mut bond = bonded(mode(BondMode::ActiveBackup), 2);
    attach(&bond.engine, bond.bond, &[(&load(small::returns_byte(14)), PASS)]);
    assert_eq!(arrive(&mut bond, 1, TX, 1..4), [vec![1, 2, 3], vec![]], "backups run it, too");
    assert_eq!(arrive(&mut bond, 0, TX, 1..4), [vec![1, 2, 3], vec![]]);
}

/// Verdicts of one burst that differ, and a chain whose programs disagree.
#[test]
fn mixed_bursts_keep_their_order() {
    let mut bond = bonded(mode(BondMode::ActiveBackup), 2);
    let mut above = Wire::new(&bond.engine, "above", 98);
    let upper = UpperName::Named("above".to_owned());
    bond.engine.change(|config| config.set_upper(bond.bond, upper)).unwrap();
    let first = load(small::returns_byte(14));
    let sent: Vec<_> = [3, 2, 3, 1, 2, 4].iter().zip(0..).map(|(&v, n)| packet(v, n)).collect();
    for (round, chain) in [1, 2].into_iter().enumerate() {
        let second = load(small::returns_byte(14));
        let programs = [(&first, PASS), (&second, PASS)];
        attach(&bond.engine, bond.bond, &programs[..chain]);
        bond.members[0].send(&sent);
        settled(&bond.engine, bond.members[0].port, 6 * (round as u64 + 1));
        assert_eq!(bond.received(), [vec![0, 2], vec![]]);
        assert_eq!(above.received(), [packet(2, 1), packet(2, 4)]);
    }
}

/// `xdp_master_redirect`: no usable member, and the frame leaves by the one it came from; a bond
/// that is down, and it is aborted.
#[test]
fn tx_without_a_member_or_with_the_bond_down() {
    let mut bond = bonded(mode(BondMode::ActiveBackup), 2);
    attach(&bond.engine, bond.bond, &[(&load(small::returns(3)), PASS)]);
    bond.engine.change(|config| config.set_active(bond.bond, None)).unwrap();
    assert_eq!(arrive(&mut bond, 1, TX, 1..3), [vec![], vec![1, 2]]);
    bond.engine.change(|config| config.set_up(bond.bond, false)).unwrap();
    assert_eq!(arrive(&mut bond, 1, TX, 1..3), [vec![], vec![]] as [Vec<u8>; 2]);
    assert_eq!(drops(&bond.engine, bond.members[1].port, DropReason::Aborted), 2);
    // The other member is as the target of a redirect.
    let first = bond.members[0].port;
    bond.engine
        .change(|config| {
            config.set_up(bond.bond, true)?;
            config.set_active(bond.bond, Some(first))?;
            config.set_up(first, false)
        })
        .unwrap();
    assert_eq!(arrive(&mut bond, 1, TX, 1..3), [vec![], vec![]] as [Vec<u8>; 2]);
    assert_eq!(drops(&bond.engine, first, DropReason::Down), 2);
}

#[test]
fn a_members_own_program_is_not_the_bonds() {
    let mut bond = bonded(mode(BondMode::ActiveBackup), 2);
    let second = bond.members[1].port;
    attach(&bond.engine, second, &[(&load(small::returns(3)), PASS)]);
    assert_eq!(arrive(&mut bond, 1, TX, 1..3), [vec![], vec![1, 2]], "its own wire");
}

#[test]
fn members_that_join_inherit_and_those_that_leave_do_not_keep() {
    let mut bond = bonded(mode(BondMode::BalanceRr), 1);
    attach(&bond.engine, bond.bond, &[(&load(small::returns(1)), PASS)]);
    let late = Wire::new(&bond.engine, "late", 33);
    bond.engine.change(|config| config.enslave(bond.bond, late.port)).unwrap();
    bond.members.push(late);
    assert_eq!(arrive(&mut bond, 1, TX, 0..2), [vec![], vec![]] as [Vec<u8>; 2]);
    let late = bond.members[1].port;
    assert_eq!(drops(&bond.engine, late, DropReason::Verdict), 2);
    let own = bond.engine.read(|config, _| config.links(late, Hook::Rx).unwrap().len());
    assert_eq!(own, 0, "delegated, not its own");
    bond.engine.change(|config| config.release(bond.bond, late)).unwrap();
    arrive(&mut bond, 1, TX, 0..2);
    assert_eq!(drops(&bond.engine, late, DropReason::NoUpper), 2, "it runs no program any more");
}

#[test]
fn redirects_into_a_bond_are_spread() {
    let mut bond = bonded(mode(BondMode::BalanceRr), 2);
    let below = bond.below.port;
    bond.engine.change(|config| config.set_upper(below, UpperName::None)).unwrap();
    attach(&bond.engine, below, &[(&load(small::redirect(BOND)), PASS)]);
    assert_eq!(bond.spread(1..5), [vec![2, 4], vec![1, 3]]);
    let map = load(small::redirect_map(MapType::Devmap, 4, 1, 0));
    set_target(&map, 1, [BOND, 0]);
    attach(&bond.engine, below, &[(&map, PASS)]);
    assert_eq!(bond.spread(5..9), [vec![6, 8], vec![5, 7]]);
    // A member that is down does not keep the others from getting theirs.
    let first = bond.members[0].port;
    bond.link(0, true);
    bond.engine.change(|config| config.set_up(first, false)).unwrap();
    assert_eq!(bond.spread(1..3), [vec![], vec![1, 2]]);
    let mut broadcast = bonded(mode(BondMode::Broadcast), 2);
    let below = broadcast.below.port;
    attach(&broadcast.engine, below, &[(&load(small::redirect(BOND)), PASS)]);
    assert_eq!(broadcast.spread(0..2), [vec![], vec![]] as [Vec<u8>; 2]);
    assert_eq!(drops(&broadcast.engine, broadcast.bond, DropReason::Unsupported), 2);
}

/// `BPF_F_EXCLUDE_INGRESS`: not back into the bond around the port it came from, but to another
/// member if that is a target of its own.
#[test]
fn broadcast_redirects_exclude_the_bond_of_the_ingress() {
    let mut bond = bonded(mode(BondMode::ActiveBackup), 2);
    let flags = 8 | 16;
    let program = load(small::redirect_map(MapType::DevmapHash, 8, 0, flags));
    for ifindex in [BOND, 12, 99] {
        set_target(&program, ifindex, [ifindex, 0]);
    }
    attach(&bond.engine, bond.bond, &[(&program, PASS)]);
    assert_eq!(arrive(&mut bond, 0, 0, 1..2), [vec![], vec![1]]);
    assert_eq!(bond.below.received(), [packet(0, 1)]);
}

/// With a bond in a bond the inner one chooses.
#[test]
fn nested_bonds() {
    let mut bond = bonded(mode(BondMode::BalanceRr), 2);
    let outer = add_bond(&bond.engine, "bond1", 60, mode(BondMode::ActiveBackup));
    let inner = bond.bond;
    let other = Wire::new(&bond.engine, "other", 61);
    bond.engine
        .change(|config| {
            config.enslave(outer, inner)?;
            config.enslave(outer, other.port)?;
            config.set_upper(bond.below.port, UpperName::Named("bond1".to_owned()))
        })
        .unwrap();
    assert_eq!(bond.spread(1..5), [vec![2, 4], vec![1, 3]]);
    attach(&bond.engine, outer, &[(&load(small::returns_byte(14)), PASS)]);
    assert_eq!(arrive(&mut bond, 0, TX, 5..9), [vec![6, 8], vec![5, 7]]);
    arrive(&mut bond, 0, 2, 0..2);
    assert_eq!(drops(&bond.engine, outer, DropReason::NoUpper), 2, "it passed both bonds");
    bond.engine.change(|config| config.set_active(outer, Some(other.port))).unwrap();
    arrive(&mut bond, 0, 2, 0..2);
    assert_eq!(drops(&bond.engine, inner, DropReason::Inactive), 2);
    let refused = bond.engine.change(|config| config.enslave(inner, outer)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "bond0: bond1 cannot be a member: the bond would be inside of itself (ELOOP)"
    );
}

#[test]
fn protected_control_frames_pass_without_the_program() {
    for protect_control in [false, true] {
        let taps = Taps { slow: true, ..Taps::default() };
        let options = BondOptions { taps, protect_control, ..mode(BondMode::Lacp) };
        let mut bond = bonded(options, 1);
        attach(&bond.engine, bond.bond, &[(&load(small::returns(1)), PASS)]);
        let mut lacpdu = packet(2, 1);
        lacpdu[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 2]);
        lacpdu[12..14].copy_from_slice(&[0x88, 9]);
        let member = bond.members[0].port;
        bond.members[0].send(&[packet(0, 1), lacpdu, packet(0, 2)]);
        settled(&bond.engine, member, 3);
        let mailbox = bond.engine.read(|c, _| c.bond(bond.bond).unwrap().mailbox().clone());
        let mail = mailbox.wait(std::time::Duration::ZERO).len();
        assert_eq!(mail, usize::from(protect_control));
        assert_eq!(drops(&bond.engine, member, DropReason::Verdict), 3 - mail as u64);
    }
}
