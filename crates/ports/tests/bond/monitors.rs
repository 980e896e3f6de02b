//! A bond's controller, with far ends that answer or do not.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towpath_engine::bond::BondMode;
use towpath_engine::{Engine, PortId, PortOptions, UpperName};
use towpath_ports::bond::lacp::pdu;
use towpath_ports::bond::links::Mii;
use towpath_ports::bond::settings::{ArpSettings, ArpValidate, Settings, Word as _};
use towpath_ports::bond::{Controller, Status};

use crate::mode;
use crate::wire::{Wire, engine, wait_for};

const TARGET: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

/// A bond with a controller.
struct Kept {
    engine: Arc<Engine>,
    bond: PortId,
    members: Vec<Wire>,
    controller: Controller,
    told: Arc<Mutex<Vec<String>>>,
    /// Members whose far end is silent.
    silent: Vec<usize>,
    /// Frames that members sent and that were no questions.
    others: Vec<(usize, Vec<u8>)>,
}

impl Kept {
    fn new(settings: Settings, members: u32) -> Kept {
        let engine = Arc::new(engine(1));
        let port = PortOptions { ifindex: Some(50), ..PortOptions::new("bond0") };
        let options = settings.engine_options();
        let bond = engine.change(|config| config.add_bond(port, options, None)).unwrap();
        let members: Vec<Wire> =
            (0..members).map(|n| Wire::new(&engine, &format!("m{n}"), 11 + n)).collect();
        engine
            .change(|config| members.iter().try_for_each(|it| config.enslave(bond, it.port)))
            .unwrap();
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let listener = Arc::clone(&told);
        let tell = Box::new(move |line| listener.lock().push(line));
        let controller = Controller::start(&engine, bond, settings, tell).unwrap();
        Kept { engine, bond, members, controller, told, silent: vec![], others: vec![] }
    }

    /// Answers questions until `done` returns true.
    fn until(&mut self, what: &str, done: impl Fn(&Status) -> bool) {
        let start = Instant::now();
        loop {
            self.answer();
            let status = self.controller.status();
            if done(&status) {
                return;
            }
            let told = self.told.lock();
            assert!(start.elapsed() < Duration::from_secs(10), "no {what}: {status:#?}\n{told:#?}");
            drop(told);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn answer(&mut self) {
        for (number, member) in self.members.iter_mut().enumerate() {
            for mut frame in member.received() {
                let is_question = frame[12..14] == [8, 6] && frame[38..42] == TARGET.octets();
                if !is_question {
                    self.others.push((number, frame));
                } else if !self.silent.contains(&number) {
                    assert_eq!(frame[28..32], OURS.octets());
                    frame.copy_within(6..12, 0);
                    frame[21] = 2;
                    frame[28..32].copy_from_slice(&TARGET.octets());
                    frame[38..42].copy_from_slice(&OURS.octets());
                    member.send(&[frame]);
                }
            }
        }
    }
}

fn asking(kind: BondMode) -> Settings {
    Settings {
        options: mode(kind),
        announce: vec![OURS.into()],
        arp: ArpSettings {
            interval: Duration::from_millis(40),
            targets: vec![TARGET],
            validate: ArpValidate::from_word("all").unwrap(),
            ..ArpSettings::default()
        },
        ..Settings::default()
    }
}

fn active(name: &str) -> impl Fn(&Status) -> bool + '_ {
    move |status| status.active.as_deref() == Some(name)
}

#[test]
fn a_member_whose_target_is_silent_is_replaced() {
    let mut bond = Kept::new(asking(BondMode::ActiveBackup), 2);
    bond.until("active member", active("m0"));
    bond.silent = vec![0];
    bond.until("fail-over", active("m1"));
    bond.until("announcement", |status| status.members[0].failures >= 1);
    assert_eq!(bond.controller.status().members[1].link, Mii::Up);
    let is_gratuitous = |(number, frame): &(usize, Vec<u8>)| {
        *number == 1 && frame[28..32] == OURS.octets() && frame[38..42] == OURS.octets()
    };
    wait_for("the announcement", || {
        bond.answer();
        bond.others.iter().any(is_gratuitous)
    });
    // The switch brings nothing to it, but once it is tried again it answers.
    bond.silent = vec![1];
    bond.until("return", active("m0"));
    assert!(bond.told.lock().iter().any(|line| line == "bond bond0: member m0: link down"));
}

#[test]
fn members_of_a_balancing_bond_are_asked_one_by_one() {
    let mut bond = Kept::new(asking(BondMode::BalanceXor), 2);
    bond.until("links", |status| status.members.iter().all(|it| it.can_send));
    bond.silent = vec![1];
    // The other one may have missed an answer, too, on a busy machine.
    let is_alone = |status: &Status| [true, false] == [0, 1].map(|it| status.members[it].can_send);
    bond.until("loss", is_alone);
    bond.silent.clear();
    bond.until("return", |status| status.members.iter().all(|it| it.can_send));
}

fn watching() -> Settings {
    let miimon = Duration::from_millis(5);
    Settings { options: mode(BondMode::ActiveBackup), miimon, ..Settings::default() }
}

/// `do_failover` in `bond_miimon_commit`: a link that comes back takes over only if it is wanted.
#[test]
fn without_a_primary_nobody_takes_over_again() {
    for (primary, prio, back) in
        [(None, 0, "m1"), (Some("m0".to_owned()), 0, "m0"), (None, 7, "m0")]
    {
        let prio = [("m0".to_owned(), prio)].into();
        let mut bond = Kept::new(Settings { primary, prio, ..watching() }, 2);
        bond.until("active member", active("m0"));
        let first = bond.members[0].port;
        let set = |up| bond.engine.change(|config| config.set_up(first, up)).unwrap();
        set(false);
        bond.until("fail-over", active("m1"));
        let set = |up| bond.engine.change(|config| config.set_up(first, up)).unwrap();
        set(true);
        bond.until("link", |status| status.members[0].link == Mii::Up);
        bond.until("choice", active(back));
        std::thread::sleep(Duration::from_millis(50));
        bond.until("the same", active(back));
    }
}

#[test]
fn a_link_that_comes_back_waits_unless_it_is_the_only_one() {
    let updelay = Duration::from_secs(3600);
    let mut bond = Kept::new(Settings { updelay, ..watching() }, 2);
    bond.until("active member", active("m0"));
    let ports = [bond.members[0].port, bond.members[1].port];
    let up = |bond: &Kept, member: usize, up| {
        bond.engine.change(|config| config.set_up(ports[member], up)).unwrap();
    };
    up(&bond, 0, false);
    bond.until("fail-over", active("m1"));
    up(&bond, 0, true);
    bond.until("wait", |status| status.members[0].link == Mii::Back);
    // The other one goes: there is nothing better to wait for.
    up(&bond, 1, false);
    bond.until("fail-over", active("m0"));
}

/// LACP through the engine: a far end that is in sync, and the frames that it got.
#[test]
fn lacp_talks_from_the_members_own_ports() {
    let miimon = Duration::from_millis(10);
    let lacp = towpath_ports::bond::settings::LacpSettings { fast: true, ..Default::default() };
    let settings = Settings { options: mode(BondMode::Lacp), miimon, lacp, ..Settings::default() };
    let mut bond = Kept::new(settings, 1);
    let start = Instant::now();
    while !bond.controller.status().members[0].can_send
        || bond.controller.status().aggregator.is_none_or(|it| it.partner == [0; 6])
    {
        assert!(start.elapsed() < Duration::from_secs(15), "{:#?}", bond.controller.status());
        bond.answer();
        for (_, frame) in bond.others.drain(..) {
            let Some(pdu::Pdu::Lacp(heard)) = pdu::parse(&frame) else { panic!("{frame:02x?}") };
            let partner = heard.actor;
            let actor =
                pdu::PortInfo { system: [2, 0, 0, 0, 9, 9], state: pdu::State(0x3f), ..partner };
            let answer = pdu::build([2, 0, 0, 0, 9, 9], &pdu::Lacpdu { actor, partner });
            bond.members[0].send(&[answer.to_vec()]);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let status = bond.controller.status();
    assert_eq!(status.aggregator.unwrap().partner, [2, 0, 0, 0, 9, 9]);
    assert!(status.carrier);
    // Frames on its port are for no other reader.
    assert_eq!(
        crate::drops(&bond.engine, bond.bond, towpath_engine::counters::DropReason::NoUpper),
        0
    );
}

/// `bond_resend_igmp_join_requests`: the host above reports its groups again.
#[test]
fn groups_are_asked_for_after_a_fail_over() {
    let mut bond = Kept::new(Settings { resend_igmp: 2, ..watching() }, 2);
    bond.until("active member", active("m0"));
    let mut above = Wire::new(&bond.engine, "above", 98);
    let upper = UpperName::Named("above".to_owned());
    bond.engine.change(|config| config.set_upper(bond.bond, upper)).unwrap();
    // Reports requested at the start may still be on their way.
    std::thread::sleep(Duration::from_millis(500));
    above.received();
    let first = bond.members[0].port;
    bond.engine.change(|config| config.set_up(first, false)).unwrap();
    bond.until("fail-over", active("m1"));
    let mut asked = Vec::new();
    wait_for("questions", || {
        asked.extend(above.received());
        asked.len() >= 4
    });
    std::thread::sleep(Duration::from_millis(300));
    asked.extend(above.received());
    let kind = |frame: &Vec<u8>| match frame[12..14] {
        [8, 0] => ("IGMP", frame[38]),
        _ => ("MLD", frame[62]),
    };
    let kinds: Vec<_> = asked.iter().map(kind).collect();
    assert_eq!(kinds, [("IGMP", 0x11), ("MLD", 130), ("IGMP", 0x11), ("MLD", 130)]);
}
