//! Selection of the aggregate in use, and its members.

use super::*;

/// Members 0 and 1 lead to one partner, member 2, which is faster, to another.
fn forked(select: AdSelect) -> (Lacp, Duration) {
    let mut lacp = alone(Config { select, ..config(0) }, 3);
    lacp.link(2, Link::up(100_000));
    let now = run_with(&mut lacp, Duration::ZERO, 8, &[(1, 15), (1, 15), (2, 31)]);
    (lacp, now)
}

#[test]
fn ad_select_decides_between_aggregates() {
    assert_eq!(forked(AdSelect::Bandwidth).0.usable(), [2]);
    assert_eq!(forked(AdSelect::Count).0.usable(), [0, 1]);
    assert_eq!(forked(AdSelect::ActorPortPriority).0.usable(), [0, 1]);
}

#[test]
fn stable_keeps_what_works() {
    let mut lacp = alone(config(0), 3);
    lacp.link(2, Link::down());
    let now = run_with(&mut lacp, Duration::ZERO, 6, &[(1, 15), (1, 15)]);
    assert_eq!(lacp.usable(), [0, 1]);
    lacp.link(2, Link::up(100_000));
    let now = run_with(&mut lacp, now, 6, &[(1, 15), (1, 15), (2, 31)]);
    assert_eq!(lacp.usable(), [0, 1]);
    lacp.link(0, Link::down());
    assert_eq!(lacp.usable(), [1]);
    lacp.link(1, Link::down());
    let now = run_with(&mut lacp, now, 6, &[(1, 15), (1, 15), (2, 31)]);
    assert_eq!(lacp.usable(), [2]);
    lacp.link(0, Link::up(10_000));
    run_with(&mut lacp, now, 6, &[(1, 15), (1, 15), (2, 31)]);
    assert_eq!(lacp.usable(), [2]);
}

#[test]
fn an_aggregate_that_is_no_longer_used_tells_its_partner() {
    let (mut lacp, now) = forked(AdSelect::Count);
    lacp.take_events();
    lacp.link(0, Link::down());
    // One member each: bandwidth decides, and member 1 must no longer be sent to.
    assert!(!lacp.collects(1));
    let events = lacp.take_events();
    assert!(matches!(events[0], Event::Aggregator(Some(_))), "{events:?}");
    run_with(&mut lacp, now, 4, &[(1, 15), (1, 15), (2, 31)]);
    assert_eq!(lacp.usable(), [2]);
    let state = member(&lacp, 1);
    assert_eq!(state.mux, Mux::Attached);
    assert!(!state.actor.state.has(State::SYNCHRONISATION));
    assert!(!state.actor.state.has(State::COLLECTING));
}

#[test]
fn min_links_decide_about_the_carrier() {
    let mut pair = Pair::new([Config { min_links: 2, ..config(0) }, config(1)], 3);
    pair.run(6.0);
    assert!(pair.ends[0].carrier());
    pair.link(0, Link::down());
    assert!(pair.ends[0].carrier());
    pair.link(1, Link::down());
    assert!(!pair.ends[0].carrier() && pair.ends[1].carrier());
    assert!(pair.ends[0].take_events().contains(&Event::Carrier(false)));
    pair.link(1, Link::up(10_000));
    pair.run(6.0);
    assert!(pair.ends[0].carrier());
}

#[test]
fn strict_counts_only_members_that_send() {
    for strict in [false, true] {
        let mut lacp = alone(Config { strict, ..config(0) }, 1);
        lacp.tick(Duration::ZERO);
        let frame = partner_of(&lacp, 0, 1, 15);
        lacp.tick(TICK);
        lacp.receive(0, &frame);
        lacp.tick(TICK * 2);
        assert!(lacp.usable().is_empty());
        assert_eq!(lacp.carrier(), !strict);
    }
}

#[test]
fn collecting_comes_before_distributing_when_they_are_not_coupled() {
    let mut lacp = alone(Config { coupled: false, ..config(0) }, 1);
    let mut now = Duration::ZERO;
    for tick in 0..80 {
        lacp.tick(now);
        now += TICK;
        let mut frame = partner_of(&lacp, 0, 1, 15);
        if tick < 60 {
            frame[32] &= !State::COLLECTING.0;
        }
        lacp.receive(0, &frame);
        if tick == 50 {
            assert_eq!((lacp.usable(), lacp.collects(0)), (vec![], true));
            assert_eq!(member(&lacp, 0).mux, Mux::Collecting);
        }
    }
    assert_eq!((lacp.usable(), lacp.collects(0)), (vec![0], true));
    assert_eq!(member(&lacp, 0).mux, Mux::Distributing);
    let configs = [0, 1].map(|side| Config { coupled: false, ..config(side) });
    let mut pair = Pair::new(configs, 2);
    pair.run(6.0);
    assert_eq!(pair.usable(), [vec![0, 1], vec![0, 1]]);
}

#[test]
fn a_member_that_leaves_says_so_and_the_others_go_on() {
    for gone in [0, 1, 2] {
        let mut pair = Pair::new([config(0), config(1)], 3);
        pair.run(6.0);
        let rest: Vec<u32> = (0..3).filter(|member| *member != gone).collect();
        pair.ends[0].remove(gone);
        assert_eq!(pair.ends[0].usable(), rest, "without a moment's pause");
        pair.carry();
        let last = pair.sent[0].last().expect("a farewell");
        assert_eq!((last.1, last.2.actor.state), (gone, State(0x03)));
        pair.run(1.0);
        assert_eq!(pair.usable(), [rest.clone(), rest.clone()]);
        pair.ends[0].add(gone, address(0, gone), 255, Link::up(10_000));
        pair.run(8.0);
        assert_eq!(pair.ends[1].usable(), [0, 1, 2]);
        let mut all = pair.ends[0].usable();
        assert_eq!(all.pop(), Some(gone), "it joined last");
        assert_eq!(all, rest);
    }
}

#[test]
fn other_settings_are_taken_over_while_running() {
    let mut pair = Pair::new([slow(0), slow(1)], 2);
    pair.run(6.0);
    pair.ends[0].configure(config(0));
    pair.run(3.0);
    assert!(member(&pair.ends[1], 0).partner.state.has(State::SHORT_TIMEOUT));
    assert_eq!(pair.usable(), [vec![0, 1], vec![0, 1]]);
    pair.ends[0].configure(Config { user_key: 3, ..config(0) });
    pair.run(8.0);
    assert_eq!(pair.ends[1].active().expect("an aggregate").partner_key, 3 << 6 | 15);
    assert_eq!(pair.usable(), [vec![0, 1], vec![0, 1]]);
    pair.ends[0].configure(Config { select: AdSelect::Count, ..pair.ends[0].config().clone() });
    assert_eq!(pair.usable(), [vec![0, 1], vec![0, 1]]);
}

#[test]
fn names_lead_back() {
    for select in AdSelect::ALL {
        assert_eq!(select.to_string().parse(), Ok(select));
    }
    assert!("best".parse::<AdSelect>().expect_err("no").to_string().contains("bandwidth"));
}
