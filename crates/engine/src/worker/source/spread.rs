//! Ports that spread their flows over workers: the one that polls a queue keeps the frames whose
//! flows are its own, and gives the others theirs, to run the port's programs on.
//!
//! Each flow has one worker, and frames go to it by one lane, so that none overtakes another one of
//! its flow. When the queue goes to another worker, or the workers are others than before, it is
//! put down first and taken up when everything that was given away has been worked on
//! ([`Parked::put_behind`](crate::opened::Parked::put_behind)).

use std::sync::Arc;

use towpath_xdp::Frame;

use crate::counters::DropReason;
use crate::lane::{Errand, Mark};
use crate::snapshot::{Port, Snapshot};
use crate::spread::place;
use crate::target::{Owner, Side};
use crate::worker::graph::Graph;
use crate::worker::shared::WorkerShared;
use crate::worker::way::Way;

/// A receive queue's frames by the workers that they go to.
pub(crate) struct FlowSpread {
    workers: Arc<[usize]>,
    /// By the place of a frame's flow: the number of a way, or [`OWN`].
    places: Vec<usize>,
    ways: Vec<(Way, Vec<Frame>)>,
}

impl FlowSpread {
    /// For a queue of that port that this worker polls, if it spreads.
    pub(crate) fn of(port: &Port, own: usize, workers: &[Arc<WorkerShared>]) -> Option<FlowSpread> {
        let wanted = Arc::clone(port.spread.as_ref()?);
        let mut ways: Vec<(Way, Vec<Frame>)> = Vec::new();
        let mut places = Vec::new();
        for &worker in wanted.iter() {
            let Some(to) = workers.get(worker).filter(|to| to.number != own) else {
                places.extend([OWN; PLACES - 1]);
                continue;
            };
            let known = ways.iter().position(|(way, _)| way.leads_to(to));
            let way = known.unwrap_or_else(|| {
                ways.push((Way::open(to, Errand::Arrive, LANE_FRAMES), Vec::new()));
                ways.len() - 1
            });
            places.extend([way; PLACES]);
        }
        Some(FlowSpread { workers: wanted, places, ways })
    }

    /// Whether that is how a port spreads.
    pub(crate) fn is_as(spread: Option<&FlowSpread>, port: &Port) -> bool {
        spread.map(|spread| &spread.workers) == port.spread.as_ref()
    }

    /// What was given away so far.
    pub(crate) fn marks(&self) -> impl Iterator<Item = Mark> {
        self.ways.iter().map(|(way, _)| way.lane.mark())
    }

    /// Gives other workers what is theirs of a burst; what they have no room for is dropped where
    /// it arrived.
    #[inline(never)]
    pub(crate) fn share(
        &mut self,
        snapshot: &Snapshot,
        port: &Port,
        frames: &mut Vec<Frame>,
        batch: &mut Vec<Frame>,
        graph: &mut Graph,
    ) {
        assert!(batch.is_empty(), "nobody else is at it");
        for frame in frames.drain(..) {
            match self.places[place(&frame, self.places.len())] {
                OWN => batch.push(frame),
                way => self.ways[way].1.push(frame),
            }
        }
        std::mem::swap(frames, batch);
        for (way, pile) in self.ways.iter_mut().filter(|(_, pile)| !pile.is_empty()) {
            let count = way.give(graph.number(), pile);
            graph.counters().handed_over.add(count as u64);
            if !pile.is_empty() {
                let (owner, why) = (Owner::of(port.id), DropReason::RingFull);
                graph.drop_all(snapshot, owner, Side::Rx, why, pile);
            }
        }
    }
}

/// In [`FlowSpread::places`]: the worker's that polls the queue.
const OWN: usize = usize::MAX;
/// Places of each worker. The one that polls the queue has one less, as it has to receive what all
/// of them work on.
const PLACES: usize = 8;
/// Frames of a queue that wait for one worker.
const LANE_FRAMES: usize = 1024;
const _: () = assert!(PLACES > 1, "the polling worker keeps some flows");
const _: () =
    assert!(LANE_FRAMES.is_power_of_two() && LANE_FRAMES >= crate::BURST, "a burst finds room");
