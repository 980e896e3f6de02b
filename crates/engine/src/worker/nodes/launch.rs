//! Launch times: frames with a launch time wait here, for all ports, and are sent when it has come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use towpath_xdp::Frame;

use super::next::Next;
use crate::counters::DropReason;
use crate::dequeue::monotonic_ns;
use crate::numbers::PortId;
use crate::snapshot::Snapshot;
use crate::target::{Exit, Owner, Side};
use crate::worker::graph::Graph;

/// Waiting frames, ordered by launch time, then by arrival.
#[derive(Default)]
pub(crate) struct Launches {
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
    pub(crate) fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }

    /// The earliest launch time.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.by_time.peek().map(|Reverse(first)| first.time_ns)
    }

    /// Holds a frame until its launch time. A frame that is not held is returned: to be sent now if
    /// its time is past, or to be dropped if its time is too far ahead (as `fq` drops packets
    /// beyond its horizon) or there is no room.
    #[cold]
    pub(super) fn hold(
        &mut self,
        graph: &Graph,
        port: PortId,
        time_ns: u64,
        mut frame: Frame,
    ) -> Option<(Frame, Next<'static>)> {
        let ahead = time_ns.saturating_sub(monotonic_ns());
        if ahead == 0 {
            frame.clear_launch_time();
            return Some((frame, Next::To(Exit::Xmit.at(port))));
        }
        let is_full = self.by_time.len() >= HELD_MAX;
        if is_full || Duration::from_nanos(ahead) > LAUNCH_HORIZON {
            return Some((frame, Next::Drop(Side::Tx, DropReason::Launch)));
        }
        graph.counters().handed_over.add(1);
        self.count += 1;
        self.by_time.push(Reverse(Waiting { time_ns, number: self.count, port, frame }));
        None
    }

    /// Takes the first frame whose launch time is not after `now_ns`.
    pub(crate) fn take_due(&mut self, graph: &Graph, now_ns: u64) -> Option<(PortId, Frame)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        let Reverse(Waiting { port, mut frame, .. }) = self.by_time.pop()?;
        frame.clear_launch_time();
        graph.counters().taken_over.add(1);
        Some((port, frame))
    }

    /// Drops frames that wait for ports that are gone.
    pub(crate) fn drop_stranded(&mut self, graph: &mut Graph, before: &Snapshot, now: &Snapshot) {
        let opened = |snapshot: &Snapshot, port: PortId| {
            snapshot.port(port).map(|port| Arc::as_ptr(&port.opened))
        };
        let stays =
            |Reverse(it): &Reverse<Waiting>| opened(before, it.port) == opened(now, it.port);
        let all = std::mem::take(&mut self.by_time);
        let (stay, go): (Vec<_>, Vec<_>) = all.into_iter().partition(stays);
        self.by_time = stay.into();
        for Reverse(Waiting { port, frame, .. }) in go {
            graph.counters().taken_over.add(1);
            graph.drop(before, Owner::of(port), Side::Tx, DropReason::Removed, frame);
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

/// Longest time ahead of a launch time: frames with a later one are dropped.
pub const LAUNCH_HORIZON: Duration = Duration::from_secs(10);
/// Most frames that a worker holds.
const HELD_MAX: usize = 8192;
const _: () = assert!(HELD_MAX >= crate::BURST, "a burst finds room");
