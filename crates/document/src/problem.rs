//! A mistake in a document or request.

use std::fmt;

/// A mistake and its place in a configuration file or a JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path of the place, e.g. `port[2].mtu`; empty for the whole document.
    pub path: String,
    /// The mistake and a remedy.
    pub message: String,
}

impl Problem {
    /// A problem at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { path: path.into(), message: message.into() }
    }

    /// The same problem, with `outer` in front of its path.
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
