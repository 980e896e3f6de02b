//! Findings of the sanitizer for Python.

use pyo3::prelude::*;

/// A mistake in a program that verifiers accept, or a note.
#[pyclass(frozen, get_all, eq, hash, module = "towpath")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Finding {
    /// The kind of mistake: a heading of docs/sanitizer.md.
    kind: &'static str,
    /// `error`, or `note` if it may be intended.
    severity: &'static str,
    /// Name of the program.
    program: String,
    /// Number of the instruction.
    insn: usize,
    /// C file and line; None if the object has no line information.
    file: Option<String>,
    line: Option<u32>,
    /// The text of that line.
    source: String,
    /// The mistake, in one sentence.
    message: String,
    /// Related places in the program, each with a text.
    related: Vec<String>,
    /// The remedy.
    hint: String,
    text: String,
}

impl From<&towpath::Finding> for Finding {
    fn from(found: &towpath::Finding) -> Finding {
        Finding {
            kind: found.kind.name(),
            severity: if found.is_error() { "error" } else { "note" },
            program: found.program.clone(),
            insn: found.insn,
            file: found.line.as_ref().map(|(file, _)| file.to_string()),
            line: found.line.as_ref().map(|&(_, line)| line),
            source: found.text.to_string(),
            message: found.message.clone(),
            related: found.related.clone(),
            hint: found.advice.clone(),
            text: found.to_string(),
        }
    }
}

#[pymethods]
impl Finding {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<towpath.Finding {}: {}>", self.kind, self.message)
    }
}
