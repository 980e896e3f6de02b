//! Profiles: the share of each C line in a program's run time.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A profile of a program.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProfileView {
    /// The program.
    pub program: String,
    /// Duration of the measurement in seconds.
    pub seconds: f64,
    /// Samples of all workers.
    pub samples: usize,
    /// Samples in this program or in functions that it called.
    pub inside: usize,
    /// Lines of the program by file and number, including those without samples.
    pub lines: Vec<ProfileLine>,
}

/// Samples of a C line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProfileLine {
    /// The file; empty for code without line information.
    pub file: String,
    /// The line's number.
    pub line: u32,
    /// The line's text.
    pub text: String,
    /// Samples in the line.
    pub samples: usize,
    /// Samples of these that were in functions called by the line: helpers, maps.
    pub called: usize,
}
