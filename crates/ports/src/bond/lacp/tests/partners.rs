//! Negotiation between two systems.

use super::*;

#[test]
fn two_bonds_form_one_aggregate() {
    for configs in [[config(0), config(1)], [slow(0), slow(1)], [slow(0), config(1)]] {
        let mut pair = Pair::new(configs, 3);
        pair.run(6.0);
        assert_eq!(pair.usable(), [vec![0, 1, 2], vec![0, 1, 2]]);
        for (side, end) in pair.ends.iter().enumerate() {
            let active = end.active().expect("an aggregate");
            assert_eq!((active.ports, active.partner), (3, system(1 - side)));
            assert!(end.carrier());
            for state in end.members() {
                assert_eq!(state.mux, Mux::CollectingDistributing);
                assert_eq!(state.receive, Receive::Current);
                assert_eq!(state.aggregator, Some(active.id));
                assert!(state.actor.state.has(State(0x3d)), "{:?}", state.actor.state);
                let other = member(&pair.ends[1 - side], state.member).actor;
                assert_eq!(state.partner, other);
            }
        }
    }
}

#[test]
fn the_key_says_speed_duplex_and_what_the_user_set() {
    let mut lacp = alone(Config { user_key: 5, ..config(0) }, 1);
    for (speed, code) in [(10, 2), (1000, 4), (10_000, 7), (25_000, 10), (100_000, 15), (7, 0)] {
        lacp.link(0, Link::up(speed));
        assert_eq!(member(&lacp, 0).actor.key, 5 << 6 | code << 1 | 1, "{speed}");
    }
    lacp.link(0, Link { full_duplex: false, ..Link::up(1000) });
    assert_eq!(member(&lacp, 0).actor.key, 5 << 6 | 4 << 1);
    lacp.link(0, Link::down());
    assert_eq!(member(&lacp, 0).actor.key, 5 << 6);
}

#[test]
fn one_passive_side_answers_and_two_are_silent() {
    let mut pair = Pair::new([config(0), passive(1)], 2);
    pair.run(6.0);
    assert_eq!(pair.usable(), [vec![0, 1], vec![0, 1]]);
    let first = pair.sent.each_ref().map(|sent| sent[0].0);
    assert!(first[0] < first[1], "who is passive spoke first: {first:?}");

    let mut pair = Pair::new([passive(0), passive(1)], 2);
    pair.run(100.0);
    assert_eq!(pair.sent, [vec![], vec![]]);
    // As without a partner, one member is used.
    assert_eq!(pair.usable(), [vec![0], vec![0]]);
}

#[test]
fn a_bond_without_a_partner_uses_one_member() {
    let mut lacp = alone(config(0), 2);
    let mut now = Duration::ZERO;
    for _ in 0..70 {
        lacp.tick(now);
        now += TICK;
        assert_eq!(lacp.usable(), [0], "at {now:?}");
    }
    assert!(lacp.carrier());
    assert_eq!(lacp.active().expect("an aggregate").partner, [0; 6]);
    for state in lacp.members() {
        assert_eq!(state.receive, Receive::Defaulted);
        assert!(state.actor.state.has(State::DEFAULTED));
        assert_eq!(state.partner.system_priority, 0xffff);
    }
    lacp.link(0, Link::down());
    assert_eq!(lacp.usable(), [1]);
    lacp.link(1, Link::down());
    assert_eq!((lacp.usable(), lacp.carrier(), lacp.active()), (vec![], false, None));
}

#[test]
fn a_partner_appears_where_none_was() {
    let mut pair = Pair::new([config(0), config(1)], 2);
    pair.dead = vec![0, 1];
    pair.run(10.0);
    assert_eq!(pair.usable(), [vec![0], vec![0]]);
    pair.dead.clear();
    // Both sides asked for a LACPDU every 30 seconds only.
    pair.run(36.0);
    assert_eq!(pair.usable(), [vec![0, 1], vec![0, 1]]);
}

#[test]
fn a_member_that_is_plugged_in_elsewhere_leaves_the_aggregate() {
    let mut lacp = alone(config(0), 2);
    let now = run_with(&mut lacp, Duration::ZERO, 6, &[(1, 15), (1, 15)]);
    assert_eq!(lacp.usable(), [0, 1]);
    let now = run_with(&mut lacp, now, 6, &[(1, 15), (2, 15)]);
    assert_eq!(lacp.usable(), [0]);
    let [first, second] = [0, 1].map(|index| member(&lacp, index).aggregator);
    assert_ne!(first, second);
    assert!(!member(&lacp, 1).actor.state.has(State::SYNCHRONISATION));
    // Another key is another aggregate, too; the first key again is the first aggregate.
    let now = run_with(&mut lacp, now, 6, &[(1, 15), (1, 16)]);
    assert_eq!(lacp.usable(), [0]);
    run_with(&mut lacp, now, 6, &[(1, 15), (1, 15)]);
    assert_eq!(lacp.usable(), [0, 1]);
}

#[test]
fn who_is_not_known_to_the_partner_is_not_in_sync() {
    let mut lacp = alone(config(0), 1);
    let mut now = Duration::ZERO;
    for second in 0..10 {
        for _ in 0..10 {
            lacp.tick(now);
            now += TICK;
        }
        let mut frame = partner_of(&lacp, 0, 1, 15);
        // The partner takes this end for another port, until it has seen a LACPDU of this end.
        frame[14 + 22 + 14] ^= u8::from(second < 8);
        lacp.receive(0, &frame);
        let in_sync = member(&lacp, 0).partner.state.has(State::SYNCHRONISATION);
        assert_eq!(in_sync, second >= 8);
    }
}

#[test]
fn an_individual_link_is_used_alone() {
    let mut lacp = alone(config(0), 2);
    lacp.link(0, Link { full_duplex: false, ..Link::up(1000) });
    let now = run_with(&mut lacp, Duration::ZERO, 8, &[(1, 15), (1, 15)]);
    let half = member(&lacp, 0);
    assert_eq!((half.receive, half.periodic), (Receive::LacpDisabled, Periodic::None));
    assert_eq!(lacp.usable(), [1], "an aggregate with a partner is better");
    lacp.link(1, Link::down());
    run_with(&mut lacp, now, 1, &[]);
    assert_eq!(lacp.usable(), [0]);
    // Full duplex again, it joins.
    lacp.link(0, Link::up(10_000));
    lacp.link(1, Link::up(10_000));
    run_with(&mut lacp, now + Duration::from_secs(1), 8, &[(1, 15), (1, 15)]);
    assert_eq!(lacp.usable(), [0, 1]);
}

#[test]
fn a_partner_that_is_individual_counts_as_in_sync_whatever_it_knows() {
    let mut lacp = alone(config(0), 1);
    lacp.tick(Duration::ZERO);
    lacp.tick(TICK);
    let mut frame = partner_of(&lacp, 0, 1, 15);
    frame[32] &= !State::AGGREGATION.0;
    frame[50] ^= 0xff;
    lacp.receive(0, &frame);
    assert!(member(&lacp, 0).partner.state.has(State::SYNCHRONISATION));
}

#[test]
fn two_members_plugged_into_each_other_are_told_of() {
    let mut lacp = alone(config(0), 2);
    let mut loops = 0;
    for tick in 0..100 {
        lacp.tick(TICK * tick);
        for (member, frame) in lacp.take_frames() {
            assert!(lacp.receive(1 - member, &frame));
        }
        let events = lacp.take_events();
        loops += events.iter().filter(|event| matches!(event, Event::Loopback { .. })).count();
    }
    assert!(loops > 2);
    assert!(member(&lacp, 1).stats.loopback_rx > 0);
    assert_eq!(member(&lacp, 1).receive, Receive::Defaulted);
}

#[test]
fn markers_are_answered_at_once() {
    let mut lacp = alone(config(0), 1);
    let mut marker = vec![1, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 9, 9, 0x88, 0x09, 2, 1, 1, 22];
    marker.extend([0, 1, 2, 0, 0, 0, 9, 9, 1, 2, 3, 4]);
    marker.resize(124, 0);
    assert!(lacp.receive(0, &marker));
    let frames = lacp.take_frames();
    let [(0, answer)] = frames[..] else { panic!("one answer in {frames:?}") };
    assert_eq!(answer[6..12], address(0, 0));
    assert_eq!(answer[14..17], [2, 1, 2]);
    assert_eq!(answer[17..], marker[17..]);
    assert!(lacp.receive(0, &answer), "an answer is for nobody else either");
    assert_eq!(lacp.take_frames(), []);
    let stats = member(&lacp, 0).stats;
    assert_eq!((stats.marker_rx, stats.marker_response_tx, stats.marker_response_rx), (1, 1, 1));
}

#[test]
fn frames_of_others_are_not_taken() {
    let mut lacp = alone(config(0), 1);
    let frame = partner_of(&lacp, 0, 1, 15);
    assert!(!lacp.receive(7, &frame), "there is no member 7");
    assert!(!lacp.receive(0, &frame[..123]));
    let mut oam = frame.clone();
    oam[14] = 3;
    assert!(!lacp.receive(0, &oam));
    let mut unicast = frame;
    unicast[0] = 2;
    assert!(!lacp.receive(0, &unicast));
}
