//! Printed machine code.

use serde::Serialize;
use towpath_daemon::code::{MachineView, SourceView};
use towpath_daemon::globals::hex;
use towpath_xdp::program::{MachineInsn, disassemble};

use super::dump::print_source;
use crate::error::CliError;
use crate::output::Output;

/// The `--json` document.
#[derive(Debug, Serialize)]
struct Machine<'a> {
    program: &'a str,
    form: &'static str,
    bytes: usize,
    instructions: Vec<Line>,
}

/// One machine instruction.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    offset: usize,
    bytes: String,
    text: String,
    /// Name of the function or map that the operand refers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// The C line whose code begins here.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SourceView>,
}

/// Prints machine code, below the C lines it comes from if `with_lines` is set.
pub(super) fn print(
    code: &MachineView,
    with_lines: bool,
    output: &mut Output,
) -> Result<(), CliError> {
    let bytes = bytes(&code.code);
    if with_lines && code.lines.is_empty() {
        output.note("no line information: compile with -g");
    }
    let mut instructions = if cfg!(target_arch = "x86_64") {
        disassembled(code, &bytes)
    } else {
        output.note("no disassembler for this machine's code: bytes alone");
        bytes_alone(code, &bytes)
    };
    if with_lines {
        add_lines(code, &mut instructions);
    }
    if output.json {
        let (program, bytes) = (&code.program, bytes.len());
        return output.json(&Machine { program, form: "jited", bytes, instructions });
    }
    let style = output.style;
    for Line { function, offset, bytes, text, note, source } in &instructions {
        if let Some(function) = function {
            output.line(&format!("{}:", style.bold(function)))?;
        }
        if let Some(source) = source {
            print_source(source, output)?;
        }
        let note = note.as_ref().map_or(String::new(), |note| style.dim(&format!("  ; {note}")));
        let bytes = if output.verbose > 0 { format!("{bytes:<24}  ") } else { String::new() };
        output.line(&format!("{offset:6x}: {bytes}{text}{note}"))?;
    }
    Ok(())
}

fn disassembled(code: &MachineView, bytes: &[u8]) -> Vec<Line> {
    let line = |insn: MachineInsn| Line {
        function: function_at(code, insn.offset),
        offset: insn.offset,
        bytes: hex(&bytes[insn.offset..insn.offset + insn.len]),
        note: note(&insn, code),
        text: insn.text,
        source: None,
    };
    disassemble(bytes).into_iter().map(line).collect()
}

/// Puts each C line above the first instruction at its offset or behind it.
fn add_lines(code: &MachineView, instructions: &mut [Line]) {
    for line in &code.lines {
        let at = instructions.partition_point(|instruction| instruction.offset < line.offset);
        if let Some(instruction) = instructions.get_mut(at) {
            instruction.source = Some(line.source.clone());
        }
    }
}

/// Name of the function that a call leads to, or of the map that an address belongs to.
fn note(insn: &MachineInsn, code: &MachineView) -> Option<String> {
    if let Some(function) = insn.calls {
        return function_at(code, function);
    }
    let address = insn.constant?;
    code.maps.iter().find_map(|map| {
        if map.handle == address {
            return Some(format!("map {}", map.name));
        }
        let (first, bytes) = map.values?;
        let offset = address.checked_sub(first).filter(|&offset| offset < bytes)?;
        Some(format!("values of {} + {offset}", map.name))
    })
}

fn function_at(code: &MachineView, offset: usize) -> Option<String> {
    let found = code.functions.iter().find(|(start, _)| *start == offset);
    found.map(|(_, name)| name.clone())
}

/// Lines of sixteen bytes each, for a machine without a disassembler.
fn bytes_alone(code: &MachineView, bytes: &[u8]) -> Vec<Line> {
    let line = |(index, bytes): (usize, &[u8])| Line {
        function: function_at(code, index * 16),
        offset: index * 16,
        bytes: String::new(),
        text: hex(bytes),
        note: None,
        source: None,
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks_exact(2);
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
    pairs.map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
