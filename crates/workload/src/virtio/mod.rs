//! A guest without a virtual machine: a monitor and a virtio-net driver in this process, to talk to
//! a vhost-user back end.

mod front_end;
mod memory_unsafe;
mod queue;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use front_end::{FrontEnd, Inflight, NEED_REPLY, state};
pub use memory_unsafe::GuestMemory;
pub use queue::{Layout, Queue, QueueShape, SIZE_MAX};

/// Properties of a guest.
#[derive(Debug, Clone, Copy)]
pub struct GuestOptions {
    /// Number of queue pairs.
    pub pairs: u32,
    /// Number of slots of each queue.
    pub size: u16,
    /// Whether it uses packed rings.
    pub packed: bool,
    /// Form of the buffers' descriptors.
    pub layout: Layout,
    /// Size of each receive buffer in bytes, including its header.
    pub buffer: u32,
    /// Further feature bits to request besides those that the fields above need.
    pub features: u64,
}

impl Default for GuestOptions {
    fn default() -> GuestOptions {
        let (size, buffer, features) = (256, 2048, 1 << MRG_RXBUF | 1 << IN_ORDER);
        let layout = Layout::Single;
        GuestOptions { pairs: 1, size, packed: false, layout, buffer, features }
    }
}

/// A guest whose driver is running.
#[derive(Debug)]
pub struct Guest {
    /// The monitor.
    pub front: FrontEnd,
    /// The guest's memory.
    pub memory: Arc<GuestMemory>,
    /// Negotiated feature bits.
    pub features: u64,
    /// Receive queues, by pair.
    pub rx: Vec<Queue>,
    /// Transmit queues, by pair.
    pub tx: Vec<Queue>,
    /// In-flight state to pass to a back end that reconnects, if it is kept.
    pub inflight: Option<Inflight>,
    /// Event file descriptors for kicks, by queue.
    kicks: Vec<OwnedFd>,
    options: GuestOptions,
}

impl Guest {
    /// Connects to a back end that listens, waiting for it for a second.
    pub fn connect(path: &Path, options: GuestOptions) -> io::Result<Guest> {
        let end = Instant::now() + Duration::from_secs(1);
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => return Guest::over(stream, options),
                Err(error) if Instant::now() > end => return Err(error),
                Err(_not_yet) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Starts a driver over a connection.
    pub fn over(stream: UnixStream, options: GuestOptions) -> io::Result<Guest> {
        let shape = |to_guest| QueueShape {
            size: options.size,
            packed: options.packed,
            layout: options.layout,
            buffer: options.buffer,
            to_guest,
        };
        let bytes = Queue::bytes(&shape(true)).next_multiple_of(4096);
        let memory = Arc::new(GuestMemory::new(2 * options.pairs as usize * bytes)?);
        let queue = |index: u32, to_guest| {
            Queue::new(&memory, index as usize * bytes, shape(to_guest), HEADER_BYTES)
        };
        let pairs = 0..options.pairs;
        let rx = pairs.clone().map(|pair| queue(2 * pair, true)).collect();
        let tx = pairs.map(|pair| queue(2 * pair + 1, false)).collect();
        let front = FrontEnd::new(stream);
        let memory = Arc::clone(&memory);
        let (inflight, kicks) = (None, Vec::new());
        let mut guest = Guest { front, memory, features: 0, rx, tx, inflight, kicks, options };
        guest.set_up(&vec![0; 2 * options.pairs as usize])?;
        Ok(guest)
    }

    /// Repeats the whole setup for a back end that reconnected; queues keep their positions.
    pub fn reconnect(&mut self, stream: UnixStream) -> io::Result<()> {
        self.front = FrontEnd::new(stream);
        self.set_up(&vec![0; 2 * self.options.pairs as usize])
    }

    fn set_up(&mut self, bases: &[u32]) -> io::Result<()> {
        let options = &self.options;
        let mut wanted = options.features | 1 << VERSION_1 | 1 << INDIRECT_DESC;
        wanted |= if options.packed { 1 << PACKED } else { 0 };
        self.features = self.front.negotiate(wanted)?;
        self.front.pass_memory(&self.memory)?;
        if let Some(inflight) = &self.inflight {
            self.front.pass_inflight(inflight)?;
        }
        self.kicks.clear();
        for index in 0..2 * options.pairs {
            let queue = match index % 2 {
                0 => &self.rx[index as usize / 2],
                _ => &self.tx[index as usize / 2],
            };
            let base = bases[index as usize];
            // A packed ring begins in its first lap.
            let base = if options.packed && base == 0 { FIRST_LAP } else { base };
            self.kicks.push(self.front.start_queue(index, queue, base)?);
        }
        (0..2 * options.pairs).try_for_each(|index| self.front.enable(index, true))?;
        (0..options.pairs).for_each(|pair| self.refill(pair));
        Ok(())
    }

    /// Makes all free receive buffers available.
    pub fn refill(&mut self, pair: u32) {
        let queue = &mut self.rx[pair as usize];
        let count = queue.room();
        (0..count).for_each(|_| queue.post(queue.shape.buffer));
        if count > 0 {
            queue.publish();
        }
    }

    /// Sends a packet; false if the device has all buffers.
    pub fn send(&mut self, pair: u32, header: &[u8; 12], packet: &[u8]) -> bool {
        let queue = &mut self.tx[pair as usize];
        while queue.reap().is_some() {}
        if queue.room() == 0 {
            return false;
        }
        let at = queue.buffer(queue.next_buffer());
        self.memory.write(at, header);
        self.memory.write(at + HEADER_BYTES as usize, packet);
        queue.post(HEADER_BYTES + packet.len() as u32);
        queue.publish();
        if queue.wants_kick(self.features & 1 << EVENT_IDX != 0) {
            self.kick(2 * pair + 1);
        }
        true
    }

    /// Receives a packet, and the header in front of it.
    pub fn receive(&mut self, pair: u32) -> Option<([u8; 12], Vec<u8>)> {
        let (index, has_merging) = (pair as usize, self.features & 1 << MRG_RXBUF != 0);
        let (buffer, len) = self.rx[index].reap()?;
        let at = self.rx[index].buffer(buffer);
        let mut header = [0; 12];
        self.memory.read(at, &mut header);
        let mut packet = vec![0; len.saturating_sub(HEADER_BYTES) as usize];
        self.memory.read(at + HEADER_BYTES as usize, &mut packet);
        let more = if has_merging { u16::from_le_bytes([header[10], header[11]]) } else { 1 };
        for _ in 1..more {
            // All buffers of a packet come back together.
            let (buffer, len) = self.rx[index].reap()?;
            let start = packet.len();
            packet.resize(start + len as usize, 0);
            self.memory.read(self.rx[index].buffer(buffer), &mut packet[start..]);
        }
        self.refill(pair);
        Some((header, packet))
    }

    /// Waits for a packet: at least two seconds, and longer if this thread gets too little
    /// processor time to check often, because the sender then gets little, too.
    pub fn wait_for(&mut self, pair: u32) -> Option<([u8; 12], Vec<u8>)> {
        for _ in 0..LOOKS {
            if let Some(received) = self.receive(pair) {
                return Some(received);
            }
            std::thread::sleep(Duration::from_secs(2) / LOOKS);
        }
        self.receive(pair)
    }

    /// Event file descriptor by which a queue is kicked; the back end has it as well.
    pub fn kick_file(&self, index: u32) -> BorrowedFd<'_> {
        self.kicks[index as usize].as_fd()
    }

    /// Kicks a queue, even if the device did not ask for it.
    pub fn kick(&self, index: u32) {
        let _full = rustix::io::write(&self.kicks[index as usize], &1u64.to_ne_bytes());
    }

    /// Stops one queue and starts it with another size, like a driver that resets it.
    pub fn resize(&mut self, index: u32, size: u16) -> io::Result<()> {
        self.restart(index, size)?;
        if index.is_multiple_of(2) {
            self.refill(index / 2);
        }
        Ok(())
    }

    /// Stops one queue and starts it again, with no buffer available.
    pub fn restart_empty(&mut self, index: u32) -> io::Result<()> {
        self.restart(index, self.options.size)
    }

    fn restart(&mut self, index: u32, size: u16) -> io::Result<()> {
        self.front.stop_queue(index)?;
        let to_guest = index.is_multiple_of(2);
        let pair = index as usize / 2;
        let queue = if to_guest { &mut self.rx[pair] } else { &mut self.tx[pair] };
        let shape = QueueShape { size, ..queue.shape };
        assert!(size <= self.options.size, "its memory is as long as it was");
        let bytes = Queue::bytes(&QueueShape { size: self.options.size, ..shape });
        let base = index as usize * bytes.next_multiple_of(4096);
        *queue = Queue::new(&self.memory, base, shape, HEADER_BYTES);
        let base = if shape.packed { FIRST_LAP } else { 0 };
        self.kicks[index as usize] = self.front.start_queue(index, queue, base)?;
        self.front.enable(index, true)
    }
}

/// Guest address of a byte of its memory.
pub fn guest_address(offset: usize) -> u64 {
    GUEST_BASE + offset as u64
}

/// Address of the guest's memory in the guest; this process maps it elsewhere.
pub const GUEST_BASE: u64 = 0x4000_0000;
/// Address of the guest's memory in the monitor; this process maps it elsewhere.
pub const USER_BASE: u64 = 0x7f00_0000_0000;
/// Size of the header in front of each packet, in bytes.
pub const HEADER_BYTES: u32 = 12;
/// Both halves of a packed ring's base: slot 0 of the first lap.
const FIRST_LAP: u32 = 0x8000_8000;
/// Number of checks before a wait is given up.
const LOOKS: u32 = 10_000;

const MRG_RXBUF: u32 = 15;
const INDIRECT_DESC: u32 = 28;
const EVENT_IDX: u32 = 29;
const VERSION_1: u32 = 32;
const PACKED: u32 = 34;
const IN_ORDER: u32 = 35;
