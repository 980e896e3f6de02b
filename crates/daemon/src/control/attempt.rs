//! Changes that are undone on failure, without regard to unrelated failures at the same time.

use super::{Control, Work};
use crate::live::Report;
use crate::model::failure::{Failure, keep_since};
use crate::model::refusal::Refusal;
use crate::model::state::State;

impl Control {
    /// Applies a change; if it fails, restores the previous state. A failure that also occurs
    /// without the change is not attributed to it, since an interface may disappear at any time.
    pub(super) fn attempt(&self, work: &mut Work, next: &State) -> Result<Report, Refusal> {
        let mut tries = 1;
        loop {
            let mut report = work.live.try_reconcile(next);
            let is_news = |failure: &&Failure| !work.failures.contains(failure);
            let Some(failure) = report.failures.iter().find(is_news).cloned() else {
                work.live.drop_ipsec(next, &mut report);
                return Ok(report);
            };
            let wanted = work.wanted.clone();
            let mut failures = work.live.reconcile(wanted.state()).failures;
            keep_since(&mut failures, &work.failures);
            self.tell_failures(work, &failures);
            work.failures = failures;
            self.show(work);
            if tries == TRIES || !work.failures.contains(&failure) {
                return Err(Refusal::refused(failure.to_string()));
            }
            tries += 1;
            assert!(tries <= TRIES, "a change ends");
        }
    }
}

/// Number of tries while unrelated failures occur.
const TRIES: usize = 3;
const _: () = assert!(TRIES > 0, "a change is tried");
