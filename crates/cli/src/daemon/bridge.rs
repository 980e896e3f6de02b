//! `bridge show` and `bridge fdb`, as in iproute2; `bridge add|set|del`.

use serde_json::{Map, Value as Json};
use towpath_daemon::api::types::{BridgeView, FdbView};
use towpath_daemon::client::encoded;

use super::{client, remove};
use crate::args::BridgeCommand;
use crate::error::CliError;
use crate::output::{Align, Output, Table};

/// Shows, adds, changes or removes bridges, or shows the addresses that one has learnt.
pub(crate) fn bridge(command: &BridgeCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        BridgeCommand::Show(args) => {
            let bridges: Vec<BridgeView> = client(&args.daemon)?.get("/v1/bridges")?;
            show(&bridges, output)
        }
        BridgeCommand::Fdb(args) => {
            let path = format!("/v1/bridges/{}/fdb", encoded(&args.bridge));
            fdb(&client(&args.daemon)?.get::<Vec<FdbView>>(&path)?, output)
        }
        BridgeCommand::Add(args) => {
            let mut table = keys(&args.keys)?;
            table.insert("name".to_owned(), args.bridge.clone().into());
            let made: BridgeView = client(&args.daemon)?.json("POST", "/v1/bridges", &table)?;
            if output.json { output.json(&made) } else { Ok(()) }
        }
        BridgeCommand::Set(args) => {
            let path = format!("/v1/bridges/{}", encoded(&args.bridge));
            let client = client(&args.daemon)?;
            let changed: BridgeView = client.json("PATCH", &path, &keys(&args.keys)?)?;
            if output.json { output.json(&changed) } else { Ok(()) }
        }
        BridgeCommand::Del(args) => {
            let path = format!("/v1/bridges/{}", encoded(&args.bridge));
            remove(&args.daemon, &path, output)
        }
    }
}

/// Settings of a bridge, from the words of the command line.
fn keys(words: &[String]) -> Result<Map<String, Json>, CliError> {
    let mut table = Map::new();
    for word in words {
        let seconds = word.strip_prefix("ageing=").and_then(|seconds| seconds.parse().ok());
        let Some(seconds) = seconds else {
            return Err(CliError::Usage(format!("{word}: expected ageing=SECONDS")));
        };
        table.insert("ageing".to_owned(), Json::Number(u64::into(seconds)));
    }
    Ok(table)
}

fn show(bridges: &[BridgeView], output: &mut Output) -> Result<(), CliError> {
    if output.json {
        return output.json(&bridges);
    }
    let columns = [("bridge", Align::Left), ("ageing", Align::Right), ("addresses", Align::Right)];
    let mut table = Table::new(&[&columns[..], &[("ports", Align::Left)]].concat());
    for BridgeView { name, ageing, ports, addresses, .. } in bridges {
        let ageing = format!("{ageing} s");
        table.row(vec![name.clone(), ageing, addresses.to_string(), ports.join(",")]);
    }
    output.section(&table)
}

fn fdb(entries: &[FdbView], output: &mut Output) -> Result<(), CliError> {
    if output.json {
        return output.json(&entries);
    }
    let columns = [("address", Align::Left), ("vlan", Align::Right), ("port", Align::Left)];
    let mut table = Table::new(&[&columns[..], &[("age", Align::Right)]].concat());
    for FdbView { mac, vlan, port, age } in entries {
        let age = age.map_or("stays".to_owned(), |age| format!("{age:.1} s"));
        table.row(vec![mac.clone(), vlan.to_string(), port.clone(), age]);
    }
    output.section(&table)
}
