//! `port add|del|set|show` and `features`.

use serde_json::{Map, Value as Json};
use towpath_daemon::api::types::{FeaturesView, PortView};
use towpath_daemon::client::encoded;
use towpath_daemon::kinds;

use super::{client, remove};
use crate::args::{PortArgs, PortCommand, PortKeysArgs};
use crate::error::CliError;
use crate::output::{Align, Output, Table};

/// Adds, changes, removes or shows ports.
pub(crate) fn port(command: &PortCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        PortCommand::Add(args) => {
            let mut table = keys(&args.keys)?;
            table.insert("name".to_owned(), args.port.clone().into());
            let port: PortView = client(&args.daemon)?.json("POST", "/v1/ports", &table)?;
            print(output, &port)
        }
        PortCommand::Set(args) => {
            let PortKeysArgs { port, keys: words, daemon } = args;
            let path = format!("/v1/ports/{}", encoded(port));
            let port: PortView = client(daemon)?.json("PATCH", &path, &keys(words)?)?;
            print(output, &port)
        }
        PortCommand::Del(args) => {
            let path = format!("/v1/ports/{}", encoded(&args.port));
            remove(&args.daemon, &path, output)
        }
        PortCommand::Show(args) => show(args, output),
    }
}

fn print(output: &mut Output, port: &PortView) -> Result<(), CliError> {
    if output.json { output.json(port) } else { Ok(()) }
}

fn show(args: &PortArgs, output: &mut Output) -> Result<(), CliError> {
    let client = client(&args.daemon)?;
    let ports: Vec<PortView> = match &args.port {
        Some(name) => vec![client.get(&format!("/v1/ports/{}", encoded(name)))?],
        None => client.get("/v1/ports")?,
    };
    if output.json {
        return output.json(&ports);
    }
    let mut table = Table::new(&[
        ("ifindex", Align::Right),
        ("name", Align::Left),
        ("kind", Align::Left),
        ("state", Align::Left),
        ("mtu", Align::Right),
        ("queues", Align::Right),
        ("mac", Align::Left),
        ("upper", Align::Left),
        ("options", Align::Left),
    ]);
    for port in &ports {
        let state = match (&port.failure, port.state.up, port.link) {
            (Some(_), ..) => "failed",
            (None, false, _) => "down",
            (None, true, false) => "no link",
            (None, true, true) => "up",
        };
        let options = port.state.options.iter().map(|(key, value)| format!("{key}={value}"));
        table.row(vec![
            port.index.to_string(),
            port.state.name.clone(),
            port.state.kind.clone(),
            state.to_owned(),
            port.mtu_now.to_string(),
            port.queues.to_string(),
            port.mac.clone(),
            port.state.upper.clone().unwrap_or_default(),
            options.collect::<Vec<_>>().join(" ").replace('"', ""),
        ]);
    }
    output.section(&table)?;
    for port in &ports {
        if let Some(why) = &port.failure {
            output.prose("", &format!("{}: {why}", port.state.name))?;
        }
        if let Some(why) = &port.tx_error {
            output.prose("", &format!("{}: sending: {why}", port.state.name))?;
        }
        if ports.len() > 1 {
            continue;
        }
        let authors: Vec<&str> = port.wanted_by.iter().map(|author| author.name()).collect();
        output.line(&format!("  wanted by: {}", authors.join(", ")))?;
        for (name, value) in &port.details {
            output.line(&format!("  {name}: {value}"))?;
        }
    }
    Ok(())
}

/// `features`: the kernel's feature flags of ports.
pub(crate) fn features(args: &PortArgs, output: &mut Output) -> Result<(), CliError> {
    let client = client(&args.daemon)?;
    let names = match &args.port {
        Some(name) => vec![name.clone()],
        None => {
            let ports: Vec<PortView> = client.get("/v1/ports")?;
            // A port that was never open has no features yet.
            ports.into_iter().filter(|it| it.index != 0).map(|port| port.state.name).collect()
        }
    };
    let mut all: Vec<FeaturesView> = Vec::new();
    for name in names {
        all.push(client.get(&format!("/v1/ports/{}/features", encoded(&name)))?);
    }
    if output.json {
        return output.json(&all);
    }
    for port in &all {
        let heading = output.style.bold(&format!("{} ({})", port.port, port.kind));
        output.line(&heading)?;
        let columns = [("", Align::Left), ("", Align::Left), ("", Align::Left)];
        let mut table = Table::new(&columns);
        for feature in &port.features {
            let tick = if feature.supported { "yes" } else { "no" };
            table.row(vec![feature.name.clone(), tick.to_owned(), feature.note.clone()]);
        }
        output.table(&table)?;
    }
    Ok(())
}

/// Settings from `KEY=VALUE` words: numbers, true, false and lists (`[0,1]`) as such, `KEY=` as
/// null, and everything else as text.
fn keys(words: &[String]) -> Result<Map<String, Json>, CliError> {
    let mut table = Map::new();
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            return Err(CliError::Usage(format!("{word}: expected KEY=VALUE, e.g. upper=br0")));
        };
        let is_text = TEXTS.contains(&key);
        let json = match serde_json::from_str::<Json>(value) {
            _ if value.is_empty() => Json::Null,
            Ok(json) if !is_text && !json.is_null() => json,
            _ => Json::String(value.to_owned()),
        };
        table.insert(key.to_owned(), json);
    }
    let known = |key: &String| {
        kinds::COMMON_KEYS.contains(&key.as_str())
            || kinds::KINDS.iter().flat_map(|kind| kind.options).any(|option| option.key == *key)
    };
    if let Some(key) = table.keys().find(|key| !known(key)) {
        let options = kinds::KINDS.iter().flat_map(|kind| kind.options);
        let names = options.map(|option| option.key).chain(kinds::COMMON_KEYS);
        let hint = towpath_bpf::suggest::among(key, names);
        return Err(CliError::Usage(format!("no key {key:?}{hint}")));
    }
    Ok(table)
}

/// Keys whose values are names even if they look like numbers.
const TEXTS: [&str; 7] = ["kind", "upper", "peer", "interface", "mac", "primary", "active_slave"];
