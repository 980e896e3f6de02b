//! `towpath verify`: whether programs would be accepted, and the reasons if not.

use std::path::Path;

use serde::Serialize;
use towpath_bpf::Env;
use towpath_bpf::object::{ProgramKind, section};
use towpath_bpf::verifier::{self, Note, Options, Rejection, Report, Stats};

use crate::args::{RunTrust, VerifyArgs};
use crate::error::{CliError, Status};
use crate::leftover;
use crate::output::{Output, grouped};
use crate::program::{Opened, kernel_types};

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    object: String,
    program: &'a str,
    section: &'a str,
    accepted: bool,
    insns: u64,
    states: u64,
    elapsed_us: u128,
    reason: Option<Reason>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Reason why a program was refused.
#[derive(Debug, Default, Serialize)]
struct Reason {
    insn: Option<usize>,
    source: Option<String>,
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    registers: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    constants: Option<String>,
}

/// Verifies every program of the arguments; an object that cannot be read does not keep the others
/// from being verified.
pub(crate) fn verify(args: &VerifyArgs, output: &mut Output) -> Result<Status, CliError> {
    let env = kernel_types(args.program.btf.as_deref())?;
    let mut worst = Status::Ok;
    for path in &args.objects {
        let status = match verify_object(path, args, &env, output) {
            Err(error @ CliError::Stdout(_)) => return Err(error),
            Err(error) => {
                crate::report_error(&error, output)?;
                error.status()
            }
            Ok(status) => status,
        };
        worst = worst.max(status);
    }
    Ok(worst)
}

fn verify_object(
    path: &Path,
    args: &VerifyArgs,
    env: &Env,
    output: &mut Output,
) -> Result<Status, CliError> {
    let opened = Opened::with_env(path, &args.program, env.clone())?;
    let chosen = if args.selection.name.is_some() || args.selection.section.is_some() {
        vec![opened.select(&args.selection)?]
    } else {
        xdp_programs(&opened)
    };
    if chosen.is_empty() {
        return Err(CliError::Text {
            path: path.to_owned(),
            message: "no XDP programs; choose another kind with -n PROG".to_owned(),
        });
    }
    let mut worst = Status::Ok;
    for program in chosen {
        worst = worst.max(verify_program(&opened, program, args.trust, output)?);
    }
    Ok(worst)
}

/// All programs that are, or may be, XDP programs.
pub(crate) fn xdp_programs(opened: &Opened) -> Vec<usize> {
    let programs = opened.object.programs().iter().enumerate();
    let wanted = programs.filter(|(_, program)| !matches!(program.kind, ProgramKind::Other(_)));
    wanted.map(|(index, _)| index).collect()
}

fn verify_program(
    opened: &Opened,
    index: usize,
    trust: RunTrust,
    output: &mut Output,
) -> Result<Status, CliError> {
    let Some(program) = opened.object.programs().get(index) else { return Ok(Status::Ok) };
    let mut options = Options::default();
    options.log_level = u32::from(output.verbose).min(2);
    trust.restrict(&mut options);
    let mut notes: Vec<String> = section::note(&program.section).into_iter().collect();
    let (result, log, stats) = match opened.link(index) {
        Ok(linked) => {
            let report = verifier::verify_with_log(linked, &options);
            let Report { result, log, stats, notes: of_insns, .. } = report;
            notes.extend(of_insns.iter().map(note));
            let constants = leftover::constants(&opened.object);
            (result.map(drop).map_err(|rejection| reason(&rejection, constants)), log, stats)
        }
        Err(CliError::Link { source, .. }) => {
            let reason = Reason { message: source.to_string(), ..Reason::default() };
            (Err(reason), String::new(), Stats::default())
        }
        Err(error) => return Err(error),
    };
    let status = if result.is_ok() { Status::Ok } else { Status::Refused };
    let line = Line {
        object: opened.path.display().to_string(),
        program: &program.name,
        section: &program.section,
        accepted: result.is_ok(),
        insns: stats.insns_processed,
        states: stats.total_states,
        elapsed_us: stats.elapsed.as_micros(),
        reason: result.err(),
        notes,
    };
    if output.json {
        output.json(&line)?;
    } else {
        print(&line, &log, output)?;
    }
    Ok(status)
}

/// A note with its place.
fn note(note: &Note) -> String {
    match &note.insn.source {
        Some(line) => format!("{}:{}: {}", line.file, line.line, note.message),
        None => format!("instruction {}: {}", note.insn.index, note.message),
    }
}

fn reason(rejection: &Rejection, constants: Option<String>) -> Reason {
    let insn = rejection.insn.as_ref();
    let source = insn.and_then(|insn| insn.source.as_ref());
    Reason {
        insn: insn.map(|insn| insn.index),
        source: source.map(|line| format!("{}:{}: {}", line.file, line.line, line.text)),
        message: rejection.message.clone(),
        registers: rejection.registers.clone(),
        hint: rejection.hint.clone(),
        constants,
    }
}

fn print(line: &Line<'_>, log: &str, output: &mut Output) -> Result<(), CliError> {
    let style = output.style;
    if !log.is_empty() {
        output.line(log.trim_end())?;
    }
    let verdict = if line.accepted { style.good("accepted") } else { style.bad("refused ") };
    // Padded by hand, not as a table: a line is printed as soon as its program is done.
    let name = style.bold(&format!("{:<20}", line.program));
    let cost = format!(
        "{:>9} insns {:>7} states {:>7.1} ms",
        grouped(line.insns),
        grouped(line.states),
        line.elapsed_us as f64 / 1000.0
    );
    let place = format!("{} ({})", line.object, line.section);
    output.line(&format!("{verdict}  {name} {cost}  {}", style.dim(&place)))?;
    for note in &line.notes {
        output.prose("note: ", note)?;
    }
    let Some(reason) = &line.reason else { return Ok(()) };
    output.prose("", &reason.message)?;
    if let Some(insn) = reason.insn {
        let source = reason.source.as_deref().unwrap_or("no line information");
        output.line(&format!("  at instruction {insn}, {}", style.source(source)))?;
    }
    if !reason.registers.is_empty() {
        output.line(&format!("  known here: {}", reason.registers))?;
    }
    if !reason.hint.is_empty() {
        output.prose("hint: ", &reason.hint)?;
    }
    if let Some(constants) = &reason.constants {
        output.prose("hint: ", constants)?;
    }
    Ok(())
}
