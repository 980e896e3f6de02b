//! `setsockopt` and `getsockopt` at level `SOL_XDP`.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use towpath_ring::{Desc, OFFSETS};

use super::busy_poll::BusyPoll;
use super::{Setup, Socket, State};
use crate::abi::{
    MAX_TX_SKB_BUDGET, MMAP_OFFSETS, OPTIONS, RX_RING, STATISTICS, TX_RING, UMEM_COMPLETION_RING,
    UMEM_FILL_RING, UMEM_REG, UmemReg, number,
};
use crate::rings::{RingMemory, Which};
use crate::umem::{Umem, check};

/// `struct xdp_statistics`, and counters that only Towpath has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Packets not delivered: no free chunk, or too long.
    pub rx_dropped: u64,
    /// Always 0, as in the kernel, which counts bad fill entries elsewhere.
    pub rx_invalid_descs: u64,
    /// Descriptors to send that were invalid.
    pub tx_invalid_descs: u64,
    /// Packets not delivered: the rx ring was full.
    pub rx_ring_full: u64,
    /// Number of times that the fill ring was found empty.
    pub rx_fill_ring_empty_descs: u64,
    /// Number of times that the tx ring was found empty.
    pub tx_ring_empty_descs: u64,
    /// Entries of the fill ring that name no chunk.
    pub fill_invalid: u64,
    /// Invalid indices that the application stored, in any ring.
    pub index_jumps: u64,
    /// Packets delivered.
    pub rx_packets: u64,
    /// Packets delivered in place, without a copy.
    pub rx_zero_copy: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets sent in place, without a copy.
    pub tx_zero_copy: u64,
    /// Entries that wait in the rx, tx, fill and completion rings.
    pub levels: [u32; 4],
}

impl Socket {
    /// `setsockopt` at level `SOL_XDP`; at `SOL_SOCKET` with [`crate::abi::SOCKET_LEVEL`]. For
    /// `UMEM_REG`, `file` is the memory's file, and the offset of `addr` in it.
    pub fn set_option(
        &self,
        name: u32,
        value: &[u8],
        file: Option<(OwnedFd, u64)>,
    ) -> Result<(), Errno> {
        let which = match name {
            RX_RING => Which::Rx,
            TX_RING => Which::Tx,
            UMEM_FILL_RING => Which::Fill,
            UMEM_COMPLETION_RING => Which::Completion,
            UMEM_REG => return self.register(value, file),
            MAX_TX_SKB_BUDGET => return self.set_budget(value),
            name if BusyPoll::knows(name) => return self.busy_poll.set(name, value),
            _ => return Err(Errno::NOPROTOOPT),
        };
        if value.len() < 4 {
            return Err(Errno::INVAL);
        }
        let entries = number(value);
        let mut setup = self.setup.lock();
        if setup.state != State::Ready {
            return Err(Errno::BUSY);
        }
        let place = match which {
            Which::Rx => &mut setup.rx,
            Which::Tx => &mut setup.tx,
            Which::Fill => &mut setup.fill,
            Which::Completion => &mut setup.completion,
        };
        if place.is_some() {
            return Err(Errno::INVAL);
        }
        *place = Some(match which {
            Which::Rx | Which::Tx => RingMemory::new::<Desc>(&self.rings, which, entries)?,
            Which::Fill | Which::Completion => RingMemory::new::<u64>(&self.rings, which, entries)?,
        });
        Ok(())
    }

    /// `XDP_UMEM_REG`
    fn register(&self, value: &[u8], file: Option<(OwnedFd, u64)>) -> Result<(), Errno> {
        let reg = UmemReg::from_bytes(value).ok_or(Errno::INVAL)?;
        let mut setup = self.setup.lock();
        let Setup { state: State::Ready, umem: None, .. } = &*setup else {
            return Err(Errno::BUSY);
        };
        check(&reg)?;
        let (file, start) = file.ok_or(Errno::FAULT)?;
        setup.umem = Some(Arc::new(Umem::new(&reg, file, start)?));
        Ok(())
    }

    /// `XDP_MAX_TX_SKB_BUDGET`
    fn set_budget(&self, value: &[u8]) -> Result<(), Errno> {
        if value.len() != 4 {
            return Err(Errno::INVAL);
        }
        let budget = number(value);
        let mut setup = self.setup.lock();
        let entries = setup.tx.as_ref().map_or(0, |tx| tx.entries);
        if budget < TX_BUDGET_MIN || budget > entries {
            return Err(Errno::ACCESS);
        }
        setup.tx_budget = Some(budget);
        Ok(())
    }

    /// `getsockopt`, for an answer of at most `room` bytes.
    pub fn get_option(&self, name: u32, room: usize) -> Result<Vec<u8>, Errno> {
        match name {
            MMAP_OFFSETS if room < OFFSETS_BYTES / 4 * 3 => Err(Errno::INVAL),
            MMAP_OFFSETS => Ok(offsets(room)),
            STATISTICS if room < STATISTICS_BYTES / 2 => Err(Errno::INVAL),
            STATISTICS => Ok(self.statistics().to_bytes(room)),
            OPTIONS if room < 4 => Err(Errno::INVAL),
            OPTIONS => {
                let is_zero_copy = self.bound.get().is_some_and(|bound| bound.pool.is_zero_copy);
                Ok(u32::from(is_zero_copy).to_ne_bytes().to_vec())
            }
            name if BusyPoll::knows(name) => Ok(self.busy_poll.get(name, room)),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Its counters.
    pub fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        let Some(bound) = self.bound.get() else { return sum };
        {
            let mut fill = bound.pool.fill();
            sum.rx_fill_ring_empty_descs = fill.empty;
            sum.fill_invalid = fill.invalid;
            sum.index_jumps += fill.ring.jumps();
            sum.levels[2] = fill.ring.available(u32::MAX) + fill.returned.len() as u32;
        }
        if let Some(rx) = &bound.rx {
            let rx = rx.lock();
            sum.rx_dropped = rx.dropped;
            sum.rx_ring_full = rx.ring_full;
            sum.rx_packets = rx.frames;
            sum.rx_zero_copy = rx.without_copy;
            sum.index_jumps += rx.ring.jumps();
            sum.levels[0] = rx.ring.waiting();
        }
        if let Some(tx) = &bound.tx {
            let mut tx = tx.lock();
            sum.tx_invalid_descs = tx.invalid;
            sum.tx_ring_empty_descs = tx.empty;
            sum.tx_packets = tx.packets_sent;
            sum.tx_zero_copy = tx.without_copy;
            sum.index_jumps += tx.ring.jumps();
            sum.levels[1] = tx.ring.available(u32::MAX);
        }
        let completion = bound.pool.completion();
        sum.index_jumps += completion.jumps();
        sum.levels[3] = completion.waiting();
        sum
    }
}

impl Statistics {
    /// In the kernel's format: older callers have room for fewer counters, and get one counter
    /// added to another.
    fn to_bytes(self, room: usize) -> Vec<u8> {
        let is_old = room < STATISTICS_BYTES;
        let dropped = self.rx_dropped + if is_old { self.rx_ring_full } else { 0 };
        let words = [
            dropped,
            self.rx_invalid_descs,
            self.tx_invalid_descs,
            self.rx_ring_full,
            self.rx_fill_ring_empty_descs,
            self.tx_ring_empty_descs,
        ];
        let count = if is_old { 3 } else { 6 };
        words.iter().take(count).flat_map(|word| word.to_ne_bytes()).collect()
    }
}

/// `struct xdp_mmap_offsets`, or its first version without flags.
fn offsets(room: usize) -> Vec<u8> {
    let flags = OFFSETS.flags.unwrap_or(0);
    let one = [OFFSETS.producer, OFFSETS.consumer, OFFSETS.desc, flags];
    let words = if room < OFFSETS_BYTES { 3 } else { 4 };
    let all = [&one[..words]; 4];
    all.into_iter().flatten().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Four rings, four numbers each.
const OFFSETS_BYTES: usize = 128;
const STATISTICS_BYTES: usize = 48;
/// `TX_BATCH_SIZE`
const TX_BUDGET_MIN: u32 = 32;
