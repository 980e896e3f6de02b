//! `sa add|del|show|flush` and `policy add|del|show`.

use serde_json::{Map, Value as Json};
use towpath_daemon::api::types::{PolicyView, SaView};
use towpath_daemon::client::encoded;

use super::{client, remove};
use crate::args::{PolicyCommand, SaArgs, SaCommand};
use crate::error::CliError;
use crate::output::{Align, Output, Table};

/// Adds, removes or shows security associations.
pub(crate) fn sa(command: &SaCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        SaCommand::Add(args) => {
            let mut table = keys(&args.keys)?;
            table.insert("name".to_owned(), args.sa.clone().into());
            let sa: SaView = client(&args.daemon)?.json("POST", "/v1/sas", &table)?;
            if output.json { output.json(&sa) } else { Ok(()) }
        }
        SaCommand::Del(args) => {
            let path = format!("/v1/sas/{}", encoded(&args.sa));
            remove(&args.daemon, &path, output)
        }
        SaCommand::Flush(args) => {
            let port = args.port.as_ref().map(|port| format!("?port={}", encoded(port)));
            let path = format!("/v1/sas{}", port.unwrap_or_default());
            remove(&args.daemon, &path, output)
        }
        SaCommand::Show(args) => show(args, output),
    }
}

fn show(args: &SaArgs, output: &mut Output) -> Result<(), CliError> {
    let client = client(&args.daemon)?;
    let all: Vec<SaView> = match &args.sa {
        Some(name) => vec![client.get(&format!("/v1/sas/{}", encoded(name)))?],
        None => client.get("/v1/sas")?,
    };
    if output.json {
        return output.json(&all);
    }
    let mut table = Table::new(&[
        ("sa", Align::Left),
        ("port", Align::Left),
        ("direction", Align::Left),
        ("spi", Align::Right),
        ("source", Align::Left),
        ("destination", Align::Left),
        ("suite", Align::Left),
        ("status", Align::Left),
        ("packets", Align::Right),
        ("bytes", Align::Right),
        ("sequence", Align::Right),
        ("refused", Align::Right),
    ]);
    for sa in &all {
        let state = &sa.state;
        table.row(vec![
            state.name.clone(),
            state.port.clone(),
            word(&state.direction),
            format!("{:#x}", state.spi),
            state.source.to_string(),
            state.destination.to_string(),
            state.suite.clone(),
            sa.status.name().to_owned(),
            sa.packets.to_string(),
            sa.bytes.to_string(),
            sa.sequence.to_string(),
            sa.refused.values().sum::<u64>().to_string(),
        ]);
    }
    output.section(&table)?;
    for sa in &all {
        if let Some(why) = &sa.failure {
            output.prose("", &format!("{}: {why}", sa.state.name))?;
        }
        if args.sa.is_some() {
            details(sa, output)?;
        }
    }
    Ok(())
}

fn details(sa: &SaView, output: &mut Output) -> Result<(), CliError> {
    let authors: Vec<&str> = sa.wanted_by.iter().map(|author| author.name()).collect();
    output.line(&format!("  wanted by: {}", authors.join(", ")))?;
    output.line(&format!("  mode: {}", word(&sa.state.mode)))?;
    output.line(&format!("  key file: {}", sa.state.key_file))?;
    let seconds = [("added", sa.age), ("last packet", sa.idle)];
    for (what, seconds) in seconds {
        if let Some(seconds) = seconds {
            output.line(&format!("  {what}: {seconds} s ago"))?;
        }
    }
    if let Some(peer) = &sa.peer {
        output.line(&format!("  peer: {peer}"))?;
    }
    for (reason, count) in &sa.refused {
        output.line(&format!("  refused {reason}: {count}"))?;
    }
    Ok(())
}

/// Adds, removes or shows policies.
pub(crate) fn policy(command: &PolicyCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        PolicyCommand::Add(args) => {
            let mut table = keys(&args.keys)?;
            table.insert("name".to_owned(), args.policy.clone().into());
            let made: PolicyView = client(&args.daemon)?.json("POST", "/v1/policies", &table)?;
            if output.json { output.json(&made) } else { Ok(()) }
        }
        PolicyCommand::Del(args) => {
            let path = format!("/v1/policies/{}", encoded(&args.policy));
            remove(&args.daemon, &path, output)
        }
        PolicyCommand::Show(args) => {
            policies(&client(&args.daemon)?.get::<Vec<PolicyView>>("/v1/policies")?, output)
        }
    }
}

fn policies(all: &[PolicyView], output: &mut Output) -> Result<(), CliError> {
    if output.json {
        return output.json(&all);
    }
    let mut table = Table::new(&[
        ("policy", Align::Left),
        ("port", Align::Left),
        ("priority", Align::Right),
        ("source", Align::Left),
        ("destination", Align::Left),
        ("protocol", Align::Right),
        ("action", Align::Left),
    ]);
    for PolicyView { state, .. } in all {
        let at = |prefix: &str, port: Option<u16>| match port {
            Some(port) => format!("{prefix} port {port}"),
            None => prefix.to_owned(),
        };
        let reqid = state.reqid.map_or(String::new(), |reqid| format!(" reqid {reqid}"));
        table.row(vec![
            state.name.clone(),
            state.port.clone(),
            state.priority.to_string(),
            at(&state.source, state.source_port),
            at(&state.destination, state.destination_port),
            state.protocol.map_or("any".to_owned(), |protocol| protocol.to_string()),
            word(&state.action) + &reqid,
        ]);
    }
    output.section(&table)?;
    for policy in all {
        if let Some(why) = &policy.failure {
            output.prose("", &format!("{}: {why}", policy.state.name))?;
        }
    }
    Ok(())
}

/// A value as configuration writes it.
fn word(value: &impl serde::Serialize) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

/// Settings from `KEY=VALUE` words: numbers (also `0x1001`), true, false and tables as such, and
/// everything else as text. `KEY.INNER=VALUE` is a value in a table. A key file's path becomes
/// absolute, since the daemon reads the file.
fn keys(words: &[String]) -> Result<Map<String, Json>, CliError> {
    let mut table = Map::new();
    for word in words {
        let wrong = || CliError::Usage(format!("{word}: expected KEY=VALUE, e.g. spi=0x1001"));
        let (key, text) = word.split_once('=').ok_or_else(wrong)?;
        let value = match key {
            "key_file" => {
                std::path::absolute(text).map_err(|_empty| wrong())?.display().to_string().into()
            }
            _ => value(text),
        };
        match key.split_once('.') {
            None => table.insert(key.to_owned(), value),
            Some((outer, inner)) => {
                let outer = table.entry(outer).or_insert_with(|| Json::Object(Map::new()));
                outer.as_object_mut().ok_or_else(wrong)?.insert(inner.to_owned(), value)
            }
        };
    }
    Ok(table)
}

fn value(text: &str) -> Json {
    let hex = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match (hex, serde_json::from_str::<Json>(text)) {
        (Some(number), _) => number.into(),
        (None, Ok(json)) if !json.is_null() => json,
        _ => Json::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_numbers_texts_and_tables() {
        let words = ["spi=0x1001", "port=esp0", "esn=true", "hard.bytes=5", "hard.packets=6"];
        let table = keys(&words.map(str::to_owned)).expect("they are right");
        let hard = serde_json::json!({ "bytes": 5, "packets": 6 });
        let expected = serde_json::json!({
            "spi": 0x1001, "port": "esp0", "esn": true, "hard": hard
        });
        assert_eq!(Json::Object(table), expected);
        let here = std::env::current_dir().expect("there is one").join("a.key");
        let table = keys(&["key_file=a.key".to_owned()]).expect("it is right");
        assert_eq!(table["key_file"], here.display().to_string());
        for wrong in [&["spi"][..], &["hard=5", "hard.bytes=5"], &["key_file="]] {
            let words: Vec<String> = wrong.iter().map(|&word| word.to_owned()).collect();
            assert!(matches!(keys(&words), Err(CliError::Usage(_))), "{wrong:?}");
        }
    }
}
