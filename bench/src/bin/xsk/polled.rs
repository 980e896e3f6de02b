//! A generator whose worker is the application as well: one core does it all.
//!
//! Before each burst the application takes what the burst before delivered. Every 64 bursts the
//! clock is looked at: who else gets the core between two looks shows in that one time, and the
//! median of the times does not know of it.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use towpath_engine::port::{Device, Features, Rx, Tx, Wake};
use towpath_ports::generator::Generator;
use towpath_xdp::{Arena, Frame, Pool};

use crate::tsc_unsafe::ticks;

/// What the application does with what came.
pub(crate) type Turn = Box<dyn FnMut() + Send>;

/// The port.
#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) generator: Generator,
    pub(crate) shared: Arc<Shared>,
}

/// What the worker and the benchmark share.
#[derive(Default)]
pub(crate) struct Shared {
    /// No frames are made while there is none.
    application: Mutex<Option<Turn>>,
    /// Ticks for a frame, of each 64 bursts.
    laps: Mutex<Vec<f64>>,
}

impl Shared {
    /// Starts to make frames.
    pub(crate) fn start(&self, application: Turn) {
        *self.application.lock() = Some(application);
    }

    /// The times since the last call.
    pub(crate) fn take_laps(&self) -> Vec<f64> {
        std::mem::take(&mut self.laps.lock())
    }

    /// Makes no frames any more. What came last is taken.
    pub(crate) fn stop(&self) {
        if let Some(mut turn) = self.application.lock().take() {
            turn();
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Device for Polled {
    fn kind(&self) -> &'static str {
        "polled"
    }

    fn queues(&self) -> u32 {
        1
    }

    fn features(&self) -> Features {
        self.generator.features()
    }

    fn open_rx(&self, queue: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Ok(Box::new(Queue {
            generated: self.generator.open_rx(queue, arena)?,
            shared: Arc::clone(&self.shared),
            bursts: 0,
            frames: 0,
            start: ticks(),
        }))
    }

    fn open_tx(&self, worker: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        self.generator.open_tx(worker, arena)
    }
}

struct Queue {
    generated: Box<dyn Rx>,
    shared: Arc<Shared>,
    /// Since `start`.
    bursts: u32,
    frames: usize,
    start: u64,
}

impl Rx for Queue {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let mut application = self.shared.application.lock();
        let Some(turn) = &mut *application else { return Ok(0) };
        turn();
        if self.bursts == BURSTS {
            let now = ticks();
            let lap = (now - self.start) as f64 / self.frames.max(1) as f64;
            self.shared.laps.lock().push(lap);
            (self.bursts, self.frames, self.start) = (0, 0, now);
        }
        let count = self.generated.receive(pool, frames, limit)?;
        self.bursts += 1;
        self.frames += count;
        Ok(count)
    }

    fn arm(&mut self) -> Wake<'_> {
        Wake::Now
    }
}

/// Between two looks at the clock.
const BURSTS: u32 = 64;
