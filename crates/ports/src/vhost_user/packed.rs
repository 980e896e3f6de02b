//! The device's side of a packed ring (virtio 1.3, 2.8): one ring of descriptors, which the driver
//! makes available and the device marks as used in place.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use super::burst::{
    Burst, Chain, DESCRIPTOR_BYTES, Descriptor, Direction, INDIRECT, NEXT, Used, Violation, WRITE,
};
use super::feature::{EVENT_IDX, Negotiated};
use super::inflight::{Inflight, Taken};
use super::mapping_unsafe::Area;
use super::memory::Memory;
use super::ring::{Addresses, SetupError};
use super::run::{Run, Wanted};
use super::split::{SIZE_MAX, needs_event};

#[derive(Debug)]
pub(super) struct Packed {
    size: u16,
    ring: Area<8>,
    /// Event suppression areas: the driver's for interrupts, and the device's for kicks.
    driver: Area<2>,
    device: Area<2>,
    /// Position of the next buffer.
    next: Position,
    /// Position behind buffers that were read but not used yet.
    ahead: Position,
    /// Entries between the two positions.
    in_hand: u16,
    has_event_index: bool,
    /// Entries used since the last interrupt, or decision against one.
    since_signal: u16,
    inflight: Option<Inflight>,
    /// Buffers that the previous back end took and did not return; processed first.
    taken: VecDeque<Taken>,
    /// If the previous back end ended while it returned buffers: the position behind these. Some of
    /// them may be used already.
    torn: Option<Position>,
}

/// A position in the ring, with its wrap counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) index: u16,
    /// The wrap counter.
    pub(super) wrap: bool,
}

impl Position {
    const FIRST: Position = Position { index: 0, wrap: true };

    #[inline]
    fn advance(&mut self, slots: u16, size: u16) {
        let next = u32::from(self.index) + u32::from(slots);
        let size = u32::from(size);
        debug_assert!(next < 2 * size, "not more than a lap");
        if next >= size {
            self.wrap = !self.wrap;
        }
        self.index = (if next >= size { next - size } else { next }) as u16;
    }

    /// A position from half of a front end's base number.
    fn of_base(base: u16) -> Position {
        Position { index: base & !WRAP_BIT, wrap: base & WRAP_BIT != 0 }
    }

    fn base(self) -> u16 {
        self.index | if self.wrap { WRAP_BIT } else { 0 }
    }
}

impl Packed {
    /// A ring that the front end says was left at `base`.
    pub(super) fn new(
        memory: &Memory,
        (size, base): (u32, u32),
        addresses: &Addresses,
        features: Negotiated,
        inflight: Option<Inflight>,
    ) -> Result<Packed, SetupError> {
        let size = u16::try_from(size).ok().filter(|size| (1..=SIZE_MAX).contains(size));
        let size = size.ok_or(SetupError::Size)?;
        let ring = memory.area(addresses.descriptors, usize::from(size) * DESCRIPTOR_BYTES)?;
        let driver = memory.area(addresses.available, 4)?;
        let device = memory.area(addresses.used, 4)?;
        let start = Position::FIRST;
        let mut packed = Packed {
            size,
            ring,
            driver,
            device,
            next: start,
            ahead: start,
            in_hand: 0,
            has_event_index: features.has(EVENT_IDX),
            // The first buffers count as if an interrupt were due.
            since_signal: size,
            inflight,
            taken: VecDeque::new(),
            torn: None,
        };
        packed.go_on(Position::of_base(base as u16));
        packed.ignore_kicks();
        Ok(packed)
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// The answer to `GET_VRING_BASE`: the positions of the next available and the next used
    /// buffer.
    pub(super) fn base(&self) -> u32 {
        let mut available = self.next;
        for taken in &self.taken {
            available.advance(taken.descriptors.len() as u16, self.size);
        }
        u32::from(available.base()) | u32::from(self.next.base()) << 16
    }

    /// Whether an unread buffer is available.
    fn has_pending(&self) -> bool {
        self.is_available(self.flags(self.ahead.index), self.ahead.wrap)
    }

    /// Number of available buffers within the look-ahead: chains, however many entries they take.
    pub(super) fn pending(&self) -> usize {
        let (mut at, mut is_inside, mut count) = (self.ahead, false, 0);
        for _ in 0..self.size.min(LOOK_AHEAD) {
            let flags = self.flags(at.index);
            // The head's flags are written last: if the head is available, its chain is complete.
            if !is_inside && !self.is_available(flags, at.wrap) {
                break;
            }
            count += usize::from(!is_inside);
            is_inside = flags & NEXT != 0;
            at.advance(1, self.size);
        }
        count
    }

    #[inline]
    fn is_available(&self, flags: u16, wrap: bool) -> bool {
        (flags & AVAIL != 0) == wrap && (flags & USED != 0) != wrap
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
        for _ in 0..limit {
            if burst.is_used_up() || self.in_hand >= self.size {
                break;
            }
            if !self.taken.is_empty() {
                if self.collect_taken(memory, direction, burst) {
                    continue;
                }
                if burst.violation.is_some() {
                    break;
                }
            }
            let at = usize::from(self.ahead.index) * DESCRIPTOR_BYTES;
            let [addr, rest] = self.ring.load_pair(at, Ordering::Acquire);
            let head = Descriptor::packed(addr, rest);
            if !self.is_available(head.flags, self.ahead.wrap) {
                break;
            }
            let mut chain = burst.begin(head.number);
            let walked = match head.flags & (NEXT | INDIRECT) {
                0 => burst.add(&mut chain, memory, &head, direction),
                _ => self.walk_on(memory, head, direction, burst, &mut chain),
            };
            // Ids must be below the ring's size.
            let is_known = chain.id < self.size;
            let walked = walked.and(if is_known {
                Ok(())
            } else {
                Err(Violation::Index(chain.id, self.size))
            });
            if let Err(violation) = walked {
                burst.violation = Some(violation);
                break;
            }
            self.in_hand += chain.slots;
            self.ahead.advance(chain.slots, self.size);
            burst.end(chain);
        }
    }

    /// Reads the next buffers while they match `wanted`. Returns `true` if a buffer follows that
    /// does not. The position advances only by [`Packed::give_back`].
    #[inline]
    pub(super) fn look<'m>(
        &mut self,
        memory: &'m Memory,
        wanted: &Wanted,
        run: &mut Run<'m>,
    ) -> bool {
        assert_eq!(self.ahead, self.next, "what was looked at is completed");
        if !self.taken.is_empty() {
            return true;
        }
        let (mut finder, mut at) = (memory.finder(), self.next);
        let available = |wrap| wanted.also(AVAIL | USED, if wrap { AVAIL } else { USED });
        let (mut lap, size) = (available(at.wrap), self.size);
        for _ in 0..wanted.limit().min(usize::from(size)) {
            let place = usize::from(at.index) * DESCRIPTOR_BYTES;
            let [addr, rest] = self.ring.load_pair(place, Ordering::Acquire);
            let descriptor = Descriptor::packed(addr, rest);
            let id = descriptor.number;
            let buffer = lap.buffer(&descriptor, id, &mut finder);
            let Some(buffer) = buffer.filter(|_| id < size) else {
                return self.is_available(descriptor.flags, at.wrap);
            };
            run.push(buffer);
            at.advance(1, size);
            if at.index == 0 {
                lap = available(at.wrap);
            }
        }
        false
    }

    /// Reads the next chain that the previous back end took. Returns `false` if there is none.
    #[cold]
    fn collect_taken(&mut self, memory: &Memory, direction: Direction, burst: &mut Burst) -> bool {
        let Some(taken) = self.taken.get(burst.chains.len()) else { return false };
        let mut chain = burst.begin(0);
        let walked = taken.descriptors.iter().try_for_each(|descriptor| {
            chain.id = descriptor.number;
            if descriptor.flags & INDIRECT != 0 {
                return self.walk_table(memory, descriptor, direction, burst, &mut chain);
            }
            burst.add(&mut chain, memory, descriptor, direction)
        });
        chain.slots = taken.descriptors.len() as u16;
        let has_room = chain.slots <= self.size - self.in_hand;
        let is_known = chain.id < self.size && has_room;
        let known = if is_known { Ok(()) } else { Err(Violation::Index(chain.id, self.size)) };
        if let Err(violation) = walked.and(known) {
            burst.violation = Some(violation);
            return false;
        }
        self.in_hand += chain.slots;
        self.ahead.advance(chain.slots, self.size);
        burst.end(chain);
        true
    }

    fn walk_on(
        &self,
        memory: &Memory,
        head: Descriptor,
        direction: Direction,
        burst: &mut Burst,
        chain: &mut Chain,
    ) -> Result<(), Violation> {
        let mut descriptor = head;
        let mut at = self.ahead;
        loop {
            if descriptor.flags & INDIRECT != 0 {
                self.walk_table(memory, &descriptor, direction, burst, chain)?;
            } else {
                burst.add(chain, memory, &descriptor, direction)?;
            }
            chain.id = descriptor.number;
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            if chain.slots >= self.size - self.in_hand {
                return Err(Violation::Endless(self.size));
            }
            chain.slots += 1;
            at.advance(1, self.size);
            let place = usize::from(at.index) * DESCRIPTOR_BYTES;
            // The head's flags were written last and read first.
            let [addr, rest] = self.ring.load_pair(place, Ordering::Relaxed);
            descriptor = Descriptor::packed(addr, rest);
        }
    }

    /// Reads all descriptors of an indirect table, in order.
    fn walk_table(
        &self,
        memory: &Memory,
        of: &Descriptor,
        direction: Direction,
        burst: &mut Burst,
        chain: &mut Chain,
    ) -> Result<(), Violation> {
        let (table, entries) = of.table(memory, self.size)?;
        for index in 0..entries {
            let [addr, rest] = Descriptor::of_table(memory, table, index);
            let mut descriptor = Descriptor::packed(addr, rest);
            if descriptor.flags & INDIRECT != 0 {
                return Err(Violation::Table(of.len));
            }
            // DPDK's driver leaves this flag set in the header's entry of sent buffers
            // (`vring_desc_init_indirect_packed`). Reading writable bytes is harmless.
            if direction == Direction::FromGuest {
                descriptor.flags &= !WRITE;
            }
            burst.add(chain, memory, &descriptor, direction)?;
        }
        Ok(())
    }

    /// Returns the first of the buffers that were read; the others count as unread again.
    pub(super) fn complete(&mut self, chains: &[Chain]) {
        let chains = if self.taken.is_empty() { chains } else { self.complete_taken(chains) };
        self.give_back(chains.iter().map(Chain::used));
    }

    /// Returns the next buffers. The first one's flags are written last, so that a driver that sees
    /// it sees all of them.
    #[inline]
    pub(super) fn give_back(&mut self, mut buffers: impl Iterator<Item = Used> + Clone) {
        let (first, size) = (self.next, self.size);
        let mut at = first;
        if let Some(inflight) = &self.inflight {
            buffers.clone().for_each(|buffer| at.advance(buffer.slots, size));
            inflight.note_packed(first, at);
            at = first;
        }
        if let Some(last_written) = buffers.next() {
            at.advance(last_written.slots, size);
            let mut places = u32::from(last_written.slots);
            for buffer in buffers {
                self.mark_used(at, &buffer, Ordering::Relaxed);
                at.advance(buffer.slots, size);
                places += u32::from(buffer.slots);
            }
            self.mark_used(first, &last_written, Ordering::Release);
            let since = u32::from(self.since_signal) + places;
            self.since_signal = u16::try_from(since).unwrap_or(u16::MAX);
        }
        if let Some(inflight) = &self.inflight {
            inflight.note_packed(at, at);
        }
        self.next = at;
        if self.torn.is_some() {
            self.pass_used();
        }
        (self.ahead, self.in_hand) = (self.next, 0);
    }

    /// Returns chains that the previous back end took, each by itself; returns the remaining
    /// chains.
    #[cold]
    fn complete_taken<'a>(&mut self, chains: &'a [Chain]) -> &'a [Chain] {
        let count = chains.len().min(self.taken.len());
        let (taken, others) = chains.split_at(count);
        for chain in taken {
            let (Some(taken), Some(inflight)) = (self.taken.pop_front(), &self.inflight) else {
                break;
            };
            let mut end = self.next;
            end.advance(chain.slots, self.size);
            inflight.note_packed(self.next, end);
            self.mark_used(self.next, &chain.used(), Ordering::Release);
            inflight.end_packed(taken.entry);
            inflight.note_packed(end, end);
            self.since_signal = self.since_signal.saturating_add(chain.slots);
            self.next = end;
        }
        others
    }

    /// Skips buffers that were returned in a batch whose first buffer was not: see
    /// [`Packed::complete`].
    #[cold]
    fn pass_used(&mut self) {
        let mut is_inside = false;
        for _ in 0..self.size {
            let is_end = self.torn == Some(self.next);
            if is_end || !is_inside && !self.is_used(self.next) {
                self.torn = self.torn.filter(|_| !is_end);
                break;
            }
            // A chain ends with the first descriptor without the NEXT flag.
            is_inside = self.flags(self.next.index) & NEXT != 0;
            self.next.advance(1, self.size);
        }
        if let Some(inflight) = &self.inflight {
            inflight.note_packed(self.next, self.torn.unwrap_or(self.next));
        }
    }

    /// Marks a buffer as used with one store, as length, id and flags are one word.
    #[inline]
    fn mark_used(&self, at: Position, buffer: &Used, order: Ordering) {
        let mut flags = if at.wrap { AVAIL | USED } else { 0 };
        if buffer.written > 0 {
            flags |= WRITE;
        }
        // Drivers ignore this flag (2.8.5). After a crash it shows where the last used chain ends:
        // see `resume`.
        if buffer.slots > 1 {
            flags |= NEXT;
        }
        let rest = u64::from(flags) << 48 | u64::from(buffer.id) << 32 | u64::from(buffer.written);
        self.ring.store64(usize::from(at.index) * DESCRIPTOR_BYTES + 8, rest, order);
    }

    #[inline]
    fn flags(&self, index: u16) -> u16 {
        let at = usize::from(index) * DESCRIPTOR_BYTES;
        (self.ring.load64(at + 8, Ordering::Acquire) >> 48) as u16
    }

    /// Sets the start position: the noted one, or else the one derived from front end and ring.
    fn go_on(&mut self, base: Position) {
        let noted = self.inflight.as_ref().and_then(Inflight::packed_places);
        self.next = match noted {
            // The first buffer of a batch is marked last, so the batch was not completed.
            Some((from, to)) if from != to && self.may_be_at(from) => {
                self.torn = Some(to);
                from
            }
            Some((_, to)) if self.may_be_at(to) => to,
            // The driver has set up the ring again since.
            _ => self.resume(base),
        };
        if let Some(inflight) = &self.inflight {
            inflight.note_packed(self.next, self.torn.unwrap_or(self.next));
            self.taken = inflight.resume_packed().into();
        }
        self.ahead = self.next;
    }

    /// Whether a noted position is consistent with the ring.
    fn may_be_at(&self, noted: Position) -> bool {
        if noted == Position::FIRST { !self.is_used(noted) } else { self.is_place(noted) }
    }

    /// Whether the buffer at this position was returned in this lap.
    fn is_used(&self, at: Position) -> bool {
        let flags = self.flags(at.index);
        (flags & AVAIL != 0) == at.wrap && (flags & USED != 0) == at.wrap
    }

    /// The position to resume at. A front end whose back end was killed reports the first position
    /// of the first lap, or the one where the ring was last stopped. The ring itself shows it:
    /// buffers before the position were used in this lap, or made available for the next; those
    /// behind it were used in the lap before, or are available in this one. One bit differs.
    fn resume(&self, base: Position) -> Position {
        if self.is_place(base) {
            return base;
        }
        let used = |index: u16| self.flags(index) & USED != 0;
        let is_chained = |index: u16| self.flags(index) & NEXT != 0;
        // Skips the end of a chain that began in the lap before. Only a chain's first descriptor is
        // reliable: the others keep what the driver wrote.
        let (mut first, mut before) = (0, self.size - 1);
        while first < self.size && is_chained(before) {
            (before, first) = (first, first + 1);
        }
        if first == self.size {
            return Position::FIRST;
        }
        let lap = used(first);
        let mut index = first;
        while index < self.size && used(index) == lap {
            while index + 1 < self.size && is_chained(index) {
                index += 1;
            }
            index += 1;
        }
        if index < self.size {
            return Position { index, wrap: lap };
        }
        Position { index: first, wrap: !lap }
    }

    /// Whether the front end's position is consistent with the ring.
    fn is_place(&self, base: Position) -> bool {
        if base == Position::FIRST || base.index >= self.size {
            return false;
        }
        let before = self.flags(base.index.checked_sub(1).unwrap_or(self.size - 1));
        // The entry before the first position belongs to the lap before.
        let lap = base.wrap == (base.index > 0);
        let was_used = (before & AVAIL != 0) == lap || (before & USED != 0) == lap;
        was_used && (self.flags(base.index) & USED != 0) != base.wrap
    }

    /// Whether the driver wants an interrupt for buffers returned since the last call.
    #[inline]
    pub(super) fn wants_signal(&mut self) -> bool {
        // Either the driver sees the stores above, or the load below sees its request.
        fence(Ordering::SeqCst);
        let since = std::mem::take(&mut self.since_signal);
        match self.driver.load16(EVENT_FLAGS, Ordering::Acquire) {
            EVENTS_OFF => false,
            EVENTS_AT if self.has_event_index => {
                let event = Position::of_base(self.driver.load16(EVENT_PLACE, Ordering::Relaxed));
                let is_other_lap = event.wrap != self.next.wrap;
                let lap = if is_other_lap { self.size } else { 0 };
                let now = self.next.index;
                since >= self.size
                    || needs_event(event.index.wrapping_sub(lap), now, now.wrapping_sub(since))
            }
            _ => true,
        }
    }

    /// Enables kicks for further buffers. Returns whether a buffer is available already.
    pub(super) fn ask_for_kicks(&mut self) -> bool {
        let flags = if self.has_event_index {
            self.device.store16(EVENT_PLACE, self.next.base(), Ordering::Relaxed);
            EVENTS_AT
        } else {
            EVENTS_ON
        };
        self.device.store16(EVENT_FLAGS, flags, Ordering::Release);
        // Buffers made available before the driver sees the store above are seen below.
        fence(Ordering::SeqCst);
        self.has_pending()
    }

    /// Disables kicks, as the device polls.
    pub(super) fn ignore_kicks(&mut self) {
        self.device.store16(EVENT_FLAGS, EVENTS_OFF, Ordering::Relaxed);
    }

    /// Guest address and length of the range that [`Packed::complete`] writes: the whole ring.
    pub(super) fn used_range(&self) -> (u64, u64) {
        (self.ring.guest, u64::from(self.size) * DESCRIPTOR_BYTES as u64)
    }
}

/// Entries inspected to count available buffers: those of a burst.
const LOOK_AHEAD: u16 = 64;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;
const WRAP_BIT: u16 = 1 << 15;
const _: () =
    assert!(AVAIL & USED == 0 && AVAIL & (NEXT | WRITE | INDIRECT) == 0, "virtio 1.3, 2.8.1");
const _: () =
    assert!(LOOK_AHEAD as usize >= super::run::RUN_MAX, "a run is looked at in one piece");
/// Offsets in event suppression areas (2.8.10): a position with its wrap counter, and flags.
const EVENT_PLACE: usize = 0;
const EVENT_FLAGS: usize = 2;
const EVENTS_ON: u16 = 0;
const EVENTS_OFF: u16 = 1;
const EVENTS_AT: u16 = 2;
