//! `towpath prog`: what bpftool's `prog run` and `prog dump` do, on a file.

mod compiled;
mod context;
mod dump;
mod engine;
mod run;

pub(crate) use dump::dump;
pub(crate) use run::run;
