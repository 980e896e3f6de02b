//! The limit: a ring of descriptors, and nothing else, or nothing but copies of packets.

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::AsFd as _;
use towpath_engine::port::Wake;
use towpath_engine::{QueueId, Socket};
use towpath_ring::{Consumer, Desc, Mapped, Memory, OFFSETS, Producer};
use towpath_xdp::frame::HEADROOM_BYTES;
use towpath_xdp::{Frame, Pool};
use towpath_xsk_client::Area;

/// The memory of a ring.
type Descs = Mapped<Desc>;

/// A socket that is one ring: frames leave a descriptor there.
#[derive(Debug)]
pub(crate) struct BareRing {
    place: QueueId,
    ends: Mutex<Ends>,
}

#[derive(Debug)]
struct Ends {
    ring: Producer<Descs>,
    /// Where packets are copied to, one chunk after the other, and how far apart those are.
    copies: Option<(Area, u64)>,
    next: u64,
}

/// Both ends of a ring.
pub(crate) fn ring(entries: u32) -> anyhow::Result<(Producer<Descs>, Consumer<Descs>)> {
    let file = memfd_create("ring", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, Memory::bytes::<Desc>(&OFFSETS, entries)? as u64)?;
    let memory = Memory::map::<Desc>(file.as_fd(), 0, &OFFSETS, entries)?;
    let end = || Mapped::new(&memory, &OFFSETS, entries);
    Ok((Producer::new(end()?), Consumer::new(end()?)))
}

/// Copies a packet to where a socket of the same size would have it.
#[inline]
fn copy(area: &mut Area, stride: u64, next: &mut u64, frame: &Frame) {
    let at = *next + HEADROOM_BYTES as u64;
    *next = if *next + stride < area.len() as u64 { *next + stride } else { 0 };
    if let Some(place) = area.bytes_mut(at, frame.linear_len()) {
        frame.shared_linear().read(place);
    }
}

/// Takes what is there.
pub(crate) fn drain(ring: &mut Consumer<Descs>) -> usize {
    let mut packets = [Desc::default(); 64];
    let count = ring.peek_burst(&mut packets);
    std::hint::black_box(&packets);
    ring.advance(count as u32);
    ring.release();
    count
}

impl BareRing {
    pub(crate) fn new(
        place: QueueId,
        ring: Producer<Descs>,
        copies: Option<(Area, u64)>,
    ) -> BareRing {
        BareRing { place, ends: Mutex::new(Ends { ring, copies, next: 0 }) }
    }
}

impl Socket for BareRing {
    fn id(&self) -> u32 {
        1
    }

    fn bound_to(&self) -> Option<QueueId> {
        Some(self.place)
    }

    fn receives(&self) -> bool {
        true
    }

    fn transmits(&self) -> bool {
        false
    }

    fn deliver(&self, _from: QueueId, frames: &mut Vec<Frame>, pool: &mut Pool) -> usize {
        let mut ends = self.ends.lock();
        let Ends { ring, copies, next } = &mut *ends;
        if let Some((area, stride)) = copies {
            frames.iter().for_each(|frame| copy(area, *stride, next, frame));
        }
        let descriptors = frames.iter().map(|frame| {
            let len = frame.linear_len() as u32;
            Desc { addr: u64::from(len), len, options: 0 }
        });
        let written = ring.write_burst(frames.len(), descriptors);
        ring.submit();
        pool.give_all(frames);
        written
    }

    fn flush(&self) {}

    fn collect(&self, _pool: &mut Pool, _frames: &mut Vec<Frame>, _limit: usize) -> usize {
        0
    }

    fn sent(&self, _count: usize) {}

    fn arm(&self) -> Wake<'_> {
        Wake::Waker
    }

    fn disarm(&self) {}
}
