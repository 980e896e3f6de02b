//! `towpath prog dump`: the linked instructions, alone or below the C lines they come from, and
//! what compilation makes of them.

use serde::Serialize;
use towpath_bpf::Linked;
use towpath_bpf::disasm::Disasm;
use towpath_bpf::program::Line;

use crate::args::{DumpArgs, DumpForm};
use crate::error::CliError;
use crate::output::Output;
use crate::program::Opened;

use super::compiled;

/// The `--json` document.
#[derive(Debug, Serialize)]
struct Dump<'a> {
    program: &'a str,
    section: &'a str,
    insns: Vec<InsnLine<'a>>,
}

#[derive(Debug, Serialize)]
struct InsnLine<'a> {
    insn: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<&'a str>,
    bytes: String,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SourceLine<'a>>,
}

#[derive(Debug, Serialize)]
struct SourceLine<'a> {
    file: &'a str,
    line: u32,
    column: u32,
    text: &'a str,
}

/// Prints a program's instructions.
pub(crate) fn dump(args: &DumpArgs, output: &mut Output) -> Result<(), CliError> {
    let opened = Opened::new(&args.object, &args.program)?;
    if !matches!(args.form, DumpForm::Xlated | DumpForm::Source) {
        return compiled::dump(args, &opened, output);
    }
    let linked = opened.link(opened.select(&args.selection)?)?;
    let with_source = args.form == DumpForm::Source;
    let insns = lines(&linked, with_source);
    if output.json {
        return output.json(&Dump { program: &linked.name, section: &linked.section, insns });
    }
    if with_source && linked.lines.is_empty() {
        output.note(&format!("{}: no line information; compile with -g", linked.name));
    }
    for line in &insns {
        print(line, output)?;
    }
    Ok(())
}

fn lines(linked: &Linked, with_source: bool) -> Vec<InsnLine<'_>> {
    let mut lines = Vec::with_capacity(linked.insns.len());
    let mut slot = 0;
    while let (Some(insn), Some(text)) = (linked.insns.get(slot), Disasm::of(linked, slot)) {
        let function = linked.functions.iter().find(|function| function.start as usize == slot);
        let slots = if insn.is_ld_imm64() { 2 } else { 1 };
        let end = (slot + slots).min(linked.insns.len());
        let bytes = linked.insns[slot..end].iter().flat_map(|insn| insn.to_le_bytes());
        lines.push(InsnLine {
            insn: slot,
            function: function.map(|function| function.name.as_str()),
            bytes: bytes.map(|byte| format!("{byte:02x}")).collect(),
            text: text.to_string(),
            source: source_starting_at(linked, slot).filter(|_| with_source),
        });
        slot = end;
    }
    lines
}

/// The C line whose first instruction is at `slot`.
fn source_starting_at(linked: &Linked, slot: usize) -> Option<SourceLine<'_>> {
    let Line { insn, file, text, line, column } = linked.line_of(slot)?;
    (*insn as usize == slot).then_some(SourceLine { file, line: *line, column: *column, text })
}

fn print(line: &InsnLine<'_>, output: &mut Output) -> Result<(), CliError> {
    let style = output.style;
    if let Some(function) = line.function {
        output.line(&format!("{}:", style.bold(function)))?;
    }
    if let Some(SourceLine { file, line, text, .. }) = &line.source {
        let file = file.rsplit('/').next().unwrap_or(file);
        let place = format!("{file}:{line}");
        output.line(&format!("; {}  {}", style.source(text), style.dim(&place)))?;
    }
    if output.verbose > 0 {
        return output.line(&format!("{:5}: {:<32}  {}", line.insn, line.bytes, line.text));
    }
    output.line(&format!("{:5}: {}", line.insn, line.text))
}
