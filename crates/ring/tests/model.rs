//! Model checking of the rings: every interleaving and every stale read that the memory model
//! allows, for small rings. The code is the one that runs, over loom's atomics.

#![forbid(unsafe_code)]

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;
use towpath_ring::{Consumer, Producer, Shared, Word};

#[derive(Debug)]
struct Cell(AtomicU32);

impl Word for Cell {
    fn load(&self, ordering: Ordering) -> u32 {
        self.0.load(ordering)
    }

    fn store(&self, value: u32, ordering: Ordering) {
        self.0.store(value, ordering);
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// A ring of two entries.
#[derive(Debug)]
struct Model {
    producer: Cell,
    consumer: Cell,
    flags: Cell,
    entries: [AtomicU64; 2],
    /// Number of wake-ups of a sleeping consumer.
    bell: AtomicU32,
}

#[derive(Debug, Clone)]
struct Ring(Arc<Model>);

impl Ring {
    fn new(start: u32) -> Ring {
        let cell = |value| Cell(AtomicU32::new(value));
        Ring(Arc::new(Model {
            producer: cell(start),
            consumer: cell(start),
            flags: cell(0),
            entries: [AtomicU64::new(0), AtomicU64::new(0)],
            bell: AtomicU32::new(0),
        }))
    }
}

impl Shared for Ring {
    type Entry = u64;
    type Word = Cell;

    fn size(&self) -> u32 {
        2
    }

    fn producer(&self) -> &Cell {
        &self.0.producer
    }

    fn consumer(&self) -> &Cell {
        &self.0.consumer
    }

    fn flags(&self) -> Option<&Cell> {
        Some(&self.0.flags)
    }

    fn read(&self, index: u32) -> u64 {
        self.0.entries[index as usize % 2].load(Ordering::Relaxed)
    }

    fn write(&self, index: u32, entry: u64) {
        self.0.entries[index as usize % 2].store(entry, Ordering::Relaxed);
    }
}

/// Entries are read as they were written, in order: no entry is seen before it is there, none is
/// overwritten before it was read. Three entries go round a ring of two.
#[test]
fn entries_cross_in_order() {
    loom::model(|| {
        let ring = Ring::new(u32::MAX);
        let mut producer = Producer::new(ring.clone());
        let mut consumer = Consumer::new(ring);
        let writer = thread::spawn(move || {
            let mut next = 1;
            for _ in 0..2 {
                for _ in 0..producer.free(1) {
                    if next <= 3 {
                        producer.write(next);
                        next += 1;
                    }
                }
                producer.submit();
                thread::yield_now();
            }
            producer.jumps()
        });
        let mut expected = 1;
        for _ in 0..2 {
            for _ in 0..consumer.available(1) {
                assert_eq!(consumer.read(), expected);
                expected += 1;
            }
            consumer.release();
            thread::yield_now();
        }
        assert_eq!((writer.join().unwrap(), consumer.jumps()), (0, 0), "no index looks bad");
    });
}

/// A consumer that found nothing and sleeps is woken (the daemon's worker and the tx ring: the
/// application asks whether to wake it).
#[test]
fn no_wakeup_is_lost() {
    loom::model(|| {
        let ring = Ring::new(0);
        let bell = Arc::clone(&ring.0);
        let mut producer = Producer::new(ring.clone());
        let mut consumer = Consumer::new(ring);
        let writer = thread::spawn(move || {
            producer.write(7);
            producer.submit();
            if producer.needs_wakeup() {
                producer.ring().0.bell.store(1, Ordering::Release);
            }
        });
        let sleeps = consumer.arm();
        writer.join().unwrap();
        let is_rung = bell.bell.load(Ordering::Acquire) == 1;
        assert!(!sleeps || is_rung, "asleep beside an entry");
    });
}

/// As above where the producer takes the wish back (the application and the rx ring), while the
/// consumer asks twice.
#[test]
fn no_claimed_wakeup_is_lost() {
    // Unbounded it takes ten times as long, and passes as well.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Ring::new(0);
        let bell = Arc::clone(&ring.0);
        let mut producer = Producer::new(ring.clone());
        let mut consumer = Consumer::new(ring);
        let writer = thread::spawn(move || {
            for entry in [1, 2] {
                producer.write(entry);
                producer.submit();
                if producer.claim_wakeup() {
                    producer.ring().0.bell.fetch_add(1, Ordering::AcqRel);
                }
            }
        });
        let mut heard = 0;
        let mut seen = 0;
        let mut sleeps = false;
        for _ in 0..2 {
            // As the applications do: old messages first, then the flag, then the ring.
            heard = bell.bell.load(Ordering::Acquire);
            sleeps = consumer.arm();
            for _ in 0..consumer.available(2) {
                consumer.read();
                seen += 1;
            }
            consumer.release();
        }
        writer.join().unwrap();
        let is_rung = bell.bell.load(Ordering::Acquire) > heard;
        assert!(!sleeps || seen == 2 || is_rung, "asleep beside an entry");
    });
}
