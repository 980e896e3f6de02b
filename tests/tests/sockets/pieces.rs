//! Packets of several chunks.

use towpath_ring::Desc;
use towpath_xsk_client::abi::{COPY, USE_NEED_WAKEUP, USE_SG};

use crate::packets::{number, packet};
use crate::recorded::same_in_both;
use crate::socket::{Plan, Socket};
use crate::world::{End, World};

const CONTINUES: u32 = Desc::CONTINUES;

fn plan(end: End) -> Plan<'static> {
    Plan { chunk: 2048, flags: COPY | USE_NEED_WAKEUP | USE_SG, ..Plan::new(end) }
}

fn ends(world: &World) -> (Socket, Socket) {
    let from = world.open(&Plan { is_steered: false, ..plan(End::Far) });
    let mut to = world.open(&plan(End::Near));
    to.fill_half(256);
    (from, to)
}

/// Spreads a packet over chunks, with that many bytes in each.
fn spread(from: &Socket, packet: &[u8], each: usize) -> Vec<Desc> {
    let count = packet.chunks(each).count();
    let pieces = packet.chunks(each).zip(0..);
    pieces
        .map(|(piece, at)| {
            let desc = from.place(from.chunk_to_send(at, 64), piece);
            let is_last = at as usize + 1 == count;
            Desc { options: if is_last { 0 } else { CONTINUES }, ..desc }
        })
        .collect()
}

/// Says what came: of each packet its pieces, and whether it is the one that was sent.
fn say_what_came(to: &mut Socket, out: &mut String) {
    let came = to.receive_all();
    for descs in came.split_inclusive(|desc| desc.options & CONTINUES == 0) {
        let bytes: Vec<u8> = descs.iter().flat_map(|desc| to.bytes(desc)).collect();
        let pieces: Vec<_> = descs.iter().map(|desc| (desc.len, desc.options)).collect();
        say!(out, "  packet {:?} of {} bytes: {pieces:?}", number(&bytes), bytes.len());
    }
    to.fill(came.iter().map(|desc| desc.addr));
}

#[test]
fn long_packets_take_several_chunks() {
    same_in_both("several chunks: received", |world, out| {
        let (mut from, mut to) = ends(world);
        for len in [1792, 1793, 2048, 3000, 3414] {
            let descs = spread(&from, &packet(7, len), 2048);
            say!(out, "{len} bytes from {} chunks", descs.len());
            from.send_all(&descs);
            say_what_came(&mut to, out);
            say!(out, "  {} completed", from.complete_all().len());
        }
        say!(out, "{:?}", &to.system.statistics()[..5]);
    });
}

#[test]
fn packets_are_sent_from_many_chunks() {
    same_in_both("several chunks: sent", |world, out| {
        let (mut from, mut to) = ends(world);
        for count in [2, 3, 17, 18] {
            let descs = spread(&from, &packet(count, 100 * count as usize), 100);
            from.send_all(&descs);
            say!(out, "from {} chunks:", descs.len());
            say_what_came(&mut to, out);
            let mut done = from.complete_all();
            done.sort_unstable();
            let all: Vec<_> = descs.iter().map(|desc| desc.addr).collect();
            say!(out, "  completed all: {}", done == all);
        }
    });
}

/// Between good ones; what is bad in one hurts no other.
#[test]
fn packets_with_a_bad_piece() {
    same_in_both("several chunks: bad piece", |world, out| {
        let (mut from, mut to) = ends(world);
        let good = spread(&from, &packet(1, 300), 100);
        for bad in 0..3 {
            let mut descs = spread(&from, &packet(2, 300), 100);
            descs[bad].len = 3000;
            from.send_all(&good);
            from.send_all(&descs);
            from.send_all(&good);
            say!(out, "piece {bad} is bad:");
            say_what_came(&mut to, out);
            say!(out, "  completed {}", from.complete_all().len());
            say!(out, "  invalid {}", from.system.statistics()[2]);
        }
    });
}

/// Without `XDP_USE_SG` what does not fit a chunk is dropped.
#[test]
fn sockets_for_single_chunks() {
    same_in_both("several chunks: not wanted", |world, out| {
        let mut from = world.open(&Plan { is_steered: false, ..plan(End::Far) });
        let flags = COPY | USE_NEED_WAKEUP;
        let mut to = world.open(&Plan { flags, ..plan(End::Near) });
        to.fill_half(256);
        for len in [1792, 1793, 3000] {
            let descs = spread(&from, &packet(3, len), 1000);
            from.send_all(&descs);
            say!(out, "{len} bytes:");
            say_what_came(&mut to, out);
        }
        say!(out, "{:?}", &to.system.statistics()[..5]);
    });
}

/// All of a packet or nothing.
#[test]
fn packets_for_which_chunks_are_short() {
    same_in_both("several chunks: too few", |world, out| {
        let mut from = world.open(&Plan { is_steered: false, ..plan(End::Far) });
        let mut to = world.open(&plan(End::Near));
        for chunks in 0..3 {
            to.fill((0..chunks).map(|chunk| (chunk + 10 * chunks) * 2048));
            let descs = spread(&from, &packet(4, 3000), 1500);
            from.send_all(&descs);
            say!(out, "{chunks} more chunks:");
            say_what_came(&mut to, out);
            say!(out, "  {:?}", &to.system.statistics()[..5]);
        }
    });
}
