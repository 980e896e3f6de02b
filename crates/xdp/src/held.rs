//! Packets that a dequeue program holds, until it sends or drops them.

use towpath_bpf::Errno;
use towpath_bpf::interp::Fault;
use towpath_maps::Map;

use crate::burst::Burst;
use crate::frame::Frame;
use crate::worker::Worker;

/// Requests runs of ports' dequeue programs.
pub trait Schedules: Send + Sync + std::fmt::Debug {
    /// Requests a run of the dequeue program of the port with this ifindex, when the port has room;
    /// `worker` is the number of the requesting worker.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is no such port, `ENOENT` if it has no such program.
    fn schedule(&self, ifindex: u32, worker: u32) -> Result<(), Errno>;
}

/// A worker's packets taken out of queues.
#[derive(Debug, Default)]
pub(crate) struct HeldFrames {
    /// Frames held by the running program, after those returned by earlier runs of the burst; with
    /// the ids of the maps that they came from.
    pub(crate) frames: Vec<(Frame, u32)>,
    pub(crate) dropped: Vec<Frame>,
    /// Time for a whole burst, in monotonic nanoseconds; 0 if not read yet.
    pub(crate) now_ns: u64,
}

impl HeldFrames {
    /// The held packet that an address refers to, and the offset in its `struct xdp_md`.
    pub(crate) fn at(&self, addr: u64) -> Option<(&Frame, u64)> {
        let offset = |frame: &Frame| addr.wrapping_sub(frame.address());
        let found = self.frames.iter().find(|(frame, _)| offset(frame) < XDP_MD_BYTES);
        found.map(|(frame, _)| (frame, offset(frame)))
    }

    /// The held packet with this address.
    pub(crate) fn at_mut(&mut self, addr: u64) -> Option<&mut Frame> {
        let found = self.frames.iter_mut().map(|(frame, _)| frame);
        found.into_iter().find(|frame| frame.address() == addr)
    }

    /// The held packet whose buffer contains an address.
    pub(crate) fn around(&self, addr: u64) -> Option<&Frame> {
        self.frames.iter().map(|(frame, _)| frame).find(|frame| frame.is_in_head(addr))
    }

    /// Drops the held packet with this address; returns the id of the map that it came from. `None`
    /// if there is none.
    pub(crate) fn drop_at(&mut self, addr: u64) -> Option<u32> {
        let place = self.frames.iter().position(|(frame, _)| frame.address() == addr)?;
        let (frame, map) = self.frames.remove(place);
        self.dropped.push(frame);
        Some(map)
    }
}

impl Worker {
    /// Whether a program may hold another packet.
    pub(crate) fn has_room_to_hold(&self) -> bool {
        self.held.frames.len() < HELD_MAX
    }

    /// Holds a packet for the running program; returns the address by which the program refers to
    /// it.
    pub(crate) fn hold(&mut self, frame: Frame, from: &Map) -> u64 {
        let address = frame.address();
        self.held.frames.push((frame, from.id()));
        address
    }
}

/// Results of a burst of runs of a dequeue program. When reused, it allocates only to grow.
#[derive(Debug, Default)]
pub struct Dequeued {
    /// The packets to send, in this order.
    pub frames: Vec<Frame>,
    /// The packets that the program dropped.
    pub dropped: Vec<Frame>,
    /// The packets that the program held when its run was stopped.
    pub lost: Vec<Frame>,
    /// A run had nothing to send, so that the program need not run again before something changes.
    pub ran_dry: bool,
    /// Runs that faulted, which no verified program can do, with the fault.
    pub faults: Vec<(u32, Fault)>,
    /// Empty frames for the runs, as dequeue programs have no frame.
    pub(crate) blanks: Vec<Frame>,
    pub(crate) burst: Burst,
}

impl Dequeued {
    /// Takes the results of `runs` runs.
    pub(crate) fn take(&mut self, worker: &mut Worker, runs: usize) {
        let held = &mut worker.held;
        self.ran_dry = held.frames.len() < runs;
        debug_assert!(held.frames.len() <= runs || !self.faults.is_empty(), "all are returned");
        let to = if self.faults.is_empty() { &mut self.frames } else { &mut self.lost };
        to.extend(held.frames.drain(..).map(|(frame, _map)| frame));
        self.dropped.append(&mut held.dropped);
    }
}

/// Most packets that a worker's programs may hold at a time: more than a program can keep pointers
/// to.
pub(crate) const HELD_MAX: usize = 128;
/// `sizeof(struct xdp_md)`
pub(crate) const XDP_MD_BYTES: u64 = 24;
