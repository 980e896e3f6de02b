//! Findings of the sanitizer, as text and as JSON.

use towpath_xdp::Finding;

use crate::error::CliError;
use crate::output::Output;

/// Text of a finding; its file is relative to the current directory if it lies below.
pub(crate) fn from_here(finding: &Finding) -> String {
    let text = finding.to_string();
    let here = std::env::current_dir().map(|here| format!("{}/", here.display()));
    let below = here.ok().and_then(|here| text.strip_prefix(&*here));
    below.map_or(text.clone(), str::to_owned)
}

/// A finding in JSON.
pub(crate) fn json(finding: &Finding) -> serde_json::Value {
    let line = finding.line.as_ref();
    serde_json::json!({
        "kind": finding.kind.name(), "severity": if finding.is_error() { "error" } else { "note" },
        "program": finding.program, "insn": finding.insn,
        "file": line.map(|(file, _)| &**file), "line": line.map(|(_, line)| line),
        "source": &*finding.text, "message": finding.message, "related": finding.related,
        "hint": finding.advice,
    })
}

/// Prints the findings, notes too: the user asked for them.
pub(crate) fn print(findings: &[Finding], output: &mut Output) -> Result<(), CliError> {
    if findings.is_empty() {
        return Ok(());
    }
    output.line(&format!("\n{}", output.style.bold("sanitizer")))?;
    let texts: Vec<String> = findings.iter().map(from_here).collect();
    let mut lines = texts.iter().flat_map(|text| text.lines());
    lines.try_for_each(|line| output.line(&format!("  {line}")))
}
