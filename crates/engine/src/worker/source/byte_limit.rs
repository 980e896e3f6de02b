//! A limit of the bytes in flight at a port: as few as keep it busy, so that packets wait in queues
//! where the dequeue program still chooses among them.
//!
//! The number of frames in flight follows from the transmitter's credit: sent frames whose room is
//! not free again. As with the kernel's dynamic queue limits (`lib/dynamic_queue_limits.c`), the
//! limit grows when the port ran dry although there was more to send, and shrinks by the bytes that
//! were always left over.

use std::collections::VecDeque;

/// The limit of one port.
#[derive(Debug)]
pub(crate) struct ByteLimit {
    limit: usize,
    /// Lengths of the frames in flight, the oldest first; `in_flight` is their sum.
    lengths: VecDeque<u32>,
    in_flight: usize,
    /// The highest credit seen, in frames.
    room_max: usize,
    /// The limit held packets back since the last look.
    was_limited: bool,
    /// The fewest bytes in flight at times when the limit held packets back, since `since_ns`.
    slack: usize,
    since_ns: u64,
}

impl Default for ByteLimit {
    fn default() -> ByteLimit {
        ByteLimit {
            limit: LIMIT_MIN,
            lengths: VecDeque::new(),
            in_flight: 0,
            room_max: 0,
            was_limited: false,
            slack: usize::MAX,
            since_ns: 0,
        }
    }
}

impl ByteLimit {
    /// Updates the limit, given the port's present credit in frames; returns the number of bytes
    /// that may be sent now.
    pub(crate) fn look(&mut self, credit: usize, now_ns: u64) -> usize {
        if credit == usize::MAX {
            // The port does not report its room.
            *self = ByteLimit::default();
            return usize::MAX;
        }
        self.room_max = self.room_max.max(credit);
        let on_their_way = self.room_max - credit;
        let mut completed = 0;
        while self.lengths.len() > on_their_way
            && let Some(length) = self.lengths.pop_front()
        {
            completed += length as usize;
        }
        self.in_flight -= completed;
        self.adapt(completed, now_ns);
        self.limit.saturating_sub(self.in_flight)
    }

    fn adapt(&mut self, completed: usize, now_ns: u64) {
        if completed == 0 || !std::mem::take(&mut self.was_limited) {
            return;
        }
        if self.in_flight == 0 {
            self.limit = (self.limit + completed).min(LIMIT_MAX);
            (self.slack, self.since_ns) = (usize::MAX, now_ns);
            return;
        }
        self.slack = self.slack.min(self.in_flight);
        if now_ns.saturating_sub(self.since_ns) >= HOLD_NS {
            self.limit = self.limit.saturating_sub(self.slack).max(LIMIT_MIN);
            (self.slack, self.since_ns) = (usize::MAX, now_ns);
        }
    }

    /// Notes that a frame of `bytes` bytes was sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if self.room_max > 0 {
            self.lengths.push_back(bytes as u32);
            self.in_flight += bytes;
        }
    }

    /// Notes that there was more to send, and the limit held it back.
    pub(crate) fn keeps_back(&mut self) {
        self.was_limited = true;
    }

    /// The limit in bytes; `None` while the port does not report its room.
    pub(crate) fn limit(&self) -> Option<usize> {
        (self.room_max > 0).then_some(self.limit)
    }

    /// Bytes in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }
}

/// The lowest limit: two frames of the usual maximum size.
const LIMIT_MIN: usize = 2 * 1514;
const LIMIT_MAX: usize = 16 << 20;
const _: () = assert!(LIMIT_MIN < LIMIT_MAX);
/// Time over which excess is measured before the limit shrinks by it.
const HOLD_NS: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a port that sends `rate` bytes between two looks, in frames of 1000 bytes, with a
    /// ring of 256 frames. Returns the limit after `looks` looks, and the bytes sent per look in
    /// their second half.
    fn drained(rate: usize, looks: u64) -> (usize, usize) {
        let mut limit = ByteLimit::default();
        let (mut ring, mut owed, mut sent) = (0usize, 0, 0);
        for look in 0..looks {
            owed = (owed + rate).min(rate.max(1000) + 999);
            let done = ring.min(owed / 1000);
            (ring, owed) = (ring - done, owed - done * 1000);
            sent += if look > looks / 2 { done * 1000 } else { 0 };
            let mut room = limit.look(256 - ring, look * 1_000_000);
            while ring < 256 && room > 0 {
                limit.sent(1000);
                (ring, room) = (ring + 1, room.saturating_sub(1000));
            }
            if ring < 256 {
                limit.keeps_back();
            }
        }
        assert_eq!(limit.in_flight(), ring * 1000);
        (limit.limit().expect("it says"), sent / (looks - looks / 2) as usize)
    }

    #[test]
    fn the_limit_follows_what_the_port_drains() {
        let (slow, slowly) = drained(1000, 4000);
        let (fast, quickly) = drained(50_000, 4000);
        assert!(slow <= 2 * LIMIT_MIN, "{slow}");
        assert!((50_000..200_000).contains(&fast), "{fast}");
        assert!(slowly >= 990 && quickly >= 49_000, "the port stays busy: {slowly}, {quickly}");
    }

    #[test]
    fn a_limit_that_was_too_high_comes_down() {
        let mut limit = ByteLimit { limit: 1 << 20, ..ByteLimit::default() };
        let mut on_their_way = 0;
        for look in 0..2000 {
            on_their_way -= i32::from(on_their_way > 0);
            let room = limit.look(1024 - on_their_way as usize, look * 1_000_000);
            for _ in 0..(room / 1000).min(1024 - on_their_way as usize) {
                limit.sent(1000);
                on_their_way += 1;
            }
            limit.keeps_back();
        }
        assert!(limit.limit().is_some_and(|limit| limit < 10_000), "{limit:?}");
    }

    #[test]
    fn a_port_that_says_nothing_has_no_limit() {
        let mut limit = ByteLimit::default();
        assert_eq!(limit.look(usize::MAX, 0), usize::MAX);
        limit.sent(1000);
        assert_eq!((limit.limit(), limit.in_flight()), (None, 0));
    }
}
