//! What a reconciliation did and could not do.

use crate::model::failure::{Failure, FailureCode};

/// What a reconciliation did and could not do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// What changed, one line each.
    pub changes: Vec<String>,
    /// What is wanted and is not there.
    pub failures: Vec<Failure>,
    /// What is wanted and comes when the daemon is started again.
    pub restart: Vec<String>,
}

impl Report {
    pub(super) fn change(&mut self, what: impl Into<String>) {
        self.changes.push(what.into());
    }

    pub(super) fn fail(
        &mut self,
        code: FailureCode,
        subject: impl Into<String>,
        why: impl Into<String>,
    ) {
        self.failures.push(Failure::new(code, subject, why));
    }
}
