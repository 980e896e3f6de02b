//! Spreading of a port's flows: the worker that polls a queue keeps the frames of its own flows,
//! and hands the others to the workers that run the port's programs on them.
//!
//! Each flow has one worker, and its frames use one lane, so that frames of a flow stay in order.
//! When the queue moves to another worker, or the set of workers changes, the queue is parked first
//! and polled again after all frames handed over have been processed
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

/// Distribution of a receive queue's frames to workers.
pub(crate) struct FlowSpread {
    workers: Arc<[usize]>,
    /// By hash bucket of a flow: the index of a way, or [`OWN`].
    places: Vec<usize>,
    ways: Vec<(Way, Vec<Frame>)>,
}

impl FlowSpread {
    /// The distribution for a queue of `port` polled by worker `own`; `None` if the port does not
    /// spread its flows.
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

    /// Whether a distribution matches a port's present setting.
    pub(crate) fn is_as(spread: Option<&FlowSpread>, port: &Port) -> bool {
        spread.map(|spread| &spread.workers) == port.spread.as_ref()
    }

    /// Marks behind all frames handed over so far.
    pub(crate) fn marks(&self) -> impl Iterator<Item = Mark> {
        self.ways.iter().map(|(way, _)| way.lane.mark())
    }

    /// Hands other workers their frames of a burst; frames beyond their room are dropped and
    /// counted at the port.
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

/// In [`FlowSpread::places`]: the worker that polls the queue.
const OWN: usize = usize::MAX;
/// Hash buckets per worker. The worker that polls the queue has one fewer, because it also receives
/// the frames of all.
const PLACES: usize = 8;
/// Most frames of a queue that wait for one worker.
const LANE_FRAMES: usize = 1024;
const _: () = assert!(PLACES > 1, "the polling worker keeps some flows");
const _: () =
    assert!(LANE_FRAMES.is_power_of_two() && LANE_FRAMES >= crate::BURST, "a burst finds room");
