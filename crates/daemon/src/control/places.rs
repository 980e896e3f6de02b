//! Limits on concurrent requests, so that one kind of request does not block the others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::refusal::Refusal;

/// Slots for requests, each held until its permit is dropped.
#[derive(Debug)]
pub(crate) struct Places {
    works: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    pieces: Arc<Semaphore>,
}

impl Default for Places {
    fn default() -> Places {
        Places {
            works: Arc::new(Semaphore::new(WORKS)),
            looks: Arc::new(Semaphore::new(LOOKS)),
            pieces: Arc::new(Semaphore::new(PIECES)),
        }
    }
}

impl Places {
    /// Takes a slot for a request that changes something or takes long. `step` is the current step
    /// of the change in progress, for the message of a refusal.
    pub(crate) fn to_work(&self, step: &str) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = Arc::clone(&self.works).try_acquire_owned();
        place.map_err(|_all_taken| {
            let at = if step.is_empty() { String::new() } else { format!(", the first at {step}") };
            let message = format!("{WORKS} other requests are being worked on{at}: try again");
            Refusal::busy(message)
        })
    }

    /// Waits for a slot for a reading request.
    pub(crate) async fn to_look(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = Arc::clone(&self.looks).acquire_owned();
        let place = tokio::time::timeout(WAIT_MAX, place).await;
        place.ok().and_then(Result::ok).ok_or_else(|| {
            let seconds = WAIT_MAX.as_secs();
            let message = format!(
                "{LOOKS} other requests are being looked up, and none was done within {seconds} s: \
                 ask again later, and for less at a time"
            );
            Refusal::busy(message)
        })
    }

    /// Waits for the slot in which pieces of long answers are made.
    pub(crate) async fn for_a_piece(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = Arc::clone(&self.pieces).acquire_owned().await;
        place.map_err(|closed| Refusal::failed(closed.to_string()))
    }
}

/// Number of concurrent changes, most of which wait for each other.
pub(crate) const WORKS: usize = 32;
/// Number of concurrent readers: they may wait for the host, and their answers are made in memory.
const LOOKS: usize = 8;
/// Number of pieces of long answers that are made at a time: together, they use at most one CPU.
const PIECES: usize = 1;
const _: () = assert!(PIECES > 0 && LOOKS > 0 && WORKS > LOOKS, "each kind has a place");
/// Longest time that a reader waits for others.
const WAIT_MAX: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::refusal::Reason;

    #[test]
    fn looks_have_a_limit_and_further_ones_are_told_what_to_do() {
        let all = Places::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("there are descriptors").block_on(async {
            let mut places = Vec::new();
            for _ in 0..LOOKS {
                places.push(all.to_look().await.expect("it is free"));
            }
            let error = all.to_look().await.expect_err("all are taken");
            assert_eq!(error.reason, Reason::Busy);
            assert!(error.message.ends_with("ask again later, and for less at a time"), "{error}");
            // A waiting request gets the next free slot.
            let waits = all.to_look();
            let frees = async { drop(places.pop()) };
            tokio::join!(async { drop(waits.await.expect("it is its turn")) }, frees);
        });
    }
}
