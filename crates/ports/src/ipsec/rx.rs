//! Reception: waiting frames are encapsulated or decapsulated, and arrive at the port.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_engine::Waker;
use towpath_engine::port::{Rx, Wake};
use towpath_ipsec::{Buffer, Esp, Finished, Job, Locked, Refusal, Refused, Sa, finish_all};
use towpath_xdp::frame::metadata::RxMetadata;
use towpath_xdp::{Frame, Pool};

use super::buffer::Packet;
use super::meta::{Direction, EspMeta};
use super::{Chosen, Engines, Shared, now, status_of};

pub(super) struct Queue {
    shared: Arc<Shared>,
    queue: usize,
    engine: Engines,
    waiting: Vec<Chosen>,
    jobs: Vec<Job<Packet>>,
    /// Finished frames beyond the number that the worker asked for.
    ready: VecDeque<Frame>,
    /// Number of dropped frames since the last call of `take_missed`.
    missed: u64,
}

/// Destination of the frames of one call of `receive`.
struct Arrivals<'a> {
    shared: &'a Shared,
    pool: &'a mut Pool,
    frames: &'a mut Vec<Frame>,
    missed: &'a mut u64,
}

impl Queue {
    pub(super) fn new(shared: &Arc<Shared>, queue: usize, engine: Engines) -> Queue {
        let (waiting, jobs, ready) = (Vec::new(), Vec::new(), VecDeque::new());
        Queue { shared: Arc::clone(shared), queue, engine, waiting, jobs, ready, missed: 0 }
    }

    /// Gives up to `count` waiting frames to the engine, and takes finished frames from it. Frames
    /// that need no engine arrive at once.
    fn run(&mut self, count: usize, pool: &mut Pool, frames: &mut Vec<Frame>) {
        let Queue { shared, queue, engine, waiting, jobs, missed, .. } = self;
        let mut arrivals = Arrivals { shared, pool, frames, missed };
        let now = now();
        if shared.rings[*queue].pop(count, waiting) > 0 {
            arrivals.begin(waiting, jobs, now);
            engine.submit(jobs);
            debug_assert!(jobs.is_empty(), "no more than there is room for");
            engine.flush();
        }
        engine.complete(jobs);
        finish_all(jobs, now, |result| match result {
            Ok(Finished { buffer, sa, moved }) => arrivals.arrive(buffer, meta(&sa, moved)),
            Err(refused) => arrivals.refuse(refused),
        });
    }
}

impl Arrivals<'_> {
    /// Does the work on the headers of frames. Locks each SA once per run of consecutive frames.
    fn begin(&mut self, waiting: &mut Vec<Chosen>, jobs: &mut Vec<Job<Packet>>, now: u64) {
        let view = self.shared.table.read();
        let mut waiting = waiting.drain(..).peekable();
        while let Some(chosen) = waiting.next() {
            let number = chosen.sa;
            let Some(sa) = view.by_id(number) else {
                self.without_sa(chosen);
                continue;
            };
            let mut locked = sa.lock(now);
            self.begin_one(&mut locked, chosen.packet, jobs);
            while let Some(chosen) = waiting.next_if(|next| next.sa == number) {
                self.begin_one(&mut locked, chosen.packet, jobs);
            }
        }
    }

    #[inline]
    fn begin_one(&mut self, sa: &mut Locked<'_>, mut packet: Packet, jobs: &mut Vec<Job<Packet>>) {
        packet.strip_metadata();
        let begun = match sa.sa().direction() {
            towpath_ipsec::Direction::Outbound => sa.encap(packet, jobs),
            towpath_ipsec::Direction::Inbound => match Esp::of_frame(packet.bytes()) {
                Ok(esp) => sa.decap(packet, &esp, jobs),
                Err(reason) => Err(sa.refuse(packet, reason)),
            },
        };
        if let Err(refused) = begun {
            self.refuse(refused);
        }
    }

    /// Handles a frame that its policy lets through, that was refused before, or whose SA is gone.
    #[cold]
    fn without_sa(&mut self, chosen: Chosen) {
        let Chosen { packet, sa, direction, status } = chosen;
        let meta = EspMeta { sa, direction, status, ..EspMeta::default() };
        if sa == 0 {
            return self.arrive(packet, meta);
        }
        self.shared.refused.lock().count(Refusal::NoSa);
        self.deliver_refused(packet, EspMeta { status: status_of(Refusal::NoSa), ..meta });
    }

    #[cold]
    fn refuse(&mut self, refused: Refused<Packet>) {
        let Refused { buffer, sa, reason } = refused;
        self.deliver_refused(buffer, EspMeta { status: status_of(reason), ..meta(&sa, 0) });
    }

    fn deliver_refused(&mut self, packet: Packet, meta: EspMeta) {
        if self.shared.deliver_refused {
            self.arrive(packet, meta);
        } else {
            self.miss(packet.into_frame());
        }
    }

    fn miss(&mut self, frame: Frame) {
        *self.missed += 1;
        self.pool.give(frame);
    }

    /// Delivers a frame with its record.
    #[inline]
    fn arrive(&mut self, packet: Packet, meta: EspMeta) {
        let mut frame = packet.into_frame();
        let meta = EspMeta { ingress_ifindex: frame.rx.ifindex, ..meta };
        if frame.replace_metadata(&meta.to_bytes()).is_err() {
            return self.miss(frame);
        }
        // Other hints describe the packet before the operation.
        if meta.direction != Direction::Bypass
            && let Some(known) = frame.rx_metadata()
        {
            let timestamp_ns = known.timestamp_ns;
            frame.set_rx_metadata(&RxMetadata { timestamp_ns, ..RxMetadata::default() });
        }
        frame.cross();
        self.frames.push(frame);
    }
}

/// The record of a frame of an SA, without the ifindex of its ingress.
#[inline]
fn meta(sa: &Sa, moved: isize) -> EspMeta {
    EspMeta {
        sa: sa.id(),
        spi: sa.spi(),
        direction: sa.direction().into(),
        moved: moved as i16,
        ..EspMeta::default()
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
