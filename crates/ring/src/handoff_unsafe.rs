//! A ring between two threads of one process, which moves values from one to the other.
//!
//! Unlike the rings of AF_XDP it is in private memory: both ends trust each other, and the values
//! are owned. One [`Giver`] writes slots, then `given` with release order; one [`Taker`] reads that
//! with acquire order, then the slots, then writes `taken` with release order, after which the
//! giver may use the slots again. A whole burst costs one store of an index, and the other side's
//! index is read only when its last known value is not enough. All interleavings are checked:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p towpath-ring --lib handoff`.

#![expect(unsafe_code, reason = "slots that two threads use in turns")]

use std::fmt;
use std::mem::MaybeUninit;

use sync::{Arc, AtomicUsize, Ordering, Slot};

/// Makes a ring for at least `size` values; returns its two ends.
pub fn handoff<T: Send>(size: usize) -> (Giver<T>, Taker<T>) {
    let slots = (0..size.max(1).next_power_of_two()).map(|_| Slot::new(MaybeUninit::uninit()));
    let (given, taken) = (Line(AtomicUsize::new(0)), Line(AtomicUsize::new(0)));
    let ring = Arc::new(Ring { slots: slots.collect(), given, taken });
    (Giver { ring: Arc::clone(&ring), given: 0, taken: 0 }, Taker { ring, taken: 0, given: 0 })
}

/// The end that puts values in.
pub struct Giver<T> {
    ring: Arc<Ring<T>>,
    given: usize,
    /// Number of values that the taker took, as last seen.
    taken: usize,
}

/// The end that takes values out.
pub struct Taker<T> {
    ring: Arc<Ring<T>>,
    taken: usize,
    /// Number of values that the giver gave, as last seen.
    given: usize,
}

/// The progress of both ends, which any thread may read.
pub struct Progress<T>(Arc<Ring<T>>);

struct Ring<T> {
    slots: Box<[Slot<MaybeUninit<T>>]>,
    /// Values that were put in so far, and that were taken out; both run freely.
    given: Line<AtomicUsize>,
    taken: Line<AtomicUsize>,
}

/// A cache line of its own, and the one that is fetched with it.
#[repr(align(128))]
struct Line<T>(T);

// SAFETY: a slot between `taken` and `given` belongs to the taker, any other one to the giver;
// there is one of each, and values may go to another thread.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above; other holders of a reference only read the two indices.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Giver<T> {
    /// Moves values from the front, at most `most`, as far as there is room; returns their number.
    #[inline]
    pub fn give(&mut self, values: &mut Vec<T>, most: usize) -> usize {
        let most = most.min(values.len());
        let size = self.ring.slots.len();
        if size - self.given.wrapping_sub(self.taken) < most {
            self.taken = self.ring.taken.0.load(Ordering::Acquire);
        }
        let count = most.min(size - self.given.wrapping_sub(self.taken));
        for (ahead, value) in values.drain(..count).enumerate() {
            let slot = &self.ring.slots[self.given.wrapping_add(ahead) & (size - 1)];
            // SAFETY: less than `size` behind `taken`, so that the taker is done with the slot, as
            // `taken` was loaded with acquire order; the value in it was moved out.
            slot.with_mut(|slot| unsafe { (*slot).write(value) });
        }
        self.given = self.given.wrapping_add(count);
        self.ring.given.0.store(self.given, Ordering::Release);
        count
    }

    /// The progress of both ends.
    pub fn progress(&self) -> Progress<T> {
        Progress(Arc::clone(&self.ring))
    }
}

impl<T> Taker<T> {
    /// Moves values out, at most `most`, behind those in `out`; returns their number.
    #[inline]
    pub fn take(&mut self, out: &mut Vec<T>, most: usize) -> usize {
        if self.given.wrapping_sub(self.taken) < most {
            self.given = self.ring.given.0.load(Ordering::Acquire);
        }
        let count = most.min(self.given.wrapping_sub(self.taken));
        let mask = self.ring.slots.len() - 1;
        out.extend((0..count).map(|ahead| {
            let slot = &self.ring.slots[self.taken.wrapping_add(ahead) & mask];
            // SAFETY: in front of `given`, which was loaded with acquire order: the value is there,
            // and is moved out once, as `taken` passes it below.
            slot.with_mut(|slot| unsafe { (*slot).assume_init_read() })
        }));
        self.taken = self.taken.wrapping_add(count);
        self.ring.taken.0.store(self.taken, Ordering::Release);
        count
    }
}

impl<T> Progress<T> {
    /// Values that were put in so far; the number wraps around.
    #[inline]
    pub fn given(&self) -> usize {
        self.0.given.0.load(Ordering::Acquire)
    }

    /// Values that were taken out so far; the number wraps around.
    #[inline]
    pub fn taken(&self) -> usize {
        self.0.taken.0.load(Ordering::Acquire)
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let (given, taken) =
            (self.given.0.load(Ordering::Relaxed), self.taken.0.load(Ordering::Relaxed));
        for ahead in 0..given.wrapping_sub(taken) {
            let slot = &self.slots[taken.wrapping_add(ahead) & (self.slots.len() - 1)];
            // SAFETY: this is the last reference; values given and not taken are initialized.
            slot.with_mut(|slot| unsafe { (*slot).assume_init_drop() });
        }
    }
}

impl<T> fmt::Debug for Giver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Giver").field("given", &self.given).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Taker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taker").field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Progress<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (given, taken) = (self.given(), self.taken());
        f.debug_struct("Progress").field("given", &given).field("taken", &taken).finish()
    }
}

/// The standard atomics, or loom's when the model is checked.
#[cfg(not(all(test, loom)))]
mod sync {
    pub(super) use std::sync::Arc;
    pub(super) use std::sync::atomic::{AtomicUsize, Ordering};

    /// A cell with loom's interface.
    pub(super) struct Slot<T>(std::cell::UnsafeCell<T>);

    impl<T> Slot<T> {
        pub(super) fn new(value: T) -> Slot<T> {
            Slot(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(super) fn with_mut<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> R {
            use_it(self.0.get())
        }
    }
}

#[cfg(all(test, loom))]
mod sync {
    pub(super) use loom::cell::UnsafeCell as Slot;
    pub(super) use loom::sync::Arc;
    pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;

    /// Three values go round a ring of two: each comes out once, in order, and none is left behind.
    #[test]
    fn values_cross_in_order_and_none_is_lost() {
        loom::model(|| {
            let (mut giver, mut taker) = handoff(2);
            let writer = loom::thread::spawn(move || {
                let mut values: Vec<Box<u32>> = (0..3).map(Box::new).collect();
                for _ in 0..2 {
                    giver.give(&mut values, 2);
                    loom::thread::yield_now();
                }
                values.len()
            });
            let mut out = Vec::new();
            for _ in 0..2 {
                taker.take(&mut out, 2);
                loom::thread::yield_now();
            }
            let kept = writer.join().unwrap();
            let seen = out.len();
            taker.take(&mut out, 2);
            assert!(seen <= 3 - kept);
            let expected: Vec<u32> = (0..3 - kept as u32).collect();
            assert_eq!(out.iter().map(|it| **it).collect::<Vec<_>>(), expected);
        });
    }

    /// Values given and not taken are freed with the ring, by the last of its two ends.
    #[test]
    fn what_is_left_is_freed() {
        loom::model(|| {
            let (mut giver, mut taker) = handoff(2);
            let value = Arc::new(());
            let mut values = vec![Arc::clone(&value), Arc::clone(&value)];
            let reader = loom::thread::spawn(move || {
                taker.take(&mut Vec::new(), 1);
            });
            giver.give(&mut values, 2);
            drop(giver);
            reader.join().unwrap();
            assert_eq!(Arc::strong_count(&value), 1);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_takes_no_more_and_indices_wrap_around() {
        let (mut giver, mut taker) = handoff(3);
        let start = usize::MAX - 5;
        giver.ring.given.0.store(start, Ordering::Relaxed);
        giver.ring.taken.0.store(start, Ordering::Relaxed);
        (giver.given, giver.taken, taker.given, taker.taken) = (start, start, start, start);
        let (mut next, mut expected) = (0, 0);
        for round in 0..50 {
            let mut values: Vec<u32> = (next..next + round % 7).collect();
            let count = giver.give(&mut values, 5);
            assert_eq!(count, (round as usize % 7).min(4), "a ring of four");
            assert_eq!(values.len() + count, round as usize % 7, "the rest stays");
            next += count as u32;
            let progress = giver.progress();
            assert_eq!(progress.given().wrapping_sub(progress.taken()), count);
            let mut out = Vec::new();
            while taker.take(&mut out, 3) > 0 {}
            out.iter().for_each(|value| {
                assert_eq!(*value, expected);
                expected += 1;
            });
        }
        assert_eq!(next, expected);
    }

    #[test]
    fn two_threads_move_everything_in_order() {
        const COUNT: u32 = 100_000;
        let (mut giver, mut taker) = handoff(64);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut next, mut values) = (0, Vec::new());
                while next < COUNT || !values.is_empty() {
                    while next < COUNT && values.len() < 7 {
                        values.push(Box::new(next));
                        next += 1;
                    }
                    if giver.give(&mut values, usize::MAX) == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            let (mut expected, mut out) = (0, Vec::new());
            while expected < COUNT {
                if taker.take(&mut out, 32) == 0 {
                    std::thread::yield_now();
                }
                for value in out.drain(..) {
                    assert_eq!(*value, expected);
                    expected += 1;
                }
            }
        });
    }
}
