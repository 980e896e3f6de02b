//! A mistake in a document or request.

use std::fmt;

/// One thing that is wrong, and where: in a configuration file or in a JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, e.g. `port[2].mtu`; empty for the whole.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Problem {
    /// A problem at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { path: path.into(), message: message.into() }
    }

    /// The same inside of something at `outer`.
    pub fn inside(mut self, outer: &str) -> Problem {
        self.path = match (outer, self.path.as_str()) {
            (outer, "" | ".") => outer.to_owned(),
            ("", path) => path.to_owned(),
            (outer, path) if path.starts_with('[') => format!("{outer}{path}"),
            (outer, path) => format!("{outer}.{path}"),
        };
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" | "." => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

impl std::error::Error for Problem {}

impl From<Problem> for String {
    fn from(problem: Problem) -> String {
        problem.to_string()
    }
}
