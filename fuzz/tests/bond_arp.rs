//! No frames, carriers and times make the ARP and neighbour monitor panic or ask nonsense.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use bolero::TypeGenerator;
use towpath_ports::bond::announce::arp_request;
use towpath_ports::bond::arp::ArpMonitor;
use towpath_ports::bond::links::Mii;
use towpath_ports::bond::settings::{ArpSettings, ArpValidate, Word as _};

const MEMBERS: u32 = 3;

#[derive(Debug, Clone, TypeGenerator)]
enum Op {
    Interval(u16),
    Hear(u8, Vec<u8>),
    /// ARP between two of few addresses.
    Arp(u8, u8, u8, bool),
    Traffic(u8),
    Member(u8, bool),
    Remove(u8),
    Active(u8),
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number & 3)
}

fn apply(monitor: &mut ArpMonitor, now: &mut Duration, op: &Op) {
    let member = |number: &u8| u32::from(*number) % MEMBERS;
    match op {
        Op::Interval(ms) => {
            *now += Duration::from_millis((*ms).into());
            monitor.inspect(*now);
            for (asking, question) in monitor.probe(*now) {
                assert!(monitor.members().any(|it| it == asking));
                assert!(matches!(question[12..14], [0x08, 0x06] | [0x86, 0xdd]));
            }
        }
        Op::Hear(number, frame) => monitor.hear(member(number), frame, *now),
        Op::Arp(number, from, to, is_reply) => {
            let mut frame = arp_request([2; 6], address(*from), address(*to));
            frame[21] = if *is_reply { 2 } else { 1 };
            monitor.hear(member(number), &frame, *now);
        }
        Op::Traffic(number) => monitor.saw_traffic(member(number), *now),
        Op::Member(number, carrier) => {
            monitor.set_member(member(number), [2, 0, 0, 0, 0, *number], *carrier, *now);
        }
        Op::Remove(number) => monitor.remove_member(member(number)),
        Op::Active(number) => {
            let found = monitor.link(member(number)).filter(|(link, _)| *link == Mii::Up);
            monitor.set_active(found.map(|_| member(number)), *now);
        }
    }
}

#[test]
fn any_operations_in_any_order() {
    let checked = bolero::check!().with_type::<(Vec<Op>, u8, bool, bool)>();
    checked.for_each(|(ops, validate, all_targets, by_active)| {
        let words = ArpValidate::WORDS;
        let settings = ArpSettings {
            interval: Duration::from_millis(100),
            targets: vec![address(1), address(2)],
            targets6: vec![Ipv6Addr::LOCALHOST],
            validate: words[usize::from(*validate) % words.len()].1,
            all_targets: *all_targets,
            missed_max: validate >> 4,
        };
        let mut monitor = ArpMonitor::new(settings, *by_active, vec![IpAddr::V4(address(3))]);
        let mut now = Duration::ZERO;
        for op in ops {
            apply(&mut monitor, &mut now, op);
        }
        // Whoever hears nothing for long is down.
        for step in 1..40 {
            monitor.inspect(now + Duration::from_millis(100 * step));
        }
        let links = monitor.members().filter_map(|it| monitor.link(it));
        assert!(links.into_iter().all(|(link, _)| link != Mii::Up) || *by_active);
    });
}
