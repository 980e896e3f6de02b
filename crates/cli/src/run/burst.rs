//! Bursts of frames, which keep reading and writing of captures out of the measured time.

use std::time::{Duration, Instant};

use towpath_capture::Packet;
use towpath_xdp::{Action, Frame, FrameError, RxInfo, Verdict};

use crate::error::CliError;
use crate::session::Session;

/// A burst of frames and their verdicts. Frames are made once and filled again.
#[derive(Debug)]
pub(super) struct Burst {
    frames: Vec<Frame>,
    origins: Vec<Origin>,
    verdicts: Vec<Verdict>,
    ifindex: u32,
}

/// Properties of a frame before the program ran on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// Number of the frame in the capture, from 1 as in Wireshark.
    pub(super) number: u64,
    /// Capture time, in nanoseconds since 1970.
    pub(super) timestamp_ns: u64,
    /// Time for the program's clocks to show, in nanoseconds.
    pub(super) clock_ns: Option<u64>,
    /// Index into the capture's interfaces.
    pub(super) interface: u32,
    /// Number of bytes at the frame's end that the capture left out.
    pub(super) missing: u32,
}

/// A frame after the program ran on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged<'a> {
    /// The frame, as the program left it.
    pub(super) frame: &'a Frame,
    /// Properties of the frame before the run.
    pub(super) origin: Origin,
    /// Verdict of the program.
    pub(super) verdict: &'a Verdict,
}

impl Burst {
    /// An empty burst; frames of the capture's first interface arrive on `ifindex`, those of the
    /// second on the next number, and so on.
    pub(super) fn new(ifindex: u32) -> Self {
        Burst { frames: Vec::new(), origins: Vec::new(), verdicts: Vec::new(), ifindex }
    }

    /// Adds a frame, unless its length is impossible for a frame.
    pub(super) fn push(
        &mut self,
        packet: &Packet<'_>,
        number: u64,
        clock_ns: Option<u64>,
    ) -> Result<(), FrameError> {
        let index = self.origins.len();
        match self.frames.get_mut(index) {
            Some(frame) => frame.refill(packet.data, 0)?,
            None => self.frames.push(Frame::new(packet.data)?),
        }
        let frame = &mut self.frames[index];
        frame.rx = RxInfo {
            ifindex: self.ifindex.saturating_add(packet.interface),
            queue_index: packet.options.queue.unwrap_or(0),
            ..frame.rx
        };
        self.origins.push(Origin {
            number,
            timestamp_ns: packet.timestamp_ns,
            clock_ns,
            interface: packet.interface,
            missing: packet.original_len.saturating_sub(packet.data.len() as u32),
        });
        Ok(())
    }

    pub(super) fn is_full(&self) -> bool {
        self.origins.len() >= BURST_FRAMES
    }

    /// Runs the program on every frame and gives the time that this took. A frame whose run
    /// violates a property of verified programs is aborted; the first such error goes to `fault`.
    pub(super) fn run(&mut self, session: &mut Session, fault: &mut Option<CliError>) -> Duration {
        let Session { program, worker, .. } = session;
        let start = Instant::now();
        for (frame, origin) in self.frames.iter_mut().zip(&self.origins) {
            if let Some(clock_ns) = origin.clock_ns {
                program.surroundings().clock.set(clock_ns);
            }
            let verdict = program.run(worker, frame).unwrap_or_else(|found| {
                let (frame, found) = (origin.number, Box::new(found));
                fault.get_or_insert(CliError::Fault { frame, fault: found });
                Verdict { action: Action::Aborted, returned: 0, target: None }
            });
            self.verdicts.push(verdict);
        }
        start.elapsed()
    }

    /// The frames that were run.
    pub(super) fn judged(&self) -> impl Iterator<Item = Judged<'_>> {
        let frames = self.frames.iter().zip(&self.origins).zip(&self.verdicts);
        frames.map(|((frame, origin), verdict)| Judged { frame, origin: *origin, verdict })
    }

    pub(super) fn clear(&mut self) {
        self.origins.clear();
        self.verdicts.clear();
    }
}

/// Number of frames that fit a core's cache together with the program's other data.
const BURST_FRAMES: usize = 64;
