//! Descriptors to send: which are taken and which are not.

use towpath_ring::Desc;
use towpath_xsk_client::abi::UMEM_UNALIGNED;

use crate::packets::{flush, packet};
use crate::recorded::same_in_both;
use crate::socket::{AREA_BYTES, Plan};
use crate::world::{End, World};

/// Sends descriptors one by one and says what became of each.
fn one_by_one(world: &World, plan: &Plan<'_>, out: &mut String) {
    let mut from = world.open(&Plan { end: End::Far, is_steered: false, ..*plan });
    let mut to = world.open(&Plan { end: End::Near, chunk: 4096, umem_flags: 0, ..*plan });
    to.fill_half(128);
    let size = AREA_BYTES as u64;
    let page = 2 * 4096;
    let all = [
        ("the first byte", 0, 64),
        ("in the middle", page, 64),
        ("nothing", page, 0),
        ("in front of the memory", u64::MAX - 1, 64),
        ("longer than a chunk", page, 4097),
        ("a whole chunk of 2048", page, 2048),
        ("one more than that", page, 2049),
        ("a minimal one", page, 14),
        ("less than a header", page, 13),
        ("up to the end", size - 64, 64),
        ("behind the end", size, 64),
        ("over the end", size - 32, 64),
        ("over a page's end", page + 4096 - 32, 64),
        ("over a chunk's end", page + 2048 - 32, 64),
        ("far behind", 1 << 40, 64),
        ("with an offset", page | 100 << 48, 64),
        ("with an offset over the end", (size - 64) | 100 << 48, 64),
        ("and one that is good", page, 60),
    ];
    for (what, addr, len) in all {
        let bytes = packet(1, len as usize);
        let place = crate::packets::location(addr);
        if let Some(room) = from.area().bytes_mut(place, bytes.len()) {
            room.copy_from_slice(&bytes);
        }
        from.send_all(&[Desc { addr, len, options: 0 }]);
        let came: Vec<_> = flush(&mut from, &mut to).iter().map(|desc| desc.len).collect();
        // The last packet's is there when all are.
        let mut done = Vec::new();
        while done.last() != Some(&from.chunk_to_send(400, 512)) {
            done.extend(from.completed());
        }
        done.pop();
        let invalid = from.system.statistics()[2];
        say!(out, "{what}: came {came:?}, completed {done:x?}, invalid {invalid}");
    }
    for options in [0, 1 << 2, 1 << 15, u32::MAX - 1] {
        from.send_all(&[Desc { addr: page, len: 64, options }]);
        let came = flush(&mut from, &mut to).len();
        let invalid = from.system.statistics()[2];
        say!(out, "options {options:x}: came {came}, invalid {invalid}");
        from.completed();
    }
}

#[test]
fn of_chunks_of_a_page() {
    same_in_both("descriptors", |world, out| one_by_one(world, &Plan::new(End::Near), out));
}

#[test]
fn of_chunks_of_half_a_page() {
    same_in_both("descriptors, chunks of 2048", |world, out| {
        one_by_one(world, &Plan { chunk: 2048, ..Plan::new(End::Near) }, out);
    });
}

#[test]
fn of_unaligned_chunks() {
    same_in_both("descriptors, unaligned", |world, out| {
        let plan = Plan { umem_flags: UMEM_UNALIGNED, ..Plan::new(End::Near) };
        one_by_one(world, &plan, out);
    });
}
