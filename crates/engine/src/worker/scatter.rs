//! Bursts on whose frames a program does not agree: dealt out by verdict, so that each verdict's
//! frames go on in one piece. Frames with the same verdict keep their order.

use towpath_xdp::frame::{scatter, scatter_by_masks};
use towpath_xdp::{Action, Burst, Frame};

/// Room for the frames of a burst, by verdict.
#[derive(Default)]
pub(super) struct Scatter {
    /// By [`Action`], and behind these the frames that stay.
    pub(super) lanes: [Vec<Frame>; LANES],
    /// Numbers in the burst of frames that are redirected.
    pub(super) redirected: Vec<u32>,
    /// Redirected frames, by their target.
    pub(super) ways: Ways,
    /// The frames of each lane, as bits, where some stay.
    masks: Vec<[u64; LANES]>,
}

/// All verdicts, by their numbers.
pub(super) const ACTIONS: [Action; 5] =
    [Action::Aborted, Action::Drop, Action::Pass, Action::Tx, Action::Redirect];

impl Scatter {
    /// Deals out all frames; there are so many of each verdict.
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
            let masks = burst.masks().iter().map(|masks| masks[Action::Redirect as usize]);
            match burst.unanimous() {
                Some(_) => self.redirected.extend(0..burst.len() as u32),
                None => self.redirected.extend(numbers(masks)),
            }
        }
    }

    /// Deals out a burst in which few frames have another verdict than `main`.
    fn take_few(&mut self, frames: &mut Vec<Frame>, burst: &Burst, main: usize) {
        let masks = burst.masks().iter();
        let others = masks.map(|of| of.iter().fold(0, |all, mask| all | mask) & !of[main]);
        for (gone, index) in numbers(others).enumerate() {
            let frame = frames.remove(index as usize - gone);
            self.lanes[burst.action(index as usize) as usize].push(frame);
        }
        std::mem::swap(&mut self.lanes[main], frames);
    }

    /// Notes which frames of a burst stay, by what was returned for them, for
    /// [`Scatter::take_out`]; gives how many do.
    pub(super) fn part(&mut self, burst: &Burst, stays: impl Fn(u32) -> bool) -> usize {
        let kept = [1, 2, 3, 4].map(|returned| if stays(returned) { !0 } else { 0 });
        self.masks.clear();
        for (word, masks) in burst.masks().iter().enumerate() {
            let [aborted, others @ ..] = masks;
            let mut staying =
                others.iter().zip(kept).fold(0, |all, (mask, kept)| all | mask & kept);
            // Whatever is no action was returned for some of these.
            for number in numbers([*aborted]) {
                let returned = burst.returned(word * u64::BITS as usize + number as usize);
                staying |= u64::from(stays(returned)) << number;
            }
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

/// The numbers of the bits that are set.
fn numbers(masks: impl IntoIterator<Item = u64>) -> impl Iterator<Item = u32> {
    (0..).step_by(u64::BITS as usize).zip(masks).flat_map(|(first, mut bits)| {
        std::iter::from_fn(move || {
            let number = (bits != 0).then(|| first + bits.trailing_zeros());
            bits &= bits.wrapping_sub(1);
            number
        })
    })
}

/// Redirected frames of a burst, by their target.
#[derive(Default)]
pub(super) struct Ways {
    pub(super) lanes: [Vec<Frame>; WAYS],
    /// The lane of each frame.
    places: Vec<u8>,
}

impl Ways {
    /// Asks for each frame's lane.
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
        debug_assert_eq!(self.places.len(), frames.len(), "each has a lane");
        let mut places = self.places.iter();
        scatter(frames, &mut self.lanes, |_| places.next().copied().unwrap_or_default());
    }
}

/// Targets of a burst's redirected frames.
pub(super) const WAYS: usize = 8;
/// The lane of frames that stay.
const STAYING: usize = ACTIONS.len();
const LANES: usize = ACTIONS.len() + 1;
/// So many frames, and fewer, are taken out of a burst; of more, all are dealt out.
const FEW: u64 = 8;
