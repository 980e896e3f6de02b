//! Bursts on whose frames a program does not agree: dealt out by verdict, so that each verdict's
//! frames go on in one piece. Frames with the same verdict keep their order.

use towpath_xdp::frame::scatter;
use towpath_xdp::{Action, Burst, Frame};

use super::redirect::WAYS;

/// Room for the frames of a burst, by verdict.
#[derive(Default)]
pub(super) struct Scatter {
    /// By [`Action`], and behind these the frames that stay.
    pub(super) lanes: [Vec<Frame>; ACTIONS.len() + 1],
    /// Numbers in the burst: of frames that are redirected, and of those that are few.
    pub(super) redirected: Vec<u32>,
    few: Vec<u32>,
    /// Redirected frames, by their target.
    pub(super) ways: Ways,
}

/// All verdicts, by their numbers.
pub(super) const ACTIONS: [Action; 5] =
    [Action::Aborted, Action::Drop, Action::Pass, Action::Tx, Action::Redirect];

impl Scatter {
    /// Deals out all frames; there are so many of each verdict.
    pub(super) fn deal(&mut self, frames: &mut Vec<Frame>, burst: &Burst, actions: &[u64; 5]) {
        debug_assert!(self.lanes.iter().all(Vec::is_empty), "all frames went on");
        let main = (0..).zip(actions).max_by_key(|(_, count)| **count).map_or(0, |(most, _)| most);
        if frames.len() as u64 - actions[main] <= frames.len() as u64 / FEW {
            burst.others(main as u32, &mut self.few);
            let others = |index: &&u32| burst.action(**index as usize) as usize != main;
            for (gone, &index) in self.few.iter().filter(others).enumerate() {
                let frame = frames.remove(index as usize - gone);
                self.lanes[burst.action(index as usize) as usize].push(frame);
            }
            std::mem::swap(&mut self.lanes[main], frames);
        } else {
            // Every frame is moved, whatever its verdict: there is nothing to be foreseen wrongly.
            let mut verdicts = (0..burst.len()).map(|index| burst.action(index) as u8);
            scatter(frames, &mut self.lanes, |_| verdicts.next().unwrap_or_default());
        }
        self.redirected.clear();
        if actions[Action::Redirect as usize] > 0 {
            note(&mut self.redirected, burst, |index| burst.action(index) == Action::Redirect);
        }
    }

    /// Deals out the frames that do not stay, by verdict. As in [`Scatter::deal`], every frame is
    /// moved.
    pub(super) fn take_out(
        &mut self,
        frames: &mut Vec<Frame>,
        burst: &Burst,
        stays: impl Fn(usize) -> bool,
    ) {
        let place = |index| if stays(index) { STAYING } else { burst.action(index) as usize };
        let mut places = (0..burst.len()).map(|index| place(index) as u8);
        scatter(frames, &mut self.lanes, |_| places.next().unwrap_or_default());
        std::mem::swap(&mut self.lanes[STAYING], frames);
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

/// The numbers of the frames of which something `is` so: each is written, and most are overwritten.
fn note(numbers: &mut Vec<u32>, burst: &Burst, is: impl Fn(usize) -> bool) {
    let mut count = 0;
    numbers.resize(burst.len(), 0);
    for index in 0..burst.len() {
        numbers[count] = index as u32;
        count += usize::from(is(index));
    }
    numbers.truncate(count);
}

/// The lane of frames that stay.
const STAYING: usize = ACTIONS.len();
/// One of so many frames, and fewer, are taken out of a burst; of more, all are dealt out.
const FEW: u64 = 8;
