//! Traffic for queues: what arrives, made as time goes by, and a link that carries so many bytes a
//! second and notes when each packet left.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use towpath_engine::port::{Device, Features, Rx, Tx, Wake};
use towpath_xdp::{Arena, Frame, Pool};

/// A flow: packets of `bytes` every `period_ns`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) bytes: usize,
    pub(crate) period_ns: u64,
    /// Nanoseconds from a packet's arrival to its launch time; 0: it has none.
    pub(crate) launch_ns: u64,
}

/// A packet that left: its flow, its bytes, and how long after it arrived, or was to leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    pub(crate) flow: usize,
    pub(crate) bytes: usize,
    pub(crate) at_ns: u64,
    pub(crate) late_ns: u64,
}

/// A port where these flows arrive.
#[derive(Debug)]
pub(crate) struct Source {
    flows: Vec<Flow>,
}

/// A port that carries so many bytes a second, through a ring of so many frames.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    bytes_per_second: u64,
    ring: usize,
    left: Arc<Mutex<Vec<Left>>>,
}

impl Source {
    pub(crate) fn new(flows: Vec<Flow>) -> Source {
        Source { flows }
    }
}

impl Link {
    pub(crate) fn new(bytes_per_second: u64, ring: usize) -> Link {
        Link { bytes_per_second, ring, left: Arc::default() }
    }

    /// Takes what left since it was asked last.
    pub(crate) fn take(&self) -> Vec<Left> {
        std::mem::take(&mut self.left.lock())
    }
}

impl Device for Source {
    fn kind(&self) -> &'static str {
        "source"
    }

    fn queues(&self) -> u32 {
        1
    }

    fn features(&self) -> Features {
        Features::default()
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        let next = vec![0; self.flows.len()];
        Ok(Box::new(Arriving { flows: self.flows.clone(), next }))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(Wire { link: Link::new(0, 0), ring: VecDeque::new(), free_ns: 0 }))
    }
}

struct Arriving {
    flows: Vec<Flow>,
    /// When each has its next packet.
    next: Vec<u64>,
}

impl Rx for Arriving {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let now = now_ns();
        let mut count = 0;
        for (number, (flow, next)) in self.flows.iter().zip(&mut self.next).enumerate() {
            if *next == 0 {
                // Flows begin one after the other.
                *next = now + flow.period_ns * (number as u64 % 50) / 50;
            }
            // A worker that was away makes no flood of what it missed.
            *next = (*next).max(now.saturating_sub(8 * flow.period_ns));
            while *next <= now && count < limit {
                let Some(mut frame) = pool.take() else { return Ok(count) };
                frame.fill(&packet(number, flow, *next));
                if flow.launch_ns > 0 {
                    frame.set_launch_time(*next + flow.launch_ns);
                }
                frames.push(frame);
                (*next, count) = (*next + flow.period_ns, count + 1);
            }
        }
        Ok(count)
    }

    fn arm(&mut self) -> Wake<'_> {
        Wake::Now
    }
}

/// A UDP packet that says which flow it is of, and when it arrived or is to leave.
fn packet(number: usize, flow: &Flow, at_ns: u64) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    packet.extend((flow.bytes as u16 - 14).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend((number as u16 + 1000).to_be_bytes());
    packet.extend([0, 53]);
    packet.extend((flow.bytes as u16 - 34).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend((at_ns + flow.launch_ns).to_le_bytes());
    packet.resize(flow.bytes, 0);
    packet
}

impl Device for Link {
    fn kind(&self) -> &'static str {
        "link"
    }

    fn queues(&self) -> u32 {
        0
    }

    fn features(&self) -> Features {
        Features::IN_PROCESS
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(Wire { link: self.clone(), ring: VecDeque::new(), free_ns: 0 }))
    }
}

struct Wire {
    link: Link,
    /// What waits, and when it is carried away.
    ring: VecDeque<u64>,
    /// When the link is free again.
    free_ns: u64,
}

impl Wire {
    fn drain(&mut self, now: u64) {
        while self.ring.front().is_some_and(|&gone| gone <= now) {
            self.ring.pop_front();
        }
    }
}

impl Tx for Wire {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let now = now_ns();
        self.drain(now);
        let fits = frames.len().min(self.link.ring.saturating_sub(self.ring.len()));
        let mut left = self.link.left.lock();
        for frame in frames.drain(..fits) {
            let (bytes, packet) = (frame.len(), frame.to_vec());
            let takes = match self.link.bytes_per_second {
                0 => 0,
                rate => bytes as u64 * 1_000_000_000 / rate,
            };
            self.free_ns = self.free_ns.max(now) + takes;
            self.ring.push_back(self.free_ns);
            let asked = u64::from_le_bytes(*packet[42..].first_chunk().unwrap_or(&[0; 8]));
            left.push(Left {
                flow: usize::from(u16::from_be_bytes([packet[34], packet[35]])) - 1000,
                bytes,
                at_ns: self.free_ns,
                late_ns: self.free_ns.saturating_sub(asked),
            });
            pool.give(frame);
        }
        Ok(())
    }

    fn credit(&mut self) -> usize {
        self.drain(now_ns());
        self.link.ring - self.ring.len()
    }
}

/// The monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A moment, for windows.
pub(crate) fn since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64()
}
