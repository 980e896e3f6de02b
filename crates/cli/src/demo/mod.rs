//! `demo live`: two real stacks joined through Towpath, with a program replaced under their load;
//! and the other demonstrations.

mod host;
mod ipsec;
mod joint;
mod quic;

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value as Json, json};
use towpath_daemon::api::types::{FrameStats, StatsView, StatusView};

use self::host::{Host, Load};
use self::joint::Joint;
use crate::args::{DemoCommand, DemoLiveArgs, PortArgs, SocketArgs, StatusArgs};
use crate::error::CliError;
use crate::output::{Output, grouped};

/// `demo`: runs a demonstration.
pub(crate) fn demo(command: &DemoCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        DemoCommand::Ipsec => ipsec::ipsec(output),
        DemoCommand::Live(args) => live(args, output),
        DemoCommand::Quic => quic::quic(output),
    }
}

/// Results of the demonstration.
#[derive(Debug, Serialize)]
struct Seen {
    /// Pings before the load, and after it through the last program.
    pings: [Pings; 2],
    /// Measurement of iperf3; `None` if it is not installed.
    load: Option<Load>,
    replacements: u64,
    frames: FrameStats,
    drops: Json,
    status: StatusView,
}

#[derive(Debug, Serialize)]
struct Pings {
    sent: u32,
    answered: u32,
}

/// Runs the demonstration. Its namespaces and daemon live in this process, and end with it.
fn live(args: &DemoLiveArgs, output: &mut Output) -> Result<(), CliError> {
    if let Some(why) = unavailable(&["ip", "nsenter", "setpriv"]) {
        return Err(CliError::Daemon(why));
    }
    if !args.object.exists() {
        let object = args.object.display();
        let hint = "build the example programs with `make programs`, or name an object";
        return Err(CliError::Daemon(format!("{object}: no such file; {hint}")));
    }
    // Dropped last: ports go before their namespaces.
    let hosts = [Host::new(1)?, Host::new(2)?];
    let joint = Joint::start(output.verbose)?;
    let result = show(&hosts, &joint, args, output);
    finished(joint, result)?;
    say(output, "namespaces, taps and the daemon are gone again")
}

/// Ends the daemon after a demonstration.
fn finished(mut joint: Joint, result: Result<(), CliError>) -> Result<(), CliError> {
    // The daemon handles signals itself: the failure is a consequence of its end.
    if result.is_err() && joint.was_interrupted() {
        return Err(CliError::Daemon("interrupted: everything was cleaned up".to_owned()));
    }
    joint.end()?;
    result
}

fn show(
    hosts: &[Host; 2],
    joint: &Joint,
    args: &DemoLiveArgs,
    output: &mut Output,
) -> Result<(), CliError> {
    joint.connect(hosts)?;
    let name = joint.attach(args)?;
    for host in hosts {
        host.up()?;
    }
    let [client, server] = hosts;
    say(output, &format!("two hosts, joined through Towpath; {name} sees what {client} sends"))?;
    let before = ping(client, server, output)?;
    let (load, replacements) = replace_under_load(hosts, joint, args, output)?;
    let after = ping(client, server, output)?;
    let stats = joint.settled()?;
    let seen = Seen {
        pings: [before, after],
        load,
        replacements,
        frames: stats.frames,
        drops: drops(&stats),
        status: joint.client.get("/v1/status")?,
    };
    tell(&seen, joint, output)?;
    if seen.frames.missing != 0 {
        let missing = seen.frames.missing;
        return Err(CliError::Daemon(format!("{missing} frames are lost")));
    }
    Ok(())
}

fn ping(client: &Host, server: &Host, output: &mut Output) -> Result<Pings, CliError> {
    let (what, answered) = match is_there("ping") {
        true => ("ping", client.ping(server, PINGS)?),
        false => ("UDP (there is no ping)", client.echo(server, PINGS)?),
    };
    let text = format!("{what} {client} -> {server}: {answered} of {PINGS} answered");
    say(output, &text)?;
    Ok(Pings { sent: PINGS, answered })
}

/// Replaces the program repeatedly while TCP runs at full speed.
fn replace_under_load(
    hosts: &[Host; 2],
    joint: &Joint,
    args: &DemoLiveArgs,
    output: &mut Output,
) -> Result<(Option<Load>, u64), CliError> {
    if !is_there("iperf3") {
        say(output, "iperf3 is missing (scripts/install-deps.sh net): no load, no replacements")?;
        return Ok((None, 0));
    }
    let [client, server] = hosts;
    let seconds = args.runs_for.as_secs_f64().ceil().max(1.0);
    say(
        output,
        &format!("iperf3 {client} -> {server}, {seconds} s, the program replaced meanwhile"),
    )?;
    let _listener = server.listen()?;
    let mut running = client.load(server, seconds as u64)?;
    let (start, mut replacements) = (Instant::now(), 0);
    loop {
        joint.replace(args)?;
        if running.has_ended()? {
            break;
        }
        replacements += 1;
        let is_late = start.elapsed().as_secs_f64() > seconds + GRACE.as_secs_f64();
        if is_late {
            return Err(CliError::Daemon("iperf3 does not end".to_owned()));
        }
        std::thread::sleep(REPLACE_PERIOD);
    }
    Ok((Some(running.result()?), replacements))
}

/// Frames that were dropped, by port and reason.
fn drops(stats: &StatsView) -> Json {
    let of = |port: &towpath_daemon::api::types::PortStats| {
        let all = port.drops.iter().chain(&port.tx_drops).filter(|(_, count)| **count > 0);
        let mut sum = std::collections::BTreeMap::<&str, u64>::new();
        all.for_each(|(why, count)| *sum.entry(why).or_default() += count);
        json!(sum)
    };
    stats.ports.iter().map(|(name, port)| (name.clone(), of(port))).collect()
}

fn tell(seen: &Seen, joint: &Joint, output: &mut Output) -> Result<(), CliError> {
    if output.json {
        return output.json(seen);
    }
    if let Some(load) = &seen.load {
        let gigabits = load.bits_per_second / 1e9;
        let text = format!(
            "{gigabits:.2} Gbit/s of TCP, {} retransmitted; {} replacements under this load",
            load.retransmits, seen.replacements
        );
        output.line(&text)?;
    }
    let FrameStats { received, created, delivered, dropped, freed, missing, .. } = seen.frames;
    output.line(&format!(
        "frames: {} received, {} created = {} delivered, {} dropped, {} freed; {missing} lost",
        grouped(received),
        grouped(created),
        grouped(delivered),
        grouped(dropped),
        grouped(freed)
    ))?;
    if dropped > 0 {
        output.line(&format!("dropped, by port and reason: {}", seen.drops))?;
    }
    output.line("")?;
    let daemon = SocketArgs { socket: joint.socket.clone() };
    let port = PortArgs { port: None, daemon };
    crate::daemon::status(&StatusArgs { port, exit_status: false }, output)?;
    output.line("")
}

/// Prints the progress, unless the output is JSON.
fn say(output: &mut Output, text: &str) -> Result<(), CliError> {
    if output.json {
        return Ok(());
    }
    output.line(text)?;
    output.flush()
}

/// Reason why a demonstration with these tools cannot run on this machine, with a hint.
fn unavailable(tools: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        let why = "network namespaces and taps need root: run it with sudo";
        return Some(format!("{why}, or `make demo`, which needs no privileges"));
    }
    if let Some(tool) = tools.iter().find(|it| !is_there(it)) {
        return Some(format!("{tool} is missing: scripts/install-deps.sh net"));
    }
    let opened = std::fs::File::options().read(true).write(true).open("/dev/net/tun");
    opened.err().map(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "/dev/net/tun is missing: modprobe tun".to_owned(),
        _ => format!("/dev/net/tun: {error}: it must be writable for this user"),
    })
}

fn is_there(tool: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(tool).exists())
}

const PINGS: u32 = 10;
/// Pause between two replacements: other threads need the cores as well.
const REPLACE_PERIOD: Duration = Duration::from_millis(5);
/// Time that iperf3 may need beyond its duration.
const GRACE: Duration = Duration::from_secs(10);
