//! Tables of queues of packets: their fill level, the packets' waiting times and drops, and the
//! programs that take packets out.

use towpath_daemon::api::types::{DequeueView, QueueView};

use crate::error::CliError;
use crate::output::{Align, Output, Table, grouped};

/// Both as tables; nothing when there are none.
pub(super) fn show(
    queues: &[QueueView],
    ports: &[DequeueView],
    output: &mut Output,
) -> Result<(), CliError> {
    if !queues.is_empty() {
        output.section(&queue_table(queues))?;
    }
    if !ports.is_empty() {
        output.section(&port_table(ports))?;
    }
    Ok(())
}

fn queue_table(queues: &[QueueView]) -> Table {
    let mut table = Table::new(&[
        ("queue", Align::Left),
        ("map", Align::Right),
        ("depth", Align::Right),
        ("bytes", Align::Right),
        ("wait p50", Align::Right),
        ("wait p99", Align::Right),
        ("in", Align::Right),
        ("out", Align::Right),
        ("drops", Align::Left),
        ("ports", Align::Left),
    ]);
    for queue in queues {
        let drops = [
            ("full", queue.drops_full),
            ("rank", queue.drops_rank),
            ("program", queue.drops_program),
        ];
        let drops = drops.iter().filter(|(_, count)| *count > 0);
        let drops: Vec<_> =
            drops.map(|(why, count)| format!("{why} {}", grouped(*count))).collect();
        table.row(vec![
            queue.name.clone(),
            queue.map_id.to_string(),
            format!("{}/{}", grouped(queue.depth), grouped(queue.max_entries.into())),
            grouped(queue.bytes),
            time(queue.wait_p50_ns),
            time(queue.wait_p99_ns),
            grouped(queue.enqueued),
            grouped(queue.dequeued),
            drops.join(", "),
            queue.ports.join(", "),
        ]);
    }
    table
}

fn port_table(ports: &[DequeueView]) -> Table {
    let mut table = Table::new(&[
        ("port", Align::Left),
        ("dequeue program", Align::Left),
        ("worker", Align::Right),
        ("limit bytes", Align::Right),
        ("on their way", Align::Right),
        ("kept", Align::Right),
    ]);
    for port in ports {
        let limit = match port.limit_bytes {
            0 => "none".to_owned(),
            bytes => grouped(bytes),
        };
        table.row(vec![
            port.port.clone(),
            port.program.clone(),
            port.worker.to_string(),
            limit,
            grouped(port.in_flight_bytes),
            grouped(port.kept),
        ]);
    }
    table
}

/// A time in the unit that leaves few digits.
fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{} us", ns / 1000),
        _ => format!("{} ms", ns / 1_000_000),
    }
}
