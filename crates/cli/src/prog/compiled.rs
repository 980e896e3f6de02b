//! `towpath prog dump xir|clif|llvm|jited`: a program on its way to machine code, and there.

use std::sync::Arc;
use std::time::Duration;

use iced_x86::OpKind;
use iced_x86::{Decoder, DecoderOptions, Formatter as _, Instruction, IntelFormatter, Mnemonic};
use serde::Serialize;
use towpath_bpf::program::MapType;
use towpath_maps::MapSet;
use towpath_xdp::program::{Form, LoadOptions, MachineCode, Program, Select};
use towpath_xdp::{CompileError, LoadError};

use crate::args::{DumpArgs, DumpForm, RunExec};
use crate::error::CliError;
use crate::output::Output;
use crate::program::{Opened, check_passes};

/// The `--json` document of the forms that are text.
#[derive(Debug, Serialize)]
struct Listing<'a> {
    program: &'a str,
    form: &'static str,
    text: &'a str,
}

/// The `--json` document of machine code.
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
    /// What its operand stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Prints a form that only compiled programs have.
pub(super) fn dump(args: &DumpArgs, opened: &Opened, output: &mut Output) -> Result<(), CliError> {
    check_passes(&args.without)?;
    let name = opened.program_name(opened.select(&args.selection)?);
    let refused =
        |source: LoadError| CliError::Load { path: opened.path.clone(), source: Box::new(source) };
    let mut loading = LoadOptions { exec: args.exec.into(), ..LoadOptions::default() };
    loading.jit.passes.without = args.without.iter().cloned().collect();
    let program = Program::load(&opened.object, Select::Name(name), opened.env(), &loading);
    let program = program.map_err(refused)?;
    let failed = |source: CompileError| CliError::Compile {
        path: opened.path.clone(),
        program: name.to_owned(),
        source: Box::new(source),
    };
    let form = match args.form {
        DumpForm::Clif => Form::Clif,
        DumpForm::Llvm => Form::Llvm,
        DumpForm::Jited => {
            if args.exec == RunExec::Llvm && !program.wait_for_tier2(TIER2_TIMEOUT) {
                let reason = program.exec_status().fallback.unwrap_or_default();
                output.note(&format!("not LLVM's code but Cranelift's: {reason}"));
            }
            let code = program.code_listing(&loading.jit).map_err(failed)?;
            return print_code(name, &code, program.maps(), output);
        }
        _ => Form::Xir,
    };
    let text = program.listing(form, &loading.jit).map_err(failed)?;
    if output.json {
        let form = match args.form {
            DumpForm::Clif => "clif",
            DumpForm::Llvm => "llvm",
            _ => "xir",
        };
        return output.json(&Listing { program: name, form, text: &text });
    }
    output.line(text.trim_end())
}

fn print_code(
    name: &str,
    code: &MachineCode,
    maps: &Arc<MapSet>,
    output: &mut Output,
) -> Result<(), CliError> {
    let instructions = if cfg!(target_arch = "x86_64") {
        disassemble(code, maps)
    } else {
        output.note("no disassembler for this machine's code: bytes alone");
        bytes_alone(code)
    };
    if output.json {
        let bytes = code.bytes.len();
        return output.json(&Machine { program: name, form: "jited", bytes, instructions });
    }
    let style = output.style;
    for Line { function, offset, bytes, text, note } in &instructions {
        if let Some(function) = function {
            output.line(&format!("{}:", style.bold(function)))?;
        }
        let note = note.as_ref().map_or(String::new(), |note| style.dim(&format!("  ; {note}")));
        let bytes = if output.verbose > 0 { format!("{bytes:<24}  ") } else { String::new() };
        output.line(&format!("{offset:6x}: {bytes}{text}{note}"))?;
    }
    Ok(())
}

fn disassemble(code: &MachineCode, maps: &MapSet) -> Vec<Line> {
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_hex_prefix("0x");
    formatter.options_mut().set_hex_suffix("");
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_branch_leading_zeros(false);
    let mut decoder = Decoder::with_ip(64, &code.bytes, 0, DecoderOptions::NONE);
    let (mut lines, mut instruction) = (Vec::new(), Instruction::default());
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let offset = instruction.ip() as usize;
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        lines.push(Line {
            function: function_at(code, offset),
            offset,
            bytes: hex(&code.bytes[offset..offset + instruction.len()]),
            text,
            note: note(&instruction, code, maps),
        });
    }
    lines
}

/// The name of the function a call leads to, or of the map an address belongs to.
fn note(instruction: &Instruction, code: &MachineCode, maps: &MapSet) -> Option<String> {
    if instruction.mnemonic() == Mnemonic::Call && instruction.op0_kind() == OpKind::NearBranch64 {
        return function_at(code, instruction.near_branch64() as usize);
    }
    if instruction.op_count() < 2 || instruction.op1_kind() != OpKind::Immediate64 {
        return None;
    }
    let address = instruction.immediate64();
    maps.maps().iter().find_map(|map| {
        if map.handle() == address {
            return Some(format!("map {}", map.name()));
        }
        if map.kind() != MapType::Array {
            return None;
        }
        let first = map.lookup(0, &0u32.to_ne_bytes()).map(|value| value.as_ptr() as u64)?;
        let bytes = u64::from(map.value_size().next_multiple_of(8)) * u64::from(map.max_entries());
        let offset = address.checked_sub(first).filter(|&offset| offset < bytes)?;
        Some(format!("values of {} + {offset}", map.name()))
    })
}

fn function_at(code: &MachineCode, offset: usize) -> Option<String> {
    let found = code.functions.iter().find(|(start, _)| *start == offset);
    found.map(|(_, name)| name.clone())
}

/// Sixteen bytes a line.
fn bytes_alone(code: &MachineCode) -> Vec<Line> {
    let line = |(index, bytes): (usize, &[u8])| Line {
        function: function_at(code, index * 16),
        offset: index * 16,
        bytes: String::new(),
        text: hex(bytes),
        note: None,
    };
    code.bytes.chunks(16).enumerate().map(line).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// LLVM takes a second for the longest programs on an idle machine.
const TIER2_TIMEOUT: Duration = Duration::from_secs(60);
