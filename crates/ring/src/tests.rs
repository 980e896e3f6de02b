//! Both ends of a ring over one piece of memory.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::xdp::XdpRingOffset;

use super::*;

const AT: XdpRingOffset = OFFSETS;
const SIZE: u32 = 8;

fn memory() -> Arc<Memory> {
    let file = memfd_create("towpath-ring-test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 384).unwrap();
    Memory::map::<u64>(file.as_fd(), 0, &AT, SIZE).unwrap()
}

fn ends(start: u32) -> (Producer<Mapped<u64>>, Consumer<Mapped<u64>>) {
    let memory = memory();
    let ring = || Mapped::<u64>::new(&memory, &AT, SIZE).unwrap();
    ring().producer().store(start, Ordering::Relaxed);
    ring().consumer().store(start, Ordering::Relaxed);
    (Producer::new(ring()), Consumer::new(ring()))
}

#[test]
fn indices_wrap_around() {
    for start in [0, 5, u32::MAX - 3] {
        let (mut producer, mut consumer) = ends(start);
        let (mut sent, mut seen) = (0, 0);
        for round in 0..40 {
            let count = producer.free(SIZE).min(round % 9);
            for _ in 0..count {
                producer.write(sent);
                sent += 1;
            }
            assert_eq!(u64::from(consumer.available(SIZE)), 0, "not before it is submitted");
            producer.submit();
            assert_eq!(producer.waiting(), count);
            assert_eq!(consumer.available(SIZE), count);
            for _ in 0..count {
                assert_eq!(consumer.read(), seen);
                seen += 1;
            }
            assert_eq!(producer.free(SIZE), SIZE - count, "not before it is released");
            consumer.release();
            assert_eq!(producer.free(SIZE), SIZE);
        }
        assert!(sent > 100);
    }
}

#[test]
fn foreign_indices_are_not_believed() {
    let (mut producer, mut consumer) = ends(7);
    producer.write(1);
    producer.submit();
    consumer.ring().consumer().store(7 + SIZE + 2, Ordering::Relaxed);
    assert_eq!(producer.free(SIZE), SIZE - 1);
    assert!(producer.waiting() <= SIZE);
    consumer.ring().producer().store(7 + SIZE + 1, Ordering::Relaxed);
    assert_eq!(consumer.available(1), 0);
    consumer.ring().producer().store(6, Ordering::Relaxed);
    assert_eq!(consumer.available(1), 0);
    assert_eq!((producer.jumps(), consumer.jumps()), (1, 2));
}

#[test]
fn a_producer_that_runs_along_cannot_keep_the_consumer_reading() {
    let (_, mut consumer) = ends(3);
    for read in 0..SIZE {
        consumer.ring().producer().store(3 + read + 1, Ordering::Relaxed);
        assert_eq!(consumer.available(1), 1);
        consumer.read();
    }
    consumer.ring().producer().store(3 + SIZE + 1, Ordering::Relaxed);
    assert_eq!((consumer.available(1), consumer.jumps()), (0, 1));
    consumer.release();
    assert_eq!(consumer.available(1), 1);
}

#[test]
fn offsets_outside_are_refused() {
    let memory = memory();
    for at in [
        XdpRingOffset { desc: 328, ..AT },
        XdpRingOffset { desc: 4, ..AT },
        XdpRingOffset { producer: 1 << 40, ..AT },
        XdpRingOffset { consumer: 2, ..AT },
        XdpRingOffset { flags: Some(u64::MAX - 3), ..AT },
    ] {
        assert!(Mapped::<u64>::new(&memory, &at, SIZE).is_err(), "{at:?}");
    }
    assert!(Mapped::<u64>::new(&memory, &AT, 6).is_err());
}

#[test]
fn two_threads_see_every_entry_in_order() {
    let (mut producer, mut consumer) = ends(u32::MAX - 100);
    const COUNT: u64 = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = 0;
            while next < COUNT {
                let count = u64::from(producer.free(1)).min(COUNT - next);
                for _ in 0..count {
                    producer.write(next);
                    next += 1;
                }
                producer.submit();
                std::thread::yield_now();
            }
        });
        let mut expected = 0;
        while expected < COUNT {
            for _ in 0..consumer.available(1) {
                assert_eq!(consumer.read(), expected);
                expected += 1;
            }
            consumer.release();
            std::thread::yield_now();
        }
    });
}
