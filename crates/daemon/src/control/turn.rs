//! A value that threads change in turns of any length. A thread that waits may give up, and learns
//! what the current holder is doing, and for how long.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The value.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    held: Mutex<Held<T>>,
    free: Condvar,
}

#[derive(Debug)]
struct Held<T> {
    /// The value; `None` while a thread has its turn.
    value: Option<T>,
    /// Description of the current or last turn.
    what: String,
    since: Instant,
}

/// A turn, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a, T> {
    turns: &'a Turns<T>,
    /// The value; `None` only while the turn is dropped.
    value: Option<T>,
}

impl<T> Turns<T> {
    pub(crate) fn new(value: T) -> Turns<T> {
        let held = Held { value: Some(value), what: String::new(), since: Instant::now() };
        Turns { held: Mutex::new(held), free: Condvar::new() }
    }

    /// Waits for a turn, described by `what`.
    ///
    /// # Errors
    ///
    /// Fails after `limit`, with the description of the current turn, and its duration.
    pub(crate) fn take(
        &self,
        what: &str,
        limit: Duration,
    ) -> Result<Turn<'_, T>, (String, Duration)> {
        let mut held = self.held.lock();
        self.free.wait_while_for(&mut held, |held| held.value.is_none(), limit);
        match held.value.take() {
            Some(value) => {
                (held.what, held.since) = (what.to_owned(), Instant::now());
                Ok(Turn { turns: self, value: Some(value) })
            }
            None => Err((held.what.clone(), held.since.elapsed())),
        }
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("taken only when dropped")
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("taken only when dropped")
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut held = self.turns.held.lock();
        assert!(held.value.is_none(), "one has it at a time");
        held.value = self.value.take();
        drop(held);
        self.turns.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_a_turn_and_others_give_up_or_wait() {
        let turns = Turns::new(1);
        let mut turn = turns.take("adding", Duration::ZERO).expect("it is free");
        *turn += 1;
        let (what, since) = turns.take("", Duration::from_millis(20)).expect_err("it is taken");
        assert_eq!(what, "adding");
        assert!(since >= Duration::from_millis(20));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| *turns.take("", Duration::from_secs(60)).expect("it ends"));
            drop(turn);
            assert_eq!(next.join().expect("no panic"), 2);
        });
        // A panic ends the turn.
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _turn = turns.take("", Duration::ZERO).expect("it is free");
            panic!("on purpose");
        }));
        assert!(panicked.is_err() && turns.take("", Duration::ZERO).is_ok());
    }
}
