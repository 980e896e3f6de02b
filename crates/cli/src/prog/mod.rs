//! `towpath prog`: what bpftool's `prog run` and `prog dump` do, on a file.

mod dump;

pub use dump::dump;
