//! Counts of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_capture::Packet;
use towpath_xdp::{Action, FrameError, Verdict};

use crate::error::CliError;
use crate::events::Events;

/// Counters of a run, over all passes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Frames read from the capture.
    pub(super) frames: u64,
    /// Their bytes, as captured.
    pub(super) bytes: u64,
    /// Frames of which the capture holds only the beginning.
    pub(super) cut_short: u64,
    /// Frames that no program can get, by reason.
    pub(super) skipped: BTreeMap<&'static str, u64>,
    /// Frames that are none of Ethernet's, by `LINKTYPE_*`.
    pub(super) links: BTreeMap<u16, u64>,
    /// By action, in the kernel's order.
    pub(super) verdicts: [Count; ACTIONS.len()],
    /// Return values that are no action.
    pub(super) unknown: BTreeMap<u32, u64>,
    /// Where redirected frames go, as text.
    pub(super) targets: BTreeMap<String, Count>,
    /// `XDP_REDIRECT` without a target: the kernel drops these.
    pub(super) lost: u64,
    /// What came through ring buffers and perf events.
    pub(super) events: Events,
    /// The first lines that the program printed.
    pub(super) trace: Vec<String>,
    /// Lines it printed after those.
    pub(super) trace_left_out: u64,
    /// Time inside the program.
    pub(super) elapsed: Duration,
    /// The first run that did what no verified program can do.
    pub(super) fault: Option<CliError>,
}

/// Frames and their bytes after the program.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.frames += 1;
        self.bytes += bytes;
    }
}

impl Tally {
    /// A frame was read.
    pub(super) fn frame(&mut self, packet: &Packet<'_>) {
        self.frames += 1;
        self.bytes += packet.data.len() as u64;
        self.cut_short += u64::from(packet.is_cut_short());
    }

    /// The program printed lines.
    pub(super) fn printed(&mut self, lines: Vec<String>) {
        let kept = lines.len().min(TRACE_LINES_MAX.saturating_sub(self.trace.len()));
        self.trace_left_out += (lines.len() - kept) as u64;
        self.trace.extend(lines.into_iter().take(kept));
    }

    /// A frame was not run.
    pub(super) fn skip(&mut self, error: FrameError) {
        let reason = match error {
            FrameError::TooShort(_) => "shorter than an Ethernet header",
            FrameError::TooLong(_) => "longer than a frame can be",
            FrameError::Metadata(_) => "impossible metadata",
        };
        *self.skipped.entry(reason).or_default() += 1;
    }

    /// A frame is none of Ethernet's.
    pub(super) fn skip_link(&mut self, link_type: u16) {
        *self.links.entry(link_type).or_default() += 1;
    }

    /// Whether there were frames, and none of Ethernet's.
    pub(super) fn is_of_other_links(&self) -> bool {
        self.frames > 0 && self.links.values().sum::<u64>() == self.frames
    }

    /// A frame of now `bytes` bytes was judged.
    pub(super) fn verdict(&mut self, verdict: &Verdict, bytes: u64) {
        let Verdict { action, returned, target } = verdict;
        let index = ACTIONS.iter().position(|known| known == action).unwrap_or(0);
        self.verdicts[index].add(bytes);
        if *action == Action::Aborted && *returned != 0 {
            // Bounded by what a person reads: a program may return any of 2^32 values.
            if self.unknown.len() < UNKNOWN_MAX || self.unknown.contains_key(returned) {
                *self.unknown.entry(*returned).or_default() += 1;
            }
        }
        if *action == Action::Redirect {
            self.redirect(target.as_ref().map(ToString::to_string), bytes);
        }
    }

    fn redirect(&mut self, target: Option<String>, bytes: u64) {
        let Some(target) = target else {
            self.lost += 1;
            return;
        };
        let known = self.targets.len() < TARGETS_MAX || self.targets.contains_key(&target);
        let target = if known { target } else { "others".to_owned() };
        self.targets.entry(target).or_default().add(bytes);
    }

    /// Frames that went through the program.
    pub(super) fn judged(&self) -> u64 {
        self.verdicts.iter().map(|count| count.frames).sum()
    }

    /// Average time of one run.
    pub(super) fn ns_per_frame(&self) -> f64 {
        match self.judged() {
            0 => 0.0,
            frames => self.elapsed.as_nanos() as f64 / frames as f64,
        }
    }
}

/// All actions, in the order of their numbers.
pub(super) const ACTIONS: [Action; 5] =
    [Action::Aborted, Action::Drop, Action::Pass, Action::Tx, Action::Redirect];

const TRACE_LINES_MAX: usize = 10_000;
const TARGETS_MAX: usize = 1024;
const UNKNOWN_MAX: usize = 64;
