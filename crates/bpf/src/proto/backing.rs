//! Sources of the results of helpers and kfuncs in Towpath.

use std::fmt;

/// Fidelity of a call outside the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Behaves as in the kernel.
    Full,
    /// Behaves as in the kernel, with the stated difference.
    FullExcept(&'static str),
    /// Results come from tables that Towpath owns; the text names them.
    Tables(&'static str),
    /// Describes the process and thread that run the program.
    Process(&'static str),
    /// Accepted and typed as in the kernel; the result is that of a kernel that finds nothing,
    /// which the text gives.
    NothingFound(&'static str),
    /// Can't pass the verifier in an XDP program; the text says why.
    Never(&'static str),
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backing::Full => f.write_str("as in the kernel"),
            Backing::FullExcept(what) => write!(f, "as in the kernel, but {what}"),
            Backing::Tables(which) => write!(f, "answers from {which}"),
            Backing::Process(what) => write!(f, "describes the hosting process: {what}"),
            Backing::NothingFound(value) => write!(f, "finds nothing: returns {value}"),
            Backing::Never(why) => write!(f, "never passes the verifier: {why}"),
        }
    }
}
