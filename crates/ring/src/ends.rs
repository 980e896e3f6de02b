//! The two ends of a ring.

use std::sync::atomic::Ordering;

use crate::NEED_WAKEUP;
use crate::entry::Entry;

/// An atomic number that both sides see.
pub trait Word {
    /// Reads it.
    fn load(&self, ordering: Ordering) -> u32;
    /// Writes it.
    fn store(&self, value: u32, ordering: Ordering);
    /// `atomic::fence(SeqCst)`
    fn fence();
}

/// The memory of a ring that both sides share.
pub trait Shared {
    /// The type of the ring's entries.
    type Entry: Entry;
    /// The type of its indices.
    type Word: Word;

    /// Number of entries, a power of two.
    fn size(&self) -> u32;
    /// The producer's index.
    fn producer(&self) -> &Self::Word;
    /// The consumer's index.
    fn consumer(&self) -> &Self::Word;
    /// [`NEED_WAKEUP`]; old kernels have no flags.
    fn flags(&self) -> Option<&Self::Word>;
    /// The entry at an index, whatever is there.
    fn read(&self, index: u32) -> Self::Entry;
    /// Puts an entry at an index.
    fn write(&self, index: u32, entry: Self::Entry);
}

/// The end that writes entries.
#[derive(Debug)]
pub struct Producer<S> {
    ring: S,
    /// The next entry to write.
    next: u32,
    /// The index up to which the consumer was shown entries.
    submitted: u32,
    /// The consumer's index as last seen and believed.
    taken: u32,
    /// The consumer's index as last seen; nonsense is counted when it changes.
    seen: u32,
    jumps: u64,
}

impl<S: Shared> Producer<S> {
    /// The end of a ring, from its present index on.
    pub fn new(ring: S) -> Producer<S> {
        let next = ring.producer().load(Ordering::Relaxed);
        let taken = ring.consumer().load(Ordering::Acquire);
        let taken = if next.wrapping_sub(taken) <= ring.size() { taken } else { next };
        Producer { ring, next, submitted: next, taken, seen: taken, jumps: 0 }
    }

    /// Entries that can be written now. Reads the consumer's index when fewer than `wanted` are
    /// known to be free.
    #[inline]
    pub fn free(&mut self, wanted: u32) -> u32 {
        if self.ring.size() - self.next.wrapping_sub(self.taken) < wanted {
            let taken = self.ring.consumer().load(Ordering::Acquire);
            self.believe(taken);
        }
        self.ring.size() - self.next.wrapping_sub(self.taken)
    }

    /// The consumer cannot have taken more entries than there were, nor give back those that it
    /// took. An index that says so is ignored.
    #[inline]
    fn believe(&mut self, taken: u32) {
        if taken.wrapping_sub(self.taken) <= self.next.wrapping_sub(self.taken) {
            self.taken = taken;
        } else if taken != self.seen {
            self.jumps += 1;
        }
        self.seen = taken;
    }

    /// Writes an entry; the consumer sees it after [`Producer::submit`].
    ///
    /// # Panics
    ///
    /// If none is free.
    #[inline]
    pub fn write(&mut self, entry: S::Entry) {
        assert!(self.next.wrapping_sub(self.taken) < self.ring.size(), "a free entry");
        self.ring.write(self.next, entry);
        self.next = self.next.wrapping_add(1);
    }

    /// Writes up to `most` entries as far as there are some and there is room, with one look at the
    /// consumer's index for all of them. Returns their number; no others are taken from the
    /// iterator.
    #[inline]
    pub fn write_burst(
        &mut self,
        most: usize,
        entries: impl IntoIterator<Item = S::Entry>,
    ) -> usize {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let free = self.free(most).min(most);
        let (next, mut written) = (self.next, 0);
        for entry in entries.into_iter().take(free as usize) {
            self.ring.write(next.wrapping_add(written), entry);
            written += 1;
        }
        self.next = next.wrapping_add(written);
        written as usize
    }

    /// Shows the consumer the entries that were written.
    #[inline]
    pub fn submit(&mut self) {
        // A polling producer submits nothing most of the time, and a store would take the line away
        // from the polling consumer.
        if self.next != self.submitted {
            self.submitted = self.next;
            self.ring.producer().store(self.next, Ordering::Release);
        }
    }

    /// Entries that the consumer has not taken yet, submitted or not.
    #[inline]
    pub fn waiting(&self) -> u32 {
        let taken = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(taken).min(self.ring.size())
    }

    /// Whether the consumer wants to be woken ([`Consumer::arm`]). Ask after [`Producer::submit`].
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        let Some(flags) = self.ring.flags() else { return true };
        // Pairs with the fence in `arm`: either the consumer sees what was submitted, or we see
        // that it sleeps.
        S::Word::fence();
        flags.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    /// As [`Producer::needs_wakeup`], and clears the flag: the caller wakes the consumer now. A
    /// request that comes in between is fulfilled as well.
    #[inline]
    pub fn claim_wakeup(&mut self) -> bool {
        let is_wanted = self.needs_wakeup();
        if is_wanted && let Some(flags) = self.ring.flags() {
            flags.store(0, Ordering::Relaxed);
        }
        is_wanted
    }

    /// Number of times that the consumer's index made no sense.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// The ring of this end.
    pub fn ring(&self) -> &S {
        &self.ring
    }
}

/// The end that reads entries.
#[derive(Debug)]
pub struct Consumer<S> {
    ring: S,
    /// The next entry to read.
    next: u32,
    /// The index up to which the producer was given entries back.
    released: u32,
    /// The producer's index as last seen and believed.
    written: u32,
    /// The producer's index as last seen.
    seen: u32,
    jumps: u64,
}

impl<S: Shared> Consumer<S> {
    /// The end of a ring, from its present index on.
    pub fn new(ring: S) -> Consumer<S> {
        let next = ring.consumer().load(Ordering::Relaxed);
        Consumer { ring, next, released: next, written: next, seen: next, jumps: 0 }
    }

    /// Entries that can be read now. Reads the producer's index when fewer than `wanted` are known.
    #[inline]
    pub fn available(&mut self, wanted: u32) -> u32 {
        if self.written.wrapping_sub(self.next) < wanted {
            self.refresh();
        }
        self.written.wrapping_sub(self.next)
    }

    #[inline]
    fn refresh(&mut self) {
        let written = self.ring.producer().load(Ordering::Acquire);
        // Written entries stay written, and there are never more behind the released ones than the
        // ring holds: an index that says otherwise is ignored. Entries that were read but not
        // released do not count as free, or a fast producer could keep us reading for ever.
        let more = written.wrapping_sub(self.written);
        if more <= self.ring.size() - self.written.wrapping_sub(self.released) {
            self.written = written;
        } else if written != self.seen {
            self.jumps += 1;
        }
        self.seen = written;
    }

    /// Reads an entry.
    ///
    /// # Panics
    ///
    /// If none is available.
    #[inline]
    pub fn read(&mut self) -> S::Entry {
        assert!(self.written != self.next, "an available entry");
        let entry = self.ring.read(self.next);
        self.next = self.next.wrapping_add(1);
        entry
    }

    /// The entry `ahead` places behind the next, which stays to be read.
    ///
    /// # Panics
    ///
    /// If it is not available.
    #[inline]
    pub fn peek(&self, ahead: u32) -> S::Entry {
        assert!(ahead < self.written.wrapping_sub(self.next), "an available entry");
        self.ring.read(self.next.wrapping_add(ahead))
    }

    /// Copies entries from the next one on, which stay to be read, as far as there are any; returns
    /// their number.
    #[inline]
    pub fn peek_burst(&mut self, out: &mut [S::Entry]) -> usize {
        let wanted = u32::try_from(out.len()).unwrap_or(u32::MAX);
        let count = self.available(wanted).min(wanted) as usize;
        for (ahead, entry) in (0..).zip(&mut out[..count]) {
            *entry = self.ring.read(self.next.wrapping_add(ahead));
        }
        count
    }

    /// Passes over entries, as if they had been read.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    #[inline]
    pub fn advance(&mut self, count: u32) {
        assert!(count <= self.written.wrapping_sub(self.next), "available entries");
        self.next = self.next.wrapping_add(count);
    }

    /// Gives the producer back the entries that were read.
    #[inline]
    pub fn release(&mut self) {
        // As in `Producer::submit`.
        if self.next != self.released {
            self.released = self.next;
            self.ring.consumer().store(self.next, Ordering::Release);
        }
    }

    /// Announces that the consumer will sleep, and returns whether it may: the ring is empty, and
    /// the producer will see the waiting consumer.
    #[inline]
    pub fn arm(&mut self) -> bool {
        self.set_flag(NEED_WAKEUP);
        S::Word::fence();
        self.available(1) == 0
    }

    /// The consumer is awake and needs no wake-up.
    #[inline]
    pub fn disarm(&mut self) {
        self.set_flag(0);
    }

    fn set_flag(&mut self, value: u32) {
        if let Some(flags) = self.ring.flags() {
            flags.store(value, Ordering::Relaxed);
        }
    }

    /// Number of times that the producer's index made no sense.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// The ring of this end.
    pub fn ring(&self) -> &S {
        &self.ring
    }
}
