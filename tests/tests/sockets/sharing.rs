//! Sockets that share packet memory, and maps whose sockets change.

use towpath_ring::Desc;

use crate::packets::{number, packet, stream, summary};
use crate::recorded::same_in_both;
use crate::socket::{Plan, Socket};
use crate::world::End;

/// Two on one queue: one fill ring and one completion ring for both.
#[test]
fn two_sockets_on_a_queue() {
    same_in_both("shared queue", |world, out| {
        let mut from = world.open(&Plan { is_steered: false, ..Plan::new(End::Far) });
        let mut first = world.open(&Plan::new(End::Near));
        let rings = [512, 512, 0, 0];
        let plan = Plan { rings, shares: Some(&first), is_steered: false, ..Plan::new(End::Near) };
        let mut second = world.open(&plan);
        first.fill_half(256);
        let send = |from: &mut Socket, numbers: std::ops::Range<u32>| {
            let descs: Vec<_> =
                numbers.map(|n| from.place(from.chunk_to_send(n, 64), &packet(n, 100))).collect();
            from.send_all(&descs);
            from.completed();
        };
        let seen = |socket: &mut Socket| {
            let came = socket.receive_all();
            let all = came.iter().map(|desc| number(&socket.bytes(desc)));
            format!("{:?}", all.collect::<Option<Vec<_>>>())
        };
        send(&mut from, 0..5);
        say!(out, "first {} second {}", seen(&mut first), seen(&mut second));
        world.steer(&mut second, End::Near).unwrap();
        send(&mut from, 5..10);
        say!(out, "first {} second {}", seen(&mut first), seen(&mut second));
        world.steer(&mut first, End::Near).unwrap();
        send(&mut from, 10..15);
        say!(out, "first {} second {}", seen(&mut first), seen(&mut second));
        let rings = [512, 512, 512, 512];
        let own = Plan { rings, shares: Some(&first), ..Plan::new(End::Near) };
        let refused = world.try_open(&own).map(drop).unwrap_err();
        say!(out, "with rings of its own: {:?}", refused.raw_os_error());
    });
}

/// Several that send by one queue: all packets leave, each socket's in its order.
#[test]
fn several_sockets_send_by_a_queue() {
    same_in_both("shared queue: sending", |world, out| {
        let mut first = world.open(&Plan { is_steered: false, ..Plan::new(End::Far) });
        let rings = [0, 512, 0, 0];
        let share = Plan { rings, shares: Some(&first), is_steered: false, ..Plan::new(End::Far) };
        let mut second = world.open(&share);
        let mut third = world.open(&share);
        let mut to = world.open(&Plan::new(End::Near));
        to.fill_half(256);
        let mut seen = [0; 3];
        for round in 0..10 {
            let senders = [&mut first, &mut second, &mut third];
            for (who, sender) in senders.into_iter().enumerate() {
                let descs: Vec<_> = (0..20)
                    .map(|n| {
                        let number = who as u32 * 1000 + round * 20 + n;
                        sender.place(
                            sender.chunk_to_send(who as u32 * 20 + n, 64),
                            &packet(number, 80),
                        )
                    })
                    .collect();
                sender.transmit(&descs);
            }
            for sender in [&mut first, &mut second, &mut third] {
                sender.send_all(&[]);
            }
            for desc in to.receive_all() {
                let number = number(&to.bytes(&desc)).unwrap();
                let who = number as usize / 1000;
                assert_eq!(number % 1000, seen[who], "in order");
                seen[who] += 1;
                to.fill([desc.addr]);
            }
            // All three share one completion ring.
            let mut done = first.completed().len();
            while done < 60 {
                done += first.completed().len();
            }
        }
        say!(out, "{seen:?}");
    });
}

/// Memory that both ends of the wire share: what is received lies beside what was sent.
#[test]
fn one_memory_for_two_interfaces() {
    same_in_both("shared memory", |world, out| {
        let mut near = world.open(&Plan::new(End::Near));
        let mut far = world.open(&Plan { shares: Some(&near), ..Plan::new(End::Far) });
        near.fill_half(128);
        far.fill((128..256).map(|chunk| chunk * 4096));
        say!(out, "to far: {}", summary(&stream(&mut near, &mut far, 500)));
        say!(out, "to near: {}", summary(&stream(&mut far, &mut near, 500)));
        // Round and round, without a look: what was received is sent, what was sent is filled.
        let desc = near.place(near.chunk_to_send(1, 64), &packet(1, 700));
        let mut hops: Vec<Desc> = vec![desc];
        for hop in 0..40 {
            let (from, to) =
                if hop % 2 == 0 { (&mut near, &mut far) } else { (&mut far, &mut near) };
            from.send_all(&hops);
            assert!(to.wait(crate::packets::PATIENCE));
            hops = to.receive();
            let done = from.complete_all();
            from.fill(done.into_iter().filter(|&addr| addr < 256 * 4096));
        }
        let arrived: Vec<_> = hops.iter().map(|desc| number(&near.bytes(desc))).collect();
        say!(out, "after 40 hops: {arrived:?}");
        let rings = [512, 512, 0, 0];
        let bare = Plan { rings, shares: Some(&near), ..Plan::new(End::Far) };
        drop(far);
        let refused = world.try_open(&bare).map(drop).unwrap_err();
        say!(out, "another interface without rings: {:?}", refused.raw_os_error());
    });
}
