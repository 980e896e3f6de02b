//! Reception: frames that wait are encapsulated or decapsulated, and arrive.

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
use super::meta::{Direction, EspMeta, Status};
use super::{Chosen, Engines, Shared, now, status_of};

pub(super) struct Queue {
    shared: Arc<Shared>,
    queue: usize,
    engine: Engines,
    waiting: Vec<Chosen>,
    jobs: Vec<Job<Packet>>,
    /// Finished frames that were more than the worker asked for.
    ready: VecDeque<Frame>,
    /// Refused frames since the worker asked last.
    missed: u64,
}

impl Queue {
    pub(super) fn new(shared: &Arc<Shared>, queue: usize, engine: Engines) -> Queue {
        let (waiting, jobs, ready) = (Vec::new(), Vec::new(), VecDeque::new());
        Queue { shared: Arc::clone(shared), queue, engine, waiting, jobs, ready, missed: 0 }
    }

    /// Gives waiting frames to the engine; those that need none arrive at once.
    fn submit(&mut self, count: usize, pool: &mut Pool, out: &mut Vec<Frame>, now: u64) {
        self.shared.rings[self.queue].pop(count, &mut self.waiting);
        let shared = Arc::clone(&self.shared);
        let view = shared.table.read();
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut frames = waiting.drain(..).peekable();
        while let Some(chosen) = frames.next() {
            let number = chosen.sa;
            let Some(sa) = view.by_id(number) else {
                self.without_sa(chosen, pool, out);
                continue;
            };
            let mut locked = sa.lock(now);
            self.begin(&mut locked, chosen.frame, pool, out);
            while let Some(chosen) = frames.next_if(|next| next.sa == number) {
                self.begin(&mut locked, chosen.frame, pool, out);
            }
        }
        drop(frames);
        self.waiting = waiting;
        self.engine.submit(&mut self.jobs);
        debug_assert!(self.jobs.is_empty(), "no more than there is room for");
        self.engine.flush();
    }

    /// Does the work on a frame's headers.
    #[inline]
    fn begin(
        &mut self,
        sa: &mut Locked<'_>,
        mut frame: Frame,
        pool: &mut Pool,
        out: &mut Vec<Frame>,
    ) {
        let metadata = frame.metadata_len() as i32;
        if metadata > 0 {
            let stripped = frame.adjust_meta(metadata);
            debug_assert_eq!(stripped, Ok(()), "all of it can be taken off");
        }
        let packet = Packet::new(frame, pool);
        let begun = match sa.sa().direction() {
            towpath_ipsec::Direction::Outbound => sa.encap(packet, &mut self.jobs),
            towpath_ipsec::Direction::Inbound => match Esp::of_frame(packet.bytes()) {
                Ok(esp) => sa.decap(packet, &esp, &mut self.jobs),
                Err(reason) => Err(sa.refuse(packet, reason)),
            },
        };
        if let Err(refused) = begun {
            self.refuse(refused, pool, out);
        }
    }

    /// A frame that its policy lets by, or that was refused before, or whose SA is gone.
    #[cold]
    fn without_sa(&mut self, chosen: Chosen, pool: &mut Pool, out: &mut Vec<Frame>) {
        let Chosen { frame, sa, direction, status } = chosen;
        let ingress_ifindex = frame.rx.ifindex;
        let meta = EspMeta { sa, direction, status, ingress_ifindex, ..EspMeta::default() };
        if sa == 0 {
            return self.arrive(frame, meta, pool, out);
        }
        self.shared.refused.lock().count(Refusal::NoSa);
        let status = status_of(Refusal::NoSa);
        self.deliver_refused(frame, EspMeta { status, ..meta }, pool, out);
    }

    #[cold]
    fn refuse(&mut self, refused: Refused<Packet>, pool: &mut Pool, out: &mut Vec<Frame>) {
        let Refused { buffer, sa, reason } = refused;
        let meta = EspMeta { status: status_of(reason), ..meta(&sa, buffer.frame(), 0) };
        self.deliver_refused(buffer.into_frame(), meta, pool, out);
    }

    fn deliver_refused(
        &mut self,
        frame: Frame,
        meta: EspMeta,
        pool: &mut Pool,
        out: &mut Vec<Frame>,
    ) {
        if self.shared.deliver_refused {
            self.arrive(frame, meta, pool, out);
        } else {
            self.missed += 1;
            pool.give(frame);
        }
    }

    /// Lets a frame arrive with its record.
    #[inline]
    fn arrive(&mut self, mut frame: Frame, meta: EspMeta, pool: &mut Pool, out: &mut Vec<Frame>) {
        if frame.replace_metadata(&meta.to_bytes()).is_err() {
            self.missed += 1;
            return pool.give(frame);
        }
        // Hints of the packet that it was say nothing about the one that it is.
        if meta.direction != Direction::Bypass
            && let Some(known) = frame.rx_metadata()
        {
            let timestamp_ns = known.timestamp_ns;
            frame.set_rx_metadata(&RxMetadata { timestamp_ns, ..RxMetadata::default() });
        }
        frame.cross();
        out.push(frame);
    }

    /// Takes finished frames from the engine.
    fn complete(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, now: u64) {
        let mut jobs = std::mem::take(&mut self.jobs);
        self.engine.complete(&mut jobs);
        finish_all(&mut jobs, now, |result| match result {
            Ok(Finished { buffer, sa, moved }) => {
                let meta = meta(&sa, buffer.frame(), moved);
                self.arrive(buffer.into_frame(), meta, pool, out);
            }
            Err(refused) => self.refuse(refused, pool, out),
        });
        self.jobs = jobs;
    }
}

#[inline]
fn meta(sa: &Sa, frame: &Frame, moved: isize) -> EspMeta {
    let direction = match sa.direction() {
        towpath_ipsec::Direction::Inbound => Direction::In,
        towpath_ipsec::Direction::Outbound => Direction::Out,
    };
    EspMeta {
        sa: sa.id(),
        spi: sa.spi(),
        direction,
        status: Status::Done,
        moved: moved as i16,
        ingress_ifindex: frame.rx.ifindex,
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
        let waits = !self.shared.rings[self.queue].is_empty() && room > 0;
        if !waits && self.engine.in_flight() == 0 {
            return Ok(0);
        }
        let now = now();
        if waits {
            self.submit(room, pool, frames, now);
        }
        self.complete(pool, frames, now);
        // What an engine held back for a while comes all at once.
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
            // An engine that works by itself is asked again soon.
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
