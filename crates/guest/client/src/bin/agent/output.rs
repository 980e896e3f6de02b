//! Output of the command: text or JSON.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Value as Json, json};
use towpath_guest_client::wire::Limit;

use crate::Problem;

/// Prints results. The output may have no reader.
pub(crate) fn print(json: &Json, as_json: bool) -> ExitCode {
    let mut text = String::new();
    if as_json {
        text = format!("{json}\n");
    } else {
        people(json, 0, &mut text);
    }
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_nobody) => ExitCode::FAILURE,
    }
}

/// Prints an error: as text to stderr, as JSON to stdout.
pub(crate) fn complain(problem: &Problem, as_json: bool) {
    let Problem { text, log } = problem;
    let _nobody = if as_json {
        let json = json!({"error": text, "log": log});
        writeln!(std::io::stdout(), "{json}")
    } else {
        let log = if log.is_empty() { String::new() } else { format!("{}\n", log.trim_end()) };
        writeln!(std::io::stderr(), "{log}error: {text}")
    };
}

pub(crate) fn limit(limit: &Limit) -> Json {
    json!({"name": limit.name, "limit": limit.limit, "used": limit.used})
}

pub(crate) fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Formats text: objects of plain values are lines, others are indented below their names.
fn people(json: &Json, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match json {
        Json::Object(all) if is_flat(json) && depth > 0 => {
            let words: Vec<String> =
                all.iter().map(|(key, value)| format!("{key} {}", word(value))).collect();
            *text += &format!("{indent}{}\n", words.join("  "));
        }
        Json::Object(all) => {
            for (key, value) in all {
                if is_plain(value) || is_words(value) {
                    *text += &format!("{indent}{key}: {}\n", word(value));
                } else {
                    *text += &format!("{indent}{key}:\n");
                    people(value, depth + 1, text);
                }
            }
        }
        Json::Array(all) => {
            all.iter().for_each(|value| people(value, depth.max(1), text));
        }
        plain => *text += &format!("{indent}{}\n", word(plain)),
    }
}

fn is_plain(json: &Json) -> bool {
    !json.is_array() && !json.is_object()
}

fn is_words(json: &Json) -> bool {
    json.as_array().is_some_and(|all| all.iter().all(is_plain))
}

fn is_flat(json: &Json) -> bool {
    json.as_object().is_some_and(|all| all.values().all(|it| is_plain(it) || is_words(it)))
}

fn word(json: &Json) -> String {
    match json {
        Json::String(text) => text.clone(),
        Json::Null => "none".to_owned(),
        Json::Array(all) if all.is_empty() => "none".to_owned(),
        Json::Array(all) => all.iter().map(word).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}
