//! `net show` and `net detach`, in bpftool's words.

use towpath_daemon::api::types::LinkView;
use towpath_daemon::state::HookState;

use super::{bpftool, client};
use crate::args::{ElementArgs, NetCommand, PortArgs};
use crate::error::CliError;
use crate::output::Output;

/// What runs on what arrives at ports.
pub(crate) fn net(command: &NetCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        NetCommand::Show(args) => show(args, output),
        NetCommand::Attach(args) => Err(attach(args)),
        NetCommand::Detach(args) => detach(args, output),
    }
}

fn show(args: &PortArgs, output: &mut Output) -> Result<(), CliError> {
    let links: Vec<LinkView> = client(&args.daemon)?.get("/v1/links")?;
    let is_meant = |link: &&LinkView| {
        link.hook == HookState::Rx
            && link.ifindex != 0
            && args.port.as_ref().is_none_or(|port| *port == link.port)
    };
    let meant = links.iter().filter(is_meant);
    if output.json {
        return output.json(&bpftool::net(meant));
    }
    output.line("xdp:")?;
    for LinkView { port, ifindex, prog_id, .. } in meant {
        output.line(&format!("{port}({ifindex}) driver id {prog_id}"))?;
    }
    output.line("")
}

/// What attaches here is `load`, which has the object and sees to it that a restart has it again.
fn attach(args: &ElementArgs) -> CliError {
    let port = args.words.iter().position(|word| word == "dev");
    let port = port.and_then(|at| args.words.get(at + 1)).map_or("PORT", String::as_str);
    CliError::Usage(format!(
        "programs are attached from their objects here: towpath load {port} OBJ -n PROG \
         (--exclusive unless something is there, --replace for overwrite)"
    ))
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

/// There is one way to run a program: as a driver does.
fn check_kind(kind: &str) -> Result<(), CliError> {
    match kind {
        "xdp" | "xdpdrv" => Ok(()),
        "xdpgeneric" | "xdpoffload" => Err(CliError::Usage(format!(
            "{kind}: programs run natively here, by no socket buffers and in no device: say xdp"
        ))),
        other => Err(CliError::Usage(format!("{other}: expected xdp"))),
    }
}
