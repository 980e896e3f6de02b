//! State of one queue of one port: the fill and completion rings and the chunks they carry (`struct
//! xsk_buff_pool`). Sockets on the same queue share it.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use towpath_engine::QueueId;
use towpath_ring::{Consumer, Mapped, Producer};
use towpath_xdp::Frame;

use crate::lent::Lent;
use crate::rings::RingMemory;
use crate::umem::Umem;

/// The pool.
#[derive(Debug)]
pub(crate) struct BufferPool {
    pub(crate) umem: Arc<Umem>,
    pub(crate) queue: QueueId,
    /// Frames may have several buffers (`XDP_USE_SG`).
    pub(crate) is_multi_buffer: bool,
    pub(crate) uses_wakeup: bool,
    pub(crate) is_zero_copy: bool,
    fill: Mutex<Fill>,
    completion: Mutex<Completion>,
}

impl BufferPool {
    pub(crate) fn new(
        umem: &Arc<Umem>,
        queue: QueueId,
        fill: &RingMemory,
        completion: &RingMemory,
    ) -> Result<BufferPool, Errno> {
        Ok(BufferPool {
            umem: Arc::clone(umem),
            queue,
            is_multi_buffer: false,
            uses_wakeup: false,
            is_zero_copy: false,
            fill: Mutex::new(Fill {
                ring: Consumer::new(fill.ring()?),
                returned: Vec::new(),
                invalid: 0,
                empty: 0,
            }),
            completion: Mutex::new(Completion {
                ring: Producer::new(completion.ring()?),
                reserved: 0,
                is_awaited: false,
            }),
        })
    }

    #[inline]
    pub(crate) fn fill(&self) -> MutexGuard<'_, Fill> {
        self.fill.lock()
    }

    #[inline]
    pub(crate) fn completion(&self) -> MutexGuard<'_, Completion> {
        self.completion.lock()
    }
}

/// Free chunks.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) ring: Consumer<Mapped<u64>>,
    /// Chunks that were taken from the ring but turned out not to be needed.
    pub(crate) returned: Vec<u64>,
    /// Entries that name no chunk.
    pub(crate) invalid: u64,
    /// Number of times that a chunk was needed and none was free.
    pub(crate) empty: u64,
}

impl Fill {
    /// Start of a free chunk (`xp_alloc`).
    #[inline]
    pub(crate) fn take(&mut self, umem: &Umem) -> Option<u64> {
        if let Some(chunk) = self.returned.pop() {
            return Some(chunk);
        }
        loop {
            if self.ring.available(1) == 0 {
                self.empty += 1;
                return None;
            }
            match umem.chunk_at(self.ring.read()) {
                Some(chunk) => return Some(chunk),
                None => self.invalid += 1,
            }
        }
    }

    /// Appends frames in free chunks until there are `count`. A lack of chunks is not counted,
    /// because the frames may not be needed.
    pub(crate) fn lend(
        &mut self,
        umem: &Umem,
        lent: &mut Lent,
        frames: &mut Vec<Frame>,
        count: usize,
    ) {
        while frames.len() < count {
            let chunk = match self.returned.pop() {
                Some(chunk) => Some(chunk),
                None if self.ring.available(1) == 0 => break,
                None => umem.chunk_at(self.ring.read()),
            };
            match chunk.and_then(|chunk| lent.take(chunk)) {
                Some(frame) => frames.push(frame),
                // The entry names no chunk, or a chunk that is in use already.
                None => self.invalid += 1,
            }
        }
        self.ring.release();
    }

    /// `count` free chunks, or none (`xsk_buff_can_alloc`, which counts only that there are none).
    pub(crate) fn take_all(&mut self, umem: &Umem, count: usize, out: &mut Vec<u64>) -> bool {
        out.clear();
        let wanted = u32::try_from(count).unwrap_or(u32::MAX);
        if self.returned.len() < count {
            let there = self.ring.available(wanted);
            self.empty += u64::from(there == 0);
            if there < wanted {
                return false;
            }
        }
        while out.len() < count {
            let before = self.empty;
            let Some(chunk) = self.take(umem) else {
                // Some entries name no chunk.
                self.empty = before;
                self.returned.append(out);
                return false;
            };
            out.push(chunk);
        }
        true
    }
}

/// Chunks whose packets were sent.
#[derive(Debug)]
pub(crate) struct Completion {
    ring: Producer<Mapped<u64>>,
    /// Places reserved for packets in flight.
    reserved: u32,
    /// The application must be woken.
    is_awaited: bool,
}

impl Completion {
    /// Reserves `count` places (`xsk_cq_reserve_locked`).
    pub(crate) fn reserve(&mut self, count: u32) -> bool {
        let fits = self.ring.free(self.reserved + count) >= self.reserved + count;
        self.reserved += if fits { count } else { 0 };
        fits
    }

    /// Releases reserved places.
    pub(crate) fn cancel(&mut self, count: u32) {
        self.reserved -= count;
    }

    /// Uses one reserved place.
    pub(crate) fn write(&mut self, addr: u64) {
        self.reserved -= 1;
        self.ring.write(addr);
    }

    /// Publishes the used places.
    pub(crate) fn submit(&mut self) {
        self.ring.submit();
        self.is_awaited |= self.ring.claim_wakeup();
    }

    /// Whether the application sleeps until packets are completed, and some were.
    pub(crate) fn takes_awaited(&mut self) -> bool {
        std::mem::take(&mut self.is_awaited)
    }

    pub(crate) fn jumps(&self) -> u64 {
        self.ring.jumps()
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.ring.waiting()
    }
}
