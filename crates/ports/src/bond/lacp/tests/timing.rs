//! Times of transmission, and timeouts.

use super::*;

fn times(pair: &Pair, side: usize, of: u32, from: f64) -> Vec<f64> {
    let sent = pair.sent[side].iter().filter(|(_, member, _)| *member == of);
    let times = sent.map(|(at, ..)| at.as_secs_f64() - from);
    times.filter(|at| *at >= 0.0).collect()
}

#[test]
fn each_side_sends_as_often_as_the_other_wants() {
    // Side 0 asks for the fast rate, so side 1 is the one that sends fast.
    let mut pair = Pair::new([config(0), slow(1)], 1);
    pair.run(10.0);
    pair.run(120.0);
    let slow = times(&pair, 0, 0, 10.0).len();
    assert!((3..=5).contains(&slow), "{slow} LACPDUs in 120 s");
    // The transmit machine looks every third tick only, so a second is up to 1.2 s.
    let fast = times(&pair, 1, 0, 10.0).len();
    assert!((98..=121).contains(&fast), "{fast} LACPDUs in 120 s");
}

#[test]
fn no_more_than_three_lacpdus_are_sent_in_a_second() {
    let mut lacp = alone(config(0), 1);
    let mut sent = Vec::new();
    for tick in 0..300 {
        let now = TICK * tick;
        lacp.tick(now);
        // A partner whose view is always outdated makes this end answer all the time.
        let mut frame = partner_of(&lacp, 0, 1, 15);
        frame[14 + 22 + 10] ^= 0xff;
        lacp.receive(0, &frame);
        sent.extend(lacp.take_frames().iter().map(|_| now));
    }
    assert!(sent.len() > 90, "{}", sent.len());
    for window in sent.windows(5) {
        assert!(window[4] - window[0] > Duration::from_secs(1), "{window:?}");
    }
}

#[test]
fn a_silent_partner_is_given_up_after_three_periods() {
    for (config, period, timeout) in [(config as fn(usize) -> Config, 1.0, 3.0), (slow, 30.0, 90.0)]
    {
        let mut pair = Pair::new([config(0), config(1)], 2);
        pair.run(40.0);
        assert_eq!(pair.usable()[0], [0, 1]);
        // Both ends still see their link.
        pair.dead = vec![0];
        let cut = pair.now;
        while member(&pair.ends[0], 0).receive == Receive::Current {
            assert_eq!(pair.usable()[0], [0, 1]);
            pair.run(0.1);
        }
        let borne = (pair.now - cut).as_secs_f64();
        assert!(timeout - period - 0.3 < borne && borne < timeout + 0.3, "{borne} s");
        assert_eq!(pair.usable()[0], [1]);
        assert_eq!(member(&pair.ends[0], 0).receive, Receive::Expired);
        assert!(member(&pair.ends[0], 0).actor.state.has(State::EXPIRED));
        pair.run(3.2);
        assert_eq!(member(&pair.ends[0], 0).receive, Receive::Defaulted);
        assert_eq!(pair.usable()[0], [1], "the aggregate with a partner stays");
        pair.dead.clear();
        pair.run(36.0);
        assert_eq!(pair.usable(), [vec![0, 1], vec![0, 1]]);
    }
}

#[test]
fn a_lost_link_is_unused_at_once_and_comes_back() {
    let mut pair = Pair::new([config(0), config(1)], 2);
    pair.run(6.0);
    pair.ends[0].take_events();
    pair.link(1, Link::down());
    assert_eq!(pair.usable(), [vec![0], vec![0]]);
    let lost = Event::Member { member: 1, collecting: false, distributing: false };
    assert_eq!(pair.ends[0].take_events(), [lost]);
    pair.run(20.0);
    assert_eq!(pair.usable(), [vec![0], vec![0]]);
    assert_eq!(member(&pair.ends[0], 1).receive, Receive::PortDisabled);
    pair.link(1, Link::up(10_000));
    pair.run(0.1);
    assert_eq!(pair.usable(), [vec![0], vec![0]], "not before the partner agrees");
    pair.run(6.0);
    assert_eq!(pair.usable(), [vec![0, 1], vec![0, 1]]);
}

#[test]
fn another_speed_is_another_aggregate() {
    let mut pair = Pair::new([config(0), config(1)], 2);
    pair.run(6.0);
    pair.link(1, Link::up(1000));
    pair.run(8.0);
    assert_eq!(pair.usable(), [vec![0], vec![0]]);
    pair.link(1, Link::up(10_000));
    pair.run(8.0);
    assert_eq!(pair.usable(), [vec![0, 1], vec![0, 1]]);
}

#[test]
fn members_wait_for_others_before_they_attach() {
    let mut pair = Pair::new([config(0), config(1)], 1);
    pair.run(1.5);
    assert_eq!(member(&pair.ends[0], 0).mux, Mux::Waiting);
    pair.run(1.0);
    assert_ne!(member(&pair.ends[0], 0).mux, Mux::Waiting);
}

#[test]
fn churn_is_found_after_a_minute() {
    let mut lacp = alone(config(0), 1);
    let mut now = Duration::ZERO;
    for tick in 0..700 {
        lacp.tick(now);
        now += TICK;
        let mut frame = partner_of(&lacp, 0, 1, 15);
        frame[32] &= !State::SYNCHRONISATION.0;
        lacp.receive(0, &frame);
        let state = member(&lacp, 0);
        if tick < 590 {
            assert_eq!(state.partner_churn, Churn::Monitoring);
        }
    }
    let state = member(&lacp, 0);
    assert_eq!((state.actor_churn, state.actor_churned), (Churn::None, 0));
    assert_eq!((state.partner_churn, state.partner_churned), (Churn::Churned, 1));
    assert_eq!(state.partner_churn.name(), "churned");

    let mut pair = Pair::new([config(0), config(1)], 1);
    pair.run(70.0);
    let state = member(&pair.ends[0], 0);
    assert_eq!((state.actor_churn, state.partner_churn), (Churn::None, Churn::None));
}

#[test]
fn who_calls_late_gets_a_second_and_no_more() {
    let mut lacp = alone(slow(0), 1);
    run_with(&mut lacp, Duration::ZERO, 6, &[(1, 15)]);
    // An hour later the partner is not given up.
    lacp.tick(Duration::from_secs(3600));
    assert_eq!(lacp.usable(), [0]);
    assert_eq!(lacp.next_tick(), Some(Duration::from_secs(3600) + TICK));
    // Calls that come too often change nothing.
    let before: Vec<_> = lacp.members().collect();
    lacp.tick(Duration::from_secs(3600));
    assert_eq!(lacp.members().collect::<Vec<_>>(), before);
}
