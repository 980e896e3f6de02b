//! Many frames through one program in one call, and what became of each.

use std::sync::Arc;

use towpath_bpf::interp::Fault;
use towpath_jit::Descriptor;
use towpath_maps::MapSet;

use crate::verdict::{Action, Destination, Redirect, Target, Verdict};

/// The verdicts of a burst. Kept and used again, it allocates only to grow.
#[derive(Debug, Default)]
pub struct Burst {
    /// One for each frame.
    pub(crate) descriptors: Vec<Descriptor>,
    /// Targets of redirect calls with the frames' numbers, in order. The program may have returned
    /// something else afterwards.
    pub(crate) targets: Vec<(u32, Redirect)>,
    /// The maps those name.
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

    /// Where a redirected frame goes ([`Verdict::target`]).
    ///
    /// # Panics
    ///
    /// When there is no such frame.
    pub fn target(&self, frame: usize) -> Option<Target> {
        if self.action(frame) != Action::Redirect {
            return None;
        }
        let found = self.targets.binary_search_by_key(&frame, |&(index, _)| index as usize);
        self.targets[found.ok()?].1.target(self.maps.as_deref()?)
    }

    /// Where a frame's last successful redirect call led, whatever its action.
    pub fn destination(&self, frame: usize) -> Option<Destination<'_>> {
        let found = self.targets.binary_search_by_key(&frame, |&(index, _)| index as usize);
        self.targets[found.ok()?].1.destination(self.maps.as_deref())
    }

    /// As [`Burst::destination`], for frames that are asked about in order: `cursor` begins at 0
    /// and goes along.
    #[inline]
    pub fn next_destination(&self, cursor: &mut usize, frame: usize) -> Option<Destination<'_>> {
        while let Some((at, to)) = self.targets.get(*cursor) {
            if *at as usize > frame {
                return None;
            }
            *cursor += 1;
            if *at as usize == frame {
                return to.destination(self.maps.as_deref());
            }
        }
        None
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
    pub(crate) fn keep_maps(&mut self, maps: &Arc<MapSet>) {
        let has_them = self.maps.as_ref().is_some_and(|known| Arc::ptr_eq(known, maps));
        if !self.targets.is_empty() && !has_them {
            self.maps = Some(Arc::clone(maps));
        }
    }

    /// Forgets the frames. The maps stay, most likely for the next burst.
    pub(crate) fn clear(&mut self) {
        self.descriptors.clear();
        self.targets.clear();
        self.faults.clear();
    }
}

#[cfg(test)]
mod tests;
