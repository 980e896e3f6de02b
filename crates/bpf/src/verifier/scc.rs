//! Loops: strongly connected parts of the control flow, and the states inside them.

/// Loops being explored.
#[derive(Debug, Default)]
pub(crate) struct Loops {}
