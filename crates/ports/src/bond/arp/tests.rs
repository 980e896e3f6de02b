use super::super::active::{Candidate, choose};
use super::super::settings::{ArpValidate, PrimaryReselect, Word as _};
use super::*;
use towpath_engine::port::Speed;

const TARGET: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const INTERVAL: Duration = Duration::from_millis(100);

fn settings(validate: &str) -> ArpSettings {
    ArpSettings {
        interval: INTERVAL,
        targets: vec![TARGET],
        validate: ArpValidate::from_word(validate).expect("a word"),
        ..ArpSettings::default()
    }
}

fn mac(member: u32) -> [u8; 6] {
    [2, 0, 0, 0, 0, member as u8]
}

fn answer_of(target: Ipv4Addr) -> Vec<u8> {
    let mut frame = arp_request([2, 0, 0, 0, 9, 9], target, OURS);
    frame[21] = 2;
    frame
}

/// A bond, a clock, and a switch: a target answers on the member that asked, and all members hear
/// the request.
struct Bench {
    monitor: ArpMonitor,
    now: Duration,
    cut: Vec<u32>,
    by_active: bool,
}

impl Bench {
    fn new(settings: ArpSettings, by_active: bool, members: u32) -> Bench {
        let mut monitor = ArpMonitor::new(settings, by_active, vec![OURS.into()]);
        for member in 0..members {
            monitor.set_member(member, mac(member), true, Duration::ZERO);
        }
        Bench { monitor, now: Duration::ZERO, cut: Vec::new(), by_active }
    }

    fn run(&mut self, intervals: u32) {
        for _ in 0..intervals {
            self.monitor.inspect(self.now);
            self.choose();
            for (member, frame) in self.monitor.probe(self.now) {
                assert_eq!(frame[6..12], mac(member));
                self.switch(member, &frame);
            }
            self.now += INTERVAL;
        }
    }

    fn choose(&mut self) {
        if !self.by_active {
            return;
        }
        let members: Vec<u32> = self.monitor.members().collect();
        let link = |member: &u32| self.monitor.link(*member).expect("a member").0;
        let candidate = |member: &u32| Candidate {
            link: link(member),
            delay: 0,
            prio: 0,
            speed: Speed::default(),
        };
        // Only members that are up; the monitor itself tries the others.
        let up: Vec<u32> = members.into_iter().filter(|it| link(it) == Mii::Up).collect();
        let candidates: Vec<Candidate> = up.iter().map(candidate).collect();
        let current = up.iter().position(|it| Some(*it) == self.monitor.active);
        let best = choose(&candidates, current, None, PrimaryReselect::Failure, 0);
        self.monitor.set_active(best.map(|place| up[place]), self.now);
    }

    fn switch(&mut self, from: u32, frame: &[u8]) {
        if self.cut.contains(&from) {
            return;
        }
        let later = self.now + Duration::from_millis(1);
        for other in self.monitor.members().collect::<Vec<_>>() {
            if other != from && !self.cut.contains(&other) {
                self.monitor.hear(other, frame, later);
            }
        }
        if frame[38..42] == TARGET.octets() {
            self.monitor.hear(from, &answer_of(TARGET), later);
        }
    }

    fn links(&self) -> Vec<Mii> {
        self.monitor.members().map(|it| self.monitor.link(it).expect("a member").0).collect()
    }
}

#[test]
fn a_question_is_an_arp_request_for_each_target() {
    let two = ArpSettings { targets: vec![TARGET, OTHER], ..settings("none") };
    let mut bench = Bench::new(two, false, 1);
    let frames = bench.monitor.probe(Duration::ZERO);
    assert_eq!(frames.len(), 2);
    let (0, frame) = &frames[1] else { panic!("by member 0") };
    assert_eq!(frame[..6], [0xff; 6]);
    assert_eq!((&frame[28..32], &frame[38..42]), (&OURS.octets()[..], &OTHER.octets()[..]));
}

#[test]
fn the_active_member_that_hears_nothing_is_replaced() {
    for validate in ["none", "active", "backup", "all", "filter", "filter_active"] {
        let mut bench = Bench::new(settings(validate), true, 3);
        bench.run(20);
        assert_eq!(bench.links(), [Mii::Up; 3], "{validate}");
        assert_eq!(bench.monitor.active, Some(0));
        bench.cut = vec![0];
        bench.run(2);
        assert_eq!(bench.monitor.active, Some(0), "{validate}: too early");
        bench.run(2);
        assert_eq!(bench.monitor.active, Some(1), "{validate}");
        assert_eq!(bench.monitor.link(0), Some((Mii::Down, 1)));
        bench.run(10);
        assert_eq!(bench.monitor.link(1), Some((Mii::Up, 0)), "{validate}");
        bench.cut.clear();
        bench.run(3);
        assert_eq!(bench.links(), [Mii::Up; 3], "{validate}: heard again");
        assert_eq!(bench.monitor.active, Some(1));
    }
}

#[test]
fn more_may_be_missed_when_that_is_said() {
    let patient = ArpSettings { missed_max: 5, ..settings("all") };
    let mut bench = Bench::new(patient, true, 2);
    bench.run(10);
    bench.cut = vec![0];
    bench.run(5);
    assert_eq!(bench.monitor.active, Some(0));
    bench.run(2);
    assert_eq!(bench.monitor.active, Some(1));
}

#[test]
fn a_backup_that_hears_nothing_is_down_one_interval_later() {
    let mut bench = Bench::new(settings("all"), true, 2);
    bench.run(10);
    bench.cut = vec![1];
    bench.run(3);
    assert_eq!(bench.links(), [Mii::Up, Mii::Up]);
    bench.run(2);
    assert_eq!(bench.links(), [Mii::Up, Mii::Down]);
    assert_eq!(bench.monitor.active, Some(0));
}

#[test]
fn when_all_are_down_each_is_tried_in_turn() {
    let mut bench = Bench::new(settings("all"), true, 3);
    bench.run(10);
    bench.cut = vec![0, 1, 2];
    bench.run(12);
    assert_eq!(bench.monitor.active, None);
    let mut tried = Vec::new();
    for _ in 0..6 {
        bench.run(1);
        tried.push(bench.monitor.candidate.expect("somebody is tried"));
    }
    let first = tried[0];
    let expected: Vec<u32> = (0..6).map(|step| (first + step) % 3).collect();
    assert_eq!(tried, expected);
    // No carrier, no try.
    bench.monitor.set_member(1, mac(1), false, bench.now);
    bench.run(4);
    assert_ne!(bench.monitor.candidate, Some(1));
    bench.cut = vec![0, 1];
    bench.run(5);
    assert_eq!(bench.monitor.active, Some(2));
    assert_eq!(bench.monitor.candidate, None);
}

#[test]
fn only_targets_count_where_arrivals_are_validated() {
    let stranger = arp_request([2, 0, 0, 0, 7, 7], OTHER, OURS);
    for (validate, counts) in [("none", true), ("filter", true), ("active", false), ("all", false)]
    {
        let mut bench = Bench::new(settings(validate), false, 1);
        for _ in 0..10 {
            bench.monitor.inspect(bench.now);
            bench.monitor.probe(bench.now);
            bench.monitor.hear(0, &stranger, bench.now);
            bench.now += INTERVAL;
        }
        let link = if counts { Mii::Up } else { Mii::Down };
        assert_eq!(bench.links(), [link], "{validate}");
    }
}

#[test]
fn other_traffic_counts_only_where_nothing_is_asked_for() {
    for (validate, counts) in [("none", true), ("filter", false), ("active", false)] {
        let mut bench = Bench::new(settings(validate), false, 1);
        for _ in 0..10 {
            bench.monitor.inspect(bench.now);
            bench.monitor.probe(bench.now);
            bench.monitor.saw_traffic(0, bench.now);
            bench.now += INTERVAL;
        }
        let link = if counts { Mii::Up } else { Mii::Down };
        assert_eq!(bench.links(), [link], "{validate}");
    }
}

#[test]
fn our_own_questions_alone_keep_no_backup_up() {
    let mut bench = Bench::new(settings("all"), true, 2);
    bench.run(10);
    // The target is gone; the switch still delivers the bond's own request to the backup.
    for _ in 0..12 {
        bench.monitor.inspect(bench.now);
        bench.choose();
        for (member, frame) in bench.monitor.probe(bench.now) {
            bench.monitor.hear(1 - member, &frame, bench.now);
        }
        bench.now += INTERVAL;
    }
    assert_eq!(bench.monitor.active, None);
    assert!(bench.links().iter().all(|link| *link != Mii::Up), "{:?}", bench.links());
}

#[test]
fn all_targets_must_answer_when_that_is_said() {
    for (all_targets, link) in [(false, Mii::Up), (true, Mii::Down)] {
        let settings = ArpSettings { targets: vec![TARGET, OTHER], all_targets, ..settings("all") };
        let mut bench = Bench::new(settings, false, 1);
        bench.run(10);
        assert_eq!(bench.links(), [link], "only one of them answers");
    }
}

#[test]
fn members_of_a_balancing_bond_are_judged_one_by_one() {
    let mut bench = Bench::new(settings("none"), false, 3);
    bench.run(10);
    assert_eq!(bench.links(), [Mii::Up; 3]);
    bench.cut = vec![1];
    bench.run(4);
    assert_eq!(bench.links(), [Mii::Up, Mii::Down, Mii::Up]);
    bench.cut.clear();
    bench.run(2);
    assert_eq!(bench.links(), [Mii::Up; 3]);
    bench.monitor.remove_member(1);
    assert_eq!(bench.monitor.members().collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn neighbours_are_solicited_and_their_advertisements_count() {
    let target: Ipv6Addr = "fd00::1234:5678".parse().expect("an address");
    let ours: Ipv6Addr = "fd00::9".parse().expect("an address");
    let settings = ArpSettings { targets: Vec::new(), targets6: vec![target], ..settings("all") };
    let mut monitor = ArpMonitor::new(settings, true, vec![ours.into()]);
    monitor.set_member(0, mac(0), true, Duration::ZERO);
    monitor.set_member(1, mac(1), true, Duration::ZERO);
    monitor.set_active(Some(0), Duration::ZERO);
    let mut now = Duration::ZERO;
    for _ in 0..20 {
        monitor.inspect(now);
        for (member, question) in monitor.probe(now) {
            assert_eq!(member, 0);
            assert_eq!(question[..6], [0x33, 0x33, 0xff, 0x34, 0x56, 0x78]);
            assert_eq!(question[54], 135);
            let later = now + Duration::from_millis(1);
            monitor.hear(1, &question, later);
            let mut answer = question.clone();
            answer[22..38].copy_from_slice(&target.octets());
            answer[38..54].copy_from_slice(&ours.octets());
            answer[54] = 136;
            monitor.hear(0, &answer, later);
        }
        now += INTERVAL;
    }
    assert_eq!([0, 1].map(|it| monitor.link(it).expect("a member").0), [Mii::Up, Mii::Up]);
}

#[test]
fn no_prefix_of_a_frame_is_a_sign_of_life() {
    let answer = answer_of(TARGET);
    for len in 0..42 {
        let mut bench = Bench::new(settings("all"), false, 1);
        let before = bench.monitor.members[0].last_rx;
        bench.monitor.hear(0, &answer[..len], Duration::from_secs(1));
        assert_eq!(bench.monitor.members[0].last_rx, before, "{len} bytes");
    }
}
