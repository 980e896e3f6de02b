//! The workers' side of taps: copies of a burst before and after a hook's programs.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use towpath_xdp::{Action, Burst, Frame};

use crate::chain::Hook;
use crate::tap::{ALL_VERDICTS, Batch, Record, Tap, TappedVerdict};

/// Copies of the present burst, for each tap of a hook.
pub(super) struct Copies {
    /// Number of the worker.
    worker: u32,
    pending: Vec<Pending>,
}

/// Copies for one tap.
#[derive(Default)]
struct Pending {
    /// Number of the burst's first frame.
    first: u64,
    /// Copies made before the programs, by index in the burst; empty if not requested.
    entries: Vec<Record>,
    exits: Vec<Record>,
    bytes: Vec<u8>,
    /// By frame: whether its verdict is among those to copy.
    is_wanted: Vec<bool>,
}

/// The point at which a tap copies frames.
#[derive(Clone, Copy)]
struct Point {
    hook: Hook,
    link: Option<u32>,
    worker: u32,
}

impl Copies {
    pub(super) fn new(worker: usize) -> Copies {
        Copies { worker: worker as u32, pending: Vec::new() }
    }

    /// Copies frames before the hook's first program.
    #[cold]
    pub(super) fn enter(&mut self, hook: Hook, taps: &[Arc<Tap>], frames: &[Frame]) {
        self.pending.resize_with(self.pending.len().max(taps.len()), Pending::default);
        let place = self.place(hook);
        for (tap, pending) in self.of_hook(taps) {
            pending.enter(tap, frames, place);
        }
    }

    /// Copies frames after the hook's programs, with the verdicts of `burst`; without it, all pass.
    #[cold]
    pub(super) fn leave(
        &mut self,
        hook: Hook,
        taps: &[Arc<Tap>],
        frames: &[Frame],
        burst: Option<&Burst>,
    ) {
        for (place, frame) in frames.iter().enumerate() {
            self.leave_one(hook, taps, place, frame, burst.map(|burst| (burst, place)));
        }
        self.finish(taps);
    }

    /// Records the verdict of frame `index`.
    #[cold]
    pub(super) fn leave_one(
        &mut self,
        hook: Hook,
        taps: &[Arc<Tap>],
        index: usize,
        frame: &Frame,
        judged: Option<(&Burst, usize)>,
    ) {
        let (now, place) = (now_ns(), self.place(hook));
        for (tap, pending) in self.of_hook(taps) {
            pending.leave(tap, index, frame, judged, place, now);
        }
    }

    /// Sends the copies, after all frames of the burst are judged.
    #[cold]
    pub(super) fn finish(&mut self, taps: &[Arc<Tap>]) {
        for (tap, pending) in self.of_hook(taps) {
            pending.send(tap);
        }
    }

    fn place(&self, hook: Hook) -> Point {
        Point { hook, link: None, worker: self.worker }
    }

    /// Taps of the hook as a whole, with their pending copies.
    fn of_hook<'a>(
        &'a mut self,
        taps: &'a [Arc<Tap>],
    ) -> impl Iterator<Item = (&'a Arc<Tap>, &'a mut Pending)> {
        let all = taps.iter().zip(&mut self.pending);
        all.filter(|(tap, _)| tap.options.links.is_empty())
    }
}

/// Copies for taps of a single program of a hook.
pub(super) struct Watched<'a> {
    place: Point,
    taps: Vec<(&'a Arc<Tap>, Pending)>,
}

impl<'a> Watched<'a> {
    /// Copies frames before the program.
    pub(super) fn enter(
        copies: &Copies,
        hook: Hook,
        taps: &'a [Arc<Tap>],
        link: u32,
        frames: &[Frame],
    ) -> Watched<'a> {
        let watching = |tap: &&Arc<Tap>| tap.options.links.contains(&link);
        let mut taps: Vec<(&Arc<Tap>, Pending)> =
            taps.iter().filter(watching).map(|tap| (tap, Pending::default())).collect();
        let place = Point { link: Some(link), ..copies.place(hook) };
        for (tap, pending) in &mut taps {
            pending.enter(tap, frames, place);
        }
        Watched { place, taps }
    }

    /// Copies frames after the program, and sends the copies.
    pub(super) fn leave(self, frames: &[Frame], burst: &Burst) {
        let now = now_ns();
        for (tap, mut pending) in self.taps {
            for (index, frame) in frames.iter().enumerate() {
                pending.leave(tap, index, frame, Some((burst, index)), self.place, now);
            }
            pending.send(tap);
        }
    }
}

impl Pending {
    fn enter(&mut self, tap: &Tap, frames: &[Frame], place: Point) {
        self.first = tap.number(frames.len());
        self.is_wanted.clear();
        self.is_wanted.resize(frames.len(), false);
        if tap.options.points(place.hook).entry {
            let now = now_ns();
            for (index, frame) in frames.iter().enumerate() {
                let record = self.copy(tap, index, frame, place, now);
                self.entries.push(record);
            }
        }
    }

    fn leave(
        &mut self,
        tap: &Tap,
        index: usize,
        frame: &Frame,
        judged: Option<(&Burst, usize)>,
        place: Point,
        now: u64,
    ) {
        let action = judged.map_or(Action::Pass, |(burst, index)| burst.action(index));
        if tap.options.verdicts >> action as u32 & 1 == 0 {
            return;
        }
        self.is_wanted[index] = true;
        if tap.options.points(place.hook).exit {
            let verdict = match judged {
                Some((burst, index)) => {
                    TappedVerdict { returned: burst.returned(index), target: burst.target(index) }
                }
                None => TappedVerdict { returned: Action::Pass as u32, target: None },
            };
            let record = self.copy(tap, index, frame, place, now);
            self.exits.push(Record { verdict: Some(verdict), ..record });
        }
    }

    fn copy(
        &mut self,
        tap: &Tap,
        index: usize,
        frame: &Frame,
        place: Point,
        timestamp_ns: u64,
    ) -> Record {
        let start = self.bytes.len();
        let mut left = tap.options.snaplen;
        for piece in frame.shared_pieces() {
            let taken = piece.len().min(left);
            piece.part(0..taken).append_to(&mut self.bytes);
            left -= taken;
        }
        Record {
            number: self.first + index as u64,
            timestamp_ns,
            hook: place.hook,
            link: place.link,
            queue: match place.hook {
                Hook::Rx | Hook::GuestTx => frame.rx.queue_index,
                Hook::Tx | Hook::Dequeue | Hook::GuestRx => place.worker,
            },
            len: frame.len() as u32,
            verdict: None,
            start,
            end: self.bytes.len(),
        }
    }

    /// Sends the copies of frames with selected verdicts.
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
