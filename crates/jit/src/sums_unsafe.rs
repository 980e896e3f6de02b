//! Sums of many small numbers in memory, with the widest instructions of the machine.

#![expect(unsafe_code, reason = "is called from machine code with raw addresses")]

/// Largest number of 16-bit numbers whose sum fits 32 bits.
const CHUNK: usize = 1 << 16;

/// The function that adds up `count` little-endian numbers of 16 bits (32 if `wide`, big-endian if
/// `swapped`) at an address: `fn(address, count) -> u64`.
pub(crate) fn function(wide: bool, swapped: bool) -> *const () {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return match (wide, swapped) {
            (false, false) => avx2_16::<false> as *const (),
            (false, true) => avx2_16::<true> as *const (),
            (true, false) => avx2_32::<false> as *const (),
            (true, true) => avx2_32::<true> as *const (),
        };
    }
    plain(wide, swapped)
}

/// As [`function`], on any machine.
fn plain(wide: bool, swapped: bool) -> *const () {
    match (wide, swapped) {
        (false, false) => sum_16::<false> as *const (),
        (false, true) => sum_16::<true> as *const (),
        (true, false) => sum_32::<false> as *const (),
        (true, true) => sum_32::<true> as *const (),
    }
}

/// The bytes of this number of numbers.
///
/// # Safety
///
/// The bytes are readable, and not written meanwhile except by the program's own races.
#[inline(always)]
unsafe fn bytes<'a, const SIZE: usize>(address: u64, count: u64) -> &'a [[u8; SIZE]] {
    // SAFETY: the caller's promise; arrays of bytes are aligned anywhere.
    unsafe { std::slice::from_raw_parts(address as *const [u8; SIZE], count as usize) }
}

#[inline(always)]
fn add_16<const SWAPPED: bool>(numbers: &[[u8; 2]]) -> u64 {
    let number = if SWAPPED { u16::from_be_bytes } else { u16::from_le_bytes };
    let chunk = |chunk: &[[u8; 2]]| -> u64 {
        chunk.iter().map(|bytes| u32::from(number(*bytes))).sum::<u32>().into()
    };
    numbers.chunks(CHUNK).map(chunk).sum()
}

#[inline(always)]
fn add_32<const SWAPPED: bool>(numbers: &[[u8; 4]]) -> u64 {
    let number = if SWAPPED { u32::from_be_bytes } else { u32::from_le_bytes };
    // A slice has too few numbers for an overflow.
    numbers.iter().map(|bytes| u64::from(number(*bytes))).sum()
}

unsafe extern "C" fn sum_16<const SWAPPED: bool>(address: u64, count: u64) -> u64 {
    // SAFETY: called by compiled code for loads that the program would do.
    add_16::<SWAPPED>(unsafe { bytes(address, count) })
}

unsafe extern "C" fn sum_32<const SWAPPED: bool>(address: u64, count: u64) -> u64 {
    // SAFETY: called by compiled code for loads that the program would do.
    add_32::<SWAPPED>(unsafe { bytes(address, count) })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe extern "C" fn avx2_16<const SWAPPED: bool>(address: u64, count: u64) -> u64 {
    // SAFETY: called by compiled code for loads that the program would do.
    add_16::<SWAPPED>(unsafe { bytes(address, count) })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe extern "C" fn avx2_32<const SWAPPED: bool>(address: u64, count: u64) -> u64 {
    // SAFETY: called by compiled code for loads that the program would do.
    add_32::<SWAPPED>(unsafe { bytes(address, count) })
}

#[cfg(test)]
mod tests {
    type Sum = unsafe extern "C" fn(u64, u64) -> u64;

    #[test]
    fn all_widths_add_up() {
        let bytes: Vec<u8> = (0..1_000_003u32).map(|n| (n * 7 + (n >> 8)) as u8 | 0x80).collect();
        for (start, count) in [(0, 0), (1, 1), (3, 8), (1, 749), (2, 200_000)] {
            for (wide, swapped) in [(false, false), (false, true), (true, false), (true, true)] {
                let size = if wide { 4 } else { 2 };
                let part = &bytes[start..start + count * size];
                let join = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
                let number = |bytes: &[u8]| match swapped {
                    true => bytes.iter().fold(0, join),
                    false => bytes.iter().rev().fold(0, join),
                };
                let expected: u64 = part.chunks(size).map(number).sum();
                for function in [super::function(wide, swapped), super::plain(wide, swapped)] {
                    // SAFETY: all are functions of this type.
                    let function: Sum = unsafe { std::mem::transmute(function) };
                    // SAFETY: the bytes are in the slice.
                    let found = unsafe { function(part.as_ptr() as u64, count as u64) };
                    assert_eq!(found, expected, "{count} from {start}, {wide} {swapped}");
                }
            }
        }
    }
}
