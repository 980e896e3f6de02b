//! Refusals of requests.

use towpath_bpf::Errno;
use towpath_guest_client::wire::Malformed;

/// A refusal of a guest's request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}: {errno}")]
pub struct Refusal {
    /// Error number, as `bpf(2)` would return it.
    pub errno: Errno,
    /// Message for the user.
    pub text: String,
    /// Name of the limit that would be exceeded, if that is the reason.
    pub limit: Option<&'static str>,
    /// Log of the verifier.
    pub log: String,
}

impl Refusal {
    pub(crate) fn new(errno: Errno, text: impl Into<String>) -> Refusal {
        Refusal { errno, text: text.into(), limit: None, log: String::new() }
    }

    /// The refusal of a request that would exceed a limit.
    pub(crate) fn limit(name: &'static str, limit: u64, used: u64) -> Refusal {
        let text = format!("{used} {name}, and this guest may have {limit}");
        Refusal { limit: Some(name), ..Refusal::new(Errno::EDQUOT, text) }
    }

    /// The refusal of too many operations at once.
    pub(crate) fn operations(limit: u64) -> Refusal {
        let text = format!("more than {limit} operations a second");
        Refusal { limit: Some("operations"), ..Refusal::new(Errno::EAGAIN, text) }
    }

    /// The refusal of an operation that this guest's programs are not allowed.
    pub(crate) fn not_allowed(limit: &'static str, text: impl Into<String>) -> Refusal {
        Refusal { limit: Some(limit), ..Refusal::new(Errno::EOPNOTSUPP, text) }
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Refusal {
        Refusal::new(Errno::EBADMSG, malformed.to_string())
    }
}
