//! `status`: programs and their ports, in the format of xdp-loader's status.

use std::time::{SystemTime, UNIX_EPOCH};

use towpath_daemon::api::types::{LinkView, PopulationView, StatusView};
use towpath_daemon::authors::{Overridden, Override};
use towpath_daemon::failure::Failure;
use towpath_daemon::state::HookState;

use super::{client, guest, queues, workers};
use crate::args::StatusArgs;
use crate::error::CliError;
use crate::output::{Align, Output, Table, grouped};

/// Ports and their programs.
pub(crate) fn status(args: &StatusArgs, output: &mut Output) -> Result<(), CliError> {
    let client = client(&args.port.daemon)?;
    let mut status: StatusView = client.get("/v1/status")?;
    let all_links = status.links.clone();
    if let Some(name) = &args.port.port {
        let names = status.ports.iter().map(|port| port.state.name.as_str());
        if !names.clone().any(|it| it == name) {
            let hint = towpath_bpf::suggest::among(name, names);
            return Err(CliError::Daemon(format!("no port \"{name}\"{hint} (ENODEV)")));
        }
        status.ports.retain(|port| port.state.name == *name);
        status.links.retain(|link| link.port == *name);
        status.queues.retain(|queue| queue.ports.contains(name));
        status.dequeues.retain(|port| port.port == *name);
        status.guests.retain(|guest| guest.port == *name);
        status.worker_loads.iter_mut().for_each(|it| it.queues.retain(|port| port.port == *name));
        status.worker_loads.retain(|worker| !worker.queues.is_empty());
    }
    match output.json {
        true => output.json(&status)?,
        false => show(&status, &all_links, output)?,
    }
    match args.exit_status && !status.failures.is_empty() {
        // The failures are part of the output above.
        true => Err(CliError::Reported),
        false => Ok(()),
    }
}

fn show(status: &StatusView, all_links: &[LinkView], output: &mut Output) -> Result<(), CliError> {
    let mut table = Table::new(&[
        ("port", Align::Left),
        ("hook", Align::Left),
        ("prio", Align::Right),
        ("program", Align::Left),
        ("exec", Align::Left),
        ("id", Align::Right),
        ("tag", Align::Left),
        ("chain actions", Align::Left),
        ("frames", Align::Right),
    ]);
    for port in &status.ports {
        let mut is_first = true;
        for link in status.links.iter().filter(|link| link.port == port.state.name) {
            let name = if is_first { port.state.name.as_str() } else { "" };
            table.row(row(name, link));
            is_first = false;
        }
        if is_first {
            let note = match (&port.delegated_by, port.state.up) {
                (Some(bond), true) => format!("<by {bond}: {}>", names(all_links, bond)),
                (None, true) => "<no program>".to_owned(),
                (_, false) => "<down>".to_owned(),
            };
            let blank = String::new;
            table.row(vec![port.state.name.clone(), blank(), blank(), note]);
        }
    }
    output.section(&table)?;
    output.section(&workers::table(&status.worker_loads))?;
    queues::show(&status.queues, &status.dequeues, output)?;
    if status.guests.iter().any(|guest| !guest.programs.is_empty()) {
        output.section(&guest::programs(&status.guests))?;
    }
    for link in &status.links {
        if let Some(why) = &link.fallback {
            let LinkView { name, prog_id, .. } = link;
            output.prose("", &format!("{name} (id {prog_id}): {why}"))?;
        }
    }
    if let Some(PopulationView { bytes_done, bytes, .. }) = &status.population {
        let (percent, mib) = (bytes_done * 100 / bytes.max(&1), bytes >> 20);
        output.prose("", &format!("populating maps: {percent} % of {mib} MiB"))?;
    }
    for Overridden { subject, is } in &status.overridden {
        let done = match is {
            Override::Changed => "changed",
            Override::Removed => "removed",
        };
        output.prose("", &format!("not as in the configuration: {subject} ({done} by the API)"))?;
    }
    for line in &status.restart {
        output.prose("", &format!("needs a restart: {line}"))?;
    }
    if let Some(what) = &status.not_saved {
        output.prose("", &format!("not saved: {what}"))?;
    }
    for warning in &status.warnings {
        output.prose("", &format!("warning: {warning}"))?;
    }
    for failure in &status.failures {
        output.prose("", &failed(failure))?;
    }
    Ok(())
}

/// A failure, its duration until now, and a hint.
fn failed(failure: &Failure) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = (now.as_secs_f64() - failure.since).max(0.0) as u64;
    let time = match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    };
    format!("failed: {failure} ({} for {time}: {})", failure.code.name(), failure.remedy)
}

/// The programs of a bond, which its members run.
fn names(links: &[LinkView], bond: &str) -> String {
    let links = links.iter().filter(|link| link.port == bond && link.hook == HookState::Rx);
    links.map(|link| link.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn row(port: &str, link: &LinkView) -> Vec<String> {
    vec![
        port.to_owned(),
        link.hook.to_string(),
        link.prio.to_string(),
        link.name.clone(),
        link.exec.clone(),
        link.prog_id.to_string(),
        link.tag.clone(),
        link.actions.join(","),
        match link.hook {
            HookState::Rx | HookState::Tx => grouped(link.runs),
            // Each run takes one frame, several, or none.
            HookState::Dequeue => format!("{} runs", grouped(link.runs)),
        },
    ]
}
