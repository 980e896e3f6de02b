//! Random datagrams: all of them arrive as they were sent, in their order, with their addresses and
//! marks.

use std::net::SocketAddr;

use fastrand::Rng;
use towpath_udp::{Options, TxDatagram, UdpStack};

use crate::lab::{Datagram, FAR, Lab, NEAR, at, find_way, number, receive, send_all};

#[test]
fn random_datagrams_of_ipv4() {
    exchange("0.0.0.0", &NEAR[..2], &FAR[..2], 1472);
}

#[test]
fn random_datagrams_of_ipv6() {
    exchange("::", &NEAR[2..], &FAR[2..], 1452);
}

/// Exchanges datagrams between wildcard sockets. A window of them is acknowledged before the next,
/// so that no buffer overflows.
fn exchange(wildcard: &str, near: &[&str], far: &[&str], len_max: usize) {
    let Some(lab) = Lab::acquainted("") else { return };
    let stack = lab.stack();
    let here = stack.bind(at(wildcard, 7000)).unwrap();
    let there = lab.kernel(&at(wildcard, 0).to_string());
    let mut rng = Rng::with_seed(len_max as u64);
    far.iter().for_each(|address| find_way(&here, &there, address));
    let near: Vec<_> = near.iter().map(|address| at(address, 7000)).collect();
    let far: Vec<_> = far.iter().map(|address| at(address, there.port())).collect();
    let count = number("TOWPATH_UDP_DATAGRAMS", 10_000);
    for window in 0..count.div_ceil(WINDOW) {
        let sent = draw(&mut rng, &far, &near, len_max);
        sent.iter().for_each(|datagram| there.send(datagram));
        compare(&receive(&here, sent.len()), &sent, &format!("to Towpath, window {window}"));
        let sent = draw(&mut rng, &near, &far, len_max);
        let batch: Vec<TxDatagram<'_>> = sent.iter().map(Datagram::to_send).collect();
        send_all(&here, &batch);
        compare(&there.receive(sent.len()), &sent, &format!("from Towpath, window {window}"));
    }
    let statistics = stack.statistics();
    let exchanged = (count.div_ceil(WINDOW) * WINDOW) as u64;
    let first = far.len() as u64;
    assert_eq!((statistics.received, statistics.sent), (exchanged, exchanged + first));
    assert_eq!((statistics.malformed, statistics.bad_checksum), (0, 0), "{statistics:?}");
    assert_eq!((statistics.without_socket, statistics.socket_full), (0, 0), "{statistics:?}");
}

fn draw(rng: &mut Rng, from: &[SocketAddr], to: &[SocketAddr], len_max: usize) -> Vec<Datagram> {
    let one = |_| {
        // The shortest and the longest more often than by chance.
        let len = match rng.u8(..) {
            0..8 => 0,
            8..16 => len_max,
            _ => rng.usize(..=len_max),
        };
        let payload = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
        let (source, destination) = (from[rng.usize(..from.len())], to[rng.usize(..to.len())]);
        Datagram { payload, source, destination, ecn: rng.u8(..4) }
    };
    (0..WINDOW).map(one).collect()
}

#[track_caller]
fn compare(received: &[Datagram], sent: &[Datagram], what: &str) {
    for (number, (received, sent)) in received.iter().zip(sent).enumerate() {
        let heads =
            [received, sent].map(|it| (it.payload.len(), it.source, it.destination, it.ecn));
        assert_eq!(heads[0], heads[1], "{what}, {number}");
        assert!(received.payload == sent.payload, "{what}, {number}: {heads:?}");
    }
    assert_eq!(received.len(), sent.len(), "{what}");
}

#[test]
fn runs_of_segments_arrive_as_single_datagrams() {
    let Some(lab) = Lab::acquainted("") else { return };
    let stack = lab.stack();
    for (near, far, len_max) in [(NEAR[0], FAR[0], 1472), (NEAR[2], FAR[2], 1452)] {
        let socket = stack.bind(at(near, 0)).unwrap();
        let there = lab.kernel(&at(far, 0).to_string());
        find_way(&socket, &there, far);
        let mut rng = Rng::with_seed(1);
        let mut check = |len: usize, size: usize| {
            let payload: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
            let destination = at(far, there.port());
            let run =
                TxDatagram { segment_size: Some(size), ..TxDatagram::new(&payload, destination) };
            send_all(&socket, &[run]);
            let wanted: Vec<&[u8]> = payload.chunks(size).collect();
            let received = there.receive(wanted.len().max(1));
            let received: Vec<&[u8]> = received.iter().map(|it| &it.payload[..]).collect();
            let lens = |parts: &[&[u8]]| parts.iter().map(|it| it.len()).collect::<Vec<_>>();
            assert_eq!(lens(&received), lens(&wanted), "{len} bytes, {size} each");
            assert_eq!(received, wanted);
        };
        for (len, size) in [
            (4500, 1000),
            (64, 1),
            (64 * 1000, 1000),
            (63 * len_max + 1, len_max),
            (1000, 1000),
            (500, 1000),
            // A size beyond the MTU is of no account if there is just one datagram.
            (500, 9000),
        ] {
            check(len, size);
        }
        for _ in 0..100 {
            let size = fastrand::usize(1..=len_max);
            check(fastrand::usize(1..=64 * size), size);
        }
    }
}

#[test]
fn several_applications_have_ports_of_one_queue() {
    let Some(lab) = Lab::acquainted("") else { return };
    let small = Options { entries: 64, chunks: 128, ..lab.options() };
    let stacks: Vec<UdpStack> = (0..4).map(|_| UdpStack::open(&small).unwrap()).collect();
    let sockets: Vec<_> = (0..8)
        .map(|number| stacks[number % 4].bind(at(NEAR[0], 7000 + number as u16)).unwrap())
        .collect();
    let there = lab.kernel(&at(FAR[0], 0).to_string());
    let mut rng = Rng::with_seed(2);
    for _ in 0..1000 {
        let numbers: Vec<usize> = (0..16).map(|_| rng.usize(..8)).collect();
        for (byte, number) in (0..).zip(&numbers) {
            there.send_to(&[byte, *number as u8], at(NEAR[0], 7000 + *number as u16));
        }
        for (number, socket) in sockets.iter().enumerate() {
            let mine = (0..).zip(&numbers).filter(|(_, other)| **other == number);
            let wanted: Vec<_> = mine.map(|(byte, _)| vec![byte, number as u8]).collect();
            let received = receive(socket, wanted.len());
            let received: Vec<_> = received.into_iter().map(|it| it.payload).collect();
            assert_eq!(received, wanted);
        }
    }
}

/// Datagrams that are under way at the same time.
const WINDOW: usize = 50;
