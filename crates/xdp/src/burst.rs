//! Bursts: the verdicts of one program on many frames, run in one call.

use std::sync::Arc;

use towpath_bpf::interp::Fault;
use towpath_maps::{Map, MapSet};

use crate::targets::Targets;
use crate::verdict::{Action, RedirectTarget, Verdict};

mod masks_unsafe;

pub use masks_unsafe::ActionMasks;

/// The verdicts of a burst. When reused, it allocates only to grow.
#[derive(Debug, Default)]
pub struct Burst {
    /// The program's return value for each frame.
    pub(crate) returned: Vec<u32>,
    /// The return value, if it is the same for all.
    unanimous: Option<u32>,
    /// The frames of each action; empty if all return values are equal.
    masks: Vec<ActionMasks>,
    /// Targets of redirect calls.
    pub(crate) targets: Targets,
    /// The maps that targets refer to.
    pub(crate) maps: Option<Arc<MapSet>>,
    /// Frames whose run faulted, in order: a verified program cannot fault.
    pub(crate) faults: Vec<(u32, Fault)>,
    /// Instructions that the interpreter executed.
    pub(crate) executed: u64,
}

impl Burst {
    /// Number of frames judged.
    pub fn len(&self) -> usize {
        self.returned.len()
    }

    /// Whether no frames were judged.
    pub fn is_empty(&self) -> bool {
        self.returned.is_empty()
    }

    /// The 32-bit value returned for a frame; 0 (`XDP_ABORTED`) if its run faulted.
    ///
    /// # Panics
    ///
    /// If there is no such frame.
    #[inline]
    pub fn returned(&self, frame: usize) -> u32 {
        self.returned[frame]
    }

    /// The common return value of all frames; `None` if they differ, or there are no frames.
    #[inline]
    pub fn unanimous(&self) -> Option<u32> {
        self.unanimous
    }

    /// The action on a frame.
    ///
    /// # Panics
    ///
    /// If there is no such frame.
    #[inline]
    pub fn action(&self, frame: usize) -> Action {
        Action::from_returned(self.returned(frame))
    }

    /// The frames of each action, if return values differ; empty if [`Burst::unanimous`] is not
    /// `None`.
    #[inline]
    pub fn masks(&self) -> &[ActionMasks] {
        &self.masks
    }

    /// Number of frames of each [`Action`].
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

    /// The target of a redirected frame ([`Verdict::target`]).
    ///
    /// # Panics
    ///
    /// If there is no such frame.
    pub fn target(&self, frame: usize) -> Option<RedirectTarget> {
        if self.action(frame) != Action::Redirect {
            return None;
        }
        self.targets.target(frame, self.maps.as_deref())?.with_map(|map| Some(Arc::clone(map)))
    }

    /// The target of a frame's last successful redirect call, whatever its action.
    #[inline]
    pub fn last_redirect(&self, frame: usize) -> Option<RedirectTarget<&Map>> {
        self.targets.target(frame, self.maps.as_deref())?.with_map(|map| Some(&**map))
    }

    /// The rank of a frame in the queue that it is redirected to: the key of its last successful
    /// redirect call.
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

    /// Frames whose run faulted, with the fault.
    pub fn faults(&self) -> &[(u32, Fault)] {
        &self.faults
    }

    /// Number of instructions the interpreter executed for all frames; 0 if compiled code ran.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// The verdict on a frame.
    ///
    /// # Panics
    ///
    /// If there is no such frame.
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

    /// Keeps the maps that targets refer to.
    #[inline]
    pub(crate) fn keep_maps(&mut self, maps: &Arc<MapSet>) {
        if !self.maps.as_ref().is_some_and(|known| Arc::ptr_eq(known, maps)) {
            self.maps = Some(Arc::clone(maps));
        }
    }

    /// Prepares for a burst of `frames` frames. The maps are kept, as the next burst most likely
    /// needs them.
    pub(crate) fn begin(&mut self, frames: usize) {
        self.returned.clear();
        self.returned.resize(frames, 0);
        self.targets.begin(frames);
        self.faults.clear();
        self.executed = 0;
    }

    /// Evaluates the return values of all frames.
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
