//! Ports that spread their flows over workers: the one that polls a queue keeps the frames whose
//! flows are its own, and gives the others theirs, to run the port's programs on.
//!
//! Each flow has one worker, and frames go to it by one lane, so that none overtakes another one of
//! its flow. When the queue goes to another worker, or the workers are others than before, it is
//! put down first and taken up when everything that was given away has been worked on
//! ([`Parked::put_behind`](crate::snapshot::Parked::put_behind)).

use std::sync::Arc;

use towpath_xdp::Frame;
use towpath_xdp::frame::RxInfo;

use super::graph::{BurstSummary, Graph};
use super::hook::HookRunner;
use super::way::Way;
use super::{BURST, Worker, WorkerShared};
use crate::counters::DropReason;
use crate::lane::{Errand, Mark};
use crate::offload::complete_checksums;
use crate::snapshot::{Port, Snapshot};
use crate::spread::place;
use crate::target::{Owner, Side};

/// A receive queue's frames by the workers that they go to.
pub(super) struct FlowSpread {
    workers: Arc<[usize]>,
    /// By the place of a frame's flow: the number of a way, or [`OWN`].
    places: Vec<usize>,
    ways: Vec<(Way, Vec<Frame>)>,
}

impl FlowSpread {
    /// For a queue of that port that this worker polls, if it spreads.
    pub(super) fn of(port: &Port, own: usize, workers: &[Arc<WorkerShared>]) -> Option<FlowSpread> {
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
    pub(super) fn is_as(spread: Option<&FlowSpread>, port: &Port) -> bool {
        spread.map(|spread| &spread.workers) == port.spread.as_ref()
    }

    /// What was given away so far.
    pub(super) fn marks(&self) -> impl Iterator<Item = Mark> {
        self.ways.iter().map(|(way, _)| way.lane.mark())
    }

    /// Gives other workers what is theirs of a burst; what they have no room for is dropped where
    /// it arrived.
    #[inline(never)]
    pub(super) fn share(
        &mut self,
        snapshot: &Snapshot,
        port: &Port,
        frames: &mut Vec<Frame>,
        batch: &mut Vec<Frame>,
        graph: &mut Graph,
    ) {
        debug_assert!(batch.is_empty(), "nobody else is at it");
        for frame in frames.drain(..) {
            match self.places[place(&frame, self.places.len())] {
                OWN => batch.push(frame),
                way => self.ways[way].1.push(frame),
            }
        }
        std::mem::swap(frames, batch);
        for (way, pile) in self.ways.iter_mut().filter(|(_, pile)| !pile.is_empty()) {
            let count = way.give(graph.number(), pile);
            graph.shared.counters.handed_over.add(count as u64);
            if !pile.is_empty() {
                let (owner, why) = (Owner::of(port.id), DropReason::RingFull);
                graph.drop_all(snapshot, owner, Side::Rx, why, pile);
            }
        }
    }
}

/// What a port does to frames that arrived there. What the caller knows of them saves a look where
/// there are no programs.
#[inline(always)]
pub(super) fn judge(
    snapshot: &Snapshot,
    port: &Port,
    frames: &mut Vec<Frame>,
    known: Option<BurstSummary>,
    runner: &mut HookRunner,
    graph: &mut Graph,
) {
    if port.has_rx_programs() && port.features.rx_checksum {
        complete_checksums(frames);
    }
    runner.run(snapshot, port.first_hook(), frames, known, graph);
}

impl Worker {
    /// Works on a burst that another worker received.
    pub(super) fn run_arrived(&mut self) {
        let Self { shared, snapshot, frames, runner, graph, .. } = self;
        let count = frames.len();
        shared.counters.taken_over.add(count as u64);
        // A lane is a queue's, and all frames in it arrived at one place.
        let Some(RxInfo { ifindex, queue_index, .. }) = frames.first().map(|frame| frame.rx) else {
            return;
        };
        // Another core's cache has them: they are fetched together.
        frames.iter_mut().for_each(|frame| {
            frame.arrive(ifindex, queue_index);
        });
        match snapshot.port_of_ifindex(ifindex) {
            Some(port) => judge(snapshot, port, frames, None, runner, graph),
            None => {
                let (nobody, why) = (Owner::NOBODY, DropReason::Removed);
                graph.drop_all(snapshot, nobody, Side::Rx, why, frames);
            }
        }
        graph.expects_more = count == BURST;
        graph.flush(snapshot, runner);
        graph.expects_more = false;
    }
}

/// In [`FlowSpread::places`]: the worker's that polls the queue.
const OWN: usize = usize::MAX;
/// Places of each worker. The one that polls the queue has one less, as it has to receive what all
/// of them work on.
const PLACES: usize = 8;
/// Frames of a queue that wait for one worker.
const LANE_FRAMES: usize = 1024;
