//! Bursts on whose frames a program does not agree: dealt out by verdict, so that each verdict's
//! frames go on in one piece. Frames with the same verdict keep their order.

use std::cell::Cell;

use towpath_xdp::{Action, Burst, Frame};

/// Room for the frames of a burst, by verdict.
#[derive(Default)]
pub(super) struct Scatter {
    /// By [`Action`].
    pub(super) lanes: [Vec<Frame>; ACTIONS.len()],
    /// Frames of those numbers in the burst are redirected.
    pub(super) redirected: Vec<u32>,
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
            self.take_out(frames, burst, |index| burst.action(index) as usize == main);
            std::mem::swap(&mut self.lanes[main], frames);
        } else {
            // Every frame is moved, whatever its verdict: there is nothing to be foreseen wrongly.
            self.lanes.iter_mut().for_each(|lane| lane.reserve(frames.len()));
            for (index, frame) in frames.drain(..).enumerate() {
                self.lanes[burst.action(index) as usize].push(frame);
            }
        }
        self.redirected.clear();
        if actions[Action::Redirect as usize] > 0 {
            note(&mut self.redirected, burst, |index| burst.action(index) == Action::Redirect);
        }
    }

    /// Takes out the frames that do not stay, by verdict.
    pub(super) fn take_out(
        &mut self,
        frames: &mut Vec<Frame>,
        burst: &Burst,
        stays: impl Fn(usize) -> bool,
    ) {
        let next = Cell::new(0);
        let goes = |_: &mut Frame| !stays(next.replace(next.get() + 1));
        for frame in frames.extract_if(.., goes) {
            self.lanes[burst.action(next.get() - 1) as usize].push(frame);
        }
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

/// One of so many frames, and fewer, are taken out of a burst; of more, all are dealt out.
const FEW: u64 = 8;
