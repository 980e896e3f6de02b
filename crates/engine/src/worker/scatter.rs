//! Bursts with different verdicts: frames are dealt out by verdict, so that the frames of each
//! verdict go on in one piece. Frames with the same verdict keep their order.

use towpath_xdp::frame::{scatter, scatter_by_masks};
use towpath_xdp::{Action, Burst, Frame};

/// Buffers for the frames of a burst, by verdict.
#[derive(Default)]
pub(super) struct Scatter {
    /// Lanes by [`Action`], followed by one for frames that stay.
    pub(super) lanes: [Vec<Frame>; LANES],
    /// Indexes in the burst of the redirected frames.
    pub(super) redirected: Vec<u32>,
    /// Redirected frames, by their target.
    pub(super) ways: Ways,
    /// For [`Scatter::take_out`]: bit masks of the frames of each lane, 64 frames a word.
    masks: Vec<[u64; LANES]>,
}

/// All verdicts, in order of their numbers.
pub(super) const ACTIONS: [Action; 5] =
    [Action::Aborted, Action::Drop, Action::Pass, Action::Tx, Action::Redirect];

impl Scatter {
    /// Deals out all frames; `actions` has the number of frames of each verdict.
    pub(super) fn deal(&mut self, frames: &mut Vec<Frame>, burst: &Burst, actions: &[u64; 5]) {
        debug_assert!(self.lanes.iter().all(Vec::is_empty), "all frames went on");
        let main = (0..).zip(actions).max_by_key(|(_, count)| **count).map_or(0, |(most, _)| most);
        if frames.len() as u64 - actions[main] <= FEW {
            self.take_few(frames, burst, main);
        } else if let Some((lanes, _)) = self.lanes.split_first_chunk_mut() {
            scatter_by_masks(frames, burst.masks(), lanes);
        }
        self.redirected.clear();
        if actions[Action::Redirect as usize] > 0 {
            self.note_redirected(burst);
        }
    }

    fn note_redirected(&mut self, burst: &Burst) {
        if burst.unanimous().is_some() {
            return self.redirected.extend(0..burst.len() as u32);
        }
        for (word, masks) in burst.masks().iter().enumerate() {
            let number = |bit| word as u32 * u64::BITS + bit;
            each_bit(masks[Action::Redirect as usize], |bit| self.redirected.push(number(bit)));
        }
    }

    /// Deals out a burst in which few frames have another verdict than `main`.
    fn take_few(&mut self, frames: &mut Vec<Frame>, burst: &Burst, main: usize) {
        let mut gone = 0;
        for (word, masks) in burst.masks().iter().enumerate() {
            let others = masks.iter().fold(0, |all, mask| all | mask) & !masks[main];
            each_bit(others, |bit| {
                let index = word * u64::BITS as usize + bit as usize;
                self.lanes[burst.action(index) as usize].push(frames.remove(index - gone));
                gone += 1;
            });
        }
        std::mem::swap(&mut self.lanes[main], frames);
    }

    /// Notes for [`Scatter::take_out`] which frames of a burst stay, by the program's return
    /// values; returns their number.
    pub(super) fn part(&mut self, burst: &Burst, stays: impl Fn(u32) -> bool) -> usize {
        let kept = [1, 2, 3, 4].map(|returned| if stays(returned) { !0 } else { 0 });
        self.masks.clear();
        for (word, masks) in burst.masks().iter().enumerate() {
            let [aborted, others @ ..] = masks;
            let mut staying =
                others.iter().zip(kept).fold(0, |all, (mask, kept)| all | mask & kept);
            // These include frames with return values that are not valid actions.
            each_bit(*aborted, |bit| {
                let returned = burst.returned(word * u64::BITS as usize + bit as usize);
                staying |= u64::from(stays(returned)) << bit;
            });
            let mut lanes = [staying; LANES];
            lanes.iter_mut().zip(masks).for_each(|(lane, mask)| *lane = mask & !staying);
            self.masks.push(lanes);
        }
        self.masks.iter().map(|masks| masks[STAYING].count_ones() as usize).sum()
    }

    /// Whether frames with this verdict do not stay.
    pub(super) fn some_go(&self, action: Action) -> bool {
        self.masks.iter().any(|masks| masks[action as usize] != 0)
    }

    /// Deals out the frames that do not stay, by verdict.
    pub(super) fn take_out(&mut self, frames: &mut Vec<Frame>) {
        scatter_by_masks(frames, &self.masks, &mut self.lanes);
        std::mem::swap(&mut self.lanes[STAYING], frames);
    }
}

/// Calls `f` with the index of each set bit.
#[inline(always)]
fn each_bit(mut bits: u64, mut f: impl FnMut(u32)) {
    while bits != 0 {
        f(bits.trailing_zeros());
        bits &= bits - 1;
    }
}

/// Redirected frames of a burst, by their target.
#[derive(Default)]
pub(super) struct Ways {
    pub(super) lanes: [Vec<Frame>; WAYS],
    /// The lane of each frame.
    places: Vec<u8>,
}

impl Ways {
    /// Stores each frame's lane.
    pub(super) fn find(&mut self, way: impl Iterator<Item = u8>) {
        self.places.clear();
        self.places.extend(way);
    }

    /// The lane of each frame.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(|place| usize::from(*place))
    }

    /// Deals out all frames.
    pub(super) fn deal(&mut self, frames: &mut Vec<Frame>) {
        assert_eq!(self.places.len(), frames.len(), "each has a lane");
        let mut places = self.places.iter();
        scatter(frames, &mut self.lanes, |_| places.next().copied().unwrap_or_default());
    }
}

/// Most targets of a burst's redirected frames.
pub(super) const WAYS: usize = 8;
/// The lane of frames that stay.
const STAYING: usize = ACTIONS.len();
const LANES: usize = ACTIONS.len() + 1;
/// Up to this number of differing frames are taken out one by one; with more, the whole burst is
/// dealt out.
const FEW: u64 = 8;
const _: () = assert!(FEW < crate::BURST as u64 / 2, "a few are not most of a burst");
const _: () = assert!(STAYING < LANES, "frames that stay have a lane");
