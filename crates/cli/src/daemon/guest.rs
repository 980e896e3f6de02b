//! `guest show`, `guest save`, `guest restore`, `guest reset`: virtual machines whose programs the
//! host runs.

use std::fs;

use serde_json::json;
use towpath_daemon::api::types::GuestView;
use towpath_daemon::client::encoded;

use super::{client, remove};
use crate::args::{GuestArgs, GuestCommand, GuestFileArgs};
use crate::error::CliError;
use crate::output::{Align, Output, Table, grouped};

/// Shows, saves, restores or resets guests.
pub(crate) fn guest(command: &GuestCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        GuestCommand::Show(args) => {
            let client = client(&args.daemon)?;
            let guests: Vec<GuestView> = match &args.port {
                None => client.get("/v1/guests")?,
                Some(port) => vec![client.get(&path(port))?],
            };
            show(&guests, output)
        }
        GuestCommand::Save(GuestFileArgs { port, file, daemon }) => {
            let saved = client(daemon)?.bytes(&format!("{}/saved", path(port)))?;
            let failed = |source| CliError::Daemon(format!("{}: {source}", file.display()));
            fs::write(file, &saved).map_err(|error: std::io::Error| failed(error))?;
            if output.json { output.json(&json!({"bytes": saved.len()})) } else { Ok(()) }
        }
        GuestCommand::Restore(GuestFileArgs { port, file, daemon }) => {
            let failed = |source| CliError::Daemon(format!("{}: {source}", file.display()));
            let saved = fs::read(file).map_err(|error: std::io::Error| failed(error))?;
            let path = format!("{}/saved", path(port));
            let guest: GuestView = client(daemon)?.send("PUT", &path, saved.into())?;
            if output.json { output.json(&guest) } else { Ok(()) }
        }
        GuestCommand::Reset(GuestArgs { port, daemon }) => remove(daemon, &path(port), output),
    }
}

fn path(port: &str) -> String {
    format!("/v1/guests/{}", encoded(port))
}

fn show(guests: &[GuestView], output: &mut Output) -> Result<(), CliError> {
    if output.json {
        return output.json(&guests);
    }
    output.section(&programs(guests))?;
    let mut table = Table::new(&[
        ("guest", Align::Left),
        ("channel", Align::Left),
        ("programs", Align::Right),
        ("instructions", Align::Right),
        ("maps", Align::Right),
        ("entries", Align::Right),
        ("bytes", Align::Right),
        ("requests", Align::Right),
        ("refused", Align::Right),
    ]);
    for guest in guests {
        let channel = if guest.connected { "connected" } else { "waiting" };
        let mut row = vec![guest.port.clone(), channel.to_owned()];
        row.extend(
            guest.limits.iter().map(|it| format!("{} of {}", grouped(it.used), grouped(it.limit))),
        );
        row.extend([grouped(guest.requests), grouped(guest.refused)]);
        table.row(row);
    }
    output.section(&table)?;
    for guest in guests {
        if let Some(refusal) = &guest.refusal {
            output.prose("", &format!("{}: the last refusal: {refusal}", guest.port))?;
        }
    }
    Ok(())
}

/// Table of the programs that run for guests.
pub(super) fn programs(guests: &[GuestView]) -> Table {
    let mut table = Table::new(&[
        ("guest", Align::Left),
        ("direction", Align::Left),
        ("program", Align::Left),
        ("tag", Align::Left),
        ("frames", Align::Right),
        ("aborted", Align::Right),
        ("drop", Align::Right),
        ("pass", Align::Right),
        ("tx", Align::Right),
        ("redirect", Align::Right),
        ("faults", Align::Right),
    ]);
    for guest in guests {
        for it in &guest.programs {
            let mut row =
                vec![guest.port.clone(), it.direction.clone(), it.name.clone(), it.tag.clone()];
            row.push(grouped(it.runs));
            row.extend(it.actions.map(grouped));
            row.push(grouped(it.faults));
            table.row(row);
        }
    }
    table
}
