//! Launch times: frames that are not to leave before a time wait here, whatever the port, and are
//! then sent before all that comes later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use towpath_xdp::Frame;

use super::Worker;
use super::graph::Graph;
use crate::counters::DropReason;
use crate::dequeue::monotonic_ns;
use crate::numbers::PortId;
use crate::snapshot::Snapshot;
use crate::target::{Exit, Owner, Side};

/// Frames by the time they leave, and in the order they came.
#[derive(Default)]
pub(super) struct Launches {
    by_time: BinaryHeap<Reverse<Waiting>>,
    count: u64,
}

struct Waiting {
    time_ns: u64,
    number: u64,
    port: PortId,
    frame: Frame,
}

impl Launches {
    pub(super) fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }

    /// When the first leaves.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.by_time.peek().map(|Reverse(first)| first.time_ns)
    }
}

impl Graph {
    /// Keeps a frame until its time. One whose time is past goes now; one whose time is too far
    /// away is dropped, as `fq` drops what is beyond its horizon, and so is one for which there is
    /// no room.
    #[cold]
    pub(super) fn hold(
        &mut self,
        snapshot: &Snapshot,
        port: PortId,
        time_ns: u64,
        mut frame: Frame,
    ) {
        let ahead = time_ns.saturating_sub(monotonic_ns());
        if ahead == 0 {
            frame.clear_launch_time();
            return self.push(snapshot, Exit::Xmit.at(port), frame);
        }
        let is_full = self.launches.by_time.len() >= HELD_MAX;
        if is_full || Duration::from_nanos(ahead) > LAUNCH_HORIZON {
            return self.drop(snapshot, Owner::of(port), Side::Tx, DropReason::Launch, frame);
        }
        self.shared.counters.handed_over.add(1);
        let Launches { by_time, count } = &mut self.launches;
        *count += 1;
        by_time.push(Reverse(Waiting { time_ns, number: *count, port, frame }));
    }

    /// Takes the first frame whose time has come by then.
    fn take_due(&mut self, now_ns: u64) -> Option<(PortId, Frame)> {
        if self.launches.next_ns()? > now_ns {
            return None;
        }
        let Reverse(Waiting { port, mut frame, .. }) = self.launches.by_time.pop()?;
        frame.clear_launch_time();
        self.shared.counters.taken_over.add(1);
        Some((port, frame))
    }
}

impl Worker {
    /// Sends the frames whose time has come; gives their number.
    #[cold]
    pub(super) fn launch_due(&mut self) -> usize {
        let Self { snapshot, graph, runner, .. } = self;
        let (now_ns, mut count) = (monotonic_ns(), 0);
        while let Some((port, frame)) = graph.take_due(now_ns) {
            graph.push(snapshot, Exit::Xmit.at(port), frame);
            count += 1;
        }
        if count > 0 {
            graph.flush(snapshot, runner);
        }
        count
    }

    /// Drops frames that wait for ports which are gone.
    pub(super) fn drop_stranded(&mut self, before: &Snapshot) {
        let Self { snapshot, graph, .. } = self;
        let (stay, go): (Vec<_>, Vec<_>) =
            std::mem::take(&mut graph.launches.by_time).into_iter().partition(|Reverse(it)| {
                let opened = |snapshot: &Snapshot| {
                    snapshot.port(it.port).map(|port| std::sync::Arc::as_ptr(&port.opened))
                };
                opened(before) == opened(snapshot)
            });
        graph.launches.by_time = stay.into();
        for Reverse(Waiting { port, frame, .. }) in go {
            graph.shared.counters.taken_over.add(1);
            let why = DropReason::Removed;
            graph.drop(before, Owner::of(port), Side::Tx, why, frame);
        }
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time_ns, self.number).cmp(&(other.time_ns, other.number))
    }
}

/// Frames are held for no longer than this: what is to leave later is dropped.
pub const LAUNCH_HORIZON: Duration = Duration::from_secs(10);
/// Frames that a worker holds.
const HELD_MAX: usize = 8192;
