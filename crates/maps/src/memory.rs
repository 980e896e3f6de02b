//! Memory of a map, accessed by offset: real memory, or a model of it for loom.

#[cfg(not(loom))]
pub(crate) use crate::memory_unsafe::{Region, prefetch};

#[cfg(loom)]
pub(crate) use crate::memory_loom::Region;

/// Most bytes that a map may reserve. The kernel allocates pages at their first access.
pub(crate) const REGION_BYTES_MAX: u64 = 1 << 40;

/// Most bytes of a part of a map that are populated from the start: enough for some ten thousand
/// new flows.
pub(crate) const POPULATED_BYTES_MAX: usize = 4 << 20;

/// Bytes to populate at a time: a huge page, which takes the kernel some 0.1 ms.
pub(crate) const POPULATED_STEP_BYTES: usize = 2 << 20;

/// Bytes that a core takes from another one at a time: two cache lines, which processors fetch in
/// pairs.
pub(crate) const LINE_BYTES: usize = 128;

/// Size of a page, the unit of ring buffers and arenas.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Up to seven bytes as a word, filled up with zeroes; without a call, as keys seldom end with a
/// whole word.
#[inline]
pub(crate) fn partial_word(bytes: &[u8]) -> u64 {
    debug_assert!(bytes.len() < 8, "whole words are no parts");
    let word = match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>(), bytes) {
        // Both halves have the bytes in the middle.
        (Some(low), Some(high), _) => {
            let [low, high] = [low, high].map(|half| u64::from(u32::from_le_bytes(*half)));
            low | high << (8 * (bytes.len() - 4))
        }
        (_, _, []) => 0,
        (_, _, &[first, .., last]) => {
            let middle = bytes.len() / 2;
            let at = |byte: u8, place: usize| u64::from(byte) << (8 * place);
            at(first, 0) | at(bytes[middle], middle) | at(last, bytes.len() - 1)
        }
        (_, _, &[only]) => only.into(),
    };
    u64::from_le(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_words_are_filled_up_with_zeroes() {
        let bytes = [0x81, 2, 0x83, 4, 0x85, 6, 0x87];
        for len in 0..8 {
            let mut word = [0; 8];
            word[..len].copy_from_slice(&bytes[..len]);
            assert_eq!(partial_word(&bytes[..len]), u64::from_ne_bytes(word), "{len}");
        }
    }
}
