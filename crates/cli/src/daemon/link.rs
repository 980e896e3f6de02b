//! `link show`, `link detach` and `link pin`.

use serde_json::Value as Json;
use towpath_daemon::api::types::LinkView;

use super::program::pins;
use super::which::{BEGIN, Which, only, some};
use super::{bpftool, client, pin};
use crate::args::LinkCommand;
use crate::error::CliError;
use crate::output::{Output, grouped};

/// Lists or detaches links.
pub(crate) fn link(command: &LinkCommand, output: &mut Output) -> Result<(), CliError> {
    let args = match command {
        LinkCommand::Show(args) | LinkCommand::Detach(args) => args,
        LinkCommand::Pin(args) => {
            let (which, path) = pin::split(args)?;
            let client = client(&args.daemon)?;
            let link: LinkView = only(&client, &which)?;
            return pin::pin(&client, "link", link.id, path, output);
        }
        LinkCommand::Unpin(args) => return pin::unpin(args, output),
    };
    let which = Which::parse(&args.which)?;
    let client = client(&args.daemon)?;
    if let LinkCommand::Detach(_) = command {
        let link: LinkView = only(&client, &which)?;
        let _done: Json =
            client.send("DELETE", &format!("/v1/links/{}", link.id), [].as_slice().into())?;
        return if output.json { output.json(&serde_json::json!({})) } else { Ok(()) };
    }
    let links: Vec<LinkView> = some(&client, &which)?;
    if output.json {
        let all = links.iter().map(bpftool::link).collect();
        return output.json(&bpftool::shown(all, which != Which::All));
    }
    if links.is_empty() {
        output.note(&format!("no links: {BEGIN}"));
    }
    links.iter().try_for_each(|link| print(link, output))
}

/// Prints a link as bpftool does; further lines hold properties that only Towpath has.
fn print(link: &LinkView, output: &mut Output) -> Result<(), CliError> {
    let LinkView { id, r#type, prog_id, port, ifindex, name, tag, prio, .. } = link;
    output.line(&format!("{id}: {type}  prog {prog_id}"))?;
    let device = if *ifindex == 0 { "(detached)".to_owned() } else { format!("{port}({ifindex})") };
    let hook = link.hook.to_string();
    output.line(&format!("\tifindex {device}  hook {hook}  prio {prio}"))?;
    let (actions, runs) = (link.actions.join(","), grouped(link.runs));
    output.line(&format!("\tname {name}  tag {tag}  actions {actions}  frames {runs}"))?;
    pins(&link.pinned, output)
}
