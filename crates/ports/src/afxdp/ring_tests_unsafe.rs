//! Both ends of a ring over one piece of memory.

use super::*;

const AT: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 128, desc: 320, flags: Some(196) };
const SIZE: u32 = 8;

fn memory() -> Arc<Memory> {
    let len = ring_bytes::<u64>(&AT, SIZE).unwrap();
    // SAFETY: a new mapping, wherever the kernel likes.
    let base = unsafe {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags).unwrap()
    };
    Arc::new(Memory { base: NonNull::new(base.cast()).unwrap(), len })
}

fn ends(start: u32) -> (Producer<u64>, Consumer<u64>) {
    let memory = memory();
    for offset in [AT.producer, AT.consumer] {
        // SAFETY: inside the memory, which lives.
        unsafe { memory.word(offset).unwrap().as_ref() }.store(start, Ordering::Relaxed);
    }
    (Producer::new(&memory, &AT, SIZE).unwrap(), Consumer::new(&memory, &AT, SIZE).unwrap())
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
    consumer.ring.consumer().store(7 + SIZE + 2, Ordering::Relaxed);
    assert_eq!(producer.free(SIZE), SIZE - 1);
    assert!(producer.waiting() <= SIZE);
    consumer.ring.producer().store(7 + SIZE + 1, Ordering::Relaxed);
    assert_eq!(consumer.available(1), 0);
    consumer.ring.producer().store(6, Ordering::Relaxed);
    assert_eq!(consumer.available(1), 0);
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
        assert!(Producer::<u64>::new(&memory, &at, SIZE).is_err(), "{at:?}");
    }
    assert!(Consumer::<u64>::new(&memory, &AT, 6).is_err());
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
