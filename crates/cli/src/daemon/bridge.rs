//! `bridge show` and `bridge fdb`, as iproute2 has them.

use towpath_daemon::api::types::{BridgeView, FdbView};
use towpath_daemon::client::encoded;

use super::client;
use crate::args::BridgeCommand;
use crate::error::CliError;
use crate::output::{Align, Output, Table};

/// Shows bridges, or what one has learnt.
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
    }
}

fn show(bridges: &[BridgeView], output: &mut Output) -> Result<(), CliError> {
    if output.json {
        return output.json(&bridges);
    }
    let columns = [("bridge", Align::Left), ("ageing", Align::Right), ("addresses", Align::Right)];
    let mut table = Table::new(&[&columns[..], &[("ports", Align::Left)]].concat());
    for BridgeView { name, ageing, ports, addresses } in bridges {
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
