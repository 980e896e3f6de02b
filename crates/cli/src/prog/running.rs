//! Test runs of a program that a daemon runs.

use towpath_daemon::api::types::{PortView, RunRequest, RunView};
use towpath_daemon::globals::{hex, parse_hex};
use towpath_xdp::Sanitize;

use super::context::Context;
use super::engine::Outcome;
use crate::args::{ProgRunArgs, ProgRunExec, RunningArgs};
use crate::daemon;
use crate::error::CliError;
use crate::events::Events;

/// Whether the arguments choose a program of the daemon, not an object file. Fails if options do
/// not fit the choice.
pub(super) fn is_meant(args: &ProgRunArgs) -> Result<bool, CliError> {
    let names_running = daemon::is_word(&args.words[0]);
    let RunningArgs { live, port, .. } = &args.running;
    let message = match args.words.len() {
        2 if names_running && is_about_file(args) => {
            "-n, -s, --set, --btf, --exec, --sanitize and the options for surroundings apply to \
             object files only: a program of the daemon runs in the daemon"
        }
        2 if names_running && *live && (args.data_out.is_some() || args.ctx_out.is_some()) => {
            "--data-out and --ctx-out are impossible with --live: its frames are sent"
        }
        2 if names_running => return Ok(true),
        1 if *live || port.is_some() => {
            "--live and --port need a program of the daemon: id N, name NAME, tag TAG or \
             pinned PATH"
        }
        1 => return Ok(false),
        _ => "expected an object file, or id N, name NAME, tag TAG, pinned PATH",
    };
    Err(CliError::Usage(message.to_owned()))
}

fn is_about_file(args: &ProgRunArgs) -> bool {
    args.selection.is_given()
        || args.program.is_given()
        || args.exec != ProgRunExec::Interp
        || args.surroundings.map_init.is_some()
        || !args.surroundings.calls.is_empty()
        || args.surroundings.dump_maps.is_some()
        || args.surroundings.fib.is_some()
        || args.surroundings.sanitize != Sanitize::Off
}

/// Calls a `syscall` program; returns its result, and the context as the program left it.
pub(super) fn call(args: &ProgRunArgs, context: &[u8]) -> Result<(u32, Vec<u8>), CliError> {
    let client = daemon::client(&args.running.daemon)?;
    let program = daemon::chosen_program(&client, &args.words)?;
    let request = RunRequest { context: Some(hex(context)), ..RunRequest::default() };
    let done: RunView =
        client.json("POST", &format!("/v1/programs/{}/run", program.id), &request)?;
    Ok((done.retval, done.context.and_then(|it| parse_hex(&it)).unwrap_or_default()))
}

/// Runs the packet once, or as live frames.
pub(super) fn run(args: &ProgRunArgs, data: &[u8]) -> Result<Outcome, CliError> {
    let RunningArgs { live, batch_size, port, rx_queue, daemon } = &args.running;
    let (mut metadata, mut port, mut rx_queue) = (0, port.clone(), *rx_queue);
    let client = daemon::client(daemon)?;
    if let Some(path) = &args.ctx_in {
        let context = Context::read(path, data.len())?;
        (metadata, rx_queue) = (context.data, context.rx_queue_index);
        let index = context.ingress_ifindex;
        let ports: Vec<PortView> = client.get("/v1/ports")?;
        port = ports.into_iter().find(|port| port.index == index).map(|port| port.state.name);
        if index != 0 && port.is_none() {
            let message = format!("ingress_ifindex is {index}, which no port has (ENODEV)");
            return Err(CliError::Text { path: path.clone(), message });
        }
    }
    let request = RunRequest {
        data: hex(data),
        metadata,
        port,
        rx_queue,
        repeat: args.repeat,
        live: *live,
        batch_size: *batch_size,
        context: None,
    };
    let program = daemon::chosen_program(&client, &args.words)?;
    let done: RunView =
        client.json("POST", &format!("/v1/programs/{}/run", program.id), &request)?;
    let context = Context {
        data: done.metadata,
        data_end: done.linear_end,
        rx_queue_index: rx_queue,
        ..Context::default()
    };
    Ok(Outcome {
        retval: done.retval,
        data: parse_hex(&done.data_out).unwrap_or_default(),
        context,
        duration_ns: done.duration_ns,
        target: None,
        maps: None,
        events: Events::default(),
        trace: Vec::new(),
        exec: None,
        findings: Vec::new(),
    })
}
