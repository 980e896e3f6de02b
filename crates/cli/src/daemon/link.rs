//! `link show`, `link detach` and `link pin`.

use serde_json::Value as Json;
use towpath_daemon::api::types::LinkView;
use towpath_daemon::client::Client;

use super::program::pins;
use super::which::{Which, label_of_link, only};
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
            let link = only(chosen(&client, &which)?, "link", &which, label_of_link)?;
            return pin::pin(&client, "link", link.id, path, output);
        }
        LinkCommand::Unpin(args) => return pin::unpin(args, output),
    };
    let which = Which::parse(&args.which)?;
    let client = client(&args.daemon)?;
    let links = chosen(&client, &which)?;
    if let LinkCommand::Detach(_) = command {
        let link = only(links, "link", &which, label_of_link)?;
        let _done: Json =
            client.send("DELETE", &format!("/v1/links/{}", link.id), [].as_slice().into())?;
        return if output.json { output.json(&serde_json::json!({})) } else { Ok(()) };
    }
    if which != Which::All && links.is_empty() {
        return Err(CliError::Usage(format!("no link with {}", which.text())));
    }
    if output.json {
        let all = links.iter().map(bpftool::link).collect();
        return output.json(&bpftool::shown(all, which != Which::All));
    }
    links.iter().try_for_each(|link| print(link, output))
}

fn chosen(client: &Client, which: &Which) -> Result<Vec<LinkView>, CliError> {
    let links: Vec<LinkView> = client.get("/v1/links")?;
    let fits = |it: &LinkView| which.fits(it.id, &it.name, &it.tag, &it.pinned);
    Ok(links.into_iter().filter(fits).collect())
}

/// As bpftool prints it; below, what only Towpath knows.
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
