//! `towpath prog`: what bpftool's `prog run` and `prog dump` do, on a file.

mod context;
mod dump;
mod engine;
mod run;

pub use dump::dump;
pub use run::run;
