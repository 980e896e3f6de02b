//! Results of a reconciliation.

use crate::model::failure::{Failure, FailureCode};

/// Results of a reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Descriptions of changes, one line each.
    pub changes: Vec<String>,
    /// Parts of the wanted state that could not be established.
    pub failures: Vec<Failure>,
    /// Wanted changes that take effect at the next start of the daemon.
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
