//! Values in a message: a tag, a length, bytes, and zeros up to a multiple of 4.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | tag; if bit 15 is set, a receiver that does not know the tag may skip the value |
//! | 2..4 | 0 |
//! | 4..8 | size of the value, in bytes |
//! | 8.. | the value, padded with zeros to a multiple of 4 |

use super::{Direction, Tag};

/// An error in the values of a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The message ends inside a value.
    #[error("the value at byte {0} ends behind the message")]
    Truncated(usize),
    /// An unknown tag of a value that must not be ignored.
    #[error("the value at byte {at} has tag {tag}, which is not known here")]
    Unknown {
        /// Offset of the value.
        at: usize,
        /// Number of the tag.
        tag: u16,
    },
    /// Bytes that must be 0 have another value.
    #[error("the value at byte {0} has something where zeros must be")]
    NotZero(usize),
    /// A required value is missing.
    #[error("{} is missing", .0.name())]
    Missing(Tag),
    /// The size of a value does not fit its tag.
    #[error("{name} has {1} bytes", name = .0.name())]
    Size(Tag, usize),
    /// A value that should be text is not.
    #[error("{} is not text", .0.name())]
    NoText(Tag),
    /// A number without a meaning.
    #[error("{name} is {1}, which means nothing", name = .0.name())]
    Number(Tag, u32),
}

/// The values of a message.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    bytes: &'a [u8],
}

impl<'a> Values<'a> {
    /// Values in these bytes.
    pub fn new(bytes: &'a [u8]) -> Values<'a> {
        Values { bytes }
    }

    /// All values in order, without those that are unknown and may be skipped.
    pub fn iter(self) -> impl Iterator<Item = Result<(Tag, &'a [u8]), Malformed>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < self.bytes.len() {
                match self.value_at(at) {
                    Ok((tag, value, next)) => {
                        at = next;
                        if let Some(tag) = tag {
                            return Some(Ok((tag, value)));
                        }
                    }
                    Err(malformed) => {
                        at = self.bytes.len();
                        return Some(Err(malformed));
                    }
                }
            }
            None
        })
    }

    /// The value at an offset, and the offset of the next one.
    fn value_at(self, at: usize) -> Result<(Option<Tag>, &'a [u8], usize), Malformed> {
        let head: &[u8; 8] = self.bytes[at..].first_chunk().ok_or(Malformed::Truncated(at))?;
        let number = u16::from_le_bytes([head[0], head[1]]);
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if head[2..4] != [0, 0] {
            return Err(Malformed::NotZero(at));
        }
        let start = at + head.len();
        let padded = length.checked_next_multiple_of(4).ok_or(Malformed::Truncated(at))?;
        let whole = start.checked_add(padded).and_then(|end| self.bytes.get(start..end));
        let (value, padding) = whole.ok_or(Malformed::Truncated(at))?.split_at(length);
        if padding.iter().any(|&byte| byte != 0) {
            return Err(Malformed::NotZero(at));
        }
        let tag = Tag::from_number(number);
        if tag.is_none() && number & OPTIONAL == 0 {
            return Err(Malformed::Unknown { at, tag: number });
        }
        Ok((tag, value, start + padded))
    }

    /// Checks all values.
    ///
    /// # Errors
    ///
    /// Fails with the first error.
    pub fn check(self) -> Result<(), Malformed> {
        self.iter().try_for_each(|value| value.map(drop))
    }

    /// All values with this tag. Call [`Values::check`] first: an error ends the iteration.
    pub fn all(self, tag: Tag) -> impl Iterator<Item = &'a [u8]> {
        self.iter().map_while(Result::ok).filter(move |(is, _)| *is == tag).map(|(_, value)| value)
    }

    /// The first value with this tag.
    pub fn find(self, tag: Tag) -> Option<&'a [u8]> {
        self.all(tag).next()
    }

    /// The first value with this tag, which is required.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed::Missing`] if there is none.
    pub fn bytes(self, tag: Tag) -> Result<&'a [u8], Malformed> {
        self.find(tag).ok_or(Malformed::Missing(tag))
    }

    /// A text; `None` without one.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed::NoText`] if the value is not text.
    pub fn text(self, tag: Tag) -> Result<Option<&'a str>, Malformed> {
        let text = self.find(tag).map(str::from_utf8).transpose();
        text.map_err(|_not_text| Malformed::NoText(tag))
    }

    /// A 32-bit number; `None` without one.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed::Size`] if the value has another size.
    pub fn u32(self, tag: Tag) -> Result<Option<u32>, Malformed> {
        Ok(self.array(tag)?.map(u32::from_le_bytes))
    }

    /// A 64-bit number; `None` without one.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed::Size`] if the value has another size.
    pub fn u64(self, tag: Tag) -> Result<Option<u64>, Malformed> {
        Ok(self.array(tag)?.map(u64::from_le_bytes))
    }

    /// A 32-bit number that is required.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed::Missing`] or [`Malformed::Size`].
    pub fn number(self, tag: Tag) -> Result<u32, Malformed> {
        self.u32(tag)?.ok_or(Malformed::Missing(tag))
    }

    /// The direction; by default towards the guest.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed::Number`] or [`Malformed::Size`].
    pub fn direction(self) -> Result<Direction, Malformed> {
        let number = self.u32(Tag::Direction)?.unwrap_or(Direction::Ingress as u32);
        Direction::from_number(number).ok_or(Malformed::Number(Tag::Direction, number))
    }

    /// 32-bit numbers, one behind the other.
    pub fn numbers(self, tag: Tag) -> Vec<u32> {
        let words = self.find(tag).unwrap_or_default().as_chunks().0;
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }

    fn array<const N: usize>(self, tag: Tag) -> Result<Option<[u8; N]>, Malformed> {
        let Some(bytes) = self.find(tag) else { return Ok(None) };
        let array = <[u8; N]>::try_from(bytes).ok();
        array.map(Some).ok_or(Malformed::Size(tag, bytes.len()))
    }
}

/// A writer of the values of a message.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// A writer without values.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Adds a value.
    #[must_use]
    pub fn with(mut self, tag: Tag, value: &[u8]) -> Writer {
        self.put(tag, value);
        self
    }

    /// Adds a 32-bit number.
    #[must_use]
    pub fn u32(self, tag: Tag, value: u32) -> Writer {
        self.with(tag, &value.to_le_bytes())
    }

    /// Adds a 64-bit number.
    #[must_use]
    pub fn u64(self, tag: Tag, value: u64) -> Writer {
        self.with(tag, &value.to_le_bytes())
    }

    /// Adds 32-bit numbers, one behind the other.
    #[must_use]
    pub fn numbers(self, tag: Tag, values: &[u32]) -> Writer {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.with(tag, &bytes)
    }

    /// Adds a value.
    ///
    /// # Panics
    ///
    /// Panics if the value has 4 GiB or more: no message has room for it.
    pub fn put(&mut self, tag: Tag, value: &[u8]) {
        let length = u32::try_from(value.len()).expect("who makes a message sees to that");
        self.bytes.extend((tag as u16).to_le_bytes());
        self.bytes.extend([0, 0]);
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Number of bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

const OPTIONAL: u16 = 0x8000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        let bytes = Writer::new().u32(Tag::Handle, 7).with(Tag::Name, b"abc").finish();
        let values = Values::new(&bytes);
        assert_eq!(values.check(), Ok(()));
        assert_eq!(
            (values.u32(Tag::Handle), values.text(Tag::Name)),
            (Ok(Some(7)), Ok(Some("abc")))
        );
        assert_eq!(values.number(Tag::Count), Err(Malformed::Missing(Tag::Count)));
        assert_eq!(values.u64(Tag::Handle), Err(Malformed::Size(Tag::Handle, 4)));
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn what_is_unknown_is_passed_over_if_it_says_so() {
        let mut bytes = Writer::new().u32(Tag::Handle, 7).finish();
        bytes[..2].copy_from_slice(&0x7777u16.to_le_bytes());
        let unknown = Err(Malformed::Unknown { at: 0, tag: 0x7777 });
        assert_eq!(Values::new(&bytes).check(), unknown);
        bytes[..2].copy_from_slice(&0xf777u16.to_le_bytes());
        assert_eq!(Values::new(&bytes).check(), Ok(()));
        assert_eq!(Values::new(&bytes).iter().count(), 0);
    }

    #[test]
    fn cut_short_and_patched_values_are_told_apart() {
        let whole = Writer::new().with(Tag::Name, b"abc").finish();
        for end in 1..whole.len() {
            assert_eq!(Values::new(&whole[..end]).check(), Err(Malformed::Truncated(0)), "{end}");
        }
        let patched = |at: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            Values::new(&bytes).check()
        };
        assert_eq!(patched(7, 0xff), Err(Malformed::Truncated(0)));
        assert_eq!(patched(2, 1), Err(Malformed::NotZero(0)));
        assert_eq!(patched(11, 1), Err(Malformed::NotZero(0)));
    }
}
