//! Where the answers of a helper or kfunc come from in Towpath.

use std::fmt;

/// How faithfully a call behaves outside the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Behaves as in the kernel.
    Full,
    /// Behaves as in the kernel, with the stated difference.
    FullExcept(&'static str),
    /// Answers from tables that Towpath owns; the text says which.
    Tables(&'static str),
    /// Describes the process and thread that run the program.
    Process(&'static str),
    /// Accepted and typed as in the kernel; answers as a kernel that finds nothing; the text is
    /// the value returned.
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
