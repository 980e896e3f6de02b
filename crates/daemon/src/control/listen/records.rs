//! Records of a ring buffer, or samples of a perf event array, for one reader.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use towpath_bpf::btf::{Btf, TypeId};
use towpath_maps::perf::PerfEventArray;
use towpath_maps::{Map, typed};
use towpath_objects::MapObject;

use super::{event, lost};
use crate::model::clock::wall_clock;
use crate::model::globals::hex;
use crate::model::messages::RecordView;

/// Ids of the maps that are being read. Reading consumes records, so each map has one reader at
/// most.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readers(Arc<Mutex<BTreeSet<u32>>>);

/// The exclusive right to read a map.
#[derive(Debug)]
pub(crate) struct Claim {
    readers: Readers,
    map: u32,
}

impl Readers {
    /// The right to read a map; `None` if another reader has it.
    pub(crate) fn claim(&self, map: u32) -> Option<Claim> {
        let is_free = self.0.lock().insert(map);
        is_free.then(|| Claim { readers: self.clone(), map })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Claim { readers, map } = self;
        readers.0.lock().remove(map);
    }
}

/// Parameters of a reader.
#[derive(Debug)]
pub(crate) struct RecordsWanted {
    /// The only slot of a perf event array to be read; unset for all.
    pub(crate) cpu: Option<u32>,
    /// The type at the start of each record.
    pub(crate) ty: Option<(Arc<Btf>, TypeId)>,
    /// Number of records after which the reader ends.
    pub(crate) count: Option<u64>,
}

/// Starts a reader and returns its server-sent events. It ends when the receiver is dropped, after
/// `count` records, or with the map.
///
/// # Errors
///
/// Fails if the thread cannot be started.
pub(crate) fn start(
    map: &Arc<MapObject>,
    wanted: RecordsWanted,
    claim: Claim,
) -> std::io::Result<Receiver<Bytes>> {
    let (sender, receiver) = channel(CHUNKS_MAX);
    // A reader does not keep its map alive.
    let weak = Arc::downgrade(map);
    let left = wanted.count.unwrap_or(u64::MAX);
    let mut reader = Reader { wanted, left, number: 0, lost: Vec::new() };
    reader.open(map.map());
    let body = move || {
        reader.pump(&weak, &sender);
        if let Some(map) = weak.upgrade() {
            reader.close(map.map());
        }
        drop(claim);
    };
    let thread = std::thread::Builder::new().name("event_pipe".to_owned()).spawn(body);
    thread.map(|_detached| receiver)
}

struct Reader {
    wanted: RecordsWanted,
    /// Number of records until the reader ends.
    left: u64,
    /// Number of the next record.
    number: u64,
    /// Numbers of lost records that have been reported, by slot.
    lost: Vec<u64>,
}

impl Reader {
    fn open(&mut self, map: &Map) {
        if let Some(perf) = map.perf() {
            for slot in self.slots(perf) {
                // Without memory for its ring, the slot delivers no samples.
                let _no_memory = perf.open(slot, PERF_RING_BYTES);
            }
        }
        // Records lost before the start are not reported.
        self.lost = losses(map);
    }

    fn close(&self, map: &Map) {
        if let Some(perf) = map.perf() {
            self.slots(perf).for_each(|slot| perf.close(slot));
        }
    }

    fn slots(&self, perf: &PerfEventArray) -> impl Iterator<Item = u32> + use<> {
        let all = 0..perf.slots();
        let cpu = self.wanted.cpu;
        all.filter(move |slot| cpu.is_none_or(|cpu| cpu == *slot))
    }

    fn pump(&mut self, map: &Weak<MapObject>, sender: &Sender<Bytes>) {
        let mut pause = PAUSE_MIN;
        while self.left > 0 && !sender.is_closed() {
            let Some(map) = map.upgrade() else { return };
            let before = self.number;
            let text = self.read(map.map());
            drop(map);
            if !text.is_empty() && sender.blocking_send(text.into()).is_err() {
                return;
            }
            match self.number - before {
                // A full chunk: there may be more records.
                BURST.. => continue,
                0 => pause = (pause * 2).min(PAUSE_MAX),
                _ => pause = PAUSE_MIN,
            }
            std::thread::sleep(pause);
        }
    }

    /// Reads the next records, and the number lost since the last call.
    fn read(&mut self, map: &Map) -> String {
        let mut text = String::new();
        let mut room = BURST.min(self.left);
        if let Some(ring) = map.ringbuf() {
            while room > 0 {
                let Some(record) = ring.read() else { break };
                self.write(&mut text, None, &record);
                room -= 1;
            }
        }
        if let Some(perf) = map.perf() {
            for slot in self.slots(perf) {
                while room > 0 {
                    let Some(sample) = perf.read(slot) else { break };
                    self.write(&mut text, Some(slot), &sample);
                    room -= 1;
                }
            }
        }
        let is_perf = map.perf().is_some();
        for (slot, (now, told)) in (0..).zip(losses(map).into_iter().zip(&mut self.lost)) {
            if now > *told {
                lost(&mut text, now - *told, is_perf.then_some(slot));
                *told = now;
            }
        }
        text
    }

    fn write(&mut self, text: &mut String, cpu: Option<u32>, data: &[u8]) {
        let typed = self.wanted.ty.as_ref();
        let view = RecordView {
            number: self.number,
            time: wall_clock().as_secs_f64(),
            cpu,
            data: hex(data),
            value: typed.and_then(|(btf, id)| typed::type_to_json(btf, *id, data)),
        };
        event(text, Some(self.number), "record", &view);
        self.number += 1;
        self.left -= 1;
    }
}

/// Numbers of lost records by slot; a ring buffer has one slot.
fn losses(map: &Map) -> Vec<u64> {
    match (map.ringbuf(), map.perf()) {
        (Some(ring), _) => vec![ring.lost()],
        (None, Some(perf)) => (0..perf.slots()).map(|slot| perf.lost(slot)).collect(),
        (None, None) => Vec::new(),
    }
}

/// Records per chunk.
const BURST: u64 = 256;
/// Chunks queued for the API.
const CHUNKS_MAX: usize = 16;
/// Size in bytes of the ring for each CPU's samples.
const PERF_RING_BYTES: usize = 1 << 20;
const _: () = assert!(PERF_RING_BYTES.is_power_of_two(), "perf_mmap wants it");
/// Shortest and longest pause between two reads of the map.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);
const _: () = assert!(PAUSE_MIN.as_nanos() < PAUSE_MAX.as_nanos());
