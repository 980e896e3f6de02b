//! Records that programs send through ring buffers and perf events, consumed and counted.
//!
//! A ring without a reader fills up, and then the program behaves as if its reader had died; so the
//! rings are emptied between bursts.

use std::collections::BTreeMap;

use serde::Serialize;
use towpath_maps::MapSet;

use crate::error::CliError;
use crate::output::{Align, Output, Table, grouped, in_bytes};

/// Counters by map name.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Events {
    maps: BTreeMap<String, Count>,
}

#[derive(Debug, Default, Serialize)]
struct Count {
    records: u64,
    bytes: u64,
    lost: u64,
}

impl Events {
    /// Opens the perf events of all CPUs; before this, programs get an error for them.
    pub(crate) fn open(maps: &MapSet) {
        for perf in maps.maps().iter().filter_map(|map| map.perf()) {
            perf.open_all(PERF_RING_BYTES);
        }
    }

    /// Takes out and counts all records.
    pub(crate) fn drain(&mut self, maps: &MapSet) {
        for map in maps.maps() {
            if map.ringbuf().is_none() && map.perf().is_none() {
                continue;
            }
            let count = self.maps.entry(map.name().to_owned()).or_default();
            map.take_records(|record| count.add(record.len()));
            if let Some(perf) = map.perf() {
                count.lost = (0..perf.slots()).map(|slot| perf.lost(slot)).sum();
            }
        }
    }

    /// Whether no map sends records.
    pub(crate) fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    /// A table of the counters.
    pub(crate) fn print(&self, output: &mut Output) -> Result<(), CliError> {
        if self.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(&[
            ("sent through", Align::Left),
            ("records", Align::Right),
            ("bytes", Align::Right),
            ("lost", Align::Right),
        ]);
        for (name, Count { records, bytes, lost }) in &self.maps {
            table.row(vec![name.clone(), grouped(*records), in_bytes(*bytes), grouped(*lost)]);
        }
        output.line("")?;
        output.table(&table)
    }
}

impl Count {
    fn add(&mut self, bytes: usize) {
        self.records += 1;
        self.bytes += bytes as u64;
    }
}

/// Room for the samples of one burst: 64 frames of 64 KiB each, and the records around them.
const PERF_RING_BYTES: usize = 8 << 20;
