//! Refusals: requests that were not carried out, with the reason.

/// A request that was not carried out; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind of reason.
    pub reason: Reason,
    /// The error, with advice.
    pub message: String,
}

/// The kinds of reasons for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The request is malformed.
    Bad,
    /// The request names a thing that does not exist.
    Missing,
    /// The request is valid, but conflicts with the current state.
    Conflict,
    /// The verifier or the system refused.
    Refused,
    /// The request is valid, but failed.
    Failed,
    /// Another change is in progress: the client can try again.
    Busy,
}

impl Refusal {
    /// A refusal with [`Reason::Bad`].
    pub fn bad(message: impl Into<String>) -> Refusal {
        Refusal { reason: Reason::Bad, message: message.into() }
    }

    /// A refusal with [`Reason::Missing`].
    pub fn missing(message: impl Into<String>) -> Refusal {
        Refusal { reason: Reason::Missing, message: message.into() }
    }

    /// A refusal with [`Reason::Conflict`].
    pub fn conflict(message: impl Into<String>) -> Refusal {
        Refusal { reason: Reason::Conflict, message: message.into() }
    }

    /// A refusal with [`Reason::Refused`].
    pub fn refused(message: impl Into<String>) -> Refusal {
        Refusal { reason: Reason::Refused, message: message.into() }
    }

    /// A refusal with [`Reason::Failed`].
    pub fn failed(message: impl Into<String>) -> Refusal {
        Refusal { reason: Reason::Failed, message: message.into() }
    }

    /// A refusal with [`Reason::Busy`].
    pub fn busy(message: impl Into<String>) -> Refusal {
        Refusal { reason: Reason::Busy, message: message.into() }
    }
}
