//! The `towpath` binary.

fn main() {}
