//! Ways: the giver's ends of lanes to other workers.

use std::sync::Arc;

use towpath_ring::{Giver, handoff};
use towpath_xdp::Frame;

use super::shared::WorkerShared;
use crate::lane::{Errand, Lane};
use crate::options::Mode;

/// The giver's end of a lane.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) lane: Arc<Lane>,
    giver: Giver<Frame>,
    to: Arc<WorkerShared>,
    /// Frames were given since the last change of configuration.
    pub(crate) is_used: bool,
}

impl Way {
    /// Opens a lane to a worker for an errand. At most `limit` frames wait for the errand, over all
    /// givers.
    pub(crate) fn open(to: &Arc<WorkerShared>, errand: Errand, limit: usize) -> Way {
        let (giver, taker) = handoff(limit);
        let ends = (taker, giver.progress());
        let lane = to.inbox.add_lane(|lanes| Lane::new(errand, ends, limit, lanes));
        Way { lane, giver, to: Arc::clone(to), is_used: true }
    }

    /// Whether the lane leads to `worker`.
    pub(crate) fn leads_to(&self, worker: &Arc<WorkerShared>) -> bool {
        Arc::ptr_eq(&self.to, worker)
    }

    /// Gives as many frames as there is room for, and wakes the worker unless it is `from`; the
    /// rest stays. Returns the number given.
    #[inline]
    pub(crate) fn give(&mut self, from: usize, frames: &mut Vec<Frame>) -> usize {
        if self.lane.is_closed() {
            return 0;
        }
        let room = self.lane.room.as_ref();
        let credit = room.map_or(frames.len(), |room| room.reserve(frames.len()));
        let count = self.giver.give(frames, credit);
        assert!(room.is_none() || count == credit, "the ring has the room that it says");
        // A worker that never sleeps need not be woken.
        if count > 0 && self.to.number != from && self.to.mode == Mode::Adaptive {
            self.to.waker.wake();
        }
        count
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.lane.leave();
    }
}
