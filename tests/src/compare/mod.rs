//! The comparisons, one module each, and the report they share.

mod blame;
mod hostile;
mod isa;
mod mutants;
mod objects;
mod random;
mod report;
mod speed;
mod tables;

pub use blame::Blame;
pub use hostile::{HostileBudget, hostile};
pub use isa::{isa, printed};
pub use mutants::{MutantBudget, mutants};
pub use objects::{ObjectBudget, objects};
pub use random::{Budget, passes, random};
pub use report::{Difference, Report};
pub use speed::speed;
pub use tables::tables;
