//! Ports around ports: faults, limits, hints, recordings. A wrapped port has the same kind and
//! features as the inner one, unless a layer adds features; the layer sees every frame in both
//! directions.

pub mod fault;
pub mod hint;
pub mod limit;
pub mod record;

use std::io;
use std::sync::Arc;

use towpath_engine::Waker;
use towpath_engine::port::{Device, Features, Peer, Rx, Speed, Tx, Wake};
use towpath_xdp::host::Esp;
use towpath_xdp::{Arena, Frame, Pool};

/// A layer around a device. Each queue and each transmitter has its own.
pub trait Layer: std::fmt::Debug + Send + Sync {
    /// The layer of a receive queue.
    fn rx(&self, queue: u32) -> Box<dyn Stage>;

    /// The layer of a worker's transmitter.
    fn tx(&self, worker: u32) -> Box<dyn Stage>;

    /// Features of a device with these features, with the layer around it.
    fn features(&self, inner: Features) -> Features {
        inner
    }

    /// Its line in the port's details.
    fn details(&self) -> (&'static str, String);

    /// Why the layer failed, if it did.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// One direction of a queue's or transmitter's layer, which frames pass.
pub trait Stage: Send {
    /// Most frames that may pass now.
    fn room(&mut self, limit: usize) -> usize {
        limit
    }

    /// Processes frames from `start` on: may change, remove (into `pool`) and add frames.
    fn pass(&mut self, frames: &mut Vec<Frame>, start: usize, pool: &mut Pool);

    /// Time at which it releases a held frame, if it holds any.
    fn due(&self) -> Option<std::time::Instant> {
        None
    }

    /// Whether it holds frames back and releases them later, as a wire does.
    fn holds(&self) -> bool {
        false
    }

    /// Frames it removed since the last call.
    fn take_removed(&mut self) -> u64 {
        0
    }
}

/// A device with a layer around it.
#[derive(Debug)]
pub struct Wrapped {
    inner: Box<dyn Device>,
    layer: Arc<dyn Layer>,
}

impl Wrapped {
    /// Puts a layer around a device.
    pub fn new(inner: Box<dyn Device>, layer: Arc<dyn Layer>) -> Wrapped {
        Wrapped { inner, layer }
    }
}

impl Device for Wrapped {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn queues(&self) -> u32 {
        self.inner.queues()
    }

    fn look(&self) {
        self.inner.look();
    }

    fn closes_soon(&self) {
        self.inner.closes_soon();
    }

    fn features(&self) -> Features {
        self.layer.features(self.inner.features())
    }

    fn mac(&self) -> [u8; 6] {
        self.inner.mac()
    }

    fn ifindex(&self) -> Option<u32> {
        self.inner.ifindex()
    }

    fn mtu(&self) -> u32 {
        self.inner.mtu()
    }

    fn mtu_excess(&self) -> u32 {
        self.inner.mtu_excess()
    }

    fn esp(&self) -> Option<Box<dyn Esp>> {
        self.inner.esp()
    }

    fn link(&self) -> bool {
        self.inner.link()
    }

    fn set_up(&self, up: bool) {
        self.inner.set_up(up);
    }

    fn speed(&self) -> Speed {
        self.inner.speed()
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }

    fn peer(&self) -> Option<Peer> {
        self.inner.peer()
    }

    fn failures(&self) -> Vec<String> {
        let mut failures = self.inner.failures();
        failures.extend(self.layer.failure());
        failures
    }

    fn open_rx(&self, queue: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        let inner = self.inner.open_rx(queue, arena)?;
        Ok(Box::new(Receiver { inner, stage: self.layer.rx(queue) }))
    }

    fn open_tx(&self, worker: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        let inner = self.inner.open_tx(worker, arena)?;
        Ok(Box::new(Transmitter { inner, stage: self.layer.tx(worker), passed: Vec::new() }))
    }

    fn restarts(&self) -> u64 {
        self.inner.restarts()
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let mut details = self.inner.details();
        details.push(self.layer.details());
        details
    }
}

struct Receiver {
    inner: Box<dyn Rx>,
    stage: Box<dyn Stage>,
}

impl Rx for Receiver {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let start = frames.len();
        let room = self.stage.room(limit);
        let result = if room > 0 { self.inner.receive(pool, frames, room) } else { Ok(0) };
        self.stage.pass(frames, start, pool);
        result.map(|_taken| frames.len() - start)
    }

    fn arm(&mut self) -> Wake<'_> {
        match self.stage.due() {
            Some(due) => Wake::At(due),
            None => self.inner.arm(),
        }
    }

    fn set_waker(&mut self, waker: &Arc<Waker>) {
        self.inner.set_waker(waker);
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished() && self.stage.due().is_none()
    }

    fn take_missed(&mut self) -> u64 {
        self.inner.take_missed() + self.stage.take_removed()
    }
}

struct Transmitter {
    inner: Box<dyn Tx>,
    stage: Box<dyn Stage>,
    /// Frames that passed the stage and wait for the device.
    passed: Vec<Frame>,
}

impl Tx for Transmitter {
    /// Frames that the stage removes count as sent: they are lost on the wire. So do frames that a
    /// holding stage releases and that find no room.
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let room = self.stage.room(frames.len());
        self.passed.extend(frames.drain(..room));
        self.stage.pass(&mut self.passed, 0, pool);
        let result = self.inner.transmit(&mut self.passed, pool);
        if self.stage.holds() {
            pool.give_all(&mut self.passed);
            return Ok(());
        }
        // Frames that do not fit return to the front, and the caller drops them.
        frames.splice(0..0, self.passed.drain(..));
        result
    }

    fn credit(&mut self) -> usize {
        let credit = self.inner.credit();
        self.stage.room(credit)
    }

    fn flush(&mut self, pool: &mut Pool) -> io::Result<()> {
        self.inner.flush(pool)
    }

    fn flush_some(&mut self, pool: &mut Pool) -> io::Result<bool> {
        self.inner.flush_some(pool)
    }

    /// Releases frames that are due, even without new ones.
    fn reap(&mut self, pool: &mut Pool) -> bool {
        if self.stage.due().is_some() {
            let mut none = Vec::new();
            if self.transmit(&mut none, pool).is_ok() {
                // An error of the device is reported at the next burst.
                let _failed = self.inner.flush(pool);
            }
            pool.give_all(&mut none);
        }
        self.inner.reap(pool) || self.stage.due().is_some()
    }
}
