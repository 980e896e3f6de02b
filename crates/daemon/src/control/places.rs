//! How many requests are worked on at a time, so that none of a kind keeps the others out.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::refusal::Refusal;

/// Places for requests, each held until it is dropped.
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
    /// A place for a request that changes something or takes its time; `step` is what the one
    /// before all others is at.
    pub(crate) fn to_work(&self, step: &str) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = Arc::clone(&self.works).try_acquire_owned();
        place.map_err(|_all_taken| {
            let at = if step.is_empty() { String::new() } else { format!(", the first at {step}") };
            let message = format!("{WORKS} other requests are being worked on{at}: try again");
            Refusal::busy(message)
        })
    }

    /// A place for a look, as soon as there is one.
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

    /// A place to make a piece of a long answer: others wait for their turn, as their clients do.
    pub(crate) async fn for_a_piece(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = Arc::clone(&self.pieces).acquire_owned().await;
        place.map_err(|closed| Refusal::failed(closed.to_string()))
    }
}

/// Requests that are worked on at a time, most of them waiting for each other.
pub(crate) const WORKS: usize = 32;
/// Looks at a time: they may wait for the host, and their answers are made in memory.
const LOOKS: usize = 8;
/// Pieces of long answers that are made at a time: all of them together have one CPU at most.
const PIECES: usize = 1;
const _: () = assert!(PIECES > 0 && LOOKS > 0 && WORKS > LOOKS, "each kind has a place");
/// How long a look waits for others.
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
            // One that waits gets the next that is free.
            let waits = all.to_look();
            let frees = async { drop(places.pop()) };
            tokio::join!(async { drop(waits.await.expect("it is its turn")) }, frees);
        });
    }
}
