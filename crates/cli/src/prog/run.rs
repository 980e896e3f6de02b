//! `towpath prog run`: one packet through a program, as bpftool's `prog run` does it.

use std::path::Path;

use serde::Serialize;
use towpath_capture::{LINK_TYPE_ETHERNET, Reader};
use towpath_xdp::{Action, Exec, Finding, Sanitize};

use super::called;
use super::context::Context;
use super::engine::{self, Outcome};
use super::running;
use crate::args::{ProgRunArgs, ProgRunExec};
use crate::error::{CliError, Status};
use crate::events::Events;
use crate::mapfile::Contents;
use crate::output::{Output, grouped};
use crate::{files, findings, run};

/// The `--json` document, with bpftool's names.
#[derive(Debug, Serialize)]
struct Document<'a> {
    retval: u32,
    data_size_out: usize,
    duration_ns: u64,
    /// The engine in Towpath that ran the program: "interp", "jit" or "llvm".
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    maps: Option<&'a Contents>,
    #[serde(skip_serializing_if = "Events::is_empty")]
    events: &'a Events,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    trace: &'a [String],
    /// Findings of the sanitizer, and below its mode, if it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    findings: Option<Vec<serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sanitize: Option<String>,
}

/// Runs one packet through a program.
pub(crate) fn run(args: &ProgRunArgs, output: &mut Output) -> Result<Status, CliError> {
    let Some(path) = &args.data_in else { return called::call(args, output) };
    let data = packet(path)?;
    if running::is_meant(args)? {
        return tell(&running::run(args, &data)?, args, output);
    }
    let context = match &args.ctx_in {
        Some(path) => Context::read(path, data.len())?,
        None => Context {
            data_end: data.len() as u32,
            ingress_ifindex: args.surroundings.ifindex,
            ..Context::default()
        },
    };
    let outcome = match args.exec {
        ProgRunExec::Interp => engine::run_here(args, Exec::Interp, (path, &data), context)?,
        ProgRunExec::Jit => engine::run_here(args, Exec::Jit, (path, &data), context)?,
        ProgRunExec::Llvm => engine::run_here(args, Exec::Llvm, (path, &data), context)?,
        ProgRunExec::Kernel => engine::ask_kernel(args, &data, context)?,
    };
    tell(&outcome, args, output)
}

fn tell(outcome: &Outcome, args: &ProgRunArgs, output: &mut Output) -> Result<Status, CliError> {
    if let Some(path) = &args.data_out {
        files::write(path, &outcome.data)?;
    }
    if let Some(path) = &args.ctx_out {
        files::write(path, &outcome.context.to_bytes())?;
    }
    if output.json { print_json(outcome, args, output) } else { print(outcome, args, output) }?;
    let is_refused = outcome.findings.iter().any(Finding::is_error);
    Ok(if is_refused { Status::Refused } else { Status::Ok })
}

/// The bytes of a file, or of the first Ethernet frame when it is a capture.
fn packet(path: &Path) -> Result<Vec<u8>, CliError> {
    let bytes = files::read(path, "a packet", PACKET_FILE_BYTES_MAX)?;
    // A capture's magic number is no frame: no host has this destination address.
    let Ok(mut reader) = Reader::new(bytes.as_slice()) else { return Ok(bytes) };
    let broken = |source| CliError::Capture { path: path.to_owned(), source };
    while let Some(packet) = reader.next_packet().map_err(broken)? {
        if packet.link_type == LINK_TYPE_ETHERNET {
            return Ok(packet.data.to_vec());
        }
    }
    let message = "a capture without Ethernet frames".to_owned();
    Err(CliError::Text { path: path.to_owned(), message })
}

fn print_json(outcome: &Outcome, args: &ProgRunArgs, output: &mut Output) -> Result<(), CliError> {
    let sanitize = Some(args.surroundings.sanitize).filter(|it| *it != Sanitize::Off);
    output.json(&Document {
        retval: outcome.retval,
        data_size_out: outcome.data.len(),
        duration_ns: outcome.duration_ns,
        tier: outcome.exec.as_ref().map(|exec| exec.runs.name()),
        fallback: outcome.exec.as_ref().and_then(|exec| exec.fallback.as_deref()),
        target: outcome.target.as_deref(),
        maps: outcome.maps.as_ref(),
        events: &outcome.events,
        trace: &outcome.trace,
        findings: sanitize.map(|_| outcome.findings.iter().map(findings::json).collect()),
        sanitize: sanitize.map(|it| it.to_string()),
    })
}

fn print(outcome: &Outcome, args: &ProgRunArgs, output: &mut Output) -> Result<(), CliError> {
    if args.running.live {
        let (frames, each) = (grouped(args.repeat.into()), grouped(outcome.duration_ns));
        return output.line(&format!("{frames} live frames, {each} ns each"));
    }
    let style = output.style;
    let action = Action::from_returned(outcome.retval);
    let name = match outcome.retval {
        0..=4 => action.name().to_owned(),
        value => format!("{value}, which is not a verdict: dropped as {action}"),
    };
    let target = outcome.target.as_ref().map_or(String::new(), |target| format!(" to {target}"));
    output.line(&format!("{}{target}", style.bold(&name)))?;
    output.line(&format!("  returned  {}", outcome.retval))?;
    output.line(&format!("  packet    {} bytes", grouped(outcome.data.len() as u64)))?;
    let runs = if args.repeat > 1 { format!(" ({} runs)", args.repeat) } else { String::new() };
    output.line(&format!("  duration  {} ns{runs}", grouped(outcome.duration_ns)))?;
    if let Some(exec) = &outcome.exec {
        output.line(&format!("  by        {}", run::executed_by(exec)))?;
    }
    if output.verbose > 0 {
        run::print_trace(&outcome.trace, output)?;
    }
    if let sanitize @ Sanitize::Poison(_) = args.surroundings.sanitize {
        output.line(&format!("  stack     began with random bytes: --sanitize={sanitize}"))?;
    }
    findings::print(&outcome.findings, output)?;
    outcome.events.print(output)?;
    outcome.maps.as_ref().map_or(Ok(()), |maps| maps.print(output))
}

const PACKET_FILE_BYTES_MAX: u64 = 16 << 20;
