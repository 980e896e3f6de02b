//! The comparisons, one module each, and the report they share.

mod report;
mod tables;

pub use report::{Difference, Report};
pub use tables::tables;
