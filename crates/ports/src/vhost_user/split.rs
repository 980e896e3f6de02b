//! The device's side of a split ring (virtio 1.3, 2.7).
//!
//! Buffers are used in the order in which they were made available, so one position describes both
//! sides: the used index, which is in the guest's memory and survives the back end. Only buffers
//! that another back end took and left in another order are noted elsewhere: see `inflight`.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use super::burst::{
    Burst, Chain, DESCRIPTOR_BYTES, Descriptor, Direction, INDIRECT, NEXT, Used, Violation,
};
use super::feature::{EVENT_IDX, Negotiated};
use super::inflight::Inflight;
use super::mapping_unsafe::Area;
use super::memory::Memory;
use super::ring::{Addresses, SetupError};
use super::run::{Run, Wanted};

#[derive(Debug)]
pub(super) struct Split {
    /// Number of entries, a power of two.
    size: u16,
    descriptors: Area<8>,
    available: Area<2>,
    used: Area<4>,
    /// Position of the next buffer, a wrapping counter.
    next: u16,
    /// Position behind buffers that were read but not used yet.
    ahead: u16,
    /// The available index as last read.
    seen: u16,
    has_event_index: bool,
    /// The position at the last interrupt, or decision against one.
    signalled: Option<u16>,
    inflight: Option<Inflight>,
    /// Heads of chains that the previous back end took and did not return. They are processed
    /// first, in place of the next entries of the available ring.
    taken: VecDeque<u16>,
}

impl Split {
    pub(super) fn new(
        memory: &Memory,
        size: u32,
        addresses: &Addresses,
        features: Negotiated,
        inflight: Option<Inflight>,
    ) -> Result<Split, SetupError> {
        let size = u16::try_from(size).ok().filter(|size| size.is_power_of_two());
        let size = size.filter(|&size| size <= SIZE_MAX).ok_or(SetupError::Size)?;
        let entries = usize::from(size);
        let descriptors = memory.area(addresses.descriptors, entries * DESCRIPTOR_BYTES)?;
        // Each part is followed by the other side's event index.
        let available = memory.area(addresses.available, RING + 2 * entries + 2)?;
        let used: Area<4> = memory.area(addresses.used, RING + 8 * entries + 2)?;
        // Not the front end's position, which may be outdated after either side ended.
        let next = used.load16(INDEX, Ordering::Acquire);
        let has_event_index = features.has(EVENT_IDX);
        let taken = inflight.as_ref().map(|inflight| inflight.resume_split(next));
        let mut ring = Split {
            size,
            descriptors,
            available,
            used,
            next,
            ahead: next,
            seen: next,
            has_event_index,
            signalled: None,
            inflight,
            taken: taken.unwrap_or_default().into(),
        };
        ring.ignore_kicks();
        Ok(ring)
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// The answer to `GET_VRING_BASE`.
    pub(super) fn base(&self) -> u32 {
        u32::from(self.next.wrapping_add(self.taken.len() as u16))
    }

    /// Number of available buffers that were not read yet.
    #[inline]
    pub(super) fn pending(&mut self) -> Result<u16, Violation> {
        self.seen = self.available.load16(INDEX, Ordering::Acquire);
        let pending = self.seen.wrapping_sub(self.next);
        if pending > self.size {
            return Err(Violation::AvailableIndex(pending, self.size));
        }
        Ok(self.seen.wrapping_sub(self.ahead))
    }

    /// Reads up to `limit` further buffers.
    #[inline]
    pub(super) fn collect(
        &mut self,
        memory: &Memory,
        limit: usize,
        direction: Direction,
        burst: &mut Burst,
    ) {
        let pending = match self.pending() {
            Ok(pending) => pending,
            Err(violation) => return burst.violation = Some(violation),
        };
        for _ in 0..limit.min(usize::from(pending)) {
            if burst.is_used_up() {
                break;
            }
            let head = self.head();
            let mut chain = burst.begin(head);
            if let Err(violation) = self.walk(memory, head, direction, burst, &mut chain) {
                burst.violation = Some(violation);
                break;
            }
            burst.end(chain);
            self.ahead = self.ahead.wrapping_add(1);
        }
    }

    /// Reads the next buffers while they match `wanted`. Returns `true` if a buffer follows that
    /// does not. The position advances only by [`Split::give_back`].
    #[inline]
    pub(super) fn look<'m>(
        &mut self,
        memory: &'m Memory,
        wanted: &Wanted,
        run: &mut Run<'m>,
    ) -> bool {
        assert_eq!(self.ahead, self.next, "what was looked at is completed");
        let Ok(pending) = self.pending() else { return true };
        if !self.taken.is_empty() {
            return true;
        }
        let (mut finder, mask) = (memory.finder(), self.size - 1);
        let mut at = self.next;
        for _ in 0..wanted.limit().min(usize::from(pending)) {
            let place = RING + 2 * usize::from(at & mask);
            let head = self.available.load16(place, Ordering::Relaxed);
            let descriptor = self.load(head).ok();
            let buffer = descriptor.and_then(|it| wanted.buffer(&it, head, &mut finder));
            let Some(buffer) = buffer else { return true };
            run.push(buffer);
            at = at.wrapping_add(1);
        }
        false
    }

    /// The head of the next chain.
    #[inline]
    fn head(&self) -> u16 {
        if !self.taken.is_empty() {
            let looked_at = usize::from(self.ahead.wrapping_sub(self.next));
            if let Some(&head) = self.taken.get(looked_at) {
                return head;
            }
        }
        let place = usize::from(self.ahead & (self.size - 1));
        self.available.load16(RING + 2 * place, Ordering::Relaxed)
    }

    #[inline]
    fn walk(
        &self,
        memory: &Memory,
        head: u16,
        direction: Direction,
        burst: &mut Burst,
        chain: &mut Chain,
    ) -> Result<(), Violation> {
        let descriptor = self.load(head)?;
        if descriptor.flags & (NEXT | INDIRECT) == 0 {
            return burst.add(chain, memory, &descriptor, direction);
        }
        self.walk_on(memory, descriptor, direction, burst, chain)
    }

    fn walk_on(
        &self,
        memory: &Memory,
        first: Descriptor,
        direction: Direction,
        burst: &mut Burst,
        chain: &mut Chain,
    ) -> Result<(), Violation> {
        let mut descriptor = first;
        for _ in 0..self.size {
            if descriptor.flags & INDIRECT != 0 {
                return self.walk_table(memory, &descriptor, direction, burst, chain);
            }
            burst.add(chain, memory, &descriptor, direction)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            descriptor = self.load(descriptor.number)?;
        }
        Err(Violation::Endless(self.size))
    }

    /// Reads the descriptors of an indirect table, which ends a chain.
    fn walk_table(
        &self,
        memory: &Memory,
        of: &Descriptor,
        direction: Direction,
        burst: &mut Burst,
        chain: &mut Chain,
    ) -> Result<(), Violation> {
        let (table, entries) = of.table(memory, self.size)?;
        let mut index = 0;
        for _ in 0..entries {
            let [addr, rest] = Descriptor::of_table(memory, table, index);
            let descriptor = Descriptor::split(addr, rest);
            if descriptor.flags & INDIRECT != 0 {
                return Err(Violation::Table(of.len));
            }
            burst.add(chain, memory, &descriptor, direction)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            index = descriptor.number;
            if index >= entries {
                return Err(Violation::Index(index, entries));
            }
        }
        Err(Violation::Endless(entries))
    }

    #[inline]
    fn load(&self, index: u16) -> Result<Descriptor, Violation> {
        if index >= self.size {
            return Err(Violation::Index(index, self.size));
        }
        let at = usize::from(index) * DESCRIPTOR_BYTES;
        let [addr, rest] = self.descriptors.load_pair(at, Ordering::Relaxed);
        Ok(Descriptor::split(addr, rest))
    }

    /// Returns the first of the buffers that were read; the others count as unread again.
    pub(super) fn complete(&mut self, chains: &[Chain]) {
        let chains = if self.taken.is_empty() { chains } else { self.complete_taken(chains) };
        self.give_back(chains.iter().map(Chain::used));
    }

    /// Returns the next buffers, with one store of the used index.
    #[inline]
    pub(super) fn give_back(&mut self, buffers: impl Iterator<Item = Used>) {
        let (mut next, mask) = (self.next, self.size - 1);
        for Used { id, written, .. } in buffers {
            self.used.store_element(RING + 8 * usize::from(next & mask), u32::from(id), written);
            next = next.wrapping_add(1);
        }
        debug_assert!(next.wrapping_sub(self.next) <= self.size, "not more than there are");
        (self.next, self.ahead) = (next, next);
        self.used.store16(INDEX, next, Ordering::Release);
        if let Some(inflight) = &self.inflight {
            inflight.note_split(next);
        }
    }

    /// Returns chains that the previous back end took, each by itself; returns the remaining
    /// chains.
    #[cold]
    fn complete_taken<'a>(&mut self, chains: &'a [Chain]) -> &'a [Chain] {
        let count = chains.len().min(self.taken.len());
        let (taken, others) = chains.split_at(count);
        for (chain, head) in taken.iter().zip(self.taken.drain(..count)) {
            let Some(inflight) = &self.inflight else { continue };
            inflight.begin_split(head);
            let at = RING + 8 * usize::from(self.next & (self.size - 1));
            self.used.store_element(at, u32::from(chain.id), chain.written);
            self.next = self.next.wrapping_add(1);
            self.used.store16(INDEX, self.next, Ordering::Release);
            inflight.end_split(head, self.next);
        }
        others
    }

    /// Whether the driver wants an interrupt for buffers returned since the last call.
    #[inline]
    pub(super) fn wants_signal(&mut self) -> bool {
        // Either the driver sees the stores above, or the loads below see its request.
        fence(Ordering::SeqCst);
        if !self.has_event_index {
            return self.available.load16(FLAGS, Ordering::Relaxed) & NO_INTERRUPT == 0;
        }
        let event = self.available.load16(RING + 2 * usize::from(self.size), Ordering::Relaxed);
        let before = self.signalled.replace(self.next);
        before.is_none_or(|before| needs_event(event, self.next, before))
    }

    /// Enables kicks for further buffers. Returns whether a buffer is available already.
    pub(super) fn ask_for_kicks(&mut self) -> bool {
        if self.has_event_index {
            let event = RING + 8 * usize::from(self.size);
            self.used.store16(event, self.next, Ordering::Relaxed);
        } else {
            self.used.store16(FLAGS, 0, Ordering::Relaxed);
        }
        // Buffers made available before the driver sees the store above are seen below.
        fence(Ordering::SeqCst);
        self.pending() != Ok(0)
    }

    /// Disables kicks, as the device polls.
    pub(super) fn ignore_kicks(&mut self) {
        // An outdated event index has the same effect as the flag.
        if !self.has_event_index {
            self.used.store16(FLAGS, NO_NOTIFY, Ordering::Relaxed);
        }
    }

    /// Guest address and length of the range that [`Split::complete`] writes: the whole used ring.
    pub(super) fn used_range(&self) -> (u64, u64) {
        (self.used.guest, (RING + 8 * usize::from(self.size) + 2) as u64)
    }
}

/// Whether the position passed `event` since `before` (`vring_need_event`).
#[inline]
pub(super) fn needs_event(event: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

/// Most entries of a ring.
pub(super) const SIZE_MAX: u16 = 1 << 15;
const _: () = assert!(SIZE_MAX.is_power_of_two(), "virtio 1.3, 2.7");
/// Offsets of flags, index and entries in either part.
const FLAGS: usize = 0;
const INDEX: usize = 2;
const RING: usize = 4;
const _: () = assert!(FLAGS + 2 == INDEX && INDEX + 2 == RING, "virtio 1.3, 2.7.6");
/// `VIRTQ_AVAIL_F_NO_INTERRUPT` and `VIRTQ_USED_F_NO_NOTIFY`
const NO_INTERRUPT: u16 = 1;
const NO_NOTIFY: u16 = 1;
