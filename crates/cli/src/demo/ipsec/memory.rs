//! A port whose packets come from memory and go to memory.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towpath_engine::Waker;
use towpath_engine::port::{Device, Features, Rx, Tx, Wake};
use towpath_xdp::{Arena, Frame, Pool};

use crate::error::CliError;

/// A port whose packets come from memory and go to memory. All clones are the same port.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory(Arc<Ends>);

#[derive(Debug, Default)]
struct Ends {
    /// Packets that are to arrive at the port.
    arriving: Mutex<VecDeque<Vec<u8>>>,
    /// Packets that the port sent.
    sent: Mutex<Vec<Vec<u8>>>,
    waker: Mutex<Option<Arc<Waker>>>,
}

impl Memory {
    /// Lets packets arrive at the port, in this order.
    pub(super) fn receive(&self, packets: &[Vec<u8>]) {
        self.0.arriving.lock().extend(packets.iter().cloned());
        if let Some(waker) = &*self.0.waker.lock() {
            waker.wake();
        }
    }

    /// Waits until the port has sent this number of packets.
    pub(super) fn wait(&self, count: usize) -> Result<(), CliError> {
        let start = Instant::now();
        while self.0.sent.lock().len() < count {
            if start.elapsed() > PATIENCE {
                let sent = self.0.sent.lock().len();
                return Err(CliError::Daemon(format!("{sent} of {count} packets arrive")));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Waits until the port has sent this number of packets, and takes all that it sent.
    pub(super) fn take(&self, count: usize) -> Result<Vec<Vec<u8>>, CliError> {
        self.wait(count)?;
        Ok(std::mem::take(&mut *self.0.sent.lock()))
    }
}

impl Device for Memory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn queues(&self) -> u32 {
        1
    }

    fn features(&self) -> Features {
        Features::IN_PROCESS
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Ok(Box::new(self.clone()))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(self.clone()))
    }
}

impl Rx for Memory {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let mut arriving = self.0.arriving.lock();
        let mut count = 0;
        while count < limit
            && let Some(packet) = arriving.front()
            && let Some(frame) = pool.frame(packet).map_err(io::Error::other)?
        {
            frames.push(frame);
            arriving.pop_front();
            count += 1;
        }
        Ok(count)
    }

    fn arm(&mut self) -> Wake<'_> {
        if self.0.arriving.lock().is_empty() { Wake::Waker } else { Wake::Now }
    }

    fn set_waker(&mut self, waker: &Arc<Waker>) {
        *self.0.waker.lock() = Some(Arc::clone(waker));
    }
}

impl Tx for Memory {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        self.0.sent.lock().extend(frames.iter().map(|frame| frame.to_vec()));
        pool.give_all(frames);
        Ok(())
    }

    fn credit(&mut self) -> usize {
        usize::MAX
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(1);
