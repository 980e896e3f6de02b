//! The limit: a ring of descriptors, and nothing else.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::AsFd as _;
use towpath_engine::port::Wake;
use towpath_engine::{Place, Socket};
use towpath_ring::{Consumer, Desc, Mapped, Memory, OFFSETS, Producer};
use towpath_xdp::{Frame, Pool};

/// A socket that is one ring: frames leave a descriptor there and nothing of themselves.
#[derive(Debug)]
pub(crate) struct BareRing {
    place: Place,
    ring: Mutex<Producer<Mapped<Desc>>>,
}

/// Both ends of a ring.
pub(crate) fn ring(
    entries: u32,
) -> anyhow::Result<(Producer<Mapped<Desc>>, Consumer<Mapped<Desc>>)> {
    let file = memfd_create("ring", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, Memory::bytes::<Desc>(&OFFSETS, entries)? as u64)?;
    let memory = Memory::map::<Desc>(file.as_fd(), 0, &OFFSETS, entries)?;
    let end = || Mapped::new(&memory, &OFFSETS, entries);
    Ok((Producer::new(end()?), Consumer::new(end()?)))
}

/// Takes what is there.
pub(crate) fn drain(ring: &mut Consumer<Mapped<Desc>>) -> usize {
    let mut packets = [Desc::default(); 64];
    let count = ring.peek_burst(&mut packets);
    std::hint::black_box(&packets);
    ring.advance(count as u32);
    ring.release();
    count
}

impl BareRing {
    pub(crate) fn new(place: Place, ring: Producer<Mapped<Desc>>) -> BareRing {
        BareRing { place, ring: Mutex::new(ring) }
    }

    fn ring(&self) -> MutexGuard<'_, Producer<Mapped<Desc>>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Socket for BareRing {
    fn id(&self) -> u32 {
        1
    }

    fn place(&self) -> Option<Place> {
        Some(self.place)
    }

    fn receives(&self) -> bool {
        true
    }

    fn transmits(&self) -> bool {
        false
    }

    fn deliver(&self, _from: Place, frames: &mut Vec<Frame>, pool: &mut Pool) -> usize {
        let mut ring = self.ring();
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
