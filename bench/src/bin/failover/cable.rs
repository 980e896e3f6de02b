//! A port with a cable that can be cut: a ring, and a wire that takes from it at a rate.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use towpath_engine::port::{Device, Features, Rx, Tx};
use towpath_xdp::{Arena, Frame, Pool};

/// The port's side, and the bench's.
#[derive(Debug, Clone)]
pub(crate) struct Cable(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    link: AtomicBool,
    wire: Mutex<Wire>,
    mac: [u8; 6],
    frames_per_s: f64,
}

/// What is on its way, and what became of frames: when each was sent.
#[derive(Debug, Default)]
struct Wire {
    ring: VecDeque<Instant>,
    /// Up to when the wire has taken frames from the ring.
    taken_until: Option<Instant>,
    log: Log,
}

/// What became of frames, by the time at which the bond gave them to the port.
#[derive(Debug, Default, Clone)]
pub(crate) struct Log {
    pub(crate) arrived: Vec<Instant>,
    /// They were in the ring when the cable was cut.
    pub(crate) lost_queued: Vec<Instant>,
    /// They were sent to a dead port.
    pub(crate) lost_late: Vec<Instant>,
}

impl Cable {
    /// One that takes so many frames a second.
    pub(crate) fn new(number: u8, frames_per_s: f64) -> Cable {
        let (link, wire) = (AtomicBool::new(true), Mutex::default());
        Cable(Arc::new(Shared { link, wire, mac: [2, 0, 0, 0, 9, number], frames_per_s }))
    }

    /// Cuts it: what is in the ring never leaves. Gives when that was.
    pub(crate) fn cut(&self) -> Instant {
        let mut wire = self.0.wire.lock();
        let now = Instant::now();
        wire.take(now, self.0.frames_per_s);
        self.0.link.store(false, Ordering::Release);
        let Wire { ring, log, .. } = &mut *wire;
        log.lost_queued.extend(ring.drain(..));
        now
    }

    /// What became of frames, once nothing is sent any more.
    pub(crate) fn finish(&self) -> Log {
        let mut wire = self.0.wire.lock();
        let Wire { ring, log, .. } = &mut *wire;
        log.arrived.extend(ring.drain(..));
        log.clone()
    }
}

impl Wire {
    /// The wire takes what it had time for.
    fn take(&mut self, now: Instant, frames_per_s: f64) {
        let since = self.taken_until.replace(now);
        let time = since.map_or(0.0, |since| (now - since).as_secs_f64());
        let count = ((time * frames_per_s) as usize).min(self.ring.len());
        self.log.arrived.extend(self.ring.drain(..count));
    }
}

impl Device for Cable {
    fn kind(&self) -> &'static str {
        "cable"
    }

    fn queues(&self) -> u32 {
        0
    }

    fn features(&self) -> Features {
        Features::IN_PROCESS
    }

    fn mac(&self) -> [u8; 6] {
        self.0.mac
    }

    fn link(&self) -> bool {
        self.0.link.load(Ordering::Acquire)
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(self.clone()))
    }
}

impl Tx for Cable {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let mut wire = self.0.wire.lock();
        let now = Instant::now();
        if self.0.link.load(Ordering::Acquire) {
            wire.take(now, self.0.frames_per_s);
            let room = RING_FRAMES - wire.ring.len();
            let count = frames.len().min(room);
            wire.ring.extend(std::iter::repeat_n(now, count));
            frames.drain(..count).for_each(|frame| pool.give(frame));
        } else {
            wire.log.lost_late.extend(std::iter::repeat_n(now, frames.len()));
            pool.give_all(frames);
        }
        Ok(())
    }

    fn credit(&mut self) -> usize {
        RING_FRAMES.saturating_sub(self.0.wire.lock().ring.len())
    }
}

/// Frames that a port keeps until they are on the wire.
const RING_FRAMES: usize = 2048;
