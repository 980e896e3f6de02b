//! `prog tracelog` and `map event_pipe`: output of running programs, as it comes.

use serde_json::{Value as Json, json};
use towpath_daemon::api::types::{
    LostView, MapView, PrintedLine, ProgramView, RecordView, StreamText,
};
use towpath_daemon::client::{Client, EventsEnd, encoded};

use super::client;
use super::which::{Which, only};
use crate::args::{EventPipeArgs, TracelogArgs};
use crate::error::CliError;
use crate::output::Output;

/// Prints lines of all programs, or one stream of one program.
pub(crate) fn tracelog(args: &TracelogArgs, output: &mut Output) -> Result<(), CliError> {
    let client = client(&args.daemon)?;
    let stream = match args.words.split_first() {
        None => return trace(&client, args.count, output),
        Some((word, which)) if word == "stdout" || word == "stderr" => {
            let which = Which::parse(which)?;
            let program: ProgramView = only(&client, &which)?;
            format!("/v1/programs/{}/streams/{word}?follow={}", program.id, args.follow)
        }
        Some((word, _)) => {
            let message = format!("{word}: expected stdout PROG or stderr PROG");
            return Err(CliError::Usage(message));
        }
    };
    hear(&client, &stream, output, args.count, |kind, data, output| match kind {
        "text" if output.json => output.json(&data),
        "text" => {
            let StreamText { text } = parsed(data)?;
            output.bytes(text.as_bytes())
        }
        _ => tell_lost(data, "prints", output),
    })
}

fn trace(client: &Client, count: Option<u64>, output: &mut Output) -> Result<(), CliError> {
    hear(client, "/v1/trace", output, count, |kind, data, output| match kind {
        "line" if output.json => output.json(&data),
        "line" => {
            let PrintedLine { time, worker, program, text, .. } = parsed(data)?;
            output.line(&format!(
                "{program:>16}-{worker:<6}[{worker:03}] ..... {time:>12.6}: bpf_trace_printk: {text}"
            ))
        }
        _ => tell_lost(data, "lines", output),
    })
}

/// Prints records of a ring buffer or perf event array.
pub(crate) fn event_pipe(args: &EventPipeArgs, output: &mut Output) -> Result<(), CliError> {
    let (which, cpu) = event_pipe_words(&args.words)?;
    let client = client(&args.daemon)?;
    let map: MapView = only(&client, &which)?;
    let mut asked: Vec<String> = Vec::new();
    asked.extend(args.r#type.as_ref().map(|name| format!("type={}", encoded(name))));
    asked.extend(cpu.map(|cpu| format!("cpu={cpu}")));
    asked.extend(args.count.map(|count| format!("count={count}")));
    let path = format!("/v1/maps/{}/records?{}", map.id, asked.join("&"));
    let typed = args.r#type.as_deref();
    hear(&client, &path, output, args.count, |kind, data, output| match kind {
        "record" => record(&parsed(data)?, typed, output),
        _ => tell_lost(data, "records", output),
    })
}

/// `MAP [cpu N] [index N]`: there the index of a slot is its CPU.
fn event_pipe_words(words: &[String]) -> Result<(Which, Option<u32>), CliError> {
    let is_slot = |word: &String| word == "cpu" || word == "index";
    let end = words.iter().position(is_slot).unwrap_or(words.len());
    let (map, slots) = words.split_at(end);
    if map.is_empty() || map.len() > 2 {
        let message = "expected a map first: id N, name NAME, or NAME";
        return Err(CliError::Usage(message.to_owned()));
    }
    let mut cpu = None;
    for slot in slots.chunks(2) {
        let [word, number] = slot else {
            return Err(CliError::Usage(format!("{}: its number is missing", slot[0])));
        };
        let number: u32 = number.parse().ok().filter(|_| is_slot(word)).ok_or_else(|| {
            CliError::Usage(format!("{word} {number}: expected cpu N or index N"))
        })?;
        if cpu.is_some_and(|cpu| cpu != number) {
            let message = "cpu and index: programs send on a CPU into the slot of its number only";
            return Err(CliError::Usage(message.to_owned()));
        }
        cpu = Some(number);
    }
    Ok((Which::parse(map)?, cpu))
}

/// Prints a record as bpftool does; with a type, its value of that type.
fn record(record: &RecordView, typed: Option<&str>, output: &mut Output) -> Result<(), CliError> {
    let RecordView { time, cpu, data, value, .. } = record;
    let bytes: Vec<&str> =
        (0..data.len() / 2).filter_map(|at| data.get(2 * at..2 * at + 2)).collect();
    let nanoseconds = (time * 1e9) as u64;
    if output.json {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("0x{byte}")).collect();
        let mut json = json!({ "type": PERF_RECORD_SAMPLE, "timestamp": nanoseconds, "data": hex });
        if let Some(cpu) = cpu {
            json["cpu"] = json!(cpu);
            json["index"] = json!(cpu);
        }
        if typed.is_some() {
            json["value"] = value.clone().unwrap_or_default();
        }
        return output.json(&json);
    }
    let (seconds, fraction) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    let place = cpu.map_or(String::new(), |cpu| format!(" CPU: {cpu} index: {cpu}"));
    output.line(&format!("== @{seconds}.{fraction:09}{place} ====="))?;
    if let Some(value) = value {
        return output.line(&value.to_string());
    }
    if let Some(name) = typed {
        output.line(&format!("{} bytes, fewer than struct {name} has:", bytes.len()))?;
    }
    bytes.chunks(HEX_COLUMNS).try_for_each(|row| output.line(&row.join(" ")))
}

/// Receives events of a path until the limit, the end, or an interrupt.
fn hear(
    client: &Client,
    path: &str,
    output: &mut Output,
    count: Option<u64>,
    mut tell: impl FnMut(&str, Json, &mut Output) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut left = count.unwrap_or(u64::MAX);
    let mut result = Ok(());
    let end = client.events(path, |kind, data| {
        result = tell(kind, data, output).and_then(|()| output.flush());
        left -= u64::from(kind != "lost");
        result.is_ok() && left > 0
    })?;
    result?;
    match end {
        EventsEnd::Ended if count.is_some() && left > 0 => {
            Err(CliError::Daemon(format!("the stream ended, {left} short")))
        }
        _ => Ok(()),
    }
}

fn tell_lost(data: Json, what: &str, output: &mut Output) -> Result<(), CliError> {
    let LostView { lost, cpu } = parsed(data)?;
    if output.json {
        let mut json = json!({ "type": PERF_RECORD_LOST, "lost": { "count": lost } });
        if let Some(cpu) = cpu {
            json["cpu"] = json!(cpu);
            json["index"] = json!(cpu);
        }
        return output.json(&json);
    }
    let place = cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
    output.line(&format!("lost {lost} {what}{place}"))
}

fn parsed<T: serde::de::DeserializeOwned>(data: Json) -> Result<T, CliError> {
    serde_json::from_value(data).map_err(|error| CliError::Daemon(error.to_string()))
}

/// `PERF_RECORD_LOST`
const PERF_RECORD_LOST: u32 = 2;
/// `PERF_RECORD_SAMPLE`
const PERF_RECORD_SAMPLE: u32 = 9;
const HEX_COLUMNS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_and_one_of_its_slots() {
        let words = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            event_pipe_words(&words)
        };
        assert_eq!(words("events").unwrap(), (Which::Name("events".to_owned()), None));
        assert_eq!(words("id 7 cpu 1 index 1").unwrap(), (Which::Id(7), Some(1)));
        for wrong in ["cpu 1", "events cpu", "events cpu x", "events cpu 1 index 2", "id 7 8"] {
            assert!(words(wrong).is_err(), "{wrong}");
        }
    }
}
