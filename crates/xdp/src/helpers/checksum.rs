//! `bpf_csum_diff`: the ones' complement sum of what changes.

use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::{Call, Table, entry};

pub(super) const TABLE: Table = &[(id::CSUM_DIFF, entry(csum_diff))];

/// `bpf_csum_diff(from, from_size, to, to_size, seed)`. Since 6.13 the result is folded to 16 bits
/// and sizes need not be multiples of 4.
#[inline(always)]
fn csum_diff(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [from, from_size, to, to_size, seed] = args;
    let from = call.run.view(from, u64::from(from_size as u32))?;
    let to = call.run.view(to, u64::from(to_size as u32))?;
    Ok(u64::from(difference(&from, &to, seed as u32)))
}

/// Sum of `to` minus sum of `from`, starting from `seed`, in the kernel's order of operations: the
/// order decides between the two zeroes of ones' complement.
pub(crate) fn difference(from: &[u8], to: &[u8], seed: u32) -> u16 {
    let sum = match (from.is_empty(), to.is_empty()) {
        (false, false) => {
            let sum = fold(u64::from(partial(to, seed)) + u64::from(!partial(from, 0)));
            sum as u32
        }
        (true, false) => partial(to, seed),
        (false, true) => !partial(from, !seed),
        (true, true) => seed,
    };
    let folded = sum.wrapping_add(sum.rotate_left(16));
    (folded >> 16) as u16
}

/// `csum_partial`: 32-bit ones' complement sum of the bytes and `sum`.
fn partial(bytes: &[u8], sum: u32) -> u32 {
    // Several sums side by side: addition is associative, so that the carries come out the same.
    let (blocks, rest) = bytes.as_chunks::<{ 4 * LANES }>();
    let mut lanes = [0u64; LANES];
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane += u64::from(u32::from_le_bytes(*word));
        }
    }
    let mut total = u64::from(sum) + lanes.iter().sum::<u64>();
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        total += u64::from(u32::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        total += u64::from(u32::from_le_bytes(last));
    }
    fold(total) as u32
}

/// Adds the carries of a sum of 32-bit words back in.
fn fold(sum: u64) -> u64 {
    let once = (sum & 0xffff_ffff) + (sum >> 32);
    (once & 0xffff_ffff) + (once >> 32)
}

/// Words summed at a time.
const LANES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from a 6.18 kernel: sizes, seed, fill (0 zeroes, 1 patterns, 2 ones), result.
    #[test]
    fn results_are_the_kernels() {
        #[rustfmt::skip]
        let cases = [
            (0, 4, 0, 0, 0), (4, 0, 0, 0, 0), (4, 4, 0, 0, 0xffff), (0, 0, 0x12345, 0, 0x2346),
            (0, 0, 0xffff_ffff, 0, 0xffff), (0, 0, 0xffff, 0, 0xffff), (0, 0, 0x10000, 0, 0x1),
            (4, 4, 0xffff_ffff, 1, 0xcc5f), (3, 4, 0, 1, 0x4660), (0, 5, 0, 1, 0x7731),
            (0, 20, 0, 1, 0xc334), (20, 0, 0, 1, 0x198b), (20, 20, 0x1234, 1, 0xeef3),
            (0, 64, 0x89ab_cdef, 1, 0x7eb), (64, 0, 0x89ab_cdef, 1, 0xe7ca),
            (64, 64, 7, 1, 0x4086), (1, 0, 0, 1, 0xfff4), (4, 4, 0, 2, 0xffff),
            (8, 8, 0, 2, 0xffff), (4, 8, 0xfffe_0001, 2, 0xffff), (8, 4, 1, 1, 0xf8d7),
        ];
        for (from_size, to_size, seed, fill, want) in cases {
            let bytes = |step: usize, start: usize, len: usize| -> Vec<u8> {
                let byte = |k: usize| [0, (k * step + start) as u8, 0xff][fill];
                (0..len).map(byte).collect()
            };
            let (from, to) = (bytes(37, 11, from_size), bytes(91, 5, to_size));
            let got = difference(&from, &to, seed);
            assert_eq!(got, want, "({from_size}, {to_size}, {seed:#x}, {fill})");
        }
    }
}
