//! `net show` and `net detach`, in bpftool's words.

use towpath_daemon::api::types::{LinkView, PortView, ProgramView};
use towpath_daemon::client::encoded;
use towpath_daemon::state::HookState;

use super::which::{BEGIN, Which, only};
use super::{bpftool, client};
use crate::args::{ElementArgs, NetCommand, PortArgs};
use crate::error::CliError;
use crate::output::Output;

/// Shows, attaches or detaches the programs that run on frames that arrive at ports.
pub(crate) fn net(command: &NetCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        NetCommand::Show(args) => show(args, output),
        NetCommand::Attach(args) => Err(attach(args)),
        NetCommand::Detach(args) => detach(args, output),
    }
}

fn show(args: &PortArgs, output: &mut Output) -> Result<(), CliError> {
    let client = client(&args.daemon)?;
    if let Some(port) = &args.port {
        let _there: PortView = client.get(&format!("/v1/ports/{}", encoded(port)))?;
    }
    let links: Vec<LinkView> = client.get("/v1/links")?;
    let is_meant = |link: &&LinkView| {
        link.hook == HookState::Rx
            && link.ifindex != 0
            && args.port.as_ref().is_none_or(|port| *port == link.port)
    };
    let meant: Vec<&LinkView> = links.iter().filter(is_meant).collect();
    if output.json {
        return output.json(&bpftool::net(meant.into_iter()));
    }
    if meant.is_empty() {
        let here = args.port.as_ref().map_or(String::new(), |port| format!(" on {port}"));
        output.note(&format!("no program{here}: {BEGIN}"));
    }
    output.line("xdp:")?;
    for LinkView { port, ifindex, prog_id, .. } in meant {
        output.line(&format!("{port}({ifindex}) driver id {prog_id}"))?;
    }
    output.line("")
}

/// An error with the `load` command to type instead: only `load` reads the object, and only its
/// programs are attached again after a restart.
fn attach(args: &ElementArgs) -> CliError {
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let at = words.iter().position(|word| *word == "dev");
    let port = at.and_then(|at| words.get(at + 1)).unwrap_or(&"PORT");
    let program = words.get(1..at.unwrap_or(words.len())).unwrap_or_default();
    let (object, name) = object_of(args, program).unwrap_or(("OBJ".to_owned(), "PROG".to_owned()));
    CliError::Usage(format!(
        "programs are attached from their objects here: towpath load {port} {object} -n {name} \
         (--exclusive unless something is there, --replace for overwrite)"
    ))
}

/// The object file and the function of a program that the daemon has loaded.
fn object_of(args: &ElementArgs, program: &[&str]) -> Option<(String, String)> {
    let words: Vec<String> = program.iter().map(|word| (*word).to_owned()).collect();
    let which = Which::parse(&words).ok().filter(|which| *which != Which::All)?;
    let program: ProgramView = only(&client(&args.daemon).ok()?, &which).ok()?;
    Some((program.object?, program.function))
}

/// `xdp dev PORT`
fn detach(args: &ElementArgs, output: &mut Output) -> Result<(), CliError> {
    let [kind, dev, port] = &args.words[..] else {
        return Err(CliError::Usage("expected: xdp dev PORT".to_owned()));
    };
    check_kind(kind)?;
    if dev != "dev" {
        return Err(CliError::Usage(format!("{dev}: expected dev PORT")));
    }
    let (daemon, hook) = (args.daemon.clone(), None);
    let unload = crate::args::UnloadArgs { port: port.clone(), id: None, hook, all: true, daemon };
    super::unload(&unload, output)
}

/// Refuses kinds of attachment other than native: programs run only as in a driver.
fn check_kind(kind: &str) -> Result<(), CliError> {
    match kind {
        "xdp" | "xdpdrv" => Ok(()),
        "xdpgeneric" | "xdpoffload" => Err(CliError::Usage(format!(
            "{kind}: programs always run natively, not on socket buffers and not in the device: \
             use xdp"
        ))),
        other => Err(CliError::Usage(format!("{other}: expected xdp"))),
    }
}
