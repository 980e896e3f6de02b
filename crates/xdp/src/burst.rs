//! Many frames through one program in one call, and what became of each.

use towpath_bpf::interp::Fault;
use towpath_jit::Descriptor;

use crate::verdict::{Action, Target, Verdict};

/// The verdicts of a burst. Kept and used again, it allocates only to grow.
#[derive(Debug, Default)]
pub struct Burst {
    /// One for each frame.
    pub(crate) descriptors: Vec<Descriptor>,
    /// Targets of redirect calls with the frames' numbers, in order. The program may have returned
    /// something else afterwards.
    pub(crate) targets: Vec<(u32, Target)>,
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
    pub fn returned(&self, frame: usize) -> u32 {
        self.descriptors[frame].returned
    }

    /// What happens to a frame.
    ///
    /// # Panics
    ///
    /// When there is no such frame.
    pub fn action(&self, frame: usize) -> Action {
        Action::from_returned(self.returned(frame))
    }

    /// Where a redirected frame goes ([`Verdict::target`]).
    ///
    /// # Panics
    ///
    /// When there is no such frame.
    pub fn target(&self, frame: usize) -> Option<&Target> {
        let known = || {
            let found = self.targets.binary_search_by_key(&frame, |&(index, _)| index as usize);
            Some(&self.targets[found.ok()?].1)
        };
        if self.action(frame) == Action::Redirect { known() } else { None }
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
            target: self.target(frame).cloned(),
        }
    }

    /// Takes the result out of a burst of one frame.
    pub(crate) fn take_single(&mut self) -> Result<Verdict, Fault> {
        if let Some((_, fault)) = self.faults.pop() {
            return Err(fault);
        }
        let returned = self.descriptors.first().map_or(0, |frame| frame.returned);
        let action = Action::from_returned(returned);
        let target = self.targets.pop().map(|(_, target)| target);
        Ok(Verdict { action, returned, target: target.filter(|_| action == Action::Redirect) })
    }

    pub(crate) fn clear(&mut self) {
        self.descriptors.clear();
        self.targets.clear();
        self.faults.clear();
    }
}

#[cfg(test)]
mod tests;
