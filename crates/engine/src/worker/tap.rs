//! The workers' side of taps: copies of a burst before its programs and after.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use towpath_xdp::verdict::Target;
use towpath_xdp::{Action, Burst, Frame};

use super::judge::Judge;
use crate::hook::Link;
use crate::snapshot::Slot;
use crate::tap::{ALL_VERDICTS, Batch, Record, Tap, TappedVerdict};

/// Copies of the burst in hand, for each tap of its port.
#[derive(Default)]
pub(super) struct Copies {
    pending: Vec<Pending>,
}

/// Copies for one tap.
#[derive(Default)]
struct Pending {
    /// Number of the burst's first frame.
    first: u64,
    /// What arrived, by place in the burst; empty when that is not wanted.
    entries: Vec<Record>,
    exits: Vec<Record>,
    bytes: Vec<u8>,
    /// Which frames have a verdict that is wanted.
    is_wanted: Vec<bool>,
}

impl Copies {
    /// Frames have arrived; nothing has seen them yet.
    #[cold]
    pub(super) fn enter(&mut self, slot: &Slot, frames: &[Frame]) {
        self.pending.resize_with(slot.taps.len(), Pending::default);
        for (tap, pending) in self.of_port(slot) {
            pending.enter(tap, frames, None);
        }
    }

    /// All frames are judged, by this burst's verdicts; without it they pass.
    #[cold]
    pub(super) fn leave(&mut self, slot: &Slot, frames: &[Frame], burst: Option<&Burst>) {
        for (place, frame) in frames.iter().enumerate() {
            self.leave_one(slot, place, frame, burst.map(|burst| (burst, place)));
        }
        self.finish(slot);
    }

    /// The frame that arrived at `place` is judged, as frame number so and so of a program's burst.
    #[cold]
    pub(super) fn leave_one(
        &mut self,
        slot: &Slot,
        place: usize,
        frame: &Frame,
        judged: Option<(&Burst, usize)>,
    ) {
        let now = now_ns();
        for (tap, pending) in self.of_port(slot) {
            pending.leave(tap, place, frame, judged, None, now);
        }
    }

    /// All frames of the burst are judged.
    #[cold]
    pub(super) fn finish(&mut self, slot: &Slot) {
        for (tap, pending) in self.of_port(slot) {
            pending.send(tap);
        }
    }

    /// Taps that see the port, and not single programs on it, with what is kept for each.
    fn of_port<'a>(
        &'a mut self,
        slot: &'a Slot,
    ) -> impl Iterator<Item = (&'a Arc<Tap>, &'a mut Pending)> {
        let all = slot.taps.iter().zip(&mut self.pending);
        all.filter(|(tap, _)| tap.options.links.is_empty())
    }
}

impl Judge {
    /// Runs one program as [`Judge::run`] does, in sight of the port's taps.
    #[inline]
    pub(super) fn run_seen(
        &mut self,
        slot: &Slot,
        link: &Link,
        frames: &mut [Frame],
        burst: &mut Burst,
    ) -> [u64; 5] {
        if slot.taps.is_empty() {
            return self.run(link, frames, burst);
        }
        self.run_tapped(slot, link, frames, burst)
    }

    #[cold]
    fn run_tapped(
        &mut self,
        slot: &Slot,
        link: &Link,
        frames: &mut [Frame],
        burst: &mut Burst,
    ) -> [u64; 5] {
        let watching = |tap: &&Arc<Tap>| tap.options.links.contains(&link.id);
        let mut watched: Vec<(&Arc<Tap>, Pending)> =
            slot.taps.iter().filter(watching).map(|tap| (tap, Pending::default())).collect();
        for (tap, pending) in &mut watched {
            pending.enter(tap, frames, Some(link.id));
        }
        let actions = self.run(link, frames, burst);
        let now = now_ns();
        for (tap, pending) in &mut watched {
            for (place, frame) in frames.iter().enumerate() {
                pending.leave(tap, place, frame, Some((burst, place)), Some(link.id), now);
            }
            pending.send(tap);
        }
        actions
    }
}

impl Pending {
    fn enter(&mut self, tap: &Tap, frames: &[Frame], link: Option<u32>) {
        self.first = tap.number(frames.len());
        self.is_wanted.clear();
        self.is_wanted.resize(frames.len(), false);
        if tap.options.entry {
            let now = now_ns();
            for (place, frame) in frames.iter().enumerate() {
                let record = self.copy(tap, place, frame, link, now);
                self.entries.push(record);
            }
        }
    }

    fn leave(
        &mut self,
        tap: &Tap,
        place: usize,
        frame: &Frame,
        judged: Option<(&Burst, usize)>,
        link: Option<u32>,
        now: u64,
    ) {
        let action = judged.map_or(Action::Pass, |(burst, index)| burst.action(index));
        if tap.options.verdicts >> action as u32 & 1 == 0 {
            return;
        }
        self.is_wanted[place] = true;
        if tap.options.exit {
            let verdict = match judged {
                Some((burst, index)) => {
                    TappedVerdict { returned: burst.returned(index), target: burst.target(index) }
                }
                None => TappedVerdict { returned: Action::Pass as u32, target: None::<Target> },
            };
            let record = self.copy(tap, place, frame, link, now);
            self.exits.push(Record { verdict: Some(verdict), ..record });
        }
    }

    fn copy(
        &mut self,
        tap: &Tap,
        place: usize,
        frame: &Frame,
        link: Option<u32>,
        timestamp_ns: u64,
    ) -> Record {
        let start = self.bytes.len();
        let mut left = tap.options.snaplen;
        for piece in frame.pieces() {
            let taken = piece.len().min(left);
            self.bytes.extend_from_slice(&piece[..taken]);
            left -= taken;
        }
        Record {
            number: self.first + place as u64,
            timestamp_ns,
            link,
            queue: frame.rx.queue_index,
            len: frame.len() as u32,
            verdict: None,
            start,
            end: self.bytes.len(),
        }
    }

    /// Sends what is wanted.
    fn send(&mut self, tap: &Tap) {
        if tap.options.verdicts & ALL_VERDICTS != ALL_VERDICTS {
            let (is_wanted, first) = (&self.is_wanted, self.first);
            self.entries.retain(|record| is_wanted[(record.number - first) as usize]);
        }
        let mut records = std::mem::take(&mut self.entries);
        records.append(&mut self.exits);
        let bytes = std::mem::take(&mut self.bytes);
        if !records.is_empty() {
            tap.send(Batch { records, bytes });
        }
    }
}

/// The time, in nanoseconds since 1970.
fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}
