//! The flag that prevents lost wake-ups between a worker and the threads that give it work: one
//! side always looks last.
//!
//! loom checks it in every interleaving:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p towpath-ring --lib sleep_flag`.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Set while a worker sleeps, or is about to.
#[derive(Debug, Default)]
pub struct SleepFlag(AtomicBool);

impl SleepFlag {
    /// Sets the flag. The worker must look for work once more afterwards, and may sleep if there is
    /// none.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Clears the flag.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether the worker has to be woken. Ask when the work is visible.
    #[inline]
    pub fn is_set(&self) -> bool {
        // Pairs with the fence in `set`: either the flag is seen here, or the worker sees the work.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, loom))]
mod tests {
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::sync::{Arc, Notify};
    use loom::thread;

    use super::*;

    /// Counts work as an inbox does, and returns whether its worker is woken for it.
    fn give(work: &AtomicUsize, flag: &SleepFlag) -> bool {
        work.fetch_add(1, Ordering::Release);
        flag.is_set()
    }

    #[test]
    fn work_is_seen_or_wakes() {
        loom::model(|| {
            let shared = Arc::new((AtomicUsize::new(0), SleepFlag::default()));
            let givers: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || give(&shared.0, &shared.1))
                })
                .collect();
            let (work, flag) = &*shared;
            flag.set();
            let seen = work.load(Ordering::Acquire);
            let woken =
                givers.into_iter().filter_map(|it| it.join().unwrap().then_some(())).count();
            assert!(seen + woken >= 2, "{seen} seen, {woken} woke");
        });
    }

    /// Without its bell the worker would wait for ever, which the model finds.
    #[test]
    fn a_sleep_ends_when_there_is_work() {
        loom::model(|| {
            let shared = Arc::new((AtomicUsize::new(0), SleepFlag::default(), Notify::new()));
            let giver = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (work, flag, bell) = &*shared;
                    if give(work, flag) {
                        bell.notify();
                    }
                })
            };
            let (work, flag, bell) = &*shared;
            loop {
                flag.set();
                if work.load(Ordering::Acquire) > 0 {
                    break;
                }
                bell.wait();
                flag.clear();
            }
            giver.join().unwrap();
        });
    }
}
