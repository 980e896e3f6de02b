//! Chunks as frames (zero copy): the state of each chunk that is in use.
//!
//! A chunk belongs to the application until its address arrives in the fill ring (it becomes a
//! frame to receive into) or in the tx ring (it becomes a frame to send). A frame comes back when
//! its holder puts it back or drops it; the use of its chunk then decides what happens. If an
//! application names a chunk twice, bytes are copied the second time, as without zero copy.

use std::io;

use towpath_xdp::Frame;
use towpath_xdp::frame::external::{CHUNK_BYTES, Chunks};

use crate::pool::{Completion, Fill};

/// The chunks of a UMEM.
#[derive(Debug)]
pub(crate) struct Lent {
    chunks: Chunks,
    /// By chunk.
    ways: Vec<Way>,
    dropped: Vec<usize>,
    /// Number of sent packets whose frames are still in use.
    unfinished: u32,
}

/// The use of a chunk in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To receive into, or not in use.
    Rx,
    /// To be sent; it is not known yet whether the port takes it.
    Tx,
    /// To be sent, and its frame is gone already.
    TxGone,
    /// The port did not take it: it is still in the tx ring.
    Unsent,
    /// Sent. The address goes to the completion ring when the frame is gone.
    Sent(u64),
}

impl Lent {
    pub(crate) fn new(chunks: Chunks, len: u64) -> Lent {
        let ways = vec![Way::Rx; len as usize / CHUNK_BYTES];
        Lent { chunks, ways, dropped: Vec::new(), unfinished: 0 }
    }

    /// An empty frame in a chunk, to receive into; `None` if the chunk is in use already.
    #[inline]
    pub(crate) fn take(&mut self, chunk: u64) -> Option<Frame> {
        self.chunks.take(chunk as usize / CHUNK_BYTES)
    }

    /// Returns a frame's chunk to the application; returns the chunk's offset. A frame in other
    /// memory is returned unchanged.
    #[inline]
    pub(crate) fn put(&mut self, frame: Frame) -> Result<u64, Frame> {
        self.chunks.put(frame).map(|number| (number * CHUNK_BYTES) as u64)
    }

    /// Whether a frame was made here, to receive into.
    #[inline]
    pub(crate) fn has(&self, frame: &Frame) -> bool {
        self.chunks.number_of(frame).is_some_and(|number| self.ways[number] == Way::Rx)
    }

    /// The offset of a frame's chunk.
    #[inline]
    pub(crate) fn start(&self, frame: &Frame) -> Option<u64> {
        self.chunks.number_of(frame).map(|number| (number * CHUNK_BYTES) as u64)
    }

    /// A frame with the packet of `len` bytes at an address; `None` if its bytes can't be a frame's
    /// packet, or if its chunk is in use already.
    pub(crate) fn frame_at(&mut self, data: u64, len: usize) -> Option<Frame> {
        let (number, offset) = (data as usize / CHUNK_BYTES, data as usize % CHUNK_BYTES);
        let mut frame = self.chunks.take(number)?;
        if frame.set_packet(offset, len).is_err() {
            // Nothing was sent, so there is no completion.
            let _number = self.chunks.put(frame);
            return None;
        }
        self.ways[number] = Way::Tx;
        Some(frame)
    }

    /// Notes that the port took the packet at `data`: its chunk returns to the application when the
    /// frame is freed. Returns whether the frame was freed already.
    pub(crate) fn sent(&mut self, data: u64, addr: u64) -> bool {
        let way = &mut self.ways[data as usize / CHUNK_BYTES];
        let is_gone = *way == Way::TxGone;
        *way = if is_gone { Way::Rx } else { Way::Sent(addr) };
        self.unfinished += u32::from(!is_gone);
        is_gone
    }

    /// Notes that the port did not take the packet at `data`.
    pub(crate) fn unsent(&mut self, data: u64) {
        let way = &mut self.ways[data as usize / CHUNK_BYTES];
        *way = if *way == Way::TxGone { Way::Rx } else { Way::Unsent };
    }

    /// Number of sent packets whose frames are still in use.
    pub(crate) fn unfinished(&self) -> u32 {
        self.unfinished
    }

    /// Processes the frames that were freed: chunks to receive into are free again, packets that
    /// were sent are completed.
    pub(crate) fn reclaim(&mut self, fill: &mut Fill, completion: &mut Completion) {
        self.chunks.take_dropped(&mut self.dropped);
        if self.dropped.is_empty() {
            return;
        }
        for number in self.dropped.drain(..) {
            let way = &mut self.ways[number];
            match std::mem::replace(way, Way::Rx) {
                Way::Rx => fill.returned.push((number * CHUNK_BYTES) as u64),
                Way::Tx | Way::TxGone => *way = Way::TxGone,
                Way::Unsent => {}
                Way::Sent(addr) => {
                    self.unfinished -= 1;
                    completion.write(addr);
                }
            }
        }
        completion.submit();
    }
}

/// Maps an application's chunks.
pub(crate) fn lent(memory: &crate::memory_unsafe::Memory, len: u64) -> io::Result<Lent> {
    Ok(Lent::new(memory.chunks()?, len))
}
