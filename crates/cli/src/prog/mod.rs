//! `towpath prog`: bpftool's `prog run` and `prog dump` on a file; and `prog dump` of a program
//! that a daemon runs.

mod called;
mod compiled;
mod context;
mod dump;
mod engine;
mod machine;
mod run;
mod running;

pub(crate) use dump::dump;
pub(crate) use run::run;
