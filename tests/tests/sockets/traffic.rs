//! Receiving and sending, as applications do most of the time.

use towpath_xsk_client::abi::UMEM_UNALIGNED;

use crate::packets::{packet, stream, summary, take};
use crate::recorded::same_in_both;
use crate::socket::{Plan, Socket};
use crate::world::{End, World};

/// A socket that sends and one that receives.
fn ends(world: &World, plan: &Plan<'_>) -> (Socket, Socket) {
    let from = world.open(&Plan { end: End::Far, is_steered: false, ..*plan });
    let mut to = world.open(&Plan { end: End::Near, ..*plan });
    to.fill_half(256);
    (from, to)
}

#[test]
fn all_packets_arrive_in_order() {
    same_in_both("receive", |world, out| {
        for chunk in [4096, 2048] {
            let (mut from, mut to) = ends(world, &Plan { chunk, ..Plan::new(End::Near) });
            let arrived = stream(&mut from, &mut to, 3000);
            say!(out, "chunks of {chunk}: {}", summary(&arrived));
            say!(out, "{:?}", &to.system.statistics()[..4]);
        }
    });
}

#[test]
fn a_single_packet_arrives() {
    same_in_both("single packet", |world, out| {
        let (mut from, mut to) = ends(world, &Plan::new(End::Near));
        let desc = from.place(from.chunk_to_send(5, 64), &packet(0, 60));
        from.send_all(&[desc]);
        for desc in to.receive_all() {
            say!(out, "at {} {} bytes, options {}", desc.addr, desc.len, desc.options);
        }
        say!(out, "completed {:?}, sent from {}", from.complete_all(), desc.addr);
    });
}

#[test]
fn both_directions_at_once() {
    same_in_both("bidirectional", |world, out| {
        let (mut a, mut b) = (world.open(&Plan::new(End::Near)), world.open(&Plan::new(End::Far)));
        a.fill_half(256);
        b.fill_half(256);
        // Each answers the other's packets; what they carry is told apart by number.
        for round in 0..20 {
            let there = stream(&mut a, &mut b, 50);
            let back = stream(&mut b, &mut a, 50);
            if round == 19 {
                say!(out, "there: {}; back: {}", summary(&there), summary(&back));
            }
        }
        let descs = |socket: &Socket| {
            (0..32).map(|n| socket.place(socket.chunk_to_send(n, 64), &packet(n, 100))).collect()
        };
        let (from_a, from_b): (Vec<_>, Vec<_>) = (descs(&a), descs(&b));
        a.transmit(&from_a);
        b.transmit(&from_b);
        a.send_all(&[]);
        b.send_all(&[]);
        say!(out, "at once: {} and {}", a.receive_all().len(), b.receive_all().len());
    });
}

/// A packet may begin anywhere in the memory, and a chunk, too.
#[test]
fn unaligned_chunks() {
    same_in_both("unaligned", |world, out| {
        let plan = Plan { umem_flags: UMEM_UNALIGNED, chunk: 3000, ..Plan::new(End::Near) };
        let mut from = world.open(&Plan { end: End::Far, is_steered: false, ..plan });
        let mut to = world.open(&plan);
        to.fill([0, 3000 + 17, 8191, 12345]);
        // Linux 6.18 loses the lowest bit of an address on its way to the completion ring.
        let descs: Vec<_> = [1 << 20, (1 << 20) + 4002, (1 << 20) + 8200, (1 << 20) + 16382]
            .into_iter()
            .zip(0..)
            .map(|(addr, number)| from.place(addr, &packet(number, 300 + number as usize)))
            .collect();
        from.send_all(&descs);
        for desc in to.receive_all() {
            let (base, offset) = (desc.addr & ((1 << 48) - 1), desc.addr >> 48);
            let number = crate::packets::number(&to.bytes(&desc));
            say!(out, "packet {number:?} at {base} + {offset}, {} bytes", desc.len);
        }
        say!(out, "completed {:?}", from.complete_all());
        // The offset may also be the application's.
        let desc = from.place((1 << 20) + 777, &packet(9, 200));
        let split = towpath_ring::Desc { addr: 1 << 20 | 777 << 48, ..desc };
        to.fill([20_000]);
        from.send_all(&[split]);
        let numbers: Vec<_> =
            to.receive_all().iter().map(|desc| crate::packets::number(&to.bytes(desc))).collect();
        say!(out, "{numbers:?}, completed as {:x?}", from.complete_all());
        drop((from, to));
        for chunk in [2048, 4096] {
            let (mut from, mut to) = ends(world, &Plan { chunk, ..plan });
            say!(out, "chunks of {chunk}: {}", summary(&stream_at(&mut from, &mut to)));
        }
    });
}

/// 500 packets that begin at odd places.
fn stream_at(from: &mut Socket, to: &mut Socket) -> Vec<Option<u32>> {
    let mut arrived = Vec::new();
    for number in 0..500 {
        let addr = (2 << 20) + u64::from(number % 100) * 2000 + 13;
        let desc = from.place(addr, &packet(number, 1200));
        from.send_all(&[desc]);
        from.completed();
        let until = std::time::Instant::now() + crate::packets::PATIENCE;
        while arrived.len() as u32 <= number && std::time::Instant::now() < until {
            arrived.extend(take(to));
        }
    }
    arrived
}

#[test]
fn headroom_stays_free() {
    same_in_both("headroom", |world, out| {
        for headroom in [0, 1, 128, 1000] {
            let (mut from, mut to) = ends(world, &Plan { headroom, ..Plan::new(End::Near) });
            let desc = from.place(from.chunk_to_send(0, 64), &packet(0, 60));
            from.send_all(&[desc]);
            let places: Vec<_> = to.receive_all().iter().map(|it| it.addr % 4096).collect();
            say!(out, "headroom {headroom}: packets begin at {places:?}");
        }
    });
}

/// Sockets come and go under traffic.
#[test]
fn sockets_come_and_go() {
    same_in_both("teardown", |world, out| {
        let mut from = world.open(&Plan { is_steered: false, ..Plan::new(End::Far) });
        for round in 0..10 {
            let mut to = world.open(&Plan::new(End::Near));
            to.fill_half(256);
            let arrived = stream(&mut from, &mut to, 100);
            say!(out, "{round}: {}", summary(&arrived));
            // Gone with packets for it on their way.
            let descs: Vec<_> =
                (0..32).map(|n| from.place(from.chunk_to_send(n, 64), &packet(n, 100))).collect();
            from.send_all(&descs);
            drop(to);
            while from.completed().is_empty() {
                from.kick();
            }
            from.complete_all();
        }
    });
}
