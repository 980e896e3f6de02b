//! Reports of stuck workers, and of programs that were stopped or halted: as events, and as
//! failures while the condition lasts.

use std::time::UNIX_EPOCH;

use towpath_engine::{LATE, Stopped, Stuck};

use crate::live::Seen;
use crate::live::news::News;
use crate::model::failure::{Failure, FailureCode};

/// Reports stuck workers and stopped or halted programs since the last look.
pub(crate) fn look(live: &Seen, news: &News) {
    for stopped in live.engine.take_stopped() {
        news.change(&describe(&stopped));
    }
    news.found(is_ours, late(live).chain(halted(live)).collect());
}

/// Whether the failure is managed by this module alone.
fn is_ours(failure: &Failure) -> bool {
    failure.code == FailureCode::WorkerStuck
        || failure.code == FailureCode::ProgramStopped && failure.subject.starts_with(GUEST)
}

fn late(live: &Seen) -> impl Iterator<Item = Failure> {
    live.engine.stuck().into_iter().map(|Stuck { worker, program, since }| {
        let by = match program {
            Some(program) => format!("program {program} does not return"),
            None => "no program is running in it".to_owned(),
        };
        let why =
            format!("it has not finished its round for more than {} ms: {by}", LATE.as_millis());
        let mut failure = Failure::new(FailureCode::WorkerStuck, format!("worker {worker}"), why);
        failure.since = since.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        failure
    })
}

/// Failures for halted programs of guests.
fn halted(live: &Seen) -> impl Iterator<Item = Failure> {
    live.guests.iter().flat_map(|(port, guest)| {
        guest.status().attached.into_iter().filter_map(move |program| {
            let subject =
                format!("{GUEST}{port}: {} program {}", program.direction.word(), program.name);
            let why = format!("halted, its frames are dropped: {}", program.halted?);
            Some(Failure::new(FailureCode::ProgramStopped, subject, why))
        })
    })
}

fn describe(stopped: &Stopped) -> String {
    let Stopped { program, worker, after, is_halted, on_demand } = stopped;
    let why = if *on_demand { "because a request waited for it" } else { "by itself" };
    let then = if *is_halted { "; it is halted, and its frames are dropped" } else { "" };
    let ms = after.as_millis();
    format!("program {program} was stopped, {why}: it kept worker {worker} for {ms} ms{then}")
}

/// Prefix of the subjects of guests' failures.
const GUEST: &str = "guest of port ";
