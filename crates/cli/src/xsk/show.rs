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
    let with_udp = status.sockets.iter().any(|socket| !socket.udp.is_empty());
    let mut heads = vec![
        head("socket", Align::Right),
        head("port", Align::Left),
        head("queue", Align::Right),
        head("in maps", Align::Left),
        head("rx", Align::Right),
        head("tx", Align::Right),
        head("fill", Align::Right),
        head("completion", Align::Right),
        head("statistics", Align::Left),
    ];
    if with_udp {
        heads.insert(UDP_COLUMN, head("udp", Align::Left));
    }
    let mut table = Table::new(&heads);
    for socket in &status.sockets {
        let mut cells = row(socket);
        if with_udp {
            cells.insert(UDP_COLUMN, socket.udp.join(", "));
        }
        table.row(cells);
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

/// Place of the column of UDP addresses, if there are any.
const UDP_COLUMN: usize = 4;
