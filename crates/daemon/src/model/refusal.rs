//! Why something that was asked for was not done.

/// Something that was asked for and was not done; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind of reason.
    pub reason: Reason,
    /// What is wrong and what to do.
    pub message: String,
}

/// The kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The request makes no sense.
    Bad,
    /// There is no such thing.
    Missing,
    /// It makes sense, but not with what there is.
    Conflict,
    /// It was tried and refused, by the verifier or by the system.
    Refused,
    /// The request was right, and it went wrong.
    Failed,
    /// Others are at work: it can be tried again.
    Busy,
}

impl Refusal {
    /// The request makes no sense.
    pub fn bad(message: impl Into<String>) -> Refusal {
        Refusal { reason: Reason::Bad, message: message.into() }
    }

    /// There is no such thing.
    pub fn missing(message: impl Into<String>) -> Refusal {
        Refusal { reason: Reason::Missing, message: message.into() }
    }

    /// It makes sense, but not with what there is.
    pub fn conflict(message: impl Into<String>) -> Refusal {
        Refusal { reason: Reason::Conflict, message: message.into() }
    }

    /// It was tried and refused, by the verifier or by the system.
    pub fn refused(message: impl Into<String>) -> Refusal {
        Refusal { reason: Reason::Refused, message: message.into() }
    }

    /// The request was right, and it went wrong.
    pub fn failed(message: impl Into<String>) -> Refusal {
        Refusal { reason: Reason::Failed, message: message.into() }
    }

    /// Others are at work: it can be tried again.
    pub fn busy(message: impl Into<String>) -> Refusal {
        Refusal { reason: Reason::Busy, message: message.into() }
    }
}
