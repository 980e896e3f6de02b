//! Reception with an engine that may return packets later, for example because it runs several of
//! them together.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_engine::Waker;
use towpath_engine::port::{Rx, Wake};
use towpath_ipsec::{Buffer, Direction, Engine, Esp, Finished, Job, Locked, Refused, finish_all};
use towpath_xdp::{Frame, Pool};

use super::arrivals::{Arrivals, meta};
use super::buffer::Packet;
use super::{Chosen, Shared, now};

/// An engine for the frames of a port.
pub type FrameEngine = Box<dyn Engine<Job<Packet>> + Send>;

/// A queue with an engine of its own.
pub(super) struct Queue {
    shared: Arc<Shared>,
    queue: usize,
    engine: FrameEngine,
    waiting: Vec<Chosen>,
    jobs: Vec<Job<Packet>>,
    /// Finished frames beyond the number that the worker asked for.
    ready: VecDeque<Frame>,
    missed: u64,
}

impl Queue {
    pub(super) fn new(shared: &Arc<Shared>, queue: usize, engine: FrameEngine) -> Queue {
        let (waiting, jobs, ready) = (Vec::new(), Vec::new(), VecDeque::new());
        Queue { shared: Arc::clone(shared), queue, engine, waiting, jobs, ready, missed: 0 }
    }

    /// Gives up to `count` waiting frames to the engine, and takes finished frames from it. Frames
    /// that need no engine arrive at once.
    fn run(&mut self, count: usize, pool: &mut Pool, frames: &mut Vec<Frame>) {
        let Queue { shared, queue, engine, waiting, jobs, missed, .. } = self;
        let mut arrivals = Arrivals { shared, pool, frames, missed };
        if shared.rings[*queue].pop(count, waiting) > 0 {
            arrivals.each(waiting, |arrivals, sa, packet| begin(arrivals, sa, packet, jobs));
            engine.submit(jobs);
            debug_assert!(jobs.is_empty(), "no more than there is room for");
            engine.flush();
        }
        engine.complete(jobs);
        finish_all(jobs, now(), |result| match result {
            Ok(Finished { buffer, sa, moved }) => arrivals.arrive(buffer, meta(&sa, moved)),
            Err(Refused { buffer, sa, reason }) => arrivals.refuse(buffer, &sa, reason),
        });
    }
}

/// Does the work on a frame's headers.
#[inline]
fn begin(
    arrivals: &mut Arrivals<'_>,
    sa: &mut Locked<'_>,
    packet: Packet,
    jobs: &mut Vec<Job<Packet>>,
) {
    let begun = match sa.sa().direction() {
        Direction::Outbound => sa.encap(packet, jobs),
        Direction::Inbound => match Esp::of_frame(packet.bytes()) {
            Ok(esp) => sa.decap(packet, &esp, jobs),
            Err(reason) => Err(sa.refuse(packet, reason)),
        },
    };
    if let Err(Refused { buffer, sa, reason }) = begun {
        arrivals.refuse(buffer, &sa, reason);
    }
}

impl Rx for Queue {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let start = frames.len();
        if !self.ready.is_empty() {
            let count = limit.min(self.ready.len());
            frames.extend(self.ready.drain(..count));
            return Ok(count);
        }
        let room = limit.min(self.engine.room());
        let waits = room > 0 && !self.shared.rings[self.queue].is_empty();
        if !waits && self.engine.in_flight() == 0 {
            return Ok(0);
        }
        self.run(room, pool, frames);
        // An engine that holds frames back may return more of them at once.
        if frames.len() - start > limit {
            self.ready.extend(frames.drain(start + limit..));
        }
        Ok(frames.len() - start)
    }

    fn arm(&mut self) -> Wake<'_> {
        if !self.ready.is_empty() || !self.shared.rings[self.queue].is_empty() {
            return Wake::Now;
        }
        match self.engine.in_flight() {
            0 => Wake::Waker,
            // An engine that runs tasks later gives no signal, so it is polled.
            _ => Wake::At(Instant::now() + ENGINE_POLL),
        }
    }

    fn set_waker(&mut self, waker: &Arc<Waker>) {
        self.shared.rings[self.queue].set_waker(waker);
    }

    fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }
}

const ENGINE_POLL: Duration = Duration::from_micros(20);
