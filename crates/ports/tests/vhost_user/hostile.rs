//! Drivers and monitors that break the rules: this breaks their queue, and nothing else.
//!
//! Among them are faults that other back ends had: each says which.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use towpath_workload::virtio::{GUEST_BASE, Guest, GuestMemory, GuestOptions, Queue};

use crate::PLAIN;
use crate::scene::{Scene, packet, until};

pub(crate) const NEXT: u64 = 1;
pub(crate) const WRITE: u64 = 2;
pub(crate) const INDIRECT: u64 = 4;

/// A hostile driver's change to a ring whose next buffer is at place 0.
type Attack = fn(&mut Queue);

/// A descriptor, in either format.
fn put(queue: &Queue, at: usize, addr: u64, len: u64, flags: u64, number: u64) {
    let (low, high) = if queue.shape.packed { (number, flags) } else { (flags, number) };
    queue.memory.store64(at, addr);
    queue.memory.store64(at + 8, high << 48 | low << 32 | len);
}

/// Descriptor `slot` of the ring, made available.
pub(crate) fn describe(queue: &Queue, slot: usize, addr: u64, len: u64, flags: u64, number: u64) {
    let [ring, ..] = queue.places();
    // In a packed ring's first lap.
    let lap = if queue.shape.packed { 1 << 7 } else { 0 };
    put(queue, ring + 16 * slot, addr, len, flags | lap, number);
}

/// Makes `count` buffers of a split ring available.
pub(crate) fn publish(queue: &Queue, count: u16) {
    let [_, available, _] = queue.places();
    if !queue.shape.packed {
        queue.memory.store16(available + 2, count);
    }
}

fn direction(queue: &Queue) -> u64 {
    if queue.shape.to_guest { WRITE } else { 0 }
}

fn buffer(queue: &Queue) -> u64 {
    GUEST_BASE + queue.buffer(0) as u64
}

/// Attacks, each with its name and the port's error.
const BOTH: &[(&str, Attack, &str)] = &[
    ("memory that is not there", |queue| one(queue, 1 << 50, 100), "not in the guest's memory"),
    ("an address that wraps around", |queue| one(queue, u64::MAX - 10, 100), "not in the guest's"),
    (
        "CVE-2018-1059: only its start is mapped",
        |queue| {
            let end = GUEST_BASE + queue.memory.len() as u64;
            one(queue, end - 60, 100);
        },
        "not in the guest's memory",
    ),
    (
        "a length that wraps around",
        |queue| {
            let at = buffer(queue);
            one(queue, at, u64::from(u32::MAX));
        },
        "not in the guest's memory",
    ),
    (
        "the wrong direction",
        |queue| {
            let flags = direction(queue) ^ WRITE;
            describe(queue, 0, buffer(queue), 100, flags, 0);
            publish(queue, 1);
        },
        "wrong direction",
    ),
    (
        "DPDK e31b57e732: shorter than its header",
        |queue| {
            let at = buffer(queue);
            one(queue, at, 11);
        },
        "shorter than its header",
    ),
    (
        "CVE-2022-2132: an empty chain",
        |queue| {
            let at = buffer(queue);
            one(queue, at, 0);
        },
        "shorter than its header",
    ),
    (
        "a chain without an end",
        |queue| {
            let flags = NEXT | direction(queue);
            for slot in 0..usize::from(queue.shape.size) {
                let next = (slot as u64 + 1) % u64::from(queue.shape.size);
                describe(queue, slot, buffer(queue), 64, flags, next);
            }
            publish(queue, 1);
        },
        "a chain of more than 16 descriptors",
    ),
    (
        "a table of no whole entries",
        |queue| table(queue, 40, INDIRECT),
        "indirect table of 40 bytes",
    ),
    ("a table of no entries", |queue| table(queue, 0, INDIRECT), "indirect table of 0 bytes"),
    (
        "OpenVMM #2986: a table longer than the ring",
        |queue| table(queue, 17 * 16, INDIRECT),
        "indirect table of 272",
    ),
    ("the longest table there is", |queue| table(queue, 65535 * 16, INDIRECT), "indirect table of"),
    (
        "a table in a table",
        |queue| {
            let at = queue.buffer(1);
            put(queue, at, buffer(queue), 64, INDIRECT | direction(queue), 0);
            table(queue, 16, INDIRECT);
        },
        "indirect table of 16 bytes",
    ),
    ("a table and a next one", |queue| table(queue, 32, INDIRECT | NEXT), "indirect table of 32"),
    (
        "a table that is not there",
        |queue| {
            describe(queue, 0, 1 << 50, 32, INDIRECT, 0);
            publish(queue, 1);
        },
        "not in the guest's memory",
    ),
];

const SPLIT: &[(&str, Attack, &str)] = &[
    (
        "Firecracker #3149: the index jumps",
        |queue| publish(queue, 17),
        "17 buffers were made available",
    ),
    (
        "the index goes back",
        |queue| publish(queue, u16::MAX),
        "buffers were made available at once",
    ),
    (
        "OpenVMM #2780: a head that is none",
        |queue| {
            let [_, available, _] = queue.places();
            queue.memory.store16(available + 4, 16);
            publish(queue, 1);
        },
        "descriptor 16 of a ring of 16",
    ),
    (
        "a next one that is none",
        |queue| {
            describe(queue, 0, buffer(queue), 64, NEXT | direction(queue), 16);
            publish(queue, 1);
        },
        "descriptor 16 of a ring of 16",
    ),
    (
        "a chain that is its own next",
        |queue| {
            describe(queue, 0, buffer(queue), 64, NEXT | direction(queue), 0);
            publish(queue, 1);
        },
        "a chain of more than 16 descriptors",
    ),
    (
        "an entry's next that is none",
        |queue| {
            let at = queue.buffer(1);
            put(queue, at, buffer(queue), 64, NEXT | direction(queue), 2);
            table(queue, 32, INDIRECT);
        },
        "descriptor 2 of a ring of 2",
    ),
];

const PACKED: &[(&str, Attack, &str)] = &[(
    "SPDK #3860: an id that is none",
    |queue| {
        describe(queue, 0, buffer(queue), 64, direction(queue), 16);
    },
    "descriptor 16 of a ring of 16",
)];

/// A buffer in one piece.
fn one(queue: &mut Queue, addr: u64, len: u64) {
    describe(queue, 0, addr, len, direction(queue), 0);
    publish(queue, 1);
}

/// A buffer by the table in buffer 1.
fn table(queue: &mut Queue, len: u64, flags: u64) {
    let at = GUEST_BASE + queue.buffer(1) as u64;
    describe(queue, 0, at, len, flags, 0);
    publish(queue, 1);
}

#[test]
fn a_violation_breaks_its_queue_and_nothing_else() {
    for packed in [false, true] {
        let scene = Scene::with(1, |options| options.queues = 2);
        let options = GuestOptions { pairs: 2, size: 16, packed, ..GuestOptions::default() };
        let (mut a, mut b) = (scene.guest(0, options), scene.guest(1, options));
        let own = if packed { PACKED } else { SPLIT };
        for (what, attack, said) in BOTH.iter().chain(own) {
            for index in [1, 0] {
                suffer(&scene, &mut a, &mut b, index, *attack, what, said);
            }
        }
        scene.check();
    }
}

/// Lets guest `a` attack by the queue `index`, and looks at all others.
#[track_caller]
fn suffer(
    scene: &Scene,
    a: &mut Guest,
    b: &mut Guest,
    index: u32,
    attack: Attack,
    what: &str,
    said: &str,
) {
    a.restart_empty(index).unwrap();
    let before: u64 = scene.detail(0, "queues_broken").parse().unwrap();
    attack(if index == 0 { &mut a.rx[0] } else { &mut a.tx[0] });
    let broken = || scene.detail(0, "queues_broken").parse::<u64>().unwrap() > before;
    until(what, || {
        // Its receive queue is looked at when there is something to receive.
        if index == 0 {
            let _full = b.send(0, &PLAIN, &packet(60, 1));
        }
        while a.receive(1).is_some() {}
        broken()
    });
    let failures = scene.failures(0);
    assert!(failures[0].contains(said), "{what}: {failures:?}");
    // Its other queues, and the other guest.
    let sent = packet(60, 77);
    assert!(a.send(1, &PLAIN, &sent));
    let mut arrives = |sent: &[u8]| {
        // Packets that were sent more than once before may come first.
        (0..2).any(|pair| b.receive(pair).is_some_and(|(_, got)| got == sent))
    };
    until("the other pair goes on", || arrives(&sent));
    // A driver that sets the queue up again can use it again.
    a.resize(index, 16).unwrap();
    assert_eq!(scene.failures(0), [""; 0], "{what}");
    let sent = packet(60, 78);
    until("it works again", || {
        assert!(a.send(0, &PLAIN, &sent));
        arrives(&sent)
    });
}

#[test]
fn descriptors_that_come_with_messages_do_not_stay() {
    let scene = Scene::new();
    let mut guest = scene.guest(0, GuestOptions::default());
    let memory = GuestMemory::new(4096).unwrap();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // Other tests of this process open some, too, but fewer.
    let before = open();
    for _ in 0..300 {
        // CVE-2019-14818, CVE-2020-10726: files that were not requested, or too many of them.
        let files = [memory.file(); 8];
        for request in [8, 1 << 20, 12, 19, 37, 31] {
            let _refused = guest.front.say(request, &[0; 40], &files);
        }
        // CVE-2020-10722: a log whose end wraps around, or is not there.
        for (len, offset) in [(u64::MAX, 4096u64), (4096, u64::MAX - 100), (1 << 40, 0), (0, 0)] {
            let payload = [len, offset].map(u64::to_ne_bytes).concat();
            assert!(guest.front.say(6, &payload, &[memory.file()]).is_err());
        }
    }
    let after = open();
    assert!(after < before + 300, "{before} descriptors were open, now {after} are");
}

#[test]
fn slow_and_broken_monitors_keep_nobody_waiting() {
    use std::io::Write as _;
    let mut scene = Scene::new();
    for sent in [&[][..], &[1], &[1, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255], &[9; 500]] {
        let mut stream = std::os::unix::net::UnixStream::connect(&scene.options[0].path).unwrap();
        stream.write_all(sent).unwrap();
        // It holds the connection, and says nothing more; the port closes all the same.
        scene.reopen(0);
        drop(stream);
    }
    let (mut a, mut b) =
        (scene.guest(0, GuestOptions::default()), scene.guest(1, GuestOptions::default()));
    assert!(a.send(0, &PLAIN, &packet(60, 1)));
    assert!(b.wait_for(0).is_some());
}

/// A front end clears `O_NONBLOCK` on the eventfds that it shares, keeps those full that we signal,
/// and empties those that we wait for.
#[test]
fn eventfds_that_would_block_hold_no_worker() {
    let scene = Scene::new();
    let (mut a, mut b) =
        (scene.guest(0, GuestOptions::default()), scene.guest(1, GuestOptions::default()));
    let full = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    for index in 0..2u64 {
        for request in [SET_VRING_CALL, SET_VRING_ERR] {
            a.front.say(request, &index.to_ne_bytes(), &[full.as_fd()]).unwrap();
        }
    }
    let kick = a.kick_file(1).try_clone_to_owned().unwrap();
    let is_over = AtomicBool::new(false);
    let attack = || {
        // The front end's own descriptors of the same open files: it never blocks itself.
        let change = |is_on: bool| {
            for file in [&kick, &full] {
                let flags = fcntl_getfl(file).unwrap();
                let flag = OFlags::NONBLOCK;
                fcntl_setfl(file, if is_on { flags | flag } else { flags - flag }).unwrap();
            }
        };
        while !is_over.load(Ordering::Relaxed) {
            change(true);
            let _taken = rustix::io::read(&kick, &mut [0; 8]);
            let _full = rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes());
            change(false);
        }
        change(true);
    };
    std::thread::scope(|scope| {
        scope.spawn(attack);
        for number in 0..500 {
            assert!(b.send(0, &PLAIN, &packet(60, number)));
            assert!(a.wait_for(0).is_some(), "frame {number} to the attacker");
            assert!(a.send(0, &PLAIN, &packet(60, number)));
            a.kick(1);
            until("the attacker's frame arrives", || {
                // The kick may have been taken away: that is the attacker's own loss.
                a.kick(1);
                b.receive(0).is_some()
            });
            if number % 100 == 0 {
                // Long enough for the worker to fall asleep.
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    scene.check();
}

const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
