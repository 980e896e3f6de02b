//! `bench --profile`: the time of a program by C line.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use towpath_bpf::Linked;
use towpath_jit::{Sample, Sampler};
use towpath_xdp::Program;

use super::side::{Here, Side};
use crate::error::CliError;
use crate::output::{Align, Output, Table};

/// Part of a program's time.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub(super) struct ProfileLine {
    /// `file:line`, or `instruction N` if the object has no line information; empty for samples
    /// that belong to no instruction.
    pub(super) place: String,
    /// Text of the C line.
    pub(super) text: String,
    /// Per cent of all samples.
    pub(super) percent: f64,
    /// Percentage of all samples in functions of the runtime that were called from this line.
    pub(super) runtime_percent: f64,
}

/// Runs a program for a while under a sampling profiler.
pub(super) fn profile(here: &mut Here, linked: &Linked) -> Result<Vec<ProfileLine>, String> {
    let runs = here.time(RUNS)?.runs_in(TIME);
    let sampler = Sampler::start(PERIOD).map_err(|error| format!("no profile: {error}"))?;
    let ran = here.time(runs);
    let samples = sampler.stop();
    ran?;
    Ok(lines(&here.program, linked, &samples))
}

fn lines(program: &Program, linked: &Linked, samples: &[Sample]) -> Vec<ProfileLine> {
    let mut counts: BTreeMap<(String, String), [usize; 2]> = BTreeMap::new();
    for sample in samples {
        let place = place(program, linked, sample);
        let [all, runtime] = counts.entry(place).or_default();
        *all += 1;
        *runtime += usize::from(sample.is_in_runtime);
    }
    let percent = |count: usize| count as f64 * 100.0 / samples.len().max(1) as f64;
    let line = |((place, text), [all, runtime]): (_, [usize; 2])| ProfileLine {
        place,
        text,
        percent: percent(all),
        runtime_percent: percent(runtime),
    };
    let mut lines: Vec<ProfileLine> = counts.into_iter().map(line).collect();
    lines.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    lines
}

/// The C line of a sample, and its text.
fn place(program: &Program, linked: &Linked, sample: &Sample) -> (String, String) {
    let nowhere = |what: &str| (String::new(), what.to_owned());
    let Some(address) = sample.instruction else { return nowhere("(around the program)") };
    let origin = program.machine_code().and_then(|code| code.origin_of(address));
    let Some(origin) = origin else { return nowhere("(programs of tail calls)") };
    let Some(slot) = origin.slot else { return nowhere("(the loop over the frames)") };
    match linked.line_of(slot as usize) {
        Some(line) => {
            let file = line.file.rsplit('/').next().unwrap_or_default();
            (format!("{file}:{}", line.line), line.text.trim().to_owned())
        }
        None => (format!("instruction {slot}"), String::new()),
    }
}

/// Prints the lines that take 1 % or more of the time.
pub(super) fn print(lines: &[ProfileLine], output: &mut Output) -> Result<(), CliError> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        ("% of time", Align::Right),
        ("% in calls", Align::Right),
        ("place", Align::Left),
        ("line", Align::Left),
    ]);
    for ProfileLine { place, text, percent, runtime_percent } in lines {
        if *percent >= SHOWN_PERCENT {
            let numbers = [*percent, *runtime_percent].map(|number| format!("{number:.1}"));
            let [percent, calls] = numbers;
            table.row(vec![percent, calls, place.clone(), text.clone()]);
        }
    }
    output.table(&table)
}

const SHOWN_PERCENT: f64 = 1.0;
/// Number of runs from which the time of one is estimated.
const RUNS: u64 = 100_000;
/// Processor time for which a program is sampled.
const TIME: Duration = Duration::from_secs(2);
const PERIOD: Duration = Duration::from_micros(500);
