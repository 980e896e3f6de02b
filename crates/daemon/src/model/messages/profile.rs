//! Where a program's time went.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a program's time went.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProfileView {
    /// The program.
    pub program: String,
    /// Seconds that were looked at.
    pub seconds: f64,
    /// Samples of all workers.
    pub samples: usize,
    /// Samples in this program, or in what it called.
    pub inside: usize,
    /// The lines that the program is made of, by file and number, with those that cost nothing.
    pub lines: Vec<ProfileLine>,
}

/// What a C line cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProfileLine {
    /// The file; empty for code that belongs to no line.
    pub file: String,
    /// The line's number.
    pub line: u32,
    /// What it says.
    pub text: String,
    /// Samples in it.
    pub samples: usize,
    /// Samples of these in functions that it called: helpers, maps.
    pub called: usize,
}
