//! Statistics of sockets.

use towpath_ring::Desc;

use crate::packets::{number, packet};
use crate::recorded::same_in_both;
use crate::socket::{Plan, Socket};
use crate::world::{End, World};

/// Sends packets of that length and says how many came and what was counted.
fn flood(from: &mut Socket, to: &mut Socket, count: u32, len: usize, out: &mut String) {
    let descs: Vec<_> =
        (0..count).map(|n| from.place(from.chunk_to_send(n, 64), &packet(n, len))).collect();
    // A few at a time: a queue of either world holds that many.
    let mut came = Vec::new();
    for some in descs.chunks(32) {
        from.send_all(some);
        came.extend(to.receive_all());
        from.completed();
    }
    let numbers: Vec<_> = came.iter().map(|desc| number(&to.bytes(desc))).collect();
    let are_first = numbers.iter().zip(0..).all(|(seen, number)| *seen == Some(number));
    say!(out, "{} of {count} came, the first ones: {are_first}", came.len());
    counted(to, out);
}

/// Statistics, without the number of polls that found the tx ring empty, which varies.
fn counted(socket: &Socket, out: &mut String) {
    let [dropped, rx_invalid, tx_invalid, full, empty, _] = socket.system.statistics();
    say!(out, "dropped {dropped} invalid {rx_invalid} {tx_invalid} full {full} empty {empty}");
}

fn sender(world: &World) -> Socket {
    world.open(&Plan { is_steered: false, ..Plan::new(End::Far) })
}

#[test]
fn packets_that_are_too_long_are_dropped() {
    same_in_both("statistics: too long", |world, out| {
        let mut from = sender(world);
        let mut to = world.open(&Plan { headroom: 1200, chunk: 2048, ..Plan::new(End::Near) });
        to.fill_half(256);
        for len in [592, 593, 800] {
            flood(&mut from, &mut to, 32, len, out);
        }
    });
}

#[test]
fn a_full_rx_ring_is_counted() {
    same_in_both("statistics: rx ring full", |world, out| {
        let mut from = sender(world);
        let mut to = world.open(&Plan { rings: [16, 0, 512, 512], ..Plan::new(End::Near) });
        to.fill_half(256);
        let descs: Vec<_> =
            (0..48).map(|n| from.place(from.chunk_to_send(n, 64), &packet(n, 80))).collect();
        from.send_all(&descs);
        std::thread::sleep(std::time::Duration::from_millis(100));
        counted(&to, out);
        let numbers: Vec<_> =
            to.receive().iter().map(|desc| number(&to.bytes(desc)).unwrap()).collect();
        say!(out, "{numbers:?}");
        // Chunks that were not needed are not lost.
        from.complete_all();
        from.send_all(&descs[..16]);
        let places: Vec<_> = to.receive_all().iter().map(|desc| desc.addr / 4096).collect();
        say!(out, "{} more, in chunks {places:?}", places.len());
    });
}

#[test]
fn an_empty_fill_ring_is_counted() {
    same_in_both("statistics: fill ring empty", |world, out| {
        let mut from = sender(world);
        let mut to = world.open(&Plan::new(End::Near));
        flood(&mut from, &mut to, 10, 80, out);
        to.fill([0, 4096, 8192]);
        flood(&mut from, &mut to, 10, 80, out);
    });
}

/// Entries of the fill ring that name no chunk are passed over.
#[test]
fn bad_fill_entries_are_passed_over() {
    same_in_both("statistics: fill ring invalid", |world, out| {
        let mut from = sender(world);
        let mut to = world.open(&Plan::new(End::Near));
        to.fill([u64::MAX, 4 << 20, 1 << 62, 4096 + 9, (4 << 20) - 1, (4 << 20) + 4096, 8192]);
        let descs: Vec<_> =
            (0..4).map(|n| from.place(from.chunk_to_send(n, 64), &packet(n, 80))).collect();
        from.send_all(&descs);
        for desc in to.receive_all() {
            say!(out, "{:?} at {}", number(&to.bytes(&desc)), desc.addr);
        }
        counted(&to, out);
    });
}

#[test]
fn invalid_descriptors_to_send_are_counted() {
    same_in_both("statistics: tx invalid", |world, out| {
        let mut from = sender(world);
        let mut to = world.open(&Plan::new(End::Near));
        to.fill_half(256);
        let descs: Vec<_> = (0..32)
            .map(|n| {
                let desc = from.place(from.chunk_to_send(n, 64), &packet(n, 80));
                if n % 2 == 0 { desc } else { Desc { options: 1 << 15, ..desc } }
            })
            .collect();
        from.send_all(&descs);
        say!(out, "{} came", to.receive_all().len());
        counted(&from, out);
        say!(out, "{} completed", from.complete_all().len());
    });
}
