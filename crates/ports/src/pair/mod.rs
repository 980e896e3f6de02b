//! `pair`: two connected ports in this process, like a veth. Frames sent by one end arrive at the
//! other.

mod rx;
mod tx;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use towpath_engine::port::{Device, Features, Rx, RxHints, Tx};
use towpath_xdp::Arena;

use crate::frame_ring::FrameRing;

/// One end of a pair.
#[derive(Debug)]
pub struct Pair {
    /// Arriving frames, by queue.
    inward: Arc<[FrameRing]>,
    /// Frames that arrive at the other end.
    outward: Arc<[FrameRing]>,
    /// Whether this end and the other end are up.
    up: [Arc<AtomicBool>; 2],
    options: Options,
}

/// Options of a pair, for both ends.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Receive queues of each end.
    pub queues: u32,
    /// Most frames that wait in a queue (veth: 256).
    pub ring: usize,
    /// MTU in bytes.
    pub mtu: u32,
    /// Addresses of both ends.
    pub macs: [[u8; 6]; 2],
}

impl Default for Options {
    fn default() -> Options {
        let macs = [[0x02, 0, 0, 0, 0, 0xa], [0x02, 0, 0, 0, 0, 0xb]];
        Options { queues: 1, ring: 1024, mtu: 1500, macs }
    }
}

impl Pair {
    /// Makes both ends.
    pub fn new(options: Options) -> (Pair, Pair) {
        let rings = || -> Arc<[FrameRing]> {
            (0..options.queues.max(1)).map(|_| FrameRing::new(options.ring)).collect()
        };
        let (a, b) = (rings(), rings());
        let up = [Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true))];
        let swapped = [Arc::clone(&up[1]), Arc::clone(&up[0])];
        let [_, mac] = options.macs;
        let other = Options { macs: [mac, mac], ..options };
        (
            Pair { inward: Arc::clone(&a), outward: Arc::clone(&b), up, options },
            Pair { inward: b, outward: a, up: swapped, options: other },
        )
    }
}

impl Device for Pair {
    fn kind(&self) -> &'static str {
        "pair"
    }

    fn queues(&self) -> u32 {
        self.inward.len() as u32
    }

    fn features(&self) -> Features {
        Features { rx_hints: RxHints::PASSED_ON, rx_offloads: true, ..Features::IN_PROCESS }
    }

    fn mac(&self) -> [u8; 6] {
        self.options.macs[0]
    }

    fn mtu(&self) -> u32 {
        self.options.mtu
    }

    /// Like a veth, it has a carrier while both ends are up (`veth_open`, `veth_close`).
    fn link(&self) -> bool {
        self.up.iter().all(|up| up.load(Ordering::Acquire))
    }

    fn set_up(&self, up: bool) {
        self.up[0].store(up, Ordering::Release);
    }

    fn open_rx(&self, queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Ok(Box::new(rx::Queue::new(&self.inward, queue as usize)))
    }

    fn open_tx(&self, worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        let queue = worker as usize % self.outward.len();
        Ok(Box::new(tx::Transmitter::new(&self.outward, queue)))
    }
}

/// The remaining end loses its carrier.
impl Drop for Pair {
    fn drop(&mut self) {
        self.set_up(false);
    }
}
