//! Many frames through one program in one call, and what became of each.

use std::sync::Arc;

use towpath_bpf::interp::Fault;
use towpath_jit::Descriptor;
use towpath_maps::MapSet;

use crate::targets::Targets;
use crate::verdict::{Action, Destination, Target, Verdict};

/// The verdicts of a burst. Kept and used again, it allocates only to grow.
#[derive(Debug, Default)]
pub struct Burst {
    /// One for each frame.
    pub(crate) descriptors: Vec<Descriptor>,
    /// Where redirect calls led.
    pub(crate) targets: Targets,
    /// The maps that targets name.
    pub(crate) maps: Option<Arc<MapSet>>,
    /// Frames whose run did what no verified program can do, in order.
    pub(crate) faults: Vec<(u32, Fault)>,
}

impl Burst {
    /// Number of frames judged.
    pub fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// The 32-bit value returned for a frame; 0 (`XDP_ABORTED`) when its run faulted.
    ///
    /// # Panics
    ///
    /// When there is no such frame.
    #[inline]
    pub fn returned(&self, frame: usize) -> u32 {
        self.descriptors[frame].returned
    }

    /// What happens to a frame.
    ///
    /// # Panics
    ///
    /// When there is no such frame.
    #[inline]
    pub fn action(&self, frame: usize) -> Action {
        Action::from_returned(self.returned(frame))
    }

    /// How many frames there are of each [`Action`].
    #[inline]
    pub fn actions(&self) -> [u64; 5] {
        let mut actions = [0; 5];
        let Some(first) = self.descriptors.first() else { return actions };
        // Most bursts agree, and adding to one counter after the other waits for each.
        if self.descriptors.iter().all(|descriptor| descriptor.returned == first.returned) {
            actions[self.action(0) as usize] = self.len() as u64;
            return actions;
        }
        for descriptor in &self.descriptors {
            actions[Action::from_returned(descriptor.returned) as usize] += 1;
        }
        actions
    }

    /// Where a redirected frame goes ([`Verdict::target`]).
    ///
    /// # Panics
    ///
    /// When there is no such frame.
    pub fn target(&self, frame: usize) -> Option<Target> {
        if self.action(frame) != Action::Redirect {
            return None;
        }
        self.targets.target(frame, self.maps.as_deref()?)
    }

    /// Where a frame's last successful redirect call led, whatever its action.
    #[inline]
    pub fn destination(&self, frame: usize) -> Option<Destination<'_>> {
        self.targets.destination(frame, self.maps.as_deref())
    }

    /// Whether [`Burst::destination`] is the same for two frames.
    #[inline]
    pub fn lead_alike(&self, a: usize, b: usize) -> bool {
        self.targets.are_alike(a, b)
    }

    /// Frames whose run faulted, with why.
    pub fn faults(&self) -> &[(u32, Fault)] {
        &self.faults
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
        self.descriptors.clear();
        self.targets.begin(frames);
        self.faults.clear();
    }
}

#[cfg(test)]
mod tests;
