//! The replay window (RFC 4303, 3.4.3 and appendix A).

use crate::refusal::Refusal;

/// A set of the sequence numbers received last: a ring of bits, whose words are cleared when the
/// window moves over them (RFC 6479).
#[derive(Debug, Clone)]
pub struct Window {
    /// The highest sequence number received.
    top: u64,
    /// Size of the window in sequence numbers. 0: no protection.
    size: u64,
    esn: bool,
    /// In the word of `top`, the bits of numbers above `top` are 0. There is at least one word more
    /// than the window needs, and the number of words is a power of two.
    words: Box<[u64]>,
}

impl Window {
    /// A window of `size` numbers. All numbers up to `last` count as received.
    pub fn new(size: u32, esn: bool, last: u64) -> Window {
        let size = u64::from(size);
        let count = match size {
            0 => 0,
            _ => (size.div_ceil(BITS) as usize + 1).next_power_of_two(),
        };
        let mut window = Window { top: last, size, esn, words: vec![u64::MAX; count].into() };
        if count > 0 {
            let (word, bit) = window.place(last);
            window.words[word] = bit | (bit - 1);
        }
        window
    }

    /// The highest sequence number received.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// The full sequence number of a packet, inferred from the lower half that the packet carries.
    /// This is a first check, before the integrity of the packet is known.
    ///
    /// # Errors
    ///
    /// Fails if the number was received before, is outside of the window, or is impossible.
    #[inline]
    pub fn infer(&self, low: u32) -> Result<u64, Refusal> {
        let sequence = if self.esn { self.extend(low)? } else { u64::from(low) };
        if sequence == 0 {
            return Err(Refusal::SequenceZero);
        }
        self.check(sequence)?;
        Ok(sequence)
    }

    /// Accepts the sequence number of a packet whose integrity is known.
    ///
    /// # Errors
    ///
    /// Fails if the number has been received since, or is outside of the window by now.
    #[inline]
    pub fn accept(&mut self, sequence: u64) -> Result<(), Refusal> {
        self.check(sequence)?;
        if self.size == 0 {
            self.top = self.top.max(sequence);
            return Ok(());
        }
        if sequence > self.top {
            self.advance(sequence);
        }
        let (word, bit) = self.place(sequence);
        self.words[word] |= bit;
        Ok(())
    }

    /// The full number for the lower half `low`: the upper half is the one with which the number is
    /// nearest to the window (RFC 4303, A2.2).
    #[inline]
    fn extend(&self, low: u32) -> Result<u64, Refusal> {
        let (high, top_low) = (self.top >> 32, self.top as u32);
        let bottom = top_low.wrapping_sub(self.size as u32).wrapping_add(1);
        let is_split = u64::from(top_low) + 1 < self.size;
        let high = match (is_split, low >= bottom) {
            (false, true) | (true, false) => high,
            (false, false) => high + 1,
            (true, true) => high.checked_sub(1).ok_or(Refusal::OutsideWindow)?,
        };
        if high > u64::from(u32::MAX) {
            return Err(Refusal::OutsideWindow);
        }
        Ok(high << 32 | u64::from(low))
    }

    #[inline]
    fn check(&self, sequence: u64) -> Result<(), Refusal> {
        if self.size == 0 || sequence > self.top {
            return Ok(());
        }
        if self.top - sequence >= self.size {
            return Err(Refusal::OutsideWindow);
        }
        let (word, bit) = self.place(sequence);
        if self.words[word] & bit != 0 { Err(Refusal::Replayed) } else { Ok(()) }
    }

    /// Clears the words between the old top and the new one.
    #[inline]
    fn advance(&mut self, sequence: u64) {
        let count = self.words.len() as u64;
        let (from, to) = (self.top / BITS, sequence / BITS);
        for word in from + 1..=to.min(from + count) {
            self.words[(word & (count - 1)) as usize] = 0;
        }
        self.top = sequence;
    }

    #[inline]
    fn place(&self, sequence: u64) -> (usize, u64) {
        let word = (sequence / BITS) & (self.words.len() as u64 - 1);
        (word as usize, 1 << (sequence % BITS))
    }
}

const BITS: u64 = u64::BITS as u64;
