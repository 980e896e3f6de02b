//! The views, each as a sheet.

use towpath_daemon::api::types::{LinkView, MapView, PortStats, PortView, ProgramView, WorkerView};

use super::reading::{Rates, Reading};
use super::sheet::{Cell, Column, Sheet, Tone, numbers, short, words};
use crate::daemon::workers::{mostly, percent, polls};

/// Choice of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Ports,
    Programs,
    Maps,
    Drops,
    Workers,
}

impl View {
    pub(super) const ALL: [View; 5] =
        [View::Ports, View::Programs, View::Maps, View::Drops, View::Workers];

    pub(super) fn title(self) -> &'static str {
        match self {
            View::Ports => "Ports",
            View::Programs => "Programs",
            View::Maps => "Maps",
            View::Drops => "Drops",
            View::Workers => "Workers",
        }
    }

    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            View::Ports => &PORTS,
            View::Programs => &PROGRAMS,
            View::Maps => &MAPS,
            View::Drops => &DROPS,
            View::Workers => &WORKERS,
        }
    }

    /// The column that rows are ordered by at first, and whether the largest comes first.
    pub(super) fn first_order(self) -> (usize, bool) {
        match self {
            View::Ports => (0, false),
            View::Programs => (4, true),
            View::Maps => (1, false),
            View::Drops => (3, true),
            View::Workers => (0, false),
        }
    }

    pub(super) fn sheet(self, now: &Reading, rates: &Rates) -> Sheet {
        let (rows, nothing) = match self {
            View::Ports => (ports(now, rates), "no ports: `towpath port add` makes one"),
            View::Programs => (programs(now, rates), "no programs: `towpath load` attaches one"),
            View::Maps => (maps(now, rates), "no maps"),
            View::Drops => (drops(now, rates), "nothing was dropped"),
            View::Workers => (workers(now, rates), "this daemon does not report its workers"),
        };
        Sheet { columns: self.columns(), rows, nothing }
    }
}

const PORTS: [Column; 10] = [
    words("PORT", 0),
    words("KIND", 6),
    words("STATE", 2),
    numbers("RX/s", 0),
    numbers("RX bit/s", 3),
    numbers("TX/s", 1),
    numbers("TX bit/s", 4),
    numbers("DROP/s", 1),
    words("MOSTLY", 5),
    numbers("RX", 7),
];
const PROGRAMS: [Column; 9] = [
    words("PROGRAM", 0),
    words("PORT", 1),
    words("HOOK", 4),
    numbers("PRIO", 5),
    numbers("RUNS/s", 0),
    words("EXEC", 3),
    words("MOSTLY", 2),
    numbers("RUNS", 6),
    numbers("FAULTS", 7),
];
const MAPS: [Column; 9] = [
    numbers("ID", 2),
    words("MAP", 0),
    words("TYPE", 3),
    numbers("ENTRIES", 0),
    numbers("MAX", 1),
    numbers("FULL", 1),
    numbers("NEW/s", 4),
    words("PROGRAMS", 5),
    words("PINNED", 6),
];
const DROPS: [Column; 5] = [
    words("PORT", 0),
    words("WAY", 2),
    words("REASON", 0),
    numbers("DROP/s", 0),
    numbers("DROPS", 1),
];

const WORKERS: [Column; 7] = [
    numbers("WORKER", 0),
    numbers("CPU", 4),
    numbers("BUSY", 0),
    numbers("FRAMES/s", 1),
    words("MOSTLY", 2),
    numbers("QUEUES", 3),
    words("POLLS", 5),
];

fn ports(now: &Reading, rates: &Rates) -> Vec<Vec<Cell>> {
    let none = PortStats::default();
    let row = |port: &PortView| {
        let name = port.state.name.as_str();
        let rate = rates.stats.ports.get(name).unwrap_or(&none);
        let total = now.stats.ports.get(name).unwrap_or(&none);
        let reasons = || rate.drops.iter().chain(&rate.tx_drops);
        let dropped = reasons().map(|(_, count)| count).sum::<u64>() + rate.rx_missed;
        let most = reasons().filter(|(_, count)| **count > 0).max_by_key(|(_, count)| **count);
        vec![
            Cell::text(name),
            Cell::text(&port.state.kind),
            state(port),
            counted(rate.rx_packets),
            counted(rate.rx_bytes * 8),
            counted(rate.tx_packets),
            counted(rate.tx_bytes * 8),
            warned(counted(dropped), dropped > 0),
            Cell::text(most.map_or(String::new(), |(reason, _)| reason.clone())),
            counted(total.rx_packets),
        ]
    };
    now.status.ports.iter().map(row).collect()
}

fn state(port: &PortView) -> Cell {
    let (text, tone) = match port {
        PortView { failure: Some(_), .. } => ("failed", Tone::Bad),
        PortView { finished: true, .. } => ("finished", Tone::Faint),
        port if !port.state.up => ("down", Tone::Faint),
        PortView { link: false, .. } => ("no link", Tone::Bad),
        _ => ("up", Tone::Good),
    };
    Cell::text(text).toned(tone)
}

/// Programs on hooks, and those that are only loaded.
fn programs(now: &Reading, rates: &Rates) -> Vec<Vec<Cell>> {
    let attached = now.status.links.iter().map(|link| attached(link, rates));
    let is_idle =
        |program: &&ProgramView| now.status.links.iter().all(|link| link.prog_id != program.id);
    let idle = now.programs.iter().filter(is_idle).map(|program| {
        let mut row = vec![Cell::default(); PROGRAMS.len()];
        row[0] = Cell::text(&program.name);
        row[1] = Cell::text("not attached").toned(Tone::Faint);
        row[4] = counted(0);
        row[5] = Cell::text(&program.exec);
        row
    });
    attached.chain(idle).collect()
}

fn attached(link: &LinkView, rates: &Rates) -> Vec<Cell> {
    let runs = rates.runs.get(&link.id).copied().unwrap_or(0.0);
    let all = link.verdicts.values().sum::<u64>();
    let most = link.verdicts.iter().filter(|(_, count)| **count > 0);
    let most = most.max_by_key(|(_, count)| **count).map(|(verdict, count)| {
        format!("{verdict} {}%", (*count as f64 * 100.0 / all.max(1) as f64).round())
    });
    vec![
        Cell::text(&link.name),
        Cell::text(&link.port),
        Cell::text(link.hook.to_string()),
        Cell::number(f64::from(link.prio), link.prio.to_string()),
        Cell::number(runs, short(runs)),
        Cell::text(&link.exec).toned(if link.fallback.is_some() { Tone::Bad } else { Tone::Plain }),
        Cell::text(most.unwrap_or_default()),
        counted(link.runs),
        warned(counted(link.faults), link.faults > 0),
    ]
}

fn maps(now: &Reading, rates: &Rates) -> Vec<Vec<Cell>> {
    let row = |map: &MapView| {
        let programs = now.programs.iter().filter(|it| map.prog_ids.contains(&it.id));
        let programs: Vec<&str> = programs.map(|it| it.name.as_str()).collect();
        let (entries, full) = match map.entries {
            Some(entries) => {
                let full = entries as f64 * 100.0 / f64::from(map.max_entries.max(1));
                let cell = Cell::number(full, format!("{full:.0}%"));
                // Arrays are always full.
                let is_filling = full >= FULL && !map.r#type.ends_with("array");
                (counted(entries), warned(cell, is_filling))
            }
            None => (Cell::number(-1.0, "-".to_owned()), Cell::number(-1.0, "-".to_owned())),
        };
        let change = rates.entries.get(&map.id).copied().unwrap_or(0.0);
        vec![
            Cell::number(f64::from(map.id), map.id.to_string()),
            Cell::text(&map.name),
            Cell::text(&map.r#type),
            entries,
            counted(u64::from(map.max_entries)),
            full,
            Cell::number(change, short(change)),
            Cell::text(programs.join(",")),
            Cell::text(map.pinned.join(",")),
        ]
    };
    now.maps.iter().map(row).collect()
}

fn drops(now: &Reading, rates: &Rates) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    let none = PortStats::default();
    for (port, stats) in &now.stats.ports {
        let rate = rates.stats.ports.get(port).unwrap_or(&none);
        let mut add = |way: &str, reason: &str, count: u64, rate: u64| {
            if count > 0 {
                rows.push(vec![
                    Cell::text(port),
                    Cell::text(way),
                    Cell::text(reason),
                    warned(counted(rate), rate > 0),
                    counted(count),
                ]);
            }
        };
        add("rx", "missed", stats.rx_missed, rate.rx_missed);
        for (reason, count) in &stats.drops {
            add("rx", reason, *count, rate.drops.get(reason).copied().unwrap_or(0));
        }
        for (reason, count) in &stats.tx_drops {
            add("tx", reason, *count, rate.tx_drops.get(reason).copied().unwrap_or(0));
        }
    }
    rows
}

fn workers(now: &Reading, rates: &Rates) -> Vec<Vec<Cell>> {
    let row = |worker: &WorkerView| {
        let (busy, frames) = rates
            .workers
            .get(&worker.worker)
            .copied()
            .unwrap_or((worker.busy, worker.frames_per_second));
        let queues = worker.queues.iter().map(|port| port.queues.len() as u64).sum();
        let cpu = worker.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string());
        vec![
            Cell::number(worker.worker as f64, worker.worker.to_string()).toned(Tone::Plain),
            Cell::number(worker.cpu.map_or(-1.0, |cpu| cpu as f64), cpu),
            warned(Cell::number(busy, percent(busy)), busy >= BUSY),
            Cell::number(frames, short(frames)),
            Cell::text(mostly(worker)),
            counted(queues),
            Cell::text(polls(worker)),
        ]
    };
    now.status.worker_loads.iter().map(row).collect()
}

/// A count, shortened.
fn counted(count: u64) -> Cell {
    Cell::number(count as f64, short(count as f64))
}

fn warned(cell: Cell, is_bad: bool) -> Cell {
    if is_bad { cell.toned(Tone::Bad) } else { cell }
}

/// Share of its time from which a busy worker is marked: it has hardly any left.
const BUSY: f64 = 0.9;
/// Per cent of a map's capacity at which it is about to refuse elements.
const FULL: f64 = 90.0;
