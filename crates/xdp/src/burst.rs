//! Many frames through one program in one call, and what became of each.

use std::sync::Arc;

use towpath_bpf::interp::Fault;
use towpath_maps::{Map, MapSet};

use crate::targets::Targets;
use crate::verdict::{Action, RedirectTarget, Verdict};

mod masks_unsafe;

pub use masks_unsafe::ActionMasks;

/// The verdicts of a burst. Kept and used again, it allocates only to grow.
#[derive(Debug, Default)]
pub struct Burst {
    /// The program's return value for each frame.
    pub(crate) returned: Vec<u32>,
    /// The return value, if it is the same for all.
    unanimous: Option<u32>,
    /// The frames of each action, unless it is.
    masks: Vec<ActionMasks>,
    /// Where redirect calls led.
    pub(crate) targets: Targets,
    /// The maps that targets name.
    pub(crate) maps: Option<Arc<MapSet>>,
    /// Frames whose run did what no verified program can do, in order.
    pub(crate) faults: Vec<(u32, Fault)>,
    /// Instructions that the interpreter executed.
    pub(crate) executed: u64,
}

impl Burst {
    /// Number of frames judged.
    pub fn len(&self) -> usize {
        self.returned.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.returned.is_empty()
    }

    /// The 32-bit value returned for a frame; 0 (`XDP_ABORTED`) when its run faulted.
    ///
    /// # Panics
    ///
    /// When there is no such frame.
    #[inline]
    pub fn returned(&self, frame: usize) -> u32 {
        self.returned[frame]
    }

    /// The value that was returned for each frame; `None` when they differ, or there are none.
    #[inline]
    pub fn unanimous(&self) -> Option<u32> {
        self.unanimous
    }

    /// The action on a frame.
    ///
    /// # Panics
    ///
    /// When there is no such frame.
    #[inline]
    pub fn action(&self, frame: usize) -> Action {
        Action::from_returned(self.returned(frame))
    }

    /// The frames of each action, where they differ; empty when [`Burst::unanimous`] says what was
    /// returned for all.
    #[inline]
    pub fn masks(&self) -> &[ActionMasks] {
        &self.masks
    }

    /// How many frames there are of each [`Action`].
    #[inline]
    pub fn actions(&self) -> [u64; 5] {
        let mut actions = [0; 5];
        if let Some(returned) = self.unanimous {
            actions[Action::from_returned(returned) as usize] = self.len() as u64;
        }
        for [_, drop, pass, tx, redirect] in &self.masks {
            actions[Action::Drop as usize] += u64::from(drop.count_ones());
            actions[Action::Pass as usize] += u64::from(pass.count_ones());
            actions[Action::Tx as usize] += u64::from(tx.count_ones());
            actions[Action::Redirect as usize] += u64::from(redirect.count_ones());
        }
        if self.unanimous.is_none() {
            actions[Action::Aborted as usize] = self.len() as u64 - actions.iter().sum::<u64>();
        }
        actions
    }

    /// Where a redirected frame goes ([`Verdict::target`]).
    ///
    /// # Panics
    ///
    /// When there is no such frame.
    pub fn target(&self, frame: usize) -> Option<RedirectTarget> {
        if self.action(frame) != Action::Redirect {
            return None;
        }
        self.targets.target(frame, self.maps.as_deref())?.with_map(|map| Some(Arc::clone(map)))
    }

    /// Where a frame's last successful redirect call led, whatever its action.
    #[inline]
    pub fn last_redirect(&self, frame: usize) -> Option<RedirectTarget<&Map>> {
        self.targets.target(frame, self.maps.as_deref())?.with_map(|map| Some(&**map))
    }

    /// By which rank a frame goes into the queue that it is redirected to: the key of its last
    /// successful redirect call.
    #[inline]
    pub fn rank(&self, frame: usize) -> u32 {
        match self.last_redirect(frame) {
            Some(RedirectTarget::Entry { key, .. }) => key,
            _ => 0,
        }
    }

    /// Whether all frames have the same [`Burst::last_redirect`].
    #[inline]
    pub fn lead_to_one(&self) -> bool {
        self.targets.are_one(self.len())
    }

    /// Whether [`Burst::last_redirect`] is the same for two frames.
    #[inline]
    pub fn lead_alike(&self, a: usize, b: usize) -> bool {
        self.targets.are_alike(a, b)
    }

    /// Frames whose run faulted, with why.
    pub fn faults(&self) -> &[(u32, Fault)] {
        &self.faults
    }

    /// How many instructions the interpreter executed for all frames; 0 where compiled code ran.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// The verdict on a frame.
    ///
    /// # Panics
    ///
    /// When there is no such frame.
    pub fn verdict(&self, frame: usize) -> Verdict {
        Verdict {
            action: self.action(frame),
            returned: self.returned(frame),
            target: self.target(frame),
        }
    }

    /// Takes the result out of a burst of one frame.
    pub(crate) fn take_single(&mut self) -> Result<Verdict, Fault> {
        if let Some((_, fault)) = self.faults.pop() {
            return Err(fault);
        }
        Ok(self.verdict(0))
    }

    /// Keeps the maps that targets name.
    #[inline]
    pub(crate) fn keep_maps(&mut self, maps: &Arc<MapSet>) {
        if !self.maps.as_ref().is_some_and(|known| Arc::ptr_eq(known, maps)) {
            self.maps = Some(Arc::clone(maps));
        }
    }

    /// Forgets the frames for the next burst of that many. The maps stay, most likely for it.
    pub(crate) fn begin(&mut self, frames: usize) {
        self.returned.clear();
        self.returned.resize(frames, 0);
        self.targets.begin(frames);
        self.faults.clear();
        self.executed = 0;
    }

    /// Looks at what the program returned for all frames.
    #[inline]
    pub(crate) fn conclude(&mut self) {
        let first = self.returned.first().copied();
        let differ = |first| self.returned.iter().fold(0, |differ, other| differ | (other ^ first));
        self.unanimous = first.filter(|&first| differ(first) == 0);
        self.masks.clear();
        if self.unanimous.is_none() {
            masks_unsafe::fill(&mut self.masks, &self.returned);
        }
    }
}

#[cfg(test)]
mod tests;
