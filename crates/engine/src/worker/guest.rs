//! Frames that a guest's program sent back: they arrive at the guest's port.
//!
//! The port's program may send them to the guest again, whose program may send them back again, and
//! so on. So this goes in waves, of which a burst has a bounded number; what goes to and fro for
//! longer is dropped.

use towpath_xdp::Frame;

use super::graph::Graph;
use super::hook::HookRunner;
use crate::counters::DropReason;
use crate::offload::complete_checksums;
use crate::snapshot::{Port, Snapshot};
use crate::target::{Side, TargetId};

impl Graph {
    /// Has all frames arrive that wait for that, and everything go on that comes of it.
    #[cold]
    pub(super) fn flush_arrivals(&mut self, snapshot: &Snapshot, runner: &mut HookRunner) {
        let mut waves = 0;
        while !self.arrivals.is_empty() {
            waves += 1;
            let mut wave = std::mem::take(&mut self.arrivals);
            for &queue in &wave {
                self.flush_arrival(snapshot, runner, queue, waves > WAVES_MAX);
            }
            wave.clear();
            self.flush_all_inner(snapshot, runner);
            if self.arrivals.is_empty() {
                // The list keeps its memory.
                self.arrivals = wave;
            }
        }
    }

    fn flush_arrival(
        &mut self,
        snapshot: &Snapshot,
        runner: &mut HookRunner,
        queue: TargetId,
        is_loop: bool,
    ) {
        let owner = self.targets[queue.index()].owner;
        self.queues[queue.index()].is_dirty = false;
        let mut frames = self.take(queue);
        match owner.port().and_then(|port| snapshot.port(port)) {
            Some(port) if !is_loop => {
                self.arrive(port, &mut frames);
                runner.run(snapshot, &port.rx, &mut frames, None, self);
            }
            Some(_) => self.drop_all(snapshot, owner, Side::Rx, DropReason::Loop, &mut frames),
            None => self.drop_all(snapshot, owner, Side::Rx, DropReason::Removed, &mut frames),
        }
        self.put_back(queue, frames);
    }

    /// As if the guest had sent them, by its first queue.
    fn arrive(&self, port: &Port, frames: &mut [Frame]) {
        let bytes: usize = frames.iter_mut().map(|frame| frame.arrive(port.ifindex, 0)).sum();
        let counters = &port.opened.counters[self.number()];
        counters.rx_packets.add(frames.len() as u64);
        counters.rx_bytes.add(bytes as u64);
        if port.features.rx_checksum && port.rx_hook.is_some() {
            complete_checksums(frames);
        }
    }
}

/// How often a frame may go from a guest's program to its port and back within a burst.
const WAVES_MAX: usize = 4;
