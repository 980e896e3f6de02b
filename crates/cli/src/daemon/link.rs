//! `link show` and `link detach`.

use serde_json::Value as Json;
use towpath_daemon::api::types::LinkView;

use super::client;
use super::which::{Which, only};
use crate::args::LinkCommand;
use crate::error::CliError;
use crate::output::{Align, Output, Table, grouped};

/// Lists or detaches links.
pub(crate) fn link(command: &LinkCommand, output: &mut Output) -> Result<(), CliError> {
    let (LinkCommand::Show(args) | LinkCommand::Detach(args)) = command;
    let which = Which::parse(&args.which)?;
    let client = client(&args.daemon)?;
    let links: Vec<LinkView> = client.get("/v1/links")?;
    let fits = |it: &LinkView| which.fits(it.id, &it.name, &it.tag);
    let links: Vec<LinkView> = links.into_iter().filter(fits).collect();
    if let LinkCommand::Detach(_) = command {
        let link = only(links, "link", &which)?;
        let _done: Json =
            client.send("DELETE", &format!("/v1/links/{}", link.id), [].as_slice().into())?;
        return if output.json { output.json(&serde_json::json!({})) } else { Ok(()) };
    }
    if which != Which::All && links.is_empty() {
        return Err(CliError::Usage(format!("no link with {}", which.text())));
    }
    if output.json {
        return output.json(&links);
    }
    let mut table = Table::new(&[
        ("id", Align::Right),
        ("port", Align::Left),
        ("hook", Align::Left),
        ("prio", Align::Right),
        ("prog", Align::Right),
        ("name", Align::Left),
        ("tag", Align::Left),
        ("chain actions", Align::Left),
        ("frames", Align::Right),
    ]);
    for link in &links {
        table.row(vec![
            link.id.to_string(),
            link.port.clone(),
            format!("{:?}", link.hook).to_lowercase(),
            link.prio.to_string(),
            link.prog_id.to_string(),
            link.name.clone(),
            link.tag.clone(),
            link.actions.join(","),
            grouped(link.runs),
        ]);
    }
    output.section(&table)
}
