//! Errors between the host and this process.

use std::io;

/// Why the host's tables cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A socket or thread cannot be had.
    #[error("watching the host's interfaces and routes: {step}")]
    Setup {
        /// What was being done.
        step: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The kernel did not answer a request.
    #[error("reading the host's {what} by rtnetlink")]
    Read {
        /// What was asked for.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl Error {
    /// Makes an error of one that a step ended with.
    pub(crate) fn setup(step: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Setup { step, source }
    }
}
