//! Owners of an SA's sequence numbers, and look-ups of SAs as the kernel finds states.

use std::sync::Arc;

use fastrand::Rng;
use towpath_ipsec::{
    Aead, AwsLc, Buffer, Config, Direction, Locked, OwnedBuffer, QUIET_SECONDS, Refusal, Sa, Suite,
};

use crate::common::{Case, frame, ip_packet, keys, outer, table, udp};

const SUITE: Suite = Suite::Aead(Aead::Aes128Gcm);

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

/// Encapsulates a packet as a worker, at a time; returns its sequence number.
fn send_as(sa: &Arc<Sa>, worker: u32, now: u64) -> Result<u32, Refusal> {
    let mut locked = sa.lock(now);
    locked.claim_for_worker(worker)?;
    Ok(send(locked))
}

fn send(mut locked: Locked<'_>) -> u32 {
    let ends = ("10.0.0.1".parse().expect("one"), "10.0.0.2".parse().expect("one"));
    let packet = frame(&ip_packet(ends.0, ends.1, 17, &udp(9, 9, b"text")));
    let mut buffer = OwnedBuffer::new(&packet);
    locked.encap_at_once::<AwsLc>(&mut buffer).expect("it can be sent");
    let at = 14 + 20 + 4;
    u32::from_be_bytes(*buffer.bytes()[at..].first_chunk().expect("4 bytes"))
}

#[test]
fn one_worker_at_a_time_takes_sequence_numbers() {
    let (outbound, inbound) = case().pair(&mut Rng::with_seed(30));
    assert_eq!(send_as(&outbound, 3, 100), Ok(1));
    assert_eq!(send_as(&outbound, 4, 100), Err(Refusal::Busy), "worker 3 has it");
    assert_eq!(send_as(&outbound, 3, 101), Ok(2));
    assert_eq!(send_as(&outbound, 4, 100 + QUIET_SECONDS), Err(Refusal::Busy), "used at 101");
    assert_eq!(send_as(&outbound, 4, 101 + QUIET_SECONDS), Ok(3), "it was quiet");
    assert_eq!(send_as(&outbound, 3, 101 + QUIET_SECONDS), Err(Refusal::Busy));
    // A queue does not wait, and then the workers do.
    let mut locked = outbound.lock(104);
    locked.claim_for_queue();
    assert_eq!(send(locked), 4);
    assert_eq!(send_as(&outbound, 4, 104), Err(Refusal::Busy));
    assert_eq!(send_as(&outbound, 4, 104 + QUIET_SECONDS), Ok(5));
    // A worker that claimed it and sent nothing keeps nobody waiting.
    let fresh = case().pair(&mut Rng::with_seed(31)).0;
    assert_eq!(fresh.lock(5).claim_for_worker(1), Ok(()));
    assert_eq!(send_as(&fresh, 2, 5), Ok(1));
    // Inbound SAs accept packets in any order.
    for worker in 0..3 {
        assert_eq!(inbound.lock(5).claim_for_worker(worker), Ok(()));
    }
}

#[test]
fn numbers_are_unique_whoever_takes_them() {
    let outbound = case().pair(&mut Rng::with_seed(32)).0;
    let mut all: Vec<u32> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let outbound = &outbound;
                scope.spawn(move || {
                    let sends = (0..2000).map(|round| send_as(outbound, worker, round * 3));
                    sends.filter_map(Result::ok).collect::<Vec<u32>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|it| it.join().expect("no panic")).collect()
    });
    assert_eq!(outbound.statistics().packets, all.len() as u64);
    all.sort_unstable();
    let expected: Vec<u32> = (1..=all.len() as u32).collect();
    assert_eq!(all, expected);
    assert!(!all.is_empty(), "someone sends");
}

#[test]
fn an_sa_of_any_direction_is_found_by_spi_and_destination() {
    let table = table();
    let config = |direction, spi| Config {
        spi,
        reqid: spi,
        ..case().config(direction, keys(SUITE, &mut Rng::with_seed(u64::from(spi))))
    };
    let add = |config| table.add(config, 0).expect("it fits").id();
    let (_, destination) = outer(false);
    let find = |spi, destination| table.read().find(spi, destination).map(|sa| sa.id());
    let inbound = add(config(Direction::Inbound, 0x1000));
    let first = add(config(Direction::Outbound, 0x2000));
    let newest = add(Config { reqid: 9, ..config(Direction::Outbound, 0x2000) });
    assert_eq!(find(0x1000, destination), Some(inbound));
    assert_eq!(find(0x2000, destination), Some(newest));
    assert_eq!(find(0x2000, outer(true).1), None, "another family");
    assert_eq!(find(0x3000, destination), None);
    // The inbound one comes first, as its numbers are this host's own.
    let both = add(config(Direction::Outbound, 0x1000));
    assert_eq!(find(0x1000, destination), Some(inbound));
    table.remove(inbound);
    assert_eq!(find(0x1000, destination), Some(both));
    table.remove(newest);
    assert_eq!(find(0x2000, destination), Some(first));
    table.remove(first);
    assert_eq!(find(0x2000, destination), None);
    table.flush();
    assert_eq!(find(0x1000, destination), None);
}
