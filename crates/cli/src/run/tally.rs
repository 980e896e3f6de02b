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
    /// Bytes of these frames, as captured.
    pub(super) bytes: u64,
    /// Frames of which the capture holds only the beginning.
    pub(super) cut_short: u64,
    /// Frames that can't be given to a program, by reason.
    pub(super) skipped: BTreeMap<&'static str, u64>,
    /// Frames that are not Ethernet frames, by `LINKTYPE_*`.
    pub(super) links: BTreeMap<u16, u64>,
    /// Counts by action, in the order of [`ACTIONS`].
    pub(super) verdicts: [Count; ACTIONS.len()],
    /// Return values that are no action.
    pub(super) unknown: BTreeMap<u32, u64>,
    /// Targets of redirected frames, as text.
    pub(super) targets: BTreeMap<String, Count>,
    /// Frames with `XDP_REDIRECT` but without a target: the kernel drops these.
    pub(super) lost: u64,
    /// Records from ring buffers and perf events.
    pub(super) events: Events,
    /// The first lines that the program printed.
    pub(super) trace: Vec<String>,
    /// Number of further lines that the program printed.
    pub(super) trace_left_out: u64,
    /// Time inside the program.
    pub(super) elapsed: Duration,
    /// The first run that violated a property of every verified program.
    pub(super) fault: Option<CliError>,
}

/// Number of frames, and of their bytes after the program.
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
    /// Counts a frame that was read.
    pub(super) fn frame(&mut self, packet: &Packet<'_>) {
        self.frames += 1;
        self.bytes += packet.data.len() as u64;
        self.cut_short += u64::from(packet.is_cut_short());
    }

    /// Records lines that the program printed.
    pub(super) fn printed(&mut self, lines: Vec<String>) {
        let kept = lines.len().min(TRACE_LINES_MAX.saturating_sub(self.trace.len()));
        self.trace_left_out += (lines.len() - kept) as u64;
        self.trace.extend(lines.into_iter().take(kept));
    }

    /// Counts a frame that was not run.
    pub(super) fn skip(&mut self, error: FrameError) {
        let reason = match error {
            FrameError::TooShort(_) => "shorter than an Ethernet header",
            FrameError::TooLong(_) => "longer than a frame can be",
            FrameError::Metadata(_) => "impossible metadata",
        };
        *self.skipped.entry(reason).or_default() += 1;
    }

    /// Counts a frame that is not an Ethernet frame.
    pub(super) fn skip_link(&mut self, link_type: u16) {
        *self.links.entry(link_type).or_default() += 1;
    }

    /// Whether there were frames, but no Ethernet frame among them.
    pub(super) fn is_of_other_links(&self) -> bool {
        self.frames > 0 && self.links.values().sum::<u64>() == self.frames
    }

    /// Counts the verdict of a frame that now has `bytes` bytes.
    pub(super) fn verdict(&mut self, verdict: &Verdict, bytes: u64) {
        let Verdict { action, returned, target } = verdict;
        let index = ACTIONS.iter().position(|known| known == action).unwrap_or(0);
        self.verdicts[index].add(bytes);
        if *action == Action::Aborted && *returned != 0 {
            // Limited to the lines that people read: a program may return any of 2^32 values.
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

    /// Number of frames that went through the program.
    pub(super) fn judged(&self) -> u64 {
        self.verdicts.iter().map(|count| count.frames).sum()
    }

    /// Average time of one run, in nanoseconds.
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
