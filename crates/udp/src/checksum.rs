//! The Internet checksum (RFC 1071).
//!
//! Sums are over 16-bit words as they lie in memory, so that no bytes have to be swapped: the ones'
//! complement sum does not depend on the byte order (RFC 1071, section 2 B).

/// The sum of bytes that begin at an even offset, not folded.
#[inline]
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let mut lanes = [0u64; LANES];
    let mut blocks = bytes.chunks_exact(4 * LANES);
    for block in &mut blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let (words, rest) = blocks.remainder().as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from(u32::from_ne_bytes(*word)));
    lanes.iter().sum::<u64>() + words.sum::<u64>()
}

/// The sum of one number in network order.
#[inline]
pub(crate) fn word(number: u16) -> u64 {
    u64::from(u16::from_ne_bytes(number.to_be_bytes()))
}

/// The folded sum, without its complement.
#[inline]
pub(crate) fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Words that are added at the same time.
const LANES: usize = 8;

#[cfg(test)]
mod tests {
    use super::{fold, sum, word};

    /// The sum as RFC 1071 defines it, 16 bits at a time.
    fn plainly(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn ours(bytes: &[u8]) -> u16 {
        u16::from_be_bytes(fold(sum(bytes)).to_ne_bytes())
    }

    #[test]
    fn example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(ours(&bytes), 0xddf2);
    }

    #[test]
    fn numbers_in_network_order() {
        assert_eq!(fold(word(0x1234)).to_ne_bytes(), [0x12, 0x34]);
    }

    #[test]
    fn all_lengths_and_the_largest_sums() {
        let mut random = fastrand::Rng::with_seed(1);
        for len in (0..200).chain([1400, 9000, 65_535]) {
            let bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
            assert_eq!(ours(&bytes), plainly(&bytes), "{len} bytes");
            let ones = vec![0xff; len];
            assert_eq!(ours(&ones), plainly(&ones), "{len} bytes of ones");
        }
    }
}
