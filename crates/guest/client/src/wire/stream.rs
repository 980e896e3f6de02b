//! Messages from a stream of bytes.
//!
//! A stream continues after its writer is gone: a guest's agent may be killed inside a message, and
//! the next bytes are another agent's. So a message that is damaged, or does not end in time, takes
//! no others with it: the next one is searched for in its bytes, too.

use std::time::{Duration, Instant};

use super::PAYLOAD_MAX;
use super::header::{HEADER_BYTES, Header, MAGIC, Message, is_whole};

/// The next item of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrived {
    /// A complete message.
    Message(Message),
    /// Bytes that begin like a message, but have a wrong checksum.
    Damaged(Header),
    /// The header of a message that exceeds the size limit.
    Oversized(Header),
}

/// Finds messages in a stream.
#[derive(Debug, Default)]
pub struct Receiver {
    bytes: Vec<u8>,
    /// Time at which the incomplete message began.
    began: Option<Instant>,
    /// Number of bytes that belong to no message.
    skipped: u64,
}

impl Receiver {
    /// A receiver without bytes.
    pub fn new() -> Receiver {
        Receiver::default()
    }

    /// Adds received bytes. The caller takes all messages out before it adds more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete item.
    pub fn next(&mut self, now: Instant) -> Option<Arrived> {
        self.skip_to_magic();
        let Some(&head) = self.bytes.first_chunk::<HEADER_BYTES>() else {
            self.note_waiting(now);
            return None;
        };
        let Some(header) = Header::parse(&head) else {
            self.skip(MAGIC.len());
            return self.next_after_noise(now);
        };
        let length = header.length as usize;
        if length > PAYLOAD_MAX {
            self.skip(MAGIC.len());
            return Some(Arrived::Oversized(header));
        }
        let end = HEADER_BYTES + length;
        let Some(whole) = self.bytes.get(..end) else {
            self.note_waiting(now);
            return None;
        };
        self.began = None;
        if !is_whole(whole) {
            self.skip(MAGIC.len());
            return Some(Arrived::Damaged(header));
        }
        let payload = whole[HEADER_BYTES..].to_vec();
        self.bytes.drain(..end);
        Some(Arrived::Message(Message { header, payload }))
    }

    /// Searches on after bytes that only looked like a message: without recursion, as a stream may
    /// be full of them.
    fn next_after_noise(&mut self, now: Instant) -> Option<Arrived> {
        loop {
            self.skip_to_magic();
            let head = self.bytes.first_chunk::<HEADER_BYTES>();
            match head.map(Header::parse) {
                Some(None) => self.skip(MAGIC.len()),
                _ => return self.next(now),
            }
        }
    }

    /// Gives up an incomplete message that began too long ago.
    pub fn expire(&mut self, now: Instant) {
        let is_late = |began: Instant| now.duration_since(began) >= MESSAGE_TIME_MAX;
        if self.began.is_some_and(is_late) {
            self.skip(MAGIC.len().min(self.bytes.len()));
            self.began = None;
        }
    }

    /// Number of bytes so far that belong to no message.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn note_waiting(&mut self, now: Instant) {
        self.began = if self.bytes.is_empty() { None } else { self.began.or(Some(now)) };
    }

    fn skip_to_magic(&mut self) {
        let is_magic = |at: &usize| {
            let left = &self.bytes[*at..];
            let compared = left.len().min(MAGIC.len());
            left[..compared] == MAGIC[..compared]
        };
        let noise = (0..self.bytes.len()).find(is_magic).unwrap_or(self.bytes.len());
        if noise > 0 {
            self.skip(noise);
        }
    }

    fn skip(&mut self, count: usize) {
        self.bytes.drain(..count);
        self.skipped += count as u64;
        self.began = None;
    }
}

/// Longest time of a message from its first byte to its last.
pub(crate) const MESSAGE_TIME_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::super::{Command, Tag, Writer};
    use super::*;

    fn message(sequence: u32) -> Message {
        let payload = Writer::new().with(Tag::Name, b"TPGO in it").finish();
        let mut message = Message::request(Command::List, 9, sequence, payload);
        message.header.length = message.payload.len() as u32;
        message
    }

    fn all(receiver: &mut Receiver, now: Instant) -> Vec<Arrived> {
        std::iter::from_fn(|| receiver.next(now)).collect()
    }

    #[test]
    fn messages_come_in_any_pieces() {
        let bytes = [message(1).encode(), message(2).encode()].concat();
        for size in 1..=bytes.len() {
            let (mut receiver, now) = (Receiver::new(), Instant::now());
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                receiver.push(piece);
                found.extend(all(&mut receiver, now));
            }
            let wanted = [message(1), message(2)].map(Arrived::Message);
            assert_eq!((&found[..], receiver.skipped()), (&wanted[..], 0), "{size}");
        }
    }

    #[test]
    fn each_flipped_bit_is_noticed_and_the_next_message_is_found() {
        let (whole, now) = (message(1).encode(), Instant::now());
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut receiver = Receiver::new();
            receiver.push(&[damaged, message(2).encode()].concat());
            let mut found = all(&mut receiver, now);
            // A length that was enlarged makes the receiver wait for bytes that never come.
            receiver.expire(now + MESSAGE_TIME_MAX);
            found.extend(all(&mut receiver, now));
            assert_eq!(found.last(), Some(&Arrived::Message(message(2))), "bit {bit}");
            let is_first = |it: &Arrived| *it == Arrived::Message(message(1));
            assert!(!found.iter().any(is_first), "bit {bit}");
        }
    }

    #[test]
    fn a_message_that_does_not_end_makes_room_for_the_next() {
        let (whole, start) = (message(1).encode(), Instant::now());
        for end in 1..whole.len() {
            let mut receiver = Receiver::new();
            receiver.push(&whole[..end]);
            assert_eq!(all(&mut receiver, start), [], "{end}");
            receiver.expire(start + MESSAGE_TIME_MAX / 2);
            receiver.push(&message(2).encode());
            let mut found = all(&mut receiver, start);
            receiver.expire(start + MESSAGE_TIME_MAX);
            found.extend(all(&mut receiver, start));
            assert_eq!(found.last(), Some(&Arrived::Message(message(2))), "{end}");
        }
    }

    #[test]
    fn nobody_waits_for_more_than_a_message_may_have() {
        let mut bytes = message(1).encode();
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let (mut receiver, now) = (Receiver::new(), Instant::now());
        receiver.push(&bytes);
        let Some(Arrived::Oversized(header)) = receiver.next(now) else { panic!("it is too long") };
        assert_eq!(header.length, u32::MAX);
        receiver.push(&message(2).encode());
        assert_eq!(all(&mut receiver, now).last(), Some(&Arrived::Message(message(2))));
    }

    #[test]
    fn noise_without_end_takes_no_memory() {
        let (mut receiver, now) = (Receiver::new(), Instant::now());
        for _ in 0..1000 {
            receiver.push(&[b"TPGO".as_slice(), &[7; 60]].concat());
            assert_eq!(receiver.next(now), None);
        }
        assert!(receiver.bytes.len() <= 64, "{}", receiver.bytes.len());
    }
}
