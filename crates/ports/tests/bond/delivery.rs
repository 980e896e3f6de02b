//! Delivery of every single frame: frames of several buffers, and members that take no more.

use towpath_engine::bond::{BondMode, BondOptions, XmitPolicy, hash};
use towpath_engine::counters::DropReason;
use towpath_engine::{PortOptions, UpperName};
use towpath_ports::pair;
use towpath_workload::small;

use crate::wire::{Wire, attach, engine, load, packet, settled};
use crate::{BOND, Bonded, drops, mode};

const PASS: u32 = 1 << 2;
/// Bytes that a buffer of 4096 bytes holds between headroom and tailroom.
const LINEAR_BYTES: usize = 4096 - 256 - 320;

/// As `bonded`, with members that these options describe.
fn bonded_with(options: BondOptions, members: &[pair::Options]) -> Bonded {
    let engine = engine(1);
    let port = PortOptions { ifindex: Some(BOND), ..PortOptions::new("bond0") };
    let bond = engine.change(|config| config.add_bond(port, options, None)).unwrap();
    let member = |(number, options): (u32, &pair::Options)| {
        Wire::with(&engine, &format!("m{number}"), 11 + number, *options)
    };
    let members: Vec<Wire> = (0..).zip(members).map(member).collect();
    let below = Wire::with(&engine, "below", 99, jumbo());
    engine
        .change(|config| {
            members.iter().try_for_each(|it| config.enslave(bond, it.port))?;
            config.set_upper(below.port, UpperName::Named("bond0".to_owned()))
        })
        .unwrap();
    Bonded { engine, bond, members, below }
}

fn jumbo() -> pair::Options {
    pair::Options { mtu: 9000, ..pair::Options::default() }
}

/// UDP behind two extension headers of 2048 bytes each: the ports are in the second buffer.
fn long_way_to_the_ports(number: u8) -> Vec<u8> {
    let mut frame = packet(0, 0);
    frame.truncate(12);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 16, 16, 0, 64]);
    frame.extend([0xfd; 31]);
    frame.push(number);
    for next in [60, 17] {
        frame.extend([next, 255]);
        frame.resize(frame.len() + 2046, 0);
    }
    frame.extend([0x12, 0x34, number, 0x78, 0, 8, 0, 0]);
    frame
}

/// `bond_xmit_hash_xdp` has `data..data_end` and nothing else, with frags and without.
#[test]
fn only_the_first_buffer_is_hashed() {
    let policy = XmitPolicy::Encap34;
    let options = BondOptions { policy, ..mode(BondMode::BalanceXor) };
    let mut bond = bonded_with(options, &[jumbo(); 3]);
    let frames: Vec<Vec<u8>> = (0..24).map(long_way_to_the_ports).collect();
    let mut expected = vec![Vec::new(); 3];
    let mut differs = 0;
    for frame in &frames {
        let linear = hash(policy, &frame[..LINEAR_BYTES]);
        differs += usize::from(linear != hash(policy, frame));
        expected[linear as usize % 3].push(frame.clone());
    }
    assert!(differs > 20, "the ports are within the first buffer");
    bond.below.send(&frames);
    settled(&bond.engine, bond.below.port, 24);
    let received: Vec<_> = bond.members.iter_mut().map(Wire::received).collect();
    assert!(received == expected, "{:?}", received.iter().map(Vec::len).collect::<Vec<_>>());
    // `XDP_TX` of such frames goes the same way, by the same implementation.
    attach(&bond.engine, bond.bond, &[(&load(small::returns(3)), PASS)]);
    let member = bond.members[1].port;
    bond.members[1].send(&frames);
    settled(&bond.engine, member, 24);
    let received: Vec<_> = bond.members.iter_mut().map(Wire::received).collect();
    assert!(received == expected, "{:?}", received.iter().map(Vec::len).collect::<Vec<_>>());
    assert_eq!(bond.engine.conservation().missing(), 0);
}

/// The kernel gives up a batch at the first frame that a member refuses; here each frame is
/// accounted on its own.
#[test]
fn a_member_that_is_full_loses_its_own_frames_only() {
    let narrow = pair::Options { ring: 4, ..pair::Options::default() };
    for redirected in [false, true] {
        let mut bond = bonded_with(mode(BondMode::BalanceRr), &[narrow, jumbo()]);
        if redirected {
            let below = bond.below.port;
            bond.engine.change(|config| config.set_upper(below, UpperName::None)).unwrap();
            attach(&bond.engine, below, &[(&load(small::redirect(BOND)), PASS)]);
        }
        let [narrow, wide] = &bond.spread(1..33)[..] else { panic!("two members") };
        assert_eq!(narrow, &[2, 4, 6, 8], "what its ring holds");
        assert_eq!(wide, &(0..16).map(|n| 2 * n + 1).collect::<Vec<u8>>());
        let full = bond.members[0].port;
        assert_eq!(drops(&bond.engine, full, DropReason::RingFull), 12);
        let counted = bond.engine.read(|_, snapshot| {
            let sent = |port| {
                let counters = &snapshot.port(port).unwrap().opened.counters;
                counters.iter().map(|c| c.tx_packets.get()).sum::<u64>()
            };
            [sent(full), sent(bond.members[1].port)]
        });
        assert_eq!(counted, [4, 16]);
        assert_eq!(bond.engine.conservation().missing(), 0);
    }
}

/// A frame that is too long for one member is lost there; the other members send theirs.
#[test]
fn a_member_with_a_smaller_mtu_loses_what_is_too_long_for_it() {
    let mut bond = bonded_with(mode(BondMode::BalanceRr), &[pair::Options::default(), jumbo()]);
    attach(&bond.engine, bond.bond, &[(&load(small::returns(3)), PASS)]);
    let long = |number| {
        let mut frame = packet(3, number);
        frame.resize(3000, number);
        frame
    };
    let member = bond.members[1].port;
    bond.members[1].send(&[long(1), packet(3, 2), long(3), long(4), long(5), packet(3, 6)]);
    settled(&bond.engine, member, 6);
    assert_eq!(bond.received(), [vec![2, 6], vec![1, 3, 5]]);
    let small = bond.members[0].port;
    assert_eq!(drops(&bond.engine, small, DropReason::TooLong), 1);
}

/// Two levels, both with a hash: the same hash decides twice.
#[test]
fn nested_bonds_hash_the_same_bytes_twice() {
    let options = || BondOptions { policy: XmitPolicy::Layer2, ..mode(BondMode::BalanceXor) };
    let mut bond = bonded_with(options(), &[jumbo(), jumbo()]);
    let outer = crate::add_bond(&bond.engine, "bond1", 60, options());
    let mut other = Wire::new(&bond.engine, "other", 61);
    bond.engine
        .change(|config| {
            config.enslave(outer, bond.bond)?;
            config.enslave(outer, other.port)?;
            config.set_upper(bond.below.port, UpperName::Named("bond1".to_owned()))
        })
        .unwrap();
    let frames: Vec<Vec<u8>> = (0..32)
        .map(|number| {
            let mut frame = packet(2, number);
            frame[5] = number;
            frame
        })
        .collect();
    bond.below.send(&frames);
    settled(&bond.engine, bond.below.port, 32);
    let numbers = |side: u32| -> Vec<u8> {
        let goes = |n: &u8| hash(XmitPolicy::Layer2, &frames[usize::from(*n)]) % 2 == side;
        (0..32).filter(goes).collect()
    };
    assert_eq!(bond.received(), [numbers(0), Vec::new()]);
    let passed: Vec<u8> = other.received().iter().map(|frame| frame[15]).collect();
    assert_eq!(passed, numbers(1));
}

/// `broadcast_neighbor`: messages that announce an address to neighbours leave by all members, and
/// nothing else does.
#[test]
fn neighbour_messages_leave_by_all_members() {
    let options = BondOptions { broadcast_neighbor: true, ..mode(BondMode::Lacp) };
    let mut bond = bonded_with(options, &[jumbo(), jumbo(), jumbo()]);
    (0..3).for_each(|member| bond.link(member, true));
    bond.link(1, false);
    let frame = |number: u8, ethertype: [u8; 2], icmp: u8| {
        let mut frame = packet(2, number);
        frame.resize(70, 0);
        frame[12..14].copy_from_slice(&ethertype);
        (frame[20], frame[54]) = (58, icmp);
        frame
    };
    let packets = [
        frame(1, [8, 6], 0),
        frame(2, [0x86, 0xdd], 135),
        frame(3, [0x86, 0xdd], 136),
        frame(4, [0x86, 0xdd], 134),
        frame(5, [8, 0], 135),
    ];
    bond.below.send(&packets);
    settled(&bond.engine, bond.below.port, 5);
    let got = bond.received();
    assert_eq!(got[1], [] as [u8; 0], "its link is down");
    for number in 1..6 {
        let copies = got.iter().flatten().filter(|&&it| it == number).count();
        assert_eq!(copies, if number < 4 { 2 } else { 1 }, "{number}: {got:?}");
    }
    let sum = bond.engine.conservation();
    assert_eq!((sum.created, sum.missing()), (3, 0));
    // One that is too short to be a message is hashed like any other.
    bond.below.send(&[frame(6, [0x86, 0xdd], 135)[..54].to_vec()]);
    settled(&bond.engine, bond.below.port, 6);
    assert_eq!(bond.received().concat(), [6]);
}

/// Many frames, of which some are more than one buffer: each leaves by the member of its hash, in
/// order. A frame that is too long for a member is too long for the bond, too.
#[test]
fn bursts_are_spread_in_bulk_and_in_order() {
    let options = BondOptions { policy: XmitPolicy::Layer2, ..mode(BondMode::BalanceXor) };
    let small = pair::Options { mtu: 1500, ..pair::Options::default() };
    let frame = |number: u8, len: usize| {
        let mut frame = packet(2, number);
        frame.resize(len, 0);
        // The byte that layer2 hashes.
        frame[5] = number.count_ones() as u8;
        frame
    };
    for lens in [&[60][..], &[60, 5000], &[60, 60, 1600]] {
        for members in [&[jumbo(), small][..], &[jumbo(); 2], &[jumbo(); 3]] {
            let mut bond = bonded_with(options.clone(), members);
            let mtu = members.iter().map(|it| it.mtu as usize).min().unwrap();
            let len = |number: u8| lens[usize::from(number) % lens.len()];
            let packets: Vec<_> = (0..60).map(|number| frame(number, len(number))).collect();
            bond.below.send(&packets);
            settled(&bond.engine, bond.below.port, 60);
            let got = bond.received();
            let hashed = |it: &Vec<u8>| hash(XmitPolicy::Layer2, it) as usize % members.len();
            for (member, got) in got.iter().enumerate() {
                let mine = packets.iter().filter(|it| it.len() <= mtu + 18);
                let mine = mine.filter(|it| hashed(it) == member);
                assert!(got.iter().eq(mine.map(|it| &it[15])), "{lens:?}, member {member}");
            }
            assert_eq!(bond.engine.conservation().missing(), 0);
        }
    }
}
