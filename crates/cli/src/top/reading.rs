//! The daemon's state at one moment, and the changes since the previous one.

use std::collections::BTreeMap;

use towpath_daemon::api::types::{MapView, ProgramView, StatsView, StatusView};
use towpath_daemon::client::{Client, ClientError};

use crate::daemon::rates;

/// Answers of the daemon.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub(super) status: StatusView,
    pub(super) stats: StatsView,
    pub(super) programs: Vec<ProgramView>,
    pub(super) maps: Vec<MapView>,
}

impl Reading {
    /// Requests all of these from the daemon.
    pub(super) fn take(client: &Client) -> Result<Reading, ClientError> {
        Ok(Reading {
            status: client.get("/v1/status")?,
            stats: client.get("/v1/stats")?,
            programs: client.get("/v1/programs")?,
            maps: client.get("/v1/maps")?,
        })
    }
}

/// Counts for one second.
#[derive(Debug, Clone, Default)]
pub(super) struct Rates {
    /// Rates of the ports' counters.
    pub(super) stats: StatsView,
    /// Frames that programs judged, by link id.
    pub(super) runs: BTreeMap<u32, f64>,
    /// Share of the time in which workers were busy, and their frames, by worker.
    pub(super) workers: BTreeMap<usize, (f64, f64)>,
    /// Elements added to maps minus those removed, by map id.
    pub(super) entries: BTreeMap<u32, f64>,
}

impl Rates {
    /// Changes between two readings.
    pub(super) fn between(before: &Reading, now: &Reading) -> Rates {
        let seconds = (now.stats.time - before.stats.time).max(1e-3);
        if before.status.pid != now.status.pid {
            // The daemon was restarted, and its counters with it.
            return Rates::default();
        }
        let links = now.status.links.iter().filter_map(|link| {
            let old = before.status.links.iter().find(|it| it.id == link.id)?;
            Some((link.id, link.runs.saturating_sub(old.runs) as f64 / seconds))
        });
        let maps = now.maps.iter().filter_map(|map| {
            let old = before.maps.iter().find(|it| it.id == map.id)?;
            Some((map.id, (map.entries? as f64 - old.entries? as f64) / seconds))
        });
        let workers = now.status.worker_loads.iter().filter_map(|worker| {
            let mut all = before.status.worker_loads.iter();
            let old = all.find(|it| it.worker == worker.worker)?;
            let busy = (worker.busy_seconds - old.busy_seconds) / seconds;
            let frames = worker.frames.saturating_sub(old.frames) as f64 / seconds;
            Some((worker.worker, (busy.clamp(0.0, 1.0), frames)))
        });
        Rates {
            workers: workers.collect(),
            stats: rates(&before.stats, &now.stats, seconds),
            runs: links.collect(),
            entries: maps.collect(),
        }
    }

    /// Frames received, sent and dropped by all ports together, each once.
    pub(super) fn total(&self) -> Total {
        let total = &self.stats.total;
        Total {
            rx: total.rx_packets,
            rx_bits: total.rx_bytes * 8,
            tx: total.tx_packets,
            tx_bits: total.tx_bytes * 8,
            drops: total.drops,
        }
    }
}

/// Traffic of all ports in one second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) rx: u64,
    pub(super) rx_bits: u64,
    pub(super) tx: u64,
    pub(super) tx_bits: u64,
    pub(super) drops: u64,
}
