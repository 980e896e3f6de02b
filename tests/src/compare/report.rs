//! What a comparison found: counts, and each difference with what both sides said.

use std::fmt;

use serde_json::{Value, json};

use crate::known::Known;
use crate::verdict::Agreement;

/// The outcome of one comparison.
#[derive(Debug, Default)]
pub struct Report {
    /// What was compared.
    pub title: String,
    /// Counts and figures in the order they are printed.
    pub figures: Vec<(String, String)>,
    /// Where the two sides differ, the worst first.
    pub differences: Vec<Difference>,
    /// Differences beyond those listed.
    pub more: usize,
    /// What was left out, and why.
    pub skipped: Vec<String>,
}

/// One program on which the two sides differ.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The program.
    pub name: String,
    /// What differs: `unsound`, `too strict`, `verdict`, `bytes`, `map`, ...
    pub kind: String,
    /// What the kernel said or did.
    pub kernel: String,
    /// What we said or did.
    pub ours: String,
}

impl Report {
    /// A report with a title.
    pub fn new(title: &str) -> Self {
        Report { title: title.to_owned(), ..Report::default() }
    }

    /// Adds a figure.
    pub fn figure(&mut self, name: &str, value: impl fmt::Display) {
        self.figures.push((name.to_owned(), value.to_string()));
    }

    /// Notes two verifiers' verdicts when they differ.
    pub fn verdicts(&mut self, name: &str, agreement: Agreement, kernel: &str, ours: &str) {
        let kind = match agreement {
            Agreement::Unsound => "unsound",
            Agreement::TooStrict => "too strict",
            Agreement::BothAccept | Agreement::BothRefuse => return,
        };
        self.differences.push(Difference {
            name: name.to_owned(),
            kind: kind.to_owned(),
            kernel: kernel.to_owned(),
            ours: ours.to_owned(),
        });
    }

    /// Whether every difference is explained in `docs/differences.md`.
    pub fn passed(&self) -> bool {
        self.more == 0 && self.unexplained().next().is_none()
    }

    /// Differences that nothing explains yet.
    pub fn unexplained(&self) -> impl Iterator<Item = &Difference> {
        let known = Known::read();
        self.differences.iter().filter(move |difference| !known.explains(difference))
    }

    /// The same as one JSON value.
    pub fn json(&self) -> Value {
        let figures: serde_json::Map<String, Value> =
            self.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let differences: Vec<Value> = self
            .differences
            .iter()
            .map(|d| json!({"name": d.name, "kind": d.kind, "kernel": d.kernel, "ours": d.ours}))
            .collect();
        json!({
            "title": self.title,
            "figures": figures,
            "differences": differences,
            "more": self.more,
            "skipped": self.skipped,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "== {} ==", self.title)?;
        for (name, value) in &self.figures {
            writeln!(f, "{name:<44} {value}")?;
        }
        let known = Known::read();
        for difference in &self.differences {
            let mark = if known.explains(difference) { " (explained)" } else { "" };
            writeln!(f, "\n{}{mark}: {}", difference.kind, difference.name)?;
            writeln!(f, "  kernel: {}", difference.kernel)?;
            writeln!(f, "  ours:   {}", difference.ours)?;
        }
        if self.more > 0 {
            writeln!(f, "\n... and {} more", self.more)?;
        }
        for skipped in &self.skipped {
            writeln!(f, "skipped: {skipped}")?;
        }
        Ok(())
    }
}
