//! Engines keep order and bounds, and what they fail at is not seen.

use std::sync::Arc;

use fastrand::Rng;
use towpath_ipsec::{
    Aead, Direct, Engine, Esp, Fault, Faults, Job, Null, OwnedBuffer, Refusal, Sa, Suite, finish,
    finish_all,
};

use crate::common::{Case, decap, encap, frame, ip, send, udp};

const MARK: &[u8] = b"must not be seen";

/// Outbound and inbound.
type Pair = (Arc<Sa>, Arc<Sa>);

fn pairs(count: usize) -> (Case, Vec<Pair>) {
    let case = Case {
        suite: Suite::Aead(Aead::Aes128Gcm),
        is_tunnel: true,
        is_outer_v6: false,
        is_inner_v6: false,
        is_udp: false,
        esn: false,
    };
    let mut random = Rng::with_seed(26);
    (case, (0..count).map(|_| case.pair(&mut random)).collect())
}

fn packet(case: &Case, number: usize) -> Vec<u8> {
    frame(&ip(case, 17, &udp(1, 2, &[MARK, &number.to_be_bytes()].concat())))
}

/// Sends packets of several SAs through an engine until all are out; returns, for each SA, the
/// sequence numbers in the order in which they came, and how many were refused.
fn push_all(engine: &mut impl Engine<Job<OwnedBuffer>>) -> (Vec<Vec<u32>>, u64) {
    let (case, pairs) = pairs(3);
    let (mut jobs, mut done) = (Vec::new(), Vec::new());
    let mut numbers = vec![Vec::new(); pairs.len()];
    let (mut sent, mut out, mut refused) = (0, 0, 0);
    while out < TOTAL {
        while jobs.len() < 8 && sent < TOTAL {
            let sa = &pairs[sent % pairs.len()].0;
            let buffer = OwnedBuffer::new(&packet(&case, sent));
            sa.lock(0).encap(buffer, &mut jobs).expect("it can be sent");
            sent += 1;
        }
        let (room, before) = (engine.room(), jobs.len());
        engine.submit(&mut jobs);
        assert_eq!(before - jobs.len(), room.min(before), "it takes what it has room for");
        engine.flush();
        engine.complete(&mut done);
        assert!(engine.in_flight() <= CAPACITY);
        finish_all(&mut done, 0, |result| {
            out += 1;
            let (sa, buffer) = match result {
                Ok(finished) => (finished.sa, finished.buffer),
                Err(it) => {
                    assert_eq!(it.reason, Refusal::EngineFailed);
                    assert!(!it.buffer.as_ref().windows(8).any(|part| MARK.starts_with(part)));
                    refused += 1;
                    (it.sa, it.buffer)
                }
            };
            let index = pairs.iter().position(|pair| Arc::ptr_eq(&pair.0, &sa)).expect("ours");
            let at = 14 + 20 + 4;
            let bytes = buffer.as_ref()[at..at + 4].try_into().expect("4 bytes");
            numbers[index].push(u32::from_be_bytes(bytes));
        });
    }
    assert_eq!(engine.in_flight(), 0);
    let counted: u64 = pairs.iter().map(|pair| pair.0.statistics().refused.total()).sum();
    assert_eq!(counted, refused);
    (numbers, refused)
}

fn check_order(numbers: &[Vec<u32>]) {
    for of_sa in numbers {
        let expected: Vec<u32> = (1..=of_sa.len() as u32).collect();
        assert_eq!(*of_sa, expected, "packets of an SA keep their order");
    }
}

#[test]
fn direct_and_null_keep_order() {
    let (numbers, refused) = push_all(&mut Direct::new(CAPACITY));
    check_order(&numbers);
    assert_eq!(refused, 0);
    let (numbers, refused) = push_all(&mut Null::new(CAPACITY));
    check_order(&numbers);
    assert_eq!(refused, 0);
}

#[test]
fn faults_are_the_same_each_time_and_keep_order() {
    let faults = Faults { fail_every: 5, delay_rounds_max: 4, stall_from: 0 };
    let outcomes: Vec<_> =
        (0..2).map(|_| push_all(&mut Fault::new(Direct::new(CAPACITY), faults))).collect();
    check_order(&outcomes[0].0);
    assert_eq!(outcomes[0].1, TOTAL as u64 / 5);
    assert_eq!(outcomes[0], outcomes[1]);
}

#[test]
fn a_stalled_engine_is_full_and_loses_nothing() {
    let (case, pairs) = pairs(1);
    let faults = Faults { stall_from: 3, ..Faults::default() };
    let mut engine = Fault::new(Direct::new(CAPACITY), faults);
    let job = |number| {
        let buffer = OwnedBuffer::new(&packet(&case, number));
        encap(&pairs[0].0, buffer, 0).expect("it can be sent")
    };
    let mut jobs: Vec<_> = (0..2 * CAPACITY).map(job).collect();
    let mut done = Vec::new();
    for _ in 0..10 {
        engine.submit(&mut jobs);
        engine.complete(&mut done);
    }
    assert_eq!(done.len(), 2, "those before the stall");
    assert_eq!((engine.room(), engine.in_flight()), (0, CAPACITY));
    assert_eq!(jobs.len(), CAPACITY - 2);
    engine.resume();
    for _ in 0..10 {
        engine.submit(&mut jobs);
        engine.complete(&mut done);
    }
    assert_eq!(done.len(), 2 * CAPACITY);
    assert!(done.into_iter().all(|job| finish(job, 0).is_ok()));
}

/// The engine decrypts and then says that it failed: what it left is overwritten.
#[test]
fn a_failure_after_decryption_shows_nothing() {
    let (case, pairs) = pairs(1);
    let (outbound, inbound) = &pairs[0];
    let sent = send(outbound, &packet(&case, 0)).expect("it can be sent");
    let esp = Esp::of_frame(&sent).expect("ESP");
    let faults = Faults { fail_every: 1, ..Faults::default() };
    let mut engine = Fault::new(Direct::new(CAPACITY), faults);
    let buffer = OwnedBuffer::new(&sent);
    let mut jobs = vec![decap(inbound, buffer, &esp).expect("it may be good")];
    engine.submit(&mut jobs);
    engine.complete(&mut jobs);
    let refused = finish(jobs.remove(0), 0).expect_err("the engine failed");
    assert_eq!(refused.reason, Refusal::EngineFailed);
    assert!(!refused.buffer.as_ref().windows(8).any(|part| MARK.starts_with(part)));
    assert_eq!(inbound.statistics().refused.get(Refusal::EngineFailed), 1);
    assert_eq!(inbound.statistics().packets, 0);
}

const CAPACITY: usize = 8;
const TOTAL: usize = 500;
