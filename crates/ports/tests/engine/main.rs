//! The engine's handling of frames, seen by the frames that leave its ports and by its counters.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test")]

mod ending;
mod ipsec;
mod wire;

use std::time::Duration;

use towpath_bpf::program::{AttachType, MapType};
use towpath_engine::counters::DropReason;
use towpath_engine::{Engine, Error, PortId, UpperName};
use towpath_workload::small;
use wire::{Wire, attach, engine, load, packet, set_target, settled};

const ALL: u32 = 0x1f;
const PASS: u32 = 1 << 2;

fn drops(engine: &Engine, port: PortId, why: DropReason) -> u64 {
    engine.read(|_, snapshot| {
        let counters = &snapshot.port(port).unwrap().opened.counters;
        counters.iter().map(|c| c.drops[why as usize].get() + c.tx_drops[why as usize].get()).sum()
    })
}

fn upper(engine: &Engine, port: PortId, name: &str) {
    engine.change(|config| config.set_upper(port, UpperName::Named(name.to_owned()))).unwrap();
}

#[test]
fn verdicts_decide_where_frames_go() {
    let engine = engine(1);
    let mut a = Wire::new(&engine, "a", 11);
    let mut b = Wire::new(&engine, "b", 12);
    upper(&engine, a.port, "b");
    attach(&engine, a.port, &[(&load(small::returns_byte(14)), PASS)]);
    let sent: Vec<_> =
        [0, 1, 2, 3, 4, 9, 2, 3].iter().zip(0..).map(|(&v, n)| packet(v, n)).collect();
    a.send(&sent);
    settled(&engine, a.port, 8);
    assert_eq!(a.received(), [packet(3, 3), packet(3, 7)]);
    assert_eq!(b.received(), [packet(2, 2), packet(2, 6)]);
    assert_eq!(drops(&engine, a.port, DropReason::Aborted), 2);
    assert_eq!(drops(&engine, a.port, DropReason::Verdict), 1);
    assert_eq!(drops(&engine, a.port, DropReason::NoTarget), 1);
}

#[test]
fn a_port_without_program_passes_and_without_upper_drops() {
    let engine = engine(1);
    let mut a = Wire::new(&engine, "a", 11);
    let mut b = Wire::new(&engine, "b", 12);
    upper(&engine, a.port, "b");
    a.send(&[packet(0, 1)]);
    b.send(&[packet(0, 2)]);
    settled(&engine, a.port, 1);
    settled(&engine, b.port, 1);
    assert_eq!(b.received(), [packet(0, 1)]);
    assert_eq!(drops(&engine, b.port, DropReason::NoUpper), 1);
}

/// libxdp's dispatcher: the next program runs after a verdict of the mask, the end is XDP_PASS, and
/// order is kept.
#[test]
fn chained_programs_follow_the_dispatcher() {
    let engine = engine(1);
    let mut a = Wire::new(&engine, "a", 11);
    let mut b = Wire::new(&engine, "b", 12);
    upper(&engine, a.port, "b");
    let (first, second) = (load(small::returns_byte(14)), load(small::returns_byte(15)));
    attach(&engine, a.port, &[(&first, PASS), (&second, PASS)]);
    let sent = [packet(2, 3), packet(3, 1), packet(2, 2), packet(1, 3), packet(2, 3)];
    a.send(&sent);
    settled(&engine, a.port, 5);
    assert_eq!(a.received(), [packet(2, 3), packet(3, 1), packet(2, 3)], "in the order they came");
    assert_eq!(b.received(), [packet(2, 2)]);
    // A drop that goes on is no drop.
    attach(&engine, a.port, &[(&load(small::returns(1)), ALL)]);
    a.send(&[packet(0, 0)]);
    settled(&engine, a.port, 6);
    assert_eq!(b.received(), [packet(0, 0)]);
    let runs = engine.read(|config, _| {
        let links = config.links(a.port, towpath_engine::Hook::Rx).unwrap();
        links[0].counters().iter().map(|c| c.runs.get()).sum::<u64>()
    });
    assert_eq!(runs, 1);
}

#[test]
fn redirects_reach_their_targets() {
    let engine = engine(1);
    let mut a = Wire::new(&engine, "a", 11);
    let mut b = Wire::new(&engine, "b", 12);
    attach(&engine, a.port, &[(&load(small::redirect(12)), PASS)]);
    a.send(&[packet(0, 1)]);
    settled(&engine, a.port, 1);
    assert_eq!(b.received(), [packet(0, 1)]);

    attach(&engine, a.port, &[(&load(small::redirect(99)), PASS)]);
    a.send(&[packet(0, 1)]);
    settled(&engine, a.port, 2);
    assert_eq!(drops(&engine, a.port, DropReason::BadTarget), 1);

    let map = load(small::redirect_map(MapType::Devmap, 4, 1, 0));
    set_target(&map, 1, [12, 0]);
    attach(&engine, a.port, &[(&map, PASS)]);
    a.send(&[packet(0, 2), packet(0, 3)]);
    settled(&engine, a.port, 4);
    assert_eq!(b.received(), [packet(0, 2), packet(0, 3)]);

    engine.change(|config| config.set_up(b.port, false)).unwrap();
    a.send(&[packet(0, 2)]);
    settled(&engine, a.port, 5);
    assert_eq!(drops(&engine, b.port, DropReason::Down), 1);

    engine.change(|config| config.set_up(b.port, true)).unwrap();
    let mut long = packet(0, 2);
    long.resize(1518, 0);
    let mut too_long = long.clone();
    too_long.push(0);
    a.send(&[long.clone(), too_long]);
    settled(&engine, a.port, 7);
    assert_eq!(b.received(), [long], "one VLAN tag more than the MTU fits");
    assert_eq!(drops(&engine, b.port, DropReason::TooLong), 1);
}

#[test]
fn broadcast_copies_to_all_but_the_ingress() {
    let engine = engine(1);
    let mut wires = [(11, "a"), (12, "b"), (13, "c")].map(|(i, n)| Wire::new(&engine, n, i));
    let flags = 8 | 16; // BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS
    let program = load(small::redirect_map(MapType::DevmapHash, 8, 0, flags));
    for ifindex in [11, 12, 13, 99] {
        set_target(&program, ifindex, [ifindex, 0]);
    }
    attach(&engine, wires[0].port, &[(&program, PASS)]);
    let mut jumbo = packet(0, 1);
    jumbo.resize(9000, 7);
    engine.change(|config| config.set_mtu(wires[1].port, Some(9000))).unwrap();
    wires[0].send(&[packet(0, 1), jumbo.clone()]);
    settled(&engine, wires[0].port, 2);
    assert_eq!(wires[0].received(), [] as [Vec<u8>; 0]);
    assert_eq!(wires[1].received(), [packet(0, 1), jumbo]);
    assert_eq!(wires[2].received(), [packet(0, 1)], "too long for this one: skipped");
    let conservation = engine.conservation();
    assert_eq!((conservation.received, conservation.created, conservation.delivered), (2, 1, 3));
}

#[test]
fn devmap_entries_have_programs() {
    let engine = engine(1);
    let mut a = Wire::new(&engine, "a", 11);
    let mut b = Wire::new(&engine, "b", 12);
    let program = load(small::redirect_map(MapType::Devmap, 4, 1, 0));
    set_target(&program, 1, [12, 5]);
    let mut entry = small::returns_byte(14);
    entry.attach = AttachType::Devmap;
    let entry = load(entry);
    engine.change(|config| config.set_entry_program(5, Some(entry.clone()))).unwrap();
    attach(&engine, a.port, &[(&program, PASS)]);
    a.send(&[packet(2, 1), packet(1, 2), packet(3, 3), packet(2, 4)]);
    settled(&engine, a.port, 4);
    assert_eq!(b.received(), [packet(2, 1), packet(2, 4)]);
    assert_eq!(drops(&engine, b.port, DropReason::EntryVerdict), 2);
    let refused = engine.change(|config| {
        config.set_links(
            a.port,
            towpath_engine::Hook::Rx,
            vec![towpath_engine::Link::new(entry, 1, 1)],
        )
    });
    assert!(matches!(refused, Err(Error::Attach { .. })), "{refused:?}");
}

#[test]
fn cpumap_hands_frames_to_another_worker() {
    let engine = engine(2);
    let mut a = Wire::new(&engine, "a", 11);
    let mut b = Wire::new(&engine, "b", 12);
    upper(&engine, a.port, "b");
    let program = load(small::redirect_map(MapType::Cpumap, 2, 1, 0));
    set_target(&program, 1, [3, 0]);
    attach(&engine, a.port, &[(&program, PASS)]);
    a.send(&(0..3).map(|n| packet(0, n)).collect::<Vec<_>>());
    settled(&engine, a.port, 3);
    assert_eq!(b.received(), (0..3).map(|n| packet(0, n)).collect::<Vec<_>>());

    let entry = load(small::returns_byte(14));
    engine.change(|config| config.set_entry_program(7, Some(entry))).unwrap();
    set_target(&program, 1, [64, 7]);
    a.send(&[packet(2, 1), packet(1, 2), packet(3, 3)]);
    settled(&engine, a.port, 6);
    assert_eq!(b.received(), [packet(2, 1)]);
    assert_eq!(drops(&engine, a.port, DropReason::EntryVerdict), 2, "TX makes no sense there");
}

#[test]
fn a_bridge_learns() {
    let engine = engine(1);
    engine.change(|config| config.add_bridge("br0", Duration::from_secs(300))).unwrap();
    let mut wires = [(11, "a"), (12, "b"), (13, "c")].map(|(i, n)| Wire::new(&engine, n, i));
    for wire in &wires {
        upper(&engine, wire.port, "br0");
    }
    let frame = |dest: u8, source: u8| {
        let mut frame = packet(0, 0);
        (frame[5], frame[11]) = (dest, source);
        frame
    };
    wires[0].send(&[frame(2, 1)]);
    settled(&engine, wires[0].port, 1);
    assert_eq!(wires[1].received(), [frame(2, 1)], "flooded");
    assert_eq!(wires[2].received(), [frame(2, 1)], "flooded");
    wires[1].send(&[frame(1, 2)]);
    settled(&engine, wires[1].port, 1);
    assert_eq!(wires[0].received(), [frame(1, 2)]);
    assert_eq!(wires[2].received(), [] as [Vec<u8>; 0], "learnt");
    let removed = engine.change(|config| config.remove_bridge("br0"));
    assert!(matches!(removed, Err(Error::InUse { .. })), "{removed:?}");
}

#[test]
fn the_tx_hook_judges_what_leaves() {
    let engine = engine(1);
    let mut a = Wire::new(&engine, "a", 11);
    let mut b = Wire::new(&engine, "b", 12);
    upper(&engine, a.port, "b");
    let link = towpath_engine::Link::new(load(small::returns_byte(14)), 1, 1);
    engine.change(|config| config.set_links(b.port, towpath_engine::Hook::Tx, vec![link])).unwrap();
    a.send(&[packet(2, 1), packet(1, 2), packet(2, 3)]);
    settled(&engine, a.port, 3);
    assert_eq!(b.received(), [packet(2, 1), packet(2, 3)]);
    assert_eq!(drops(&engine, b.port, DropReason::Verdict), 1);
}

#[test]
fn frames_of_several_buffers_are_made_linear_or_not() {
    let engine = engine(1);
    let mut a = Wire::new(&engine, "a", 11);
    let mut linear_only = small::returns_byte(5000);
    linear_only.has_frags = false;
    attach(&engine, a.port, &[(&load(linear_only), PASS)]);
    let mut jumbo = packet(0, 1);
    jumbo.resize(9000, 3);
    a.send(&[jumbo.clone()]);
    settled(&engine, a.port, 1);
    assert_eq!(a.received(), [jumbo.clone()], "it saw byte 5000, which is 3: XDP_TX");
    engine.change(|config| config.set_linearize(a.port, false)).unwrap();
    a.send(&[jumbo]);
    settled(&engine, a.port, 2);
    assert_eq!(drops(&engine, a.port, DropReason::Aborted), 1, "it sees the first buffer only");
}

#[test]
fn refusals_say_what_is_wrong() {
    let engine = engine(1);
    let a = Wire::new(&engine, "a", 11);
    let refused = |change: Result<(), Error>| change.unwrap_err().to_string();
    assert_eq!(
        refused(engine.change(|c| c.set_upper(a.port, UpperName::Named("b".to_owned())))),
        "there is no port b: there are a"
    );
    assert_eq!(
        refused(engine.change(|c| c.set_upper(a.port, UpperName::Named("a".to_owned())))),
        "port a cannot be its own upper: its frames would come back for ever"
    );
    assert_eq!(
        refused(engine.change(|c| c.add_bridge("a", Duration::ZERO))),
        "there is a port or bridge a already"
    );
    assert_eq!(refused(engine.remove_port(PortId(9))), "there is no port number 9");
    let options = towpath_xdp::LoadOptions { workers: 0, ..Default::default() };
    let small = towpath_xdp::Program::from_linked(small::returns(1), &options).unwrap();
    let two = wire::engine(2);
    let b = Wire::new(&two, "b", 11);
    let links = vec![towpath_engine::Link::new(small, 1, 2)];
    assert_eq!(
        refused(two.change(|c| c.set_links(b.port, towpath_engine::Hook::Rx, links))),
        "program returns cannot be attached to b: its maps are made for 1 workers, and there are 2"
    );
}
