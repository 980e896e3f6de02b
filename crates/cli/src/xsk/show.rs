//! `xsk show`: sockets, rings, statistics.

use towpath_daemon::api::types::{XskRing, XskStatus, XskView};

use crate::args::PlainArgs;
use crate::daemon::client;
use crate::error::CliError;
use crate::output::{Align, Output, Table, grouped};

/// Prints a line for each socket.
pub(super) fn show(args: &PlainArgs, output: &mut Output) -> Result<(), CliError> {
    let status: XskStatus = client(&args.daemon)?.get("/v1/xsk")?;
    if output.json {
        return output.json(&status);
    }
    let head = |name: &str, align| (name.to_owned(), align);
    let mut table = Table::new(&[
        head("socket", Align::Right),
        head("port", Align::Left),
        head("queue", Align::Right),
        head("in maps", Align::Left),
        head("rx", Align::Right),
        head("tx", Align::Right),
        head("fill", Align::Right),
        head("completion", Align::Right),
        head("statistics", Align::Left),
    ]);
    for socket in &status.sockets {
        table.row(row(socket));
    }
    output.section(&table)?;
    output.line(&format!("  applications get sockets at {}", status.socket))
}

fn row(socket: &XskView) -> Vec<String> {
    let ring = |ring: &Option<XskRing>| match ring {
        Some(XskRing { entries, level }) => format!("{level}/{entries}"),
        None => "-".to_owned(),
    };
    let counted = socket.statistics.iter().filter(|(_, count)| **count > 0);
    let statistics: Vec<_> =
        counted.map(|(name, count)| format!("{name} {}", grouped(*count))).collect();
    vec![
        socket.id.to_string(),
        socket.port.clone().unwrap_or_else(|| "-".to_owned()),
        socket.queue.map_or("-".to_owned(), |queue| queue.to_string()),
        socket.maps.join(", "),
        ring(&socket.rx),
        ring(&socket.tx),
        ring(&socket.fill),
        ring(&socket.completion),
        statistics.join(", "),
    ]
}
