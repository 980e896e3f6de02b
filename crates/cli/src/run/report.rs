//! The outcome of a run, as a table or as JSON.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map as Object, Value, json};
use towpath_xdp::{Action, Exec, ExecStatus, Finding, Program, Sanitize};

use super::tally::{ACTIONS, Tally};
use crate::args::RunArgs;
use crate::bench::Beside;
use crate::error::CliError;
use crate::events::Events;
use crate::findings;
use crate::mapfile::Contents;
use crate::output::{Align, Output, Table, grouped, in_bytes};

/// Results of a run.
pub(super) struct Report<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) program: &'a Program,
    pub(super) tally: &'a Tally,
    /// Speed compared with the kernel's.
    pub(super) beside: Option<Compared>,
    /// Findings of the sanitizer.
    pub(super) findings: Vec<Finding>,
}

/// Measurement of one frame, run many times here and in the running kernel.
#[derive(Debug)]
pub(super) struct Compared {
    /// Number of the frame in the capture.
    pub(super) number: u64,
    /// Verdict for the frame.
    pub(super) action: Action,
    /// Length of the frame, in bytes.
    pub(super) bytes: usize,
    /// The times, or the reason why they are unknown.
    pub(super) outcome: Result<Beside, String>,
}

impl Report<'_> {
    /// Prints the counters, and the maps if asked to; `broken` is the reason why the capture could
    /// not be read to its end, or the program's first fault.
    pub(super) fn print(
        self,
        broken: Option<&CliError>,
        output: &mut Output,
    ) -> Result<(), CliError> {
        let Report { args, program, tally, .. } = self;
        if output.json {
            let mut document = document(&self, output.verbose);
            document.error = broken.map(ToString::to_string);
            return output.json(&document);
        }
        print_heading(args, program, tally, output)?;
        print_verdicts(tally, output)?;
        print_targets(tally, output)?;
        tally.events.print(output)?;
        print_remarks(args, tally, output)?;
        if output.verbose > 0 {
            print_trace(&tally.trace, output)?;
            if tally.trace_left_out > 0 {
                output.line(&format!("  ... and {} more lines", grouped(tally.trace_left_out)))?;
            }
        }
        if let Some(names) = &args.surroundings.dump_maps {
            Contents::of(program, names).print(output)?;
        }
        findings::print(&self.findings, output)?;
        self.print_speed(output)?;
        if let Some(error) = broken {
            output.flush()?;
            output.problem(error);
            return Ok(());
        }
        print_next(args, program, output)
    }

    /// Prints the speed here and in the kernel.
    fn print_speed(&self, output: &mut Output) -> Result<(), CliError> {
        let how = executed_by(&self.program.exec_status());
        output.line(&format!("\n  {:.0} ns/frame, {how}", self.tally.ns_per_frame()))?;
        if cfg!(debug_assertions) {
            output.line("  (a debug build: the code around the program is slow)")?;
        }
        let Some(Compared { number, action, bytes, outcome }) = &self.beside else {
            return Ok(());
        };
        match outcome {
            Err(why) => output.line(&format!("  beside the kernel: not measured: {why}")),
            Ok(Beside { ns, kernel_ns, ratio, kernel }) => {
                output.line(&format!(
                    "  beside the kernel: {ns:.1} ns here, {kernel_ns:.1} ns in Linux {kernel}, \
                     {ratio:.2} times as fast"
                ))?;
                output.line(&format!("  (frame {number}, {action}, {bytes} bytes, over and over)"))
            }
        }
    }
}

/// Prints suggestions for further options that this command line does not have.
fn print_next(args: &RunArgs, program: &Program, output: &mut Output) -> Result<(), CliError> {
    let object = args.object.display();
    let has_maps = !program.maps().maps().is_empty();
    let mut next = Vec::new();
    if has_maps && args.surroundings.dump_maps.is_none() {
        next.push("--dump-maps shows the contents of its maps".to_owned());
    }
    if args.output.is_none() {
        next.push("--out B.pcapng writes surviving frames, for Wireshark".to_owned());
    }
    next.push(format!("towpath prog dump {object} source shows its code"));
    next.push("towpath new NAME begins one of your own".to_owned());
    next.truncate(NEXT_MAX);
    output.line(&output.style.dim(&format!("\n  next: {}", next.join("; "))))
}

/// Prints the program's lines from `bpf_trace_printk`.
pub(crate) fn print_trace(lines: &[String], output: &mut Output) -> Result<(), CliError> {
    if lines.is_empty() {
        return Ok(());
    }
    output.line(&format!("\n{}", output.style.bold("printed by the program")))?;
    for line in lines {
        output.line(&format!("  {}", line.trim_end_matches('\n')))?;
    }
    Ok(())
}

/// The `--json` document.
#[derive(Debug, Serialize)]
struct Document<'a> {
    frames: u64,
    bytes: u64,
    /// Counts in the order of the actions' numbers.
    verdicts: Object<String, Value>,
    ns_per_frame: f64,
    /// The engine that ran at the end: "interp", "jit" or "llvm".
    tier: &'static str,
    /// Reason why `tier` isn't the engine that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<String>,
    maps: Option<Contents>,
    targets: BTreeMap<&'a str, u64>,
    events: &'a Events,
    skipped: u64,
    cut_short: u64,
    /// Findings of the sanitizer, and below its mode, if it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    findings: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sanitize: Option<String>,
    /// With `--against kernel`: the frame, and its times or the reason why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside_kernel: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn document<'a>(report: &'a Report<'_>, verbose: u8) -> Document<'a> {
    let Report { args, program, tally, beside, findings } = report;
    let sanitize = Some(args.surroundings.sanitize).filter(|it| *it != Sanitize::Off);
    let verdicts = ACTIONS.iter().zip(&tally.verdicts);
    let targets = tally.targets.iter();
    let names = args.surroundings.dump_maps.as_deref();
    let exec = program.exec_status();
    Document {
        frames: tally.frames,
        bytes: tally.bytes,
        verdicts: verdicts
            .map(|(action, count)| (action.name().to_owned(), count.frames.into()))
            .collect(),
        ns_per_frame: (tally.ns_per_frame() * 10.0).round() / 10.0,
        tier: exec.runs.name(),
        fallback: exec.fallback,
        maps: names.map(|names| Contents::of(program, names)),
        targets: targets.map(|(target, count)| (target.as_str(), count.frames)).collect(),
        events: &tally.events,
        skipped: tally.skipped.values().chain(tally.links.values()).sum(),
        cut_short: tally.cut_short,
        findings: sanitize.map(|_| findings.iter().map(findings::json).collect()),
        sanitize: sanitize.map(|it| it.to_string()),
        beside_kernel: beside.as_ref().map(|Compared { number, action, bytes, outcome }| {
            let mut found = json!({"frame": number, "verdict": action.name(), "bytes": bytes});
            match outcome {
                Ok(beside) => found["times"] = json!(beside),
                Err(why) => found["why_not"] = json!(why),
            }
            found
        }),
        trace: (verbose > 0).then_some(tally.trace.as_slice()),
        error: None,
    }
}

fn print_heading(
    args: &RunArgs,
    program: &Program,
    tally: &Tally,
    output: &mut Output,
) -> Result<(), CliError> {
    let name = output.style.bold(program.name());
    let input = args.input.display();
    let repeat = if args.repeat > 1 { format!(", {} times", args.repeat) } else { String::new() };
    output.line(&format!(
        "{name} over {input}{repeat}: {}, {}",
        frames(tally.frames),
        in_bytes(tally.bytes),
    ))
}

fn print_verdicts(tally: &Tally, output: &mut Output) -> Result<(), CliError> {
    let mut table = Table::new(&[
        ("verdict", Align::Left),
        ("frames", Align::Right),
        ("share", Align::Right),
        ("bytes", Align::Right),
    ]);
    let judged = tally.judged().max(1);
    for (action, count) in ACTIONS.iter().zip(&tally.verdicts) {
        let share = count.frames as f64 * 100.0 / judged as f64;
        table.row(vec![
            action.name().to_owned(),
            grouped(count.frames),
            format!("{share:.1} %"),
            in_bytes(count.bytes),
        ]);
    }
    output.line("")?;
    output.table(&table)
}

/// Name of the engine that executes a program, and the reason if another one was asked for.
pub(crate) fn executed_by(exec: &ExecStatus) -> String {
    let how = match exec.runs {
        Exec::Interp => "interpreted",
        Exec::Jit => "compiled",
        Exec::Llvm => "compiled by LLVM",
        // The engine that runs is always one of the others.
        Exec::Auto => "compiled",
    };
    match &exec.fallback {
        Some(why) => format!("{how} (--exec {}: {why})", exec.wanted.name()),
        None if exec.runs != exec.wanted => format!("{how}, LLVM is not ready yet"),
        None => how.to_owned(),
    }
}

fn print_targets(tally: &Tally, output: &mut Output) -> Result<(), CliError> {
    let mut table = Table::new(&[
        ("redirected to", Align::Left),
        ("frames", Align::Right),
        ("bytes", Align::Right),
    ]);
    for (target, count) in &tally.targets {
        table.row(vec![target.clone(), grouped(count.frames), in_bytes(count.bytes)]);
    }
    if tally.lost > 0 {
        let nowhere = "nowhere (no redirect call succeeded): dropped".to_owned();
        table.row(vec![nowhere, grouped(tally.lost), String::new()]);
    }
    if table.is_empty() {
        return Ok(());
    }
    output.line("")?;
    output.table(&table)
}

/// Prints remarks that are needed to judge the numbers above.
fn print_remarks(args: &RunArgs, tally: &Tally, output: &mut Output) -> Result<(), CliError> {
    let mut remarks = Vec::new();
    for (value, count) in &tally.unknown {
        remarks.push(format!("{} returned {value}, which is not a verdict", frames(*count)));
    }
    for (reason, count) in &tally.skipped {
        remarks.push(format!("{} not run: {reason}", frames(*count)));
    }
    for (link_type, count) in &tally.links {
        remarks.push(format!("{} not run: link type {link_type}, not Ethernet", frames(*count)));
    }
    if tally.cut_short > 0 {
        let count = frames(tally.cut_short);
        remarks.push(format!("{count} cut short by the capture: the program saw the start only"));
    }
    if let sanitize @ Sanitize::Poison(_) = args.surroundings.sanitize {
        remarks
            .push(format!("the stack began with random bytes: --sanitize={sanitize} repeats them"));
    }
    if let Some(path) = &args.output {
        remarks.push(format!("surviving frames written to {}", path.display()));
    }
    if remarks.is_empty() {
        return Ok(());
    }
    output.line("")?;
    remarks.iter().try_for_each(|remark| output.line(&format!("  {remark}")))
}

fn frames(count: u64) -> String {
    if count == 1 { "1 frame".to_owned() } else { format!("{} frames", grouped(count)) }
}

/// Largest number of suggestions: users do not read more.
const NEXT_MAX: usize = 2;
