//! Errors of reading the host's tables.

use std::io;

/// Reason why the host's tables cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A socket or thread cannot be made.
    #[error("watching the host's interfaces and routes: {step}")]
    Setup {
        /// Name of the failed step.
        step: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The kernel did not answer a request.
    #[error("reading the host's {what} by rtnetlink")]
    Read {
        /// Name of the table.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Gives a function that wraps the error of a step.
    pub(crate) fn setup(step: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Setup { step, source }
    }
}
