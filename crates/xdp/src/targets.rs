//! Redirect targets of the frames of a burst: a cell for each frame.

use std::sync::Arc;

use towpath_jit::RedirectCell;
use towpath_maps::{Map, MapSet, TargetEntry};

use crate::burst::Burst;
use crate::verdict::RedirectTarget;

/// The last redirect call of each frame of a burst. The program may have returned something else
/// afterwards. It is reused for later bursts, and allocates only to grow.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    /// A frame's cell is valid if it has the number of this burst: nothing is cleared between
    /// bursts, for the sake of programs that never redirect. The cells are plain numbers, so that
    /// many are compared at once.
    cells: Vec<RedirectCell>,
    /// Number of the burst, from 1 on.
    burst: u32,
    /// Maps that are not the program's own: found in maps of maps, or those of a program that a
    /// tail call led to.
    kept: Vec<Arc<Map>>,
}

/// The number of the first kept map; those below are the program's. References to these, kept for
/// each frame, would cost more than the redirect.
const KEPT: u32 = 1 << 31;

#[inline]
fn cell(burst: u32, to: RedirectTarget<u32>) -> RedirectCell {
    let (kind, words) = match to {
        RedirectTarget::Interface { ifindex } => (RedirectCell::INTERFACE, [ifindex, 0, 0, 0]),
        RedirectTarget::Entry { map, key, entry } => {
            (RedirectCell::ENTRY, [map, key, entry.number, entry.id])
        }
        RedirectTarget::Broadcast { map, exclude_ingress } => {
            (RedirectCell::BROADCAST, [map, exclude_ingress.into(), 0, 0])
        }
    };
    RedirectCell { burst, kind, words }
}

#[inline]
fn target(cell: &RedirectCell) -> RedirectTarget<u32> {
    let [a, b, number, id] = cell.words;
    match cell.kind {
        RedirectCell::INTERFACE => RedirectTarget::Interface { ifindex: a },
        RedirectCell::ENTRY => {
            RedirectTarget::Entry { map: a, key: b, entry: TargetEntry { number, id } }
        }
        _ => RedirectTarget::Broadcast { map: a, exclude_ingress: b != 0 },
    }
}

/// 0 when two cells are the same.
#[inline]
fn difference(a: &RedirectCell, b: &RedirectCell) -> u32 {
    let words = a.words.iter().zip(&b.words).fold(0, |bits, (a, b)| bits | (a ^ b));
    words | (a.burst ^ b.burst) | (a.kind ^ b.kind)
}

impl Targets {
    /// Forgets everything and makes room for the frames of the next burst.
    #[inline]
    pub(crate) fn begin(&mut self, frames: usize) {
        self.burst = self.burst.wrapping_add(1);
        if self.burst == 0 || self.cells.len() < frames || !self.kept.is_empty() {
            self.make_room(frames);
        }
    }

    #[cold]
    fn make_room(&mut self, frames: usize) {
        self.kept.clear();
        if self.burst == 0 {
            self.cells.clear();
            self.burst = 1;
        }
        let cell = cell(0, RedirectTarget::Interface { ifindex: 0 });
        self.cells.resize(self.cells.len().max(frames), cell);
    }

    /// The cells and the number of the burst, for compiled code.
    pub(crate) fn shared(&mut self) -> (*mut RedirectCell, u32) {
        (self.cells.as_mut_ptr(), self.burst)
    }

    /// Sets a frame's target, until another call changes it.
    #[inline]
    pub(crate) fn set(&mut self, frame: u32, to: RedirectTarget<u32>) {
        if let Some(place) = self.cells.get_mut(frame as usize) {
            *place = cell(self.burst, to);
        }
    }

    /// Keeps a map for targets of the burst; returns its number.
    pub(crate) fn keep(&mut self, map: Arc<Map>) -> u32 {
        self.kept.push(map);
        KEPT + (self.kept.len() as u32 - 1)
    }

    /// Removes a frame's target.
    #[inline]
    pub(crate) fn forget(&mut self, frame: u32) {
        if let Some(cell) = self.cells.get_mut(frame as usize) {
            cell.burst = 0;
        }
    }

    #[inline]
    fn get(&self, frame: usize) -> Option<RedirectTarget<u32>> {
        let cell = self.cells.get(frame)?;
        (cell.burst == self.burst).then(|| target(cell))
    }

    /// Whether two frames have the same target, or neither has one.
    #[inline]
    pub(crate) fn are_alike(&self, a: usize, b: usize) -> bool {
        self.get(a) == self.get(b)
    }

    /// Whether the first `count` frames all have a target, and the same one.
    #[inline]
    pub(crate) fn are_one(&self, count: usize) -> bool {
        let Some([first, others @ ..]) = self.cells.get(..count) else { return false };
        let differ = others.iter().fold(0, |differ, cell| differ | difference(cell, first));
        first.burst == self.burst && differ == 0
    }

    /// A frame's target, given the program's maps.
    #[inline]
    pub(crate) fn target<'a>(
        &'a self,
        frame: usize,
        maps: Option<&'a MapSet>,
    ) -> Option<RedirectTarget<&'a Arc<Map>>> {
        self.get(frame)?.with_map(|number| match number.checked_sub(KEPT) {
            Some(kept) => self.kept.get(kept as usize),
            None => maps?.map(number as usize),
        })
    }
}

/// The targets of a few frames of a burst, to find other frames with the same target without a
/// branch for each.
#[derive(Debug, Clone)]
pub struct KnownTargets {
    cells: [RedirectCell; KNOWN_TARGETS],
    /// Number of targets kept so far; if it exceeds the room, only the newest are here.
    kept: usize,
}

impl Default for KnownTargets {
    fn default() -> Self {
        let nowhere = cell(0, RedirectTarget::Interface { ifindex: 0 });
        KnownTargets { cells: [nowhere; KNOWN_TARGETS], kept: 0 }
    }
}

impl KnownTargets {
    /// The place of a frame's [`Burst::last_redirect`] among the kept ones, which are all of one
    /// burst.
    ///
    /// [`Burst::last_redirect`]: crate::Burst::last_redirect
    #[inline]
    pub fn place_of(&self, burst: &Burst, frame: usize) -> Option<usize> {
        let cell = burst.targets.cells.get(frame)?;
        let known = self.cells.iter().enumerate().rev();
        let place =
            known.fold(KNOWN_TARGETS, |found, (place, known)| match difference(cell, known) {
                0 => place,
                _ => found,
            });
        (place < self.kept.min(KNOWN_TARGETS)).then_some(place)
    }

    /// Keeps a frame's target, in the place of the oldest if there is no other; returns its place.
    pub fn keep(&mut self, burst: &Burst, frame: usize) -> usize {
        let place = self.kept % KNOWN_TARGETS;
        if let Some(cell) = burst.targets.cells.get(frame) {
            self.cells[place] = *cell;
            self.kept += 1;
        }
        place
    }
}

/// The number of targets that are kept at a time.
pub const KNOWN_TARGETS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_go_where_others_went_are_found() {
        let mut burst = Burst::default();
        burst.begin(12);
        for frame in 0..10 {
            let ifindex = 1 + frame % 5;
            burst.targets.set(frame, RedirectTarget::Interface { ifindex });
        }
        let mut known = KnownTargets::default();
        assert_eq!(known.place_of(&burst, 0), None);
        assert_eq!(known.place_of(&burst, 11), None, "it goes nowhere, and nothing is known");
        let kept: Vec<usize> = (0..4).map(|frame| known.keep(&burst, frame)).collect();
        assert_eq!(kept, [0, 1, 2, 3]);
        let places: Vec<_> = (0..10).map(|frame| known.place_of(&burst, frame)).collect();
        let [a, b, c, d] = [0, 1, 2, 3].map(Some);
        assert_eq!(places, [a, b, c, d, None, a, b, c, d, None]);
        assert_eq!(known.keep(&burst, 4), 0, "instead of the oldest");
        assert_eq!((known.place_of(&burst, 9), known.place_of(&burst, 5)), (a, None));
        assert_eq!(known.keep(&burst, 10), 1);
        assert_eq!(known.place_of(&burst, 11), b, "both nowhere");
    }

    const HERE: RedirectTarget<u32> = RedirectTarget::Interface { ifindex: 5 };

    fn ifindex(targets: &Targets, frame: usize) -> Option<u32> {
        match targets.target(frame, None)? {
            RedirectTarget::Interface { ifindex } => Some(ifindex),
            _ => None,
        }
    }

    #[test]
    fn a_target_lives_for_one_burst() {
        let mut targets = Targets::default();
        targets.begin(2);
        targets.set(1, HERE);
        assert_eq!((ifindex(&targets, 0), ifindex(&targets, 1)), (None, Some(5)));
        targets.begin(2);
        assert_eq!(ifindex(&targets, 1), None);
        targets.set(0, HERE);
        targets.forget(0);
        assert_eq!(ifindex(&targets, 0), None);
    }

    #[test]
    fn bursts_are_told_apart_when_their_numbers_start_again() {
        let mut targets = Targets::default();
        targets.begin(1);
        targets.set(0, HERE);
        targets.burst = u32::MAX;
        targets.begin(1);
        assert_eq!(ifindex(&targets, 0), None);
        assert_eq!(targets.burst, 1);
    }

    #[test]
    fn a_target_is_what_was_set() {
        let mut targets = Targets::default();
        targets.begin(1);
        let entry = TargetEntry { number: 3, id: 4 };
        for to in [
            HERE,
            RedirectTarget::Entry { map: 1, key: 2, entry },
            RedirectTarget::Broadcast { map: 1, exclude_ingress: true },
            RedirectTarget::Broadcast { map: 1, exclude_ingress: false },
            RedirectTarget::Entry { map: KEPT + 1, key: 2, entry },
        ] {
            targets.set(0, to);
            assert_eq!(targets.get(0), Some(to));
        }
    }

    #[test]
    fn frames_of_one_destination_are_alike() {
        let mut targets = Targets::default();
        targets.begin(4);
        targets.set(0, HERE);
        targets.set(1, HERE);
        targets.set(2, RedirectTarget::Interface { ifindex: 6 });
        assert!(targets.are_alike(0, 1));
        assert!(!targets.are_alike(1, 2) && !targets.are_alike(2, 3));
        assert!(targets.are_one(2) && !targets.are_one(3));
        targets.begin(4);
        assert!(targets.are_alike(0, 1) && !targets.are_one(2), "both nowhere");
    }
}
