//! The table: SAs and policies come and go while packets are on their way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use towpath_ipsec::{
    Action, Aead, Cipher, Config, Direction, Engine, Esp, Fault, Faults, Flow, Hmac, Keys, Limits,
    Outbound, OwnedBuffer, Policy, Prefix, Refusal, Sa, Selector, Suite, Table, TableError,
    TableLimits, finish,
};

use crate::common::{Case, encap, frame, ip, ip_packet, keys, outer, receive, send, table, udp};

const SUITE: Suite = Suite::Aead(Aead::ChaCha20Poly1305);

fn case() -> Case {
    Case {
        suite: SUITE,
        is_tunnel: true,
        is_outer_v6: false,
        is_inner_v6: false,
        is_udp: false,
        esn: false,
    }
}

fn config(direction: Direction, spi: u32, keys: &Keys) -> Config {
    Config { spi, reqid: 7, ..case().config(direction, keys.clone()) }
}

fn prefix(text: &str) -> Prefix {
    let (address, len) = text.split_once('/').expect("a prefix");
    Prefix { address: address.parse().expect("an address"), len: len.parse().expect("a length") }
}

fn policy(source: &str, destination: &str, priority: u32, action: Action) -> Policy {
    Policy { selector: Selector::between(prefix(source), prefix(destination)), priority, action }
}

fn flow(from: &str, to: &str, port: u16) -> Flow {
    let packet =
        ip_packet(from.parse().expect("one"), to.parse().expect("one"), 17, &udp(9, port, b""));
    Flow::of_frame(&frame(&packet)).expect("a packet")
}

#[test]
fn inbound_sas_are_found_by_spi_destination_and_family() {
    let table = table();
    let keys = keys(SUITE, &mut Rng::with_seed(20));
    let v4 = table.add(config(Direction::Inbound, 0x1000, &keys), 0).expect("it fits");
    let mut other = config(Direction::Inbound, 0x1000, &keys);
    (other.source, other.destination) = outer(true);
    let v6 = table.add(other, 0).expect("another family");
    let mut other = config(Direction::Inbound, 0x1000, &keys);
    other.destination = "192.0.2.77".parse().expect("an address");
    let third = table.add(other, 0).expect("another destination");
    let esp = |(from, to)| {
        let payload = [&0x1000u32.to_be_bytes()[..], &[0; 60]].concat();
        Esp::of_frame(&frame(&ip_packet(from, to, 50, &payload))).expect("ESP")
    };
    let view = table.read();
    assert_eq!(view.inbound(&esp(outer(false))).expect("v4").id(), v4.id());
    assert_eq!(view.inbound(&esp(outer(true))).expect("v6").id(), v6.id());
    let to_third = (outer(false).0, third.destination());
    assert_eq!(view.inbound(&esp(to_third)).expect("the third").id(), third.id());
    assert_eq!(view.by_id(v6.id()).expect("it is there").spi(), 0x1000);
    drop(view);
    let error = table.add(config(Direction::Inbound, 0x1000, &keys), 0).expect_err("taken");
    assert_eq!(error.to_string(), "there is an inbound SA with SPI 0x1000 for 192.0.2.2");
    table.remove(v4.id()).expect("it was there");
    assert_eq!(table.read().inbound(&esp(outer(false))).err(), Some(Refusal::UnknownSpi));
    assert!(table.remove(v4.id()).is_none());
    assert_eq!(table.list().len(), 2);
}

/// New keys: the new inbound SA comes first, then the peer sends by it; packets by the old one that
/// are on their way are accepted until it is removed.
#[test]
fn rekeying_loses_nothing() {
    let mut random = Rng::with_seed(21);
    let (old_keys, new_keys) = (keys(SUITE, &mut random), keys(SUITE, &mut random));
    let (here, peer) = (table(), table());
    here.add(config(Direction::Inbound, 0x1001, &old_keys), 0).expect("it fits");
    let old = peer.add(config(Direction::Outbound, 0x1001, &old_keys), 0).expect("it fits");
    peer.add_policy(policy("10.1.0.0/16", "10.2.0.0/16", 1, Action::Protect(7))).expect("fits");
    let packet = frame(&ip(&case(), 17, &udp(1, 2, b"x")));
    let send_by_policy = |table: &Table| {
        let view = table.read();
        let flow = Flow::of_frame(&packet).expect("a flow");
        match view.outbound(&flow).expect("a policy") {
            Outbound::Protect(sa) => send(sa, &packet).expect("it can be sent"),
            Outbound::Bypass => panic!("it must be protected"),
        }
    };
    let receive_by = |sent: &[u8]| {
        let esp = Esp::of_frame(sent)?;
        let view = here.read();
        let sa = view.inbound(&esp)?;
        receive(sa, sent)
    };
    let late = send_by_policy(&peer);
    here.add(config(Direction::Inbound, 0x1002, &new_keys), 0).expect("it fits");
    assert_eq!(receive_by(&send_by_policy(&peer)), Ok(packet.clone()), "by the old one");
    peer.add(config(Direction::Outbound, 0x1002, &new_keys), 0).expect("it fits");
    let sent = send_by_policy(&peer);
    assert_eq!(sent[34..38], 0x1002u32.to_be_bytes(), "the newest one sends");
    assert_eq!(receive_by(&sent), Ok(packet.clone()));
    peer.remove(old.id()).expect("it was there");
    assert_eq!(receive_by(&late), Ok(packet.clone()), "the old one still receives");
    let inbound = here.list();
    here.remove(inbound[0].id()).expect("it was there");
    assert_eq!(receive_by(&late), Err(Refusal::UnknownSpi));
    assert_eq!(receive_by(&send_by_policy(&peer)), Ok(packet.clone()));
}

/// The newest SA with time left; then one whose soft limit was reached; then none.
#[test]
fn the_newest_sa_that_can_be_used_sends() {
    let table = table();
    let keys = keys(SUITE, &mut Rng::with_seed(22));
    let with_end = |spi, soft, hard| {
        let mut config = config(Direction::Outbound, spi, &keys);
        config.lifetime.soft = Limits { seconds: Some(soft), ..Limits::default() };
        config.lifetime.hard = Limits { seconds: Some(hard), ..Limits::default() };
        table.add(config, 0).expect("it fits");
    };
    with_end(0x2001, 30, 40);
    with_end(0x2002, 10, 20);
    let newest = || table.read().newest(7).map(|sa| sa.spi());
    assert_eq!(newest(), Ok(0x2002));
    let events = table.expire(10);
    assert_eq!(events.len(), 1);
    assert!(events[0].0.spi() == 0x2002 && events[0].1.soft && !events[0].1.hard);
    assert_eq!(newest(), Ok(0x2001), "the other one has more time");
    table.expire(30);
    assert_eq!(newest(), Ok(0x2001), "0x2002 has ended");
    table.expire(40);
    assert_eq!(newest(), Err(Refusal::NoSa));
    assert_eq!(table.read().newest(8).err(), Some(Refusal::NoSa));
}

#[test]
fn the_first_policy_by_priority_counts() {
    let table = table();
    let add = |policy| table.add_policy(policy).expect("it fits");
    add(policy("10.0.0.0/8", "0.0.0.0/0", 30, Action::Discard));
    add(policy("10.1.0.0/16", "10.2.0.0/16", 20, Action::Protect(7)));
    let dns = policy("0.0.0.0/0", "10.2.0.53/32", 10, Action::Bypass);
    let selector = Selector { protocol: Some(17), destination_port: Some(53), ..dns.selector };
    add(Policy { selector, ..dns });
    add(policy("::/0", "::/0", 1, Action::Bypass));
    let outcome = |flow: Flow| {
        let view = table.read();
        view.outbound(&flow).map(|it| matches!(it, Outbound::Bypass))
    };
    assert_eq!(outcome(flow("10.9.0.1", "10.2.0.1", 1)), Err(Refusal::PolicyDiscard));
    assert_eq!(outcome(flow("10.1.0.1", "10.2.0.1", 1)), Err(Refusal::NoSa));
    assert_eq!(outcome(flow("10.1.0.1", "10.2.0.53", 53)), Ok(true));
    assert_eq!(outcome(flow("10.1.0.1", "10.2.0.53", 54)), Err(Refusal::NoSa));
    assert_eq!(outcome(flow("11.1.0.1", "10.2.0.1", 1)), Err(Refusal::NoPolicy));
    assert_eq!(outcome(flow("fd00::1", "fd00::2", 1)), Ok(true));
    let again = policy("10.0.0.0/8", "0.0.0.0/0", 30, Action::Bypass);
    assert_eq!(table.add_policy(again), Err(TableError::PolicyExists(30)));
    let wrong = policy("10.0.0.0/33", "0.0.0.0/0", 31, Action::Bypass);
    assert_eq!(table.add_policy(wrong), Err(TableError::Selector));
    let wrong = policy("10.0.0.0/8", "::/0", 31, Action::Bypass);
    assert_eq!(table.add_policy(wrong), Err(TableError::Selector));
    let priorities: Vec<u32> = table.policies().iter().map(|policy| policy.priority).collect();
    assert_eq!(priorities, [1, 10, 20, 30]);
}

/// Random policies and packets, beside a walk over all policies in order of priority.
#[test]
fn policies_beside_a_linear_search() {
    let mut random = Rng::with_seed(23);
    let table = Table::new(TableLimits { sas: 1, policies: 500 });
    let mut list: Vec<Policy> = Vec::new();
    for step in 0..4000u32 {
        if random.u8(..3) == 0 && list.len() < 400 {
            let policy = random_policy(&mut random, step);
            table.add_policy(policy).expect("it fits");
            list.push(policy);
        } else if random.u8(..4) == 0 && !list.is_empty() {
            let policy = list.swap_remove(random.usize(..list.len()));
            assert_eq!(table.remove_policy(&policy), Some(policy));
            assert_eq!(table.remove_policy(&policy), None);
        }
        let flow = random_flow(&mut random);
        let found = list.iter().filter(|policy| matches(&policy.selector, &flow));
        let expected = found.min_by_key(|policy| policy.priority).map(|policy| policy.action);
        let view = table.read();
        match (view.outbound(&flow), expected) {
            (Err(Refusal::NoPolicy), None)
            | (Err(Refusal::PolicyDiscard), Some(Action::Discard))
            | (Ok(Outbound::Bypass), Some(Action::Bypass)) => {}
            (outcome, expected) => panic!("{outcome:?}, not {expected:?}, for {flow:?}"),
        }
    }
}

fn random_policy(random: &mut Rng, step: u32) -> Policy {
    let mut prefix = || Prefix {
        address: [10, random.u8(..3), random.u8(..3), random.u8(..)].into(),
        len: *random.choice(&[0, 8, 16, 24, 32]).expect("one of them"),
    };
    let between = Selector::between(prefix(), prefix());
    let selector = Selector {
        protocol: random.bool().then_some(17),
        source_port: (random.u8(..4) == 0).then(|| random.u16(..3)),
        destination_port: (random.u8(..4) == 0).then(|| random.u16(..3)),
        ..between
    };
    let action = if random.bool() { Action::Bypass } else { Action::Discard };
    // Unique, and in no order.
    Policy { selector, priority: step.wrapping_mul(2_654_435_761), action }
}

fn random_flow(random: &mut Rng) -> Flow {
    let mut address = || u32::from_be_bytes([10, random.u8(..3), random.u8(..3), random.u8(..)]);
    Flow {
        is_v6: false,
        source: address().into(),
        destination: address().into(),
        protocol: *random.choice(&[6, 17]).expect("one of them"),
        source_port: random.u16(..3),
        destination_port: random.u16(..3),
    }
}

/// The definition of a selector, bit by bit.
fn matches(selector: &Selector, flow: &Flow) -> bool {
    let is_in = |prefix: &Prefix, number: u128| {
        let std::net::IpAddr::V4(address) = prefix.address else { return false };
        (0..prefix.len).all(|bit| (address.to_bits() ^ number as u32) >> (31 - bit) & 1 == 0)
    };
    is_in(&selector.source, flow.source)
        && is_in(&selector.destination, flow.destination)
        && selector.protocol.is_none_or(|it| it == flow.protocol)
        && selector.source_port.is_none_or(|it| it == flow.source_port)
        && selector.destination_port.is_none_or(|it| it == flow.destination_port)
}

/// An SA is removed while a packet of it is in an engine.
#[test]
fn a_removed_sa_completes_what_is_in_flight() {
    let table = table();
    let keys = keys(SUITE, &mut Rng::with_seed(24));
    let sa = table.add(config(Direction::Outbound, 0x3000, &keys), 0).expect("it fits");
    let packet = frame(&ip(&case(), 17, &udp(1, 2, b"x")));
    let mut jobs = vec![encap(&sa, OwnedBuffer::new(&packet), 0).expect("it can be sent")];
    let faults = Faults { delay_rounds_max: 3, ..Faults::default() };
    let mut engine = Fault::new(towpath_ipsec::Direct::new(4), faults);
    engine.submit(&mut jobs);
    engine.complete(&mut jobs);
    assert!(jobs.is_empty(), "it is late");
    let weak = Arc::downgrade(&sa);
    drop(sa);
    table.flush();
    assert!(table.list().is_empty());
    while jobs.is_empty() {
        engine.complete(&mut jobs);
    }
    assert!(finish(jobs.remove(0), 0).is_ok());
    assert!(weak.upgrade().is_none(), "nothing keeps the SA and its keys");
}

#[test]
fn an_sa_takes_the_place_of_another_one() {
    let table = Table::new(TableLimits { sas: 2, policies: 1 });
    let mut random = Rng::with_seed(26);
    let inbound = |spi, keys: &Keys| config(Direction::Inbound, spi, keys);
    let (old_keys, new_keys) = (keys(SUITE, &mut random), keys(SUITE, &mut random));
    let first = table.add(inbound(0x1000, &old_keys), 0).expect("it fits");
    let other = table.add(inbound(0x1001, &old_keys), 0).expect("it fits");
    // The same SPI with other keys, in a table that is full.
    let second = table.replace(first.id(), inbound(0x1000, &new_keys), 0).expect("it fits");
    assert_ne!(second.id(), first.id());
    let ids = || table.list().iter().map(|sa| sa.id()).collect::<Vec<_>>();
    assert_eq!(ids(), [other.id(), second.id()]);
    // A refused replacement leaves the old SA in its place.
    let taken = table.replace(second.id(), inbound(0x1001, &new_keys), 0).err();
    assert!(matches!(taken, Some(TableError::SpiInUse { spi: 0x1001, .. })));
    assert_eq!(ids(), [other.id(), second.id()]);
    // An SA that was removed before has no place to take.
    let gone = table.replace(first.id(), inbound(0x1002, &new_keys), 0);
    assert_eq!(gone.err(), Some(TableError::Full(2)));
    let out = |spi| config(Direction::Outbound, spi, &new_keys);
    let sender = table.replace(second.id(), out(0x1002), 0).expect("it fits");
    let newest = table.replace(sender.id(), out(0x1003), 0).expect("it fits");
    assert_eq!(table.read().newest(7).expect("there is one").id(), newest.id());
}

#[test]
fn all_policies_change_at_once_or_none_does() {
    let table = Table::new(TableLimits { sas: 1, policies: 2 });
    let of = |priority, action| policy("10.0.0.0/8", "10.0.0.0/8", priority, action);
    let protect = of(1, Action::Protect(7));
    let set = |new: &[Policy]| table.replace_policies(&table.policies(), new);
    set(&[of(2, Action::Bypass), protect]).expect("they fit");
    assert_eq!(table.policies(), [protect, of(2, Action::Bypass)]);
    let twice = [of(1, Action::Discard), of(1, Action::Bypass)];
    assert_eq!(set(&twice), Err(TableError::PolicyExists(1)));
    let many = [of(1, Action::Bypass), of(2, Action::Bypass), of(3, Action::Bypass)];
    assert_eq!(set(&many), Err(TableError::PoliciesFull(2)));
    let wrong = policy("10.0.0.0/8", "::/0", 1, Action::Bypass);
    assert_eq!(set(&[wrong]), Err(TableError::Selector));
    assert_eq!(table.policies().len(), 2, "nothing has changed");
    set(&[of(1, Action::Discard)]).expect("it fits");
    assert_eq!(table.policies(), [of(1, Action::Discard)]);
    // Packets are never without a policy, however often all of them change.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let view = table.read();
                let found = view.outbound(&flow("10.1.0.1", "10.2.0.1", 1)).err();
                assert_ne!(found, Some(Refusal::NoPolicy));
            }
        });
        for round in 0..2000 {
            let next = of(round, Action::Discard);
            set(&[next]).expect("it fits");
        }
        is_over.store(true, Ordering::Relaxed);
        looker.join().expect("no panic");
    });
}

#[test]
fn a_table_has_limits() {
    let table = Table::new(TableLimits { sas: 2, policies: 1 });
    let keys = keys(SUITE, &mut Rng::with_seed(25));
    for spi in [0x1000, 0x1001] {
        table.add(config(Direction::Inbound, spi, &keys), 0).expect("it fits");
    }
    let third = table.add(config(Direction::Inbound, 0x1002, &keys), 0);
    assert_eq!(third.err(), Some(TableError::Full(2)));
    table.add_policy(policy("10.0.0.0/8", "10.0.0.0/8", 1, Action::Bypass)).expect("it fits");
    let second = table.add_policy(policy("10.0.0.0/8", "10.0.0.0/8", 2, Action::Bypass));
    assert_eq!(second, Err(TableError::PoliciesFull(1)));
}

/// Two threads send by policy while a third one replaces the SA again and again: each packet is
/// encapsulated, and each sequence number of an SA is used once.
#[test]
fn lookups_while_sas_come_and_go() {
    let table = Table::new(TableLimits { sas: 64, policies: 4 });
    table.add_policy(policy("10.1.0.0/16", "10.2.0.0/16", 1, Action::Protect(7))).expect("fits");
    let suite = Suite::CipherThenHmac(Cipher::Null, Hmac::Sha1_96);
    let keys = Keys::new(Vec::new(), vec![1; 20]);
    let add = |spi| {
        let config = Config { suite, ..config(Direction::Outbound, spi, &keys) };
        table.add(config, 0).expect("it fits").id()
    };
    let mut current = add(0x1000);
    let is_over = AtomicBool::new(false);
    let mut numbers = std::thread::scope(|scope| {
        let senders: Vec<_> =
            (0..2).map(|_| scope.spawn(|| send_until(&table, &is_over))).collect();
        for spi in 0x1001..0x1200 {
            let next = add(spi);
            std::thread::yield_now();
            table.remove(current).expect("it was there");
            current = next;
        }
        is_over.store(true, Ordering::Relaxed);
        let sent = senders.into_iter().map(|it| it.join().expect("no panic"));
        sent.flatten().collect::<Vec<(u32, u32)>>()
    });
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "a sequence number was used twice");
}

/// SPI and sequence number of each packet that could be sent until the end.
fn send_until(table: &Table, is_over: &AtomicBool) -> Vec<(u32, u32)> {
    let packet = frame(&ip(&case(), 17, &udp(1, 2, b"x")));
    let flow = Flow::of_frame(&packet).expect("a flow");
    let mut sent = Vec::new();
    loop {
        let last = is_over.load(Ordering::Relaxed);
        let view = table.read();
        let Ok(Outbound::Protect(sa)) = view.outbound(&flow) else { panic!("there is an SA") };
        sent.push(number_of(sa, &packet));
        if last {
            return sent;
        }
    }
}

fn number_of(sa: &Arc<Sa>, packet: &[u8]) -> (u32, u32) {
    let sent = send(sa, packet).expect("it can be sent");
    let number = |at| u32::from_be_bytes(sent[at..at + 4].try_into().expect("4 bytes"));
    (number(34), number(38))
}
