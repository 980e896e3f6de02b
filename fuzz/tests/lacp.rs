//! No frames, links and times make LACP panic, send malformed frames, or lose a port.

use std::time::Duration;

use bolero::TypeGenerator;
use towpath_ports::bond::lacp::pdu::{self, Pdu};
use towpath_ports::bond::lacp::{AdSelect, Config, Lacp, Link};

const MEMBERS: u32 = 4;

#[derive(Debug, Clone, TypeGenerator)]
enum Op {
    Tick(u16),
    Receive(u8, Vec<u8>),
    /// A well-formed LACPDU, with any fields.
    Lacpdu(u8, [u8; 16], [u8; 16]),
    Link(u8, bool, u8),
    Add(u8),
    Remove(u8),
    Configure(u8, u8),
}

fn info(bytes: &[u8; 16]) -> pdu::PortInfo {
    let small = |at: usize| u16::from(bytes[at] & 3);
    pdu::PortInfo {
        system_priority: small(0),
        system: [2, 0, 0, 0, 0, bytes[1] & 3],
        key: small(2),
        port_priority: small(3),
        port: small(4),
        state: pdu::State(bytes[5]),
    }
}

fn apply(lacp: &mut Lacp, now: &mut Duration, op: &Op) {
    let member = |number: &u8| u32::from(*number) % MEMBERS;
    match op {
        Op::Tick(ms) => {
            *now += Duration::from_millis((*ms).into());
            lacp.tick(*now);
        }
        Op::Receive(number, frame) => {
            lacp.receive(member(number), frame);
        }
        Op::Lacpdu(number, actor, partner) => {
            let lacpdu = pdu::Lacpdu { actor: info(actor), partner: info(partner) };
            lacp.receive(member(number), &pdu::build([2; 6], &lacpdu));
        }
        Op::Link(number, up, speed) => {
            let speed_mbps = [0, 1000, 10_000, 7][usize::from(speed & 3)];
            let link = Link { up: *up, speed_mbps, full_duplex: speed & 4 == 0 };
            lacp.link(member(number), link);
        }
        Op::Add(number) => lacp.add(member(number), [2, 0, 0, 1, 0, *number], 255, Link::up(1000)),
        Op::Remove(number) => lacp.remove(member(number)),
        Op::Configure(bits, key) => lacp.configure(Config {
            fast: bits & 1 != 0,
            active: bits & 2 != 0,
            coupled: bits & 4 != 0,
            strict: bits & 8 != 0,
            select: AdSelect::ALL[usize::from(bits >> 4 & 3)],
            user_key: (*key).into(),
            min_links: u32::from(key & 3),
            ..Config::new([2, 0, 0, 0, 0, bits >> 6])
        }),
    }
}

#[test]
fn any_operations_in_any_order() {
    bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
        let mut lacp = Lacp::new(Config::new([2, 0, 0, 0, 0, 1]));
        let mut now = Duration::ZERO;
        for op in ops {
            apply(&mut lacp, &mut now, op);
            for (_, frame) in lacp.take_frames() {
                let parsed = pdu::parse(&frame);
                assert!(matches!(parsed, Some(Pdu::Lacp(_) | Pdu::MarkerResponse)), "{frame:02x?}");
            }
            let usable = lacp.usable();
            for state in lacp.members() {
                assert_eq!(usable.contains(&state.member), state.distributing);
                assert!(state.collecting || !state.distributing);
                let active = lacp.active().map(|active| active.id);
                assert!(!state.collecting || state.aggregator == active);
            }
            assert!(usable.is_empty() || lacp.active().is_some());
        }
        // Every port finds an aggregate again.
        lacp.tick(now + Duration::from_secs(1));
        lacp.tick(now + Duration::from_secs(2));
        assert!(lacp.members().all(|state| state.aggregator.is_some()));
    });
}
