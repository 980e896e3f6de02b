//! Integers of any width at any bit of a little-endian byte string.

/// `width` bits (at most 64) from bit `start`; bits outside `bytes` are 0.
pub(super) fn read(bytes: &[u8], start: u32, width: u32) -> u64 {
    let bit = |index: u32| {
        let at = start as usize + index as usize;
        let byte = bytes.get(at / 8).copied().unwrap_or(0);
        u64::from(byte >> (at % 8) & 1)
    };
    if start.is_multiple_of(8) && width.is_multiple_of(8) {
        // The usual case: whole bytes.
        let from = start as usize / 8;
        return (0..width / 8).rev().fold(0, |value, at| {
            value << 8 | u64::from(bytes.get(from + at as usize).copied().unwrap_or(0))
        });
    }
    (0..width.min(64)).rev().fold(0, |value, index| value << 1 | bit(index))
}

/// Sets `width` bits from bit `start`; bits outside `bytes` are ignored.
pub(super) fn write(bytes: &mut [u8], start: u32, width: u32, value: u64) {
    for index in 0..width.min(64) {
        let at = start as usize + index as usize;
        if let Some(byte) = bytes.get_mut(at / 8) {
            let mask = 1 << (at % 8);
            *byte = if value >> index & 1 == 1 { *byte | mask } else { *byte & !mask };
        }
    }
}

/// A number of `width` bits as signed.
pub(super) fn sign_extend(value: u64, width: u32) -> i64 {
    let unused = 64 - width.clamp(1, 64);
    (value << unused) as i64 >> unused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_fields_keep_their_neighbours() {
        let mut bytes = [0xff; 4];
        write(&mut bytes, 3, 7, 0b010_1010);
        assert_eq!(read(&bytes, 3, 7), 0b010_1010);
        assert_eq!(read(&bytes, 0, 3), 0b111);
        assert_eq!(read(&bytes, 10, 22), (1 << 22) - 1);
        assert_eq!(sign_extend(0b11_1110, 6), -2);
        assert_eq!(sign_extend(u64::MAX, 64), -1);
    }
}
