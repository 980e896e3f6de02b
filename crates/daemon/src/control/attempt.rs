//! A change that is undone when it fails, beside what fails by itself meanwhile.

use super::{Control, Work};
use crate::live::Report;
use crate::model::failure::{Failure, keep_since};
use crate::model::refusal::Refusal;
use crate::model::state::State;

impl Control {
    /// Makes something else; when that fails, everything is as it was. A failure that is there
    /// without the change, too, is none of it: an interface may go in the middle of it.
    pub(super) fn attempt(&self, work: &mut Work, next: &State) -> Result<Report, Refusal> {
        let mut tries = 1;
        loop {
            let report = work.live.try_reconcile(next);
            let is_news = |failure: &&Failure| !work.failures.contains(failure);
            let Some(failure) = report.failures.iter().find(is_news).cloned() else {
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

/// How often a change is tried while something else fails beside it.
const TRIES: usize = 3;
const _: () = assert!(TRIES > 0, "a change is tried");
