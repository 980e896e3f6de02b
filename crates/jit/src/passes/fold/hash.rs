//! A hash for instructions: quick, and good enough for compiled code. The standard one guards
//! against keys chosen to collide, which costs most of value numbering's time; here such keys only
//! make one compilation slower.

/// Multiplies and rotates, word by word.
#[derive(Debug, Default)]
pub(super) struct Hasher(u64);

impl Hasher {
    fn add(&mut self, word: u64) {
        // 2^64 over the golden ratio.
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl std::hash::Hasher for Hasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.add(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_isize(&mut self, value: isize) {
        self.add(value as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    fn finish(&self) -> u64 {
        // The table uses the top bits and the low ones.
        self.0.rotate_left(26)
    }
}
