//! SHA-256, for programs' tags and maps' hashes.

use sha2::{Digest as _, Sha256};

/// Bytes of a hash.
pub(crate) const HASH_BYTES: usize = 32;

/// The hash of some bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; HASH_BYTES] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-4, example for a message of one block.
    #[test]
    fn is_the_standard_one() {
        let hash = sha256(b"abc");
        assert_eq!(hash[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert_eq!(hash[28..], [0xf2, 0x00, 0x15, 0xad]);
    }
}
