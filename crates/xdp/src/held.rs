//! Packets that a dequeue program holds, until it sends or drops them.

use towpath_bpf::Errno;
use towpath_bpf::interp::Fault;
use towpath_maps::Map;

use crate::burst::Burst;
use crate::frame::Frame;
use crate::worker::Worker;

/// Asks for the dequeue programs of ports to be run.
pub trait Schedules: Send + Sync + std::fmt::Debug {
    /// Has the dequeue program of the port of that ifindex run when the port has room; worker
    /// number `worker` asks. `ENODEV`: there is no such port; `ENOENT`: it has no such program.
    fn schedule(&self, ifindex: u32, worker: u32) -> Result<(), Errno>;
}

/// A worker's packets out of queues.
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
    /// The packet that an address stands for, and the offset in its `struct xdp_md`.
    pub(crate) fn at(&self, addr: u64) -> Option<(&Frame, u64)> {
        let offset = |frame: &Frame| addr.wrapping_sub(frame.address());
        let found = self.frames.iter().find(|(frame, _)| offset(frame) < XDP_MD_BYTES);
        found.map(|(frame, _)| (frame, offset(frame)))
    }

    /// The packet of that address.
    pub(crate) fn at_mut(&mut self, addr: u64) -> Option<&mut Frame> {
        let found = self.frames.iter_mut().map(|(frame, _)| frame);
        found.into_iter().find(|frame| frame.address() == addr)
    }

    /// The packet in whose buffer an address is.
    pub(crate) fn around(&self, addr: u64) -> Option<&Frame> {
        self.frames.iter().map(|(frame, _)| frame).find(|frame| frame.is_in_head(addr))
    }

    /// The program drops the packet of that address; gives the map that it came from. `None` when
    /// it holds none.
    pub(crate) fn drop_at(&mut self, addr: u64) -> Option<u32> {
        let place = self.frames.iter().position(|(frame, _)| frame.address() == addr)?;
        let (frame, map) = self.frames.remove(place);
        self.dropped.push(frame);
        Some(map)
    }
}

impl Worker {
    /// Whether a program may hold one more.
    pub(crate) fn has_room_to_hold(&self) -> bool {
        self.held.frames.len() < HELD_MAX
    }

    /// Holds a packet for the running program; gives the address that stands for it.
    pub(crate) fn hold(&mut self, frame: Frame, from: &Map) -> u64 {
        let address = frame.address();
        self.held.frames.push((frame, from.id()));
        address
    }
}

/// Results of a burst of runs of a dequeue program. Kept and used again, it allocates only to grow.
#[derive(Debug, Default)]
pub struct Dequeued {
    /// The packets to send, in this order.
    pub frames: Vec<Frame>,
    /// The packets that the program dropped.
    pub dropped: Vec<Frame>,
    /// Packets that it held when its run was stopped.
    pub lost: Vec<Frame>,
    /// Some run had nothing to send: there is no need to run it again before something changes.
    pub ran_dry: bool,
    /// Runs that did what no verified program can do, with why.
    pub faults: Vec<(u32, Fault)>,
    /// Stand for the frame that such a program has none of.
    pub(crate) blanks: Vec<Frame>,
    pub(crate) burst: Burst,
}

impl Dequeued {
    /// Takes what is left of so many runs.
    pub(crate) fn take(&mut self, worker: &mut Worker, runs: usize) {
        let held = &mut worker.held;
        self.ran_dry = held.frames.len() < runs;
        debug_assert!(held.frames.len() <= runs || !self.faults.is_empty(), "all are returned");
        let to = if self.faults.is_empty() { &mut self.frames } else { &mut self.lost };
        to.extend(held.frames.drain(..).map(|(frame, _map)| frame));
        self.dropped.append(&mut held.dropped);
    }
}

/// Packets that a worker's programs may hold at a time: more than a program can keep pointers to.
pub(crate) const HELD_MAX: usize = 128;
/// `sizeof(struct xdp_md)`
pub(crate) const XDP_MD_BYTES: u64 = 24;
