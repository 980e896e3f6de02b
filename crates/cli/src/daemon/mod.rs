//! The daemon, and the commands that ask it.

mod as_type;
pub(crate) mod bpftool;
mod bridge;
mod dump;
mod guest;
mod ipsec;
mod link;
mod listen;
mod load;
mod map;
mod net;
mod pin;
mod port;
mod program;
mod queues;
mod rows;
mod stats;
mod status;
mod which;
pub(crate) mod workers;

pub(crate) use as_type::AsType;
pub(crate) use bridge::bridge;
pub(crate) use dump::dump;
pub(crate) use guest::guest;
pub(crate) use ipsec::{policy, sa};
pub(crate) use link::link;
pub(crate) use listen::tracelog;
pub(crate) use load::{load, load_pinned, unload, upload};
pub(crate) use map::map;
pub(crate) use net::net;
pub(crate) use pin::{program as pin_program, unpin};
pub(crate) use port::{features, port};
pub(crate) use program::{chosen as chosen_program, code, show as show_programs};
pub(crate) use stats::{events, rates, stats};
pub(crate) use status::status;
pub(crate) use which::is_word;

use serde::Serialize;
use serde_json::{Value as Json, json};
use towpath_daemon::api::types::{MapView, ProgramView, ReportView};
use towpath_daemon::client::Client;
use towpath_daemon::dry_run::DryRun;
use towpath_daemon::file::{self, ObjectFiles};
use towpath_daemon::{Options, State, up as run_daemon};

use crate::args::{CheckArgs, ReloadArgs, SocketArgs, UpArgs};
use crate::error::CliError;
use crate::output::Output;

/// `up`: runs the daemon.
pub(crate) fn up(args: &UpArgs, output: &Output) -> Result<(), CliError> {
    let UpArgs { config, socket, runs_for } = args;
    let options = Options {
        config: config.clone(),
        socket: socket.clone(),
        runs_for: *runs_for,
        verbose: output.verbose,
        json: output.json,
        quiet: false,
        ends_process: true,
    };
    run_daemon(&options).map_err(CliError::Daemon)
}

/// `check`: reads the configuration and reports its errors.
pub(crate) fn check(args: &CheckArgs, output: &mut Output) -> Result<(), CliError> {
    let objects = ObjectFiles::default();
    let loaded =
        file::load(&args.config, &objects).map_err(|error| CliError::Daemon(error.to_string()))?;
    let state = &loaded.state;
    let warnings = DryRun::default().warnings(state, &objects);
    let warnings: Vec<String> = warnings.into_iter().map(|warning| warning.text).collect();
    if output.json {
        return output.json(&Checked { state, warnings });
    }
    for warning in warnings {
        output.prose("", &format!("warning: {warning}"))?;
    }
    let count = |number: usize, what: &str| {
        format!("{number} {what}{}", if number == 1 { "" } else { "s" })
    };
    let mut counts = vec![
        count(state.ports.len(), "port"),
        count(state.bridges.len(), "bridge"),
        count(state.attachments.len(), "attachment"),
    ];
    counts.extend((!state.sas.is_empty()).then(|| count(state.sas.len(), "SA")));
    output.line(&format!("{}: fine: {}", args.config.display(), counts.join(", ")))
}

/// The document of `check --json`.
#[derive(Debug, Serialize)]
struct Checked<'a> {
    #[serde(flatten)]
    state: &'a State,
    /// Settings that work but are probably not intended.
    warnings: Vec<String>,
}

/// `reload`: reads the configuration again.
pub(crate) fn reload(args: &ReloadArgs, output: &mut Output) -> Result<(), CliError> {
    let path = format!("/v1/reload?allow_empty={}", args.allow_empty);
    let report: ReportView = client(&args.daemon)?.json("POST", &path, &json!({}))?;
    if output.json {
        output.json(&report)?;
    } else {
        for line in &report.changes {
            output.line(line)?;
        }
        for line in &report.restart {
            output.line(&format!("needs a restart: {line}"))?;
        }
        let ReportView { changes, failures, restart } = &report;
        if changes.is_empty() && failures.is_empty() && restart.is_empty() {
            output.line("nothing to change")?;
        }
    }
    if args.accept_failures && !output.json {
        for failure in &report.failures {
            output.line(&format!("failed: {failure} ({})", failure.remedy))?;
        }
    }
    // The daemon tries again to do the parts that failed.
    match report.failures.is_empty() || args.accept_failures {
        true => Ok(()),
        false if output.json => Err(CliError::Reported),
        false => {
            let lines: Vec<_> = report.failures.iter().map(ToString::to_string).collect();
            Err(CliError::Daemon(lines.join("\n")))
        }
    }
}

/// The BTF of a program or map, as it was loaded.
pub(crate) fn btf(what: &str, which: &[String], daemon: &SocketArgs) -> Result<Vec<u8>, CliError> {
    let client = client(daemon)?;
    let which = which::Which::parse(which)?;
    let path = match what {
        "map" => {
            let map: MapView = which::only(&client, &which)?;
            format!("/v1/maps/{}/btf", map.id)
        }
        _ => {
            let program: ProgramView = which::only(&client, &which)?;
            format!("/v1/programs/{}/btf", program.id)
        }
    };
    Ok(client.bytes(&path)?)
}

/// Removes the thing at a path of the API.
fn remove(daemon: &SocketArgs, path: &str, output: &mut Output) -> Result<(), CliError> {
    let done: Json = client(daemon)?.send("DELETE", path, [].as_slice().into())?;
    if output.json { output.json(&done) } else { Ok(()) }
}

/// A client of the daemon that the arguments name.
pub(crate) fn client(args: &SocketArgs) -> Result<Client, CliError> {
    Client::new(&args.socket).map_err(|error| CliError::Daemon(error.to_string()))
}
