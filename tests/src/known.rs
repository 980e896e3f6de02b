//! Differences that are there on purpose or understood: the tables of `docs/differences.md`.
//!
//! The document is the list, so that nothing is excused that isn't explained. A row of a table
//! there that starts with two code spans excuses differences of that kind in programs whose name
//! contains that text; the rest of the row says why.

use crate::compare::Difference;
use crate::sources::repository;

/// The rows of the document.
#[derive(Debug, Default)]
pub struct Known {
    rows: Vec<(String, String)>,
}

impl Known {
    /// Reads `docs/differences.md`; empty when it isn't there.
    pub fn read() -> Self {
        let path = repository().join("docs/differences.md");
        Known::parse(&std::fs::read_to_string(path).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let code = |cell: &str| {
            let cell = cell.trim().strip_prefix('`')?.strip_suffix('`')?;
            Some(cell.to_owned())
        };
        let row = |line: &str| {
            let mut cells = line.strip_prefix('|')?.split('|');
            Some((code(cells.next()?)?, code(cells.next()?)?))
        };
        Known { rows: text.lines().filter_map(row).collect() }
    }

    /// Whether a difference is explained there.
    pub fn explains(&self, difference: &Difference) -> bool {
        self.rows
            .iter()
            .any(|(kind, name)| difference.kind == *kind && difference.name.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_with_two_code_spans_count() {
        let text = "| kind | program | why |\n|---|---|---|\n| `bytes` | `clock.o tick` | time |\n";
        let known = Known::parse(text);
        assert_eq!(known.rows, [("bytes".to_owned(), "clock.o tick".to_owned())]);
        let mut difference = Difference {
            name: "x/clock.o tick, packet 3".into(),
            kind: "bytes".into(),
            kernel: String::new(),
            ours: String::new(),
        };
        assert!(known.explains(&difference));
        difference.kind = "verdict".into();
        assert!(!known.explains(&difference));
    }
}
