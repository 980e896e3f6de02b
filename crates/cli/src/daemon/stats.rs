//! `stats`: counters, or rates of each interval; `events`: the daemon's events.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value as Json;
use towpath_daemon::api::types::{PortStats, QueueView, StatsView, TrafficView};
use towpath_daemon::client::{Client, EventsEnd};
use towpath_daemon::natural::natural;

use super::{client, queues};
use crate::args::{EventsArgs, StatsArgs};
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::output::{Align, Output, Table, grouped};

/// Counters or rates.
pub(crate) fn stats(args: &StatsArgs, output: &mut Output) -> Result<(), CliError> {
    let client = client(&args.daemon)?;
    let mut before = read(&client, args)?;
    let Some(interval) = args.interval else {
        return if output.json { output.json(&before) } else { table(&before, None, output) };
    };
    let (mut left, interrupt) = (args.count.unwrap_or(u64::MAX), Interrupt::expect());
    while left > 0 {
        interrupt.sleep(Duration::from_secs_f64(interval));
        if interrupt.is_seen() {
            return Ok(());
        }
        let now = read(&client, args)?;
        let seconds = (now.time - before.time).max(1e-3);
        let rates = rates(&before, &now, seconds);
        if output.json {
            output.json(&rates)?;
        } else {
            table(&rates, Some(seconds), output)?;
        }
        output.flush()?;
        before = now;
        left -= 1;
    }
    Ok(())
}

fn read(client: &Client, args: &StatsArgs) -> Result<StatsView, CliError> {
    let mut stats: StatsView = client.get("/v1/stats")?;
    if let Some(port) = &args.port {
        if !stats.ports.contains_key(port) {
            let names = stats.ports.keys().map(String::as_str);
            let hint = towpath_bpf::suggest::among(port, names);
            return Err(CliError::Daemon(format!("no port \"{port}\"{hint} (ENODEV)")));
        }
        stats.ports.retain(|name, _| name == port);
        stats.queues.retain(|queue| queue.ports.contains(port));
        stats.dequeues.retain(|it| it.port == *port);
    }
    Ok(stats)
}

/// Counts for one second.
pub(crate) fn rates(before: &StatsView, now: &StatsView, seconds: f64) -> StatsView {
    let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds).round() as u64;
    let all = |now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>| {
        let each = now.iter();
        let each = each
            .map(|(name, &it)| (name.clone(), rate(it, before.get(name).copied().unwrap_or(0))));
        each.collect()
    };
    let none = PortStats::default();
    let ports = now.ports.iter().map(|(name, port)| {
        let old = before.ports.get(name).unwrap_or(&none);
        let rates = PortStats {
            rx_packets: rate(port.rx_packets, old.rx_packets),
            rx_bytes: rate(port.rx_bytes, old.rx_bytes),
            rx_missed: rate(port.rx_missed, old.rx_missed),
            tx_packets: rate(port.tx_packets, old.tx_packets),
            tx_bytes: rate(port.tx_bytes, old.tx_bytes),
            verdicts: all(&port.verdicts, &old.verdicts),
            drops: all(&port.drops, &old.drops),
            tx_drops: all(&port.tx_drops, &old.tx_drops),
        };
        (name.clone(), rates)
    });
    let queues = now.queues.iter().map(|queue| {
        let old = before.queues.iter().find(|old| old.map_id == queue.map_id);
        let old = old.cloned().unwrap_or_default();
        QueueView {
            enqueued: rate(queue.enqueued, old.enqueued),
            dequeued: rate(queue.dequeued, old.dequeued),
            drops_full: rate(queue.drops_full, old.drops_full),
            drops_rank: rate(queue.drops_rank, old.drops_rank),
            drops_program: rate(queue.drops_program, old.drops_program),
            ..queue.clone()
        }
    });
    StatsView {
        time: now.time,
        ports: ports.collect(),
        total: TrafficView {
            rx_packets: rate(now.total.rx_packets, before.total.rx_packets),
            rx_bytes: rate(now.total.rx_bytes, before.total.rx_bytes),
            tx_packets: rate(now.total.tx_packets, before.total.tx_packets),
            tx_bytes: rate(now.total.tx_bytes, before.total.tx_bytes),
            drops: rate(now.total.drops, before.total.drops),
        },
        frames: now.frames,
        queues: queues.collect(),
        dequeues: now.dequeues.clone(),
    }
}

fn table(stats: &StatsView, seconds: Option<f64>, output: &mut Output) -> Result<(), CliError> {
    let unit = if seconds.is_some() { "/s" } else { "" };
    let mut table = Table::new(&[
        ("port".to_owned(), Align::Left),
        (format!("rx frames{unit}"), Align::Right),
        (format!("rx bytes{unit}"), Align::Right),
        (format!("tx frames{unit}"), Align::Right),
        (format!("tx bytes{unit}"), Align::Right),
        (format!("verdicts and drops{unit}"), Align::Left),
    ]);
    let mut ports: Vec<_> = stats.ports.iter().collect();
    ports.sort_by(|(one, _), (other, _)| natural(one, other));
    for (name, port) in ports {
        let mut notes = Vec::new();
        let mut add = |prefix: &str, counts: &BTreeMap<String, u64>| {
            let seen = counts.iter().filter(|(_, count)| **count > 0);
            notes.extend(seen.map(|(name, count)| format!("{prefix}{name} {}", grouped(*count))));
        };
        add("", &port.verdicts);
        add("drop:", &port.drops);
        add("tx drop:", &port.tx_drops);
        if port.rx_missed > 0 {
            notes.push(format!("missed {}", grouped(port.rx_missed)));
        }
        table.row(vec![
            name.clone(),
            grouped(port.rx_packets),
            grouped(port.rx_bytes),
            grouped(port.tx_packets),
            grouped(port.tx_bytes),
            notes.join(", "),
        ]);
    }
    output.section(&table)?;
    queues::show(&stats.queues, &stats.dequeues, output)?;
    if seconds.is_none() {
        let it = &stats.frames;
        output.line(&format!(
            "  frames: {} received + {} created = {} delivered + {} dropped + {} freed + {} in \
             flight + {} in hand + {} missing",
            grouped(it.received),
            grouped(it.created),
            grouped(it.delivered),
            grouped(it.dropped),
            grouped(it.freed),
            grouped(it.in_flight),
            grouped(it.held),
            it.missing
        ))?;
    }
    Ok(())
}

/// Prints events as they happen.
pub(crate) fn events(args: &EventsArgs, output: &mut Output) -> Result<(), CliError> {
    let client = client(&args.daemon)?;
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut result = Ok(());
    let end = client.events("/v1/events", |_kind, event: Json| {
        let told = if output.json {
            output.json(&event)
        } else {
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            output.line(&format!("{}: {}", text("kind"), text("text")))
        };
        result = told.and_then(|()| output.flush());
        left = left.saturating_sub(1);
        result.is_ok() && left > 0
    })?;
    result?;
    match end {
        EventsEnd::Ended if args.count.is_some() => {
            Err(CliError::Daemon("the daemon ended".to_owned()))
        }
        _ => Ok(()),
    }
}
