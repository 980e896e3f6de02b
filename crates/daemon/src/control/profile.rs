//! Profiling of a running program: samples of the workers, by C line.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use towpath_jit::{SAMPLES_MAX, Sample, Sampler};
use towpath_xdp::Program;

use crate::control::Control;
use crate::model::messages::{ProfileLine, ProfileView};
use crate::model::refusal::Refusal;

/// Samples the workers for the given number of seconds.
///
/// # Errors
///
/// Fails if the program is interpreted, or another profile is being taken.
pub(crate) fn profile(
    control: &Control,
    program: &Program,
    seconds: f64,
) -> Result<ProfileView, Refusal> {
    if !(SECONDS_MIN..=SECONDS_MAX).contains(&seconds) {
        let message = format!("seconds: {seconds}: expected {SECONDS_MIN} to {SECONDS_MAX}");
        return Err(Refusal::bad(message));
    }
    if program.machine_code().is_none() {
        let name = program.name();
        let message =
            format!("program {name}: it is interpreted: only machine code can be sampled");
        return Err(Refusal::refused(message));
    }
    let threads = control.read(|inner| inner.live.engine.threads());
    let time = Duration::from_secs_f64(seconds);
    let most = time.as_secs_f64() * threads.len() as f64 / SAMPLES_MAX as f64;
    let period = PERIOD.max(Duration::from_secs_f64(most));
    let sampler = Sampler::of(&threads, period)
        .map_err(|error| Refusal::refused(format!("no samples: {error}")))?
        .ok_or_else(|| Refusal::conflict("another client is sampling: try again (EBUSY)"))?;
    thread::sleep(time);
    let samples = sampler.stop();
    Ok(view(program, seconds, &samples))
}

fn view(program: &Program, seconds: f64, samples: &[Sample]) -> ProfileView {
    let linked = program.verified().map(|verified| verified.linked());
    let mut lines: BTreeMap<(String, u32), ProfileLine> = BTreeMap::new();
    let line = |file: &str, line: u32, text: &str| {
        let (file, text) = (file.to_owned(), text.to_owned());
        ProfileLine { file, line, text, ..ProfileLine::default() }
    };
    for it in linked.iter().flat_map(|linked| &linked.lines) {
        let place = (it.file.to_string(), it.line);
        lines.entry(place).or_insert_with(|| line(&it.file, it.line, &it.text));
    }
    let mut inside = 0;
    for sample in samples {
        let Some(origin) = sample.instruction.and_then(|it| program.origin_of(it)) else {
            continue;
        };
        let of = |slot: u32| linked.and_then(|linked| linked.line_of(slot as usize));
        let place = match origin.slot.and_then(of) {
            Some(it) => (it.file.to_string(), it.line),
            None => Default::default(),
        };
        let entry = lines.entry(place).or_insert_with(|| line("", 0, "(around its instructions)"));
        inside += 1;
        entry.samples += 1;
        entry.called += usize::from(sample.is_in_runtime);
    }
    let lines = lines.into_values().collect();
    ProfileView {
        program: program.name().to_owned(),
        seconds,
        samples: samples.len(),
        inside,
        lines,
    }
}

const PERIOD: Duration = Duration::from_micros(500);
const SECONDS_MIN: f64 = 0.05;
const SECONDS_MAX: f64 = 10.0;
