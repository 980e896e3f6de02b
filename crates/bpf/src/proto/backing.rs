//! Sources of the results of helpers and kfuncs in Towpath.

use std::fmt;

/// Fidelity of a call outside the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Behaves as in the kernel.
    Full,
    /// Behaves as in the kernel, with the stated difference.
    FullExcept(&'static str),
    /// Results come from data that Towpath owns; the text names it.
    Tables(&'static str),
    /// Describes the process and thread that run the program.
    Process(&'static str),
    /// Accepted and typed as in the kernel. The result, which the text gives, is the one that a
    /// kernel returns if it finds nothing.
    NothingFound(&'static str),
    /// Refused by the verifier in every XDP program; the text says why.
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
