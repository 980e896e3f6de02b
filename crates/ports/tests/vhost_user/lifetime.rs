//! Either side goes and comes back, and the two negotiate again.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use towpath_ports::vhost_user::Mode;
use towpath_workload::virtio::{
    Guest, GuestMemory, GuestOptions, Layout, USER_BASE, guest_address, state,
};

use crate::scene::{Scene, packet, until};
use crate::{EVENT_IDX, PLAIN, inflight};

#[test]
fn rings_go_on_where_they_were_when_the_back_end_comes_back() {
    for (packed, layout) in [
        (false, Layout::Single),
        (false, Layout::Chained),
        (true, Layout::Single),
        (true, Layout::Chained),
        (true, Layout::Indirect),
    ] {
        let options = GuestOptions { size: 16, packed, layout, ..GuestOptions::default() };
        go_on(options, Scene::guest);
        // Where the front end keeps what is in flight.
        go_on(options, inflight::guest);
    }
}

fn go_on(options: GuestOptions, guest: impl Fn(&Scene, usize, GuestOptions) -> Guest) {
    let mut scene = Scene::new();
    let (mut a, mut b) = (guest(&scene, 0, options), guest(&scene, 1, options));
    let mut number = 0;
    for round in 0..20 {
        // Any place in the ring, in laps of both colours.
        for _ in 0..round * 3 % 11 + 1 {
            number += 1;
            assert!(a.send(0, &PLAIN, &packet(60, number)));
            let got = b.wait_for(0).unwrap_or_else(|| panic!("{options:?} {number}"));
            assert_eq!(got.1, packet(60, number));
            assert!(b.send(0, &PLAIN, &packet(70, number)));
            let back = a.wait_for(0).unwrap_or_else(|| panic!("{options:?} {number}"));
            assert_eq!(back.1, packet(70, number));
        }
        scene.reopen(0);
        // The guest sends while there is no back end.
        assert!(a.send(0, &PLAIN, &packet(80, number)));
        scene.reconnect(0, &mut a);
        let first = b.wait_for(0).unwrap_or_else(|| panic!("{options:?} {}", scene.story()));
        assert_eq!(first.1, packet(80, number));
    }
    assert_eq!(scene.failures(0), [""; 0]);
    scene.check();
}

#[test]
fn a_guest_that_is_killed_comes_back() {
    let scene = Scene::new();
    let mut b = scene.guest(1, GuestOptions::default());
    for round in 0..10 {
        let packed = round % 2 == 1;
        let mut a = scene.guest(0, GuestOptions { packed, ..GuestOptions::default() });
        assert!(a.send(0, &PLAIN, &packet(60, round)));
        assert_eq!(b.wait_for(0).unwrap().1, packet(60, round));
        assert!(b.send(0, &PLAIN, &packet(61, round)));
        assert_eq!(a.wait_for(0).unwrap().1, packet(61, round));
        drop(a);
        // To a port without a guest. The next one would get it from a worker that comes late.
        assert!(b.send(0, &PLAIN, &packet(62, round)));
        until("the frame was received", || scene.received(1) == 2 * u64::from(round + 1));
    }
    scene.check();
}

#[test]
fn no_interrupt_is_lost_while_a_queue_starts() {
    let scene = Scene::new();
    let mut a = scene.guest(0, GuestOptions::default());
    let mut b = scene.guest(1, GuestOptions::default());
    // As QEMU does: the queue runs, and was used, before its bell is known.
    assert!(b.send(0, &PLAIN, &packet(60, 1)));
    assert_eq!(a.wait_for(0).unwrap().1, packet(60, 1));
    let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let has_rung = || rustix::io::read(&call, &mut [0; 8]).is_ok();
    a.front.say(13, &0u64.to_ne_bytes(), &[call.as_fd()]).unwrap();
    assert!(has_rung(), "what was given back before");
    // As DPDK's virtio-user does: the bell is known when the queue starts.
    a.front.stop_queue(0).unwrap();
    a.front.say(13, &0u64.to_ne_bytes(), &[call.as_fd()]).unwrap();
    assert!(!has_rung(), "of a queue that stands still");
    a.resize(0, 64).unwrap();
    assert!(has_rung(), "what another back end gave back");
}

#[test]
fn a_port_looks_for_the_monitor_that_listens() {
    let scene = Scene::with(1, |options| options.mode = Mode::Client);
    for round in 0..3 {
        let connect = |index: usize| {
            let path = &scene.options[index].path;
            let _stale = std::fs::remove_file(path);
            let listener = UnixListener::bind(path).unwrap();
            let (first, _) = listener.accept().unwrap();
            // One that ends before it said anything is no more than a reason to try again.
            drop(first);
            let (stream, _) = listener.accept().unwrap();
            Guest::over(stream, GuestOptions::default()).unwrap()
        };
        let (mut a, mut b) = (connect(0), connect(1));
        assert!(a.send(0, &PLAIN, &packet(60, round)));
        assert_eq!(b.wait_for(0).unwrap().1, packet(60, round));
    }
    scene.check();
    scene.options.iter().for_each(|options| std::fs::remove_file(&options.path).unwrap());
}

#[test]
fn a_socket_stays_whose_it_is() {
    let scene = Scene::new();
    let path = scene.options[0].path.clone();
    let again = towpath_ports::vhost_user::VhostUser::new(scene.options[0].clone());
    assert!(again.unwrap_err().to_string().contains("another process listens there"));
    drop(scene);
    assert!(!path.exists());
    // Left behind by a process that was killed.
    drop(UnixListener::bind(&path).unwrap());
    let mut options = towpath_ports::vhost_user::Options::new(&path);
    let port = towpath_ports::vhost_user::VhostUser::new(options.clone()).unwrap();
    drop(port);
    assert!(!path.exists());
    options.queues = 65;
    let error = towpath_ports::vhost_user::VhostUser::new(options).unwrap_err();
    assert_eq!(error.to_string(), "queues is 65, but must be from 1 to 64");
}

#[test]
fn a_worker_that_sleeps_is_kicked() {
    for packed in [false, true] {
        for features in [0, EVENT_IDX] {
            let scene = Scene::new();
            let options = GuestOptions { packed, features, ..GuestOptions::default() };
            let (mut a, mut b) = (scene.guest(0, options), scene.guest(1, options));
            let mut took = Vec::new();
            for number in 0..30 {
                // Long enough to fall asleep.
                std::thread::sleep(Duration::from_millis(3));
                let start = Instant::now();
                assert!(a.send(0, &PLAIN, &packet(60, number)));
                assert!(b.wait_for(0).is_some());
                took.push(start.elapsed());
            }
            // One of them may have waited for a processor.
            took.sort_unstable();
            assert!(took[15] < Duration::from_millis(500), "{took:?}: only found by chance");
        }
    }
}

#[test]
fn announcements_are_sent_for_guests() {
    let scene = Scene::new();
    let mut a = scene.guest(0, GuestOptions::default());
    let mut b = scene.guest(1, GuestOptions::default());
    let mac = [2, 0, 0, 0, 0, 0x17, 0, 0];
    a.front.say(19, &mac, &[]).unwrap();
    let rarp = b.wait_for(0).unwrap().1;
    assert_eq!(
        (&rarp[..6], &rarp[6..12], &rarp[12..14]),
        (&[0xff; 6][..], &mac[..6], &[0x80, 0x35][..])
    );
}

#[test]
fn messages_that_are_wrong_are_refused_and_nothing_else() {
    let scene = Scene::new();
    let mut a = scene.guest(0, GuestOptions::default());
    let mut b = scene.guest(1, GuestOptions::default());
    // CVE-2020-10723: queues that are none.
    let wrong: [(u32, Vec<u8>); 12] = [
        (2, (1u64 << 63).to_ne_bytes().to_vec()),
        (16, (1u64 << 63).to_ne_bytes().to_vec()),
        (8, state(99, 256)),
        (8, state(0, 0)),
        (8, state(0, 1 << 16)),
        (9, vec![0; 3]),
        (12, 99u64.to_ne_bytes().to_vec()),
        (12, 0u64.to_ne_bytes().to_vec()),
        (20, 7u64.to_ne_bytes().to_vec()),
        (37, vec![0xff; 40]),
        (38, vec![0; 40]),
        (77, vec![1, 2, 3]),
    ];
    for (request, payload) in wrong {
        let refused = a.front.say(request, &payload, &[]).unwrap_err().to_string();
        assert_eq!(refused, format!("request {request} is refused"));
    }
    assert!(scene.detail(0, "refused").contains("a request that is not known"));
    assert!(a.send(0, &PLAIN, &packet(60, 1)));
    assert_eq!(b.wait_for(0).unwrap().1, packet(60, 1));
    // The bytes behind an invalid header cannot be understood.
    a.front.send(1 << 20, 2, &[], &[]).unwrap();
    until("the connection ends", || scene.detail(0, "front_end") == "waiting");
}

/// CVE-2018-1059, CVE-2020-10725: rings that are not in the guest's memory, or not all of them.
#[test]
fn a_ring_that_is_not_there_does_not_run() {
    for packed in [false, true] {
        let scene = Scene::new();
        let options = GuestOptions { packed, ..GuestOptions::default() };
        let (mut a, mut b) = (scene.guest(0, options), scene.guest(1, options));
        let inside = a.tx[0].addresses();
        let end = USER_BASE + a.memory.len() as u64;
        for [descriptors, used, available] in [
            [1 << 50, inside[2], inside[1]],
            [inside[0], u64::MAX - 4, inside[1]],
            [inside[0], inside[2], end - 2],
            [end - 16, inside[2], inside[1]],
            [inside[0] + 1, inside[2] + 1, inside[1] + 1],
        ] {
            a.front.stop_queue(1).unwrap();
            let mut payload = state(1, 0);
            payload.extend([descriptors, used, available, 0].map(u64::to_ne_bytes).concat());
            // The error may come at once or when the queue is to start.
            let _refused = a.front.say(9, &payload, &[]);
            let kick = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            let _refused = a.front.say(12, &1u64.to_ne_bytes(), &[kick.as_fd()]);
            assert!(!scene.detail(0, "queues").contains("1: "), "{}", scene.detail(0, "queues"));
            // The guest's receive queue keeps working.
            assert!(b.send(0, &PLAIN, &packet(60, 1)));
            assert!(a.wait_for(0).is_some());
        }
        a.resize(1, 256).unwrap();
        assert!(a.send(0, &PLAIN, &packet(60, 2)));
        assert_eq!(b.wait_for(0).unwrap().1, packet(60, 2));
        scene.check();
    }
}

#[test]
fn a_guest_has_more_memory_than_a_table_holds() {
    let scene = Scene::new();
    let mut a = scene.guest(0, GuestOptions::default());
    let mut b = scene.guest(1, GuestOptions::default());
    assert_eq!(a.front.ask(36).unwrap(), 509);
    let more = GuestMemory::new(1 << 16).unwrap();
    let region = |number: u64| {
        let words = [0, 0x9000_0000 + (number << 16), 1 << 16, 0x10_0000_0000 + (number << 16), 0];
        words.map(u64::to_ne_bytes).concat()
    };
    for number in 0..40 {
        a.front.say(37, &region(number), &[more.file()]).unwrap();
        assert!(a.send(0, &PLAIN, &packet(60, number as u32)));
        assert_eq!(b.wait_for(0).unwrap().1, packet(60, number as u32));
    }
    assert!(scene.detail(0, "memory").ends_with("in 41 regions"));
    for number in 0..40 {
        a.front.say(38, &region(number), &[]).unwrap();
    }
    assert!(a.send(0, &PLAIN, &packet(60, 7)));
    assert_eq!(b.wait_for(0).unwrap().1, packet(60, 7));
}

#[test]
fn pages_that_are_written_are_noted_for_a_migration() {
    const LOG_ALL: u64 = 1 << 26;
    for packed in [false, true] {
        let scene = Scene::new();
        let mut a = scene.guest(0, GuestOptions::default());
        let features = GuestOptions::default().features | LOG_ALL;
        let mut b = scene.guest(1, GuestOptions { features, packed, ..GuestOptions::default() });
        let log = GuestMemory::new(1 << 16).unwrap();
        let payload = [1u64 << 16, 0].map(u64::to_ne_bytes).concat();
        b.front.say(6, &payload, &[log.file()]).unwrap();
        let is_noted = |at: usize| {
            let page = guest_address(at) as usize / 4096;
            let mut byte = [0];
            log.read(page / 8, &mut byte);
            byte[0] & 1 << (page % 8) != 0
        };
        let (buffer, [ring, _, used]) = (b.rx[0].buffer(0), b.rx[0].places());
        let marks = if packed { ring } else { used };
        assert!(!is_noted(buffer) && !is_noted(marks));
        assert!(a.send(0, &PLAIN, &packet(60, 1)));
        assert!(b.wait_for(0).is_some());
        assert!(is_noted(buffer) && is_noted(marks), "packed {packed}");
        assert!(!is_noted(b.tx[0].buffer(0)), "what is only read");
    }
}

/// A monitor that does not exist yet is no failure; one that can't be reached is.
#[test]
fn why_a_monitor_can_t_be_connected_to_is_told() {
    for (path, is_failure) in [("/dev/null/monitor", true), ("/nowhere/monitor", false)] {
        let scene = Scene::with(1, |options| {
            (options.mode, options.path) = (Mode::Client, path.into());
        });
        let detail = || {
            scene.engine.read(|_, snapshot| {
                let details = snapshot.port(scene.ports[0]).unwrap().opened.device.details();
                details.into_iter().find(|(name, _)| *name == "waits_for").map(|(_, why)| why)
            })
        };
        until("it says what it waits for", || detail().is_some());
        assert!(detail().unwrap().starts_with(path), "{:?}", detail());
        let failures = scene.failures(0);
        assert_eq!(failures.len(), usize::from(is_failure), "{path}: {failures:?}");
    }
}
