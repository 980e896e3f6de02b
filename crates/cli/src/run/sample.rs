//! Choice of the frame of a run that is measured beside the kernel: one like most of them.

use towpath_xdp::{Action, Verdict};

use super::tally::ACTIONS;

/// The first frames of a run, as they were before it, and their verdicts.
#[derive(Debug, Default)]
pub(super) struct Sample {
    frames: Vec<(u64, Vec<u8>)>,
    actions: Vec<Action>,
}

impl Sample {
    /// Records a frame before its run.
    pub(super) fn frame(&mut self, number: u64, bytes: &[u8]) {
        if self.frames.len() < FRAMES_MAX {
            self.frames.push((number, bytes.to_vec()));
        }
    }

    /// Records the verdict of the next frame, in the order of the frames.
    pub(super) fn verdict(&mut self, verdict: &Verdict) {
        if self.actions.len() < self.frames.len() {
            self.actions.push(verdict.action);
        }
    }

    /// The middle one of the frames with the most common verdict: its number in the capture, its
    /// verdict, and its bytes.
    pub(super) fn typical(&self) -> Option<(u64, Action, &[u8])> {
        let of = |action| {
            let judged = self.frames.iter().zip(&self.actions);
            let is_so =
                move |it: &(&(u64, Vec<u8>), &Action)| *it.1 == action && it.0.1.len() <= BYTES_MAX;
            judged.filter(is_so)
        };
        let action = ACTIONS.into_iter().max_by_key(|&action| of(action).count())?;
        let ((number, bytes), _) = of(action).nth(of(action).count() / 2)?;
        Some((*number, action, bytes))
    }
}

const FRAMES_MAX: usize = 1024;
/// Bytes that one buffer of the kernel holds with room around them.
const BYTES_MAX: usize = 1514;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_is_one_of_most() {
        let mut sample = Sample::default();
        assert_eq!(sample.typical(), None);
        let verdicts = [(Action::Drop, 2), (Action::Tx, 5), (Action::Pass, 3)];
        let each = verdicts.iter().flat_map(|&(action, count)| vec![action; count]);
        for (number, action) in (1..).zip(each) {
            sample.frame(number, &vec![number as u8; if number == 3 { 9000 } else { 60 }]);
            sample.verdict(&Verdict { action, returned: action as u32, target: None });
        }
        let (number, action, bytes) = sample.typical().expect("there are some");
        assert_eq!((number, action, bytes), (6, Action::Tx, &[6; 60][..]));
    }
}
