//! Fields of a generated frame that change from frame to frame.

use fastrand::Rng;
use serde::Deserialize;
use towpath_xdp::SharedBytesMut;

use super::OptionsError;

/// A number in the frame, in network byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// Offset of its first byte.
    pub offset: usize,
    /// Width: 1, 2, 4 or 8 bytes.
    pub width: u8,
    /// Smallest value.
    #[serde(default)]
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// How the next value is found.
    #[serde(default)]
    pub change: Change,
    /// Offset of a checksum over the field, which is updated (RFC 1624); `None` for none.
    pub checksum: Option<usize>,
}

/// How a field changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Counts up from the smallest value to the largest, and starts again.
    #[default]
    Count,
    /// A random value of the range.
    Random,
}

/// The state of a field.
#[derive(Debug, Clone)]
pub(super) struct Varying {
    field: Field,
    next: u64,
    random: Rng,
}

impl Field {
    /// Checks that the field is valid in templates of at least `len` bytes.
    pub(super) fn check(&self, index: usize, len: usize) -> Result<(), OptionsError> {
        if !matches!(self.width, 1 | 2 | 4 | 8) {
            return Err(OptionsError::Width { index, width: self.width });
        }
        let ends = [self.offset.saturating_add(self.width.into())]
            .into_iter()
            .chain(self.checksum.map(|at| at.saturating_add(2)));
        let end = ends.max().unwrap_or(0);
        if end > len {
            return Err(OptionsError::Outside { index, end, len });
        }
        if self.min > self.max {
            return Err(OptionsError::Range { index, min: self.min, max: self.max });
        }
        Ok(())
    }
}

impl Varying {
    /// Makes the state of a field for a queue. Queues start at different values, so that they make
    /// different frames.
    pub(super) fn new(field: Field, queue: u32) -> Varying {
        let seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(queue) + 1);
        Varying { field, next: field.min, random: Rng::with_seed(seed) }
    }

    /// Writes the next value into the linear part of a frame.
    pub(super) fn apply(&mut self, mut bytes: SharedBytesMut<'_>) {
        let Field { offset, width, checksum, .. } = self.field;
        let value = self.next_value();
        let width = usize::from(width);
        if offset + width > bytes.len() {
            return;
        }
        let place = offset..offset + width;
        let mut old = [0; 8];
        if let Some(at) = checksum
            && at + 2 <= bytes.len()
        {
            bytes.as_shared().part(place.clone()).read(&mut old[..width]);
            let mut sum = [0; 2];
            bytes.as_shared().part(at..at + 2).read(&mut sum);
            let new = &value.to_be_bytes()[8 - width..];
            let after = update(u16::from_be_bytes(sum), &old[..width], new, offset);
            bytes.by_ref().part(at..at + 2).write(&after.to_be_bytes());
        }
        store(bytes.part(place), value);
    }

    fn next_value(&mut self) -> u64 {
        let Field { min, max, change, .. } = self.field;
        match change {
            Change::Count => {
                let value = self.next;
                self.next = if value >= max { min } else { value + 1 };
                value
            }
            Change::Random => self.random.u64(min..=max),
        }
    }
}

/// Writes the last bytes of a number. Each width has its own code, because a copy of a length
/// unknown to the compiler is a call.
#[inline]
fn store(place: SharedBytesMut<'_>, value: u64) {
    match place.len() {
        4 => place.write(&(value as u32).to_be_bytes()),
        2 => place.write(&(value as u16).to_be_bytes()),
        width => place.write(&value.to_be_bytes()[8 - width..]),
    }
}

/// The checksum after bytes at `offset` changed: HC' = ~(~HC + ~m + m') (RFC 1624, equation 3).
fn update(sum: u16, old: &[u8], new: &[u8], offset: usize) -> u16 {
    let mut total = u64::from(!sum);
    for (index, (&old, &new)) in old.iter().zip(new).enumerate() {
        let shift = if (offset + index).is_multiple_of(2) { 8 } else { 0 };
        total += u64::from(!(u16::from(old) << shift)) + u64::from(u16::from(new) << shift);
    }
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> u16 {
        let mut total: u32 =
            bytes.as_chunks::<2>().0.iter().map(|&b| u32::from(u16::from_be_bytes(b))).sum();
        while total >> 16 != 0 {
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    #[test]
    fn a_checksum_stays_right() {
        let mut header: Vec<u8> = (0..20).map(|i| i * 11).collect();
        header[10..12].fill(0);
        let right = !sum(&header);
        header[10..12].copy_from_slice(&right.to_be_bytes());
        for (offset, width) in [(12, 4), (13, 2), (15, 1), (4, 4)] {
            let field = Field {
                offset,
                width,
                min: 3,
                max: 200,
                change: Change::Random,
                checksum: Some(10),
            };
            let mut varying = Varying::new(field, 0);
            for _ in 0..100 {
                varying.apply(header[..].as_mut().into());
                assert_eq!(sum(&header), 0xffff);
            }
        }
    }

    #[test]
    fn counting_starts_again() {
        let field =
            Field { offset: 1, width: 1, min: 5, max: 6, change: Change::Count, checksum: None };
        let mut varying = Varying::new(field, 0);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let mut bytes = [0; 2];
            varying.apply(bytes[..].as_mut().into());
            seen.push(bytes[1]);
        }
        assert_eq!(seen, [5, 6, 5, 6]);
        assert!(field.check(0, 1).is_err());
        assert!(Field { width: 3, ..field }.check(0, 9).is_err());
        assert!(Field { min: 9, ..field }.check(0, 9).is_err());
    }
}
