//! Refusals of requests: the error number that the client gets, and a sentence for the log.

use towpath_ipsec::{ConfigError, KeyError, TableError};

/// A request that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Refused {
    /// The kernel's error number for it, positive.
    pub(crate) errno: i32,
    pub(crate) why: String,
}

impl Refused {
    pub(crate) fn new(errno: i32, why: impl Into<String>) -> Refused {
        Refused { errno, why: why.into() }
    }

    /// The refusal of a feature that the accelerator doesn't have.
    pub(crate) fn unsupported(what: &str) -> Refused {
        Refused::new(EOPNOTSUPP, format!("{what} is not supported"))
    }

    /// The refusal of a message that the kernel calls invalid, too.
    pub(crate) fn malformed(what: impl Into<String>) -> Refused {
        Refused::new(EINVAL, what)
    }
}

impl From<TableError> for Refused {
    fn from(error: TableError) -> Refused {
        let errno = match &error {
            TableError::SpiInUse { .. } | TableError::PolicyExists(_) => EEXIST,
            TableError::Full(_) | TableError::PoliciesFull(_) => ENOBUFS,
            TableError::Config(ConfigError::Key(KeyError::Library(_))) => ENOMEM,
            _ => EINVAL,
        };
        Refused::new(errno, error.to_string())
    }
}

// Error numbers as in asm-generic/errno.h: the same on all machines that Towpath runs on.
pub(crate) const ENOENT: i32 = 2;
pub(crate) const ESRCH: i32 = 3;
pub(crate) const ENOMEM: i32 = 12;
pub(crate) const EEXIST: i32 = 17;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENOSYS: i32 = 38;
pub(crate) const EPROTONOSUPPORT: i32 = 93;
pub(crate) const EOPNOTSUPP: i32 = 95;
pub(crate) const ENOBUFS: i32 = 105;
