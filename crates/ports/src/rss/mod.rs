//! Receive-side scaling (RSS): the hash over a packet's addresses that NICs compute with
//! Microsoft's Toeplitz function ("Verifying the RSS Hash Calculation"), and the covered fields in
//! the kernel's terms (`enum xdp_rss_hash_type`).
//!
//! As in NICs, the hash covers the outermost addresses, and the ports of TCP and UDP unless the
//! packet is a fragment or the ports are missing. Tunnels are hashed by their outer headers.
//! Packets other than IP have no hash.

mod flow;

use towpath_xdp::frame::rx_metadata::RxHash;
use towpath_xdp::{Frame, SharedBytes};

use flow::Flow;

/// The hash of a frame; `None` for packets other than IP.
#[inline]
pub fn hash(frame: &Frame) -> Option<RxHash> {
    if frame.has_frags() && frame.linear_len() < HEADERS_BYTES {
        return hash_across(frame);
    }
    hash_of(frame.shared_linear())
}

/// The hash of a frame whose headers may continue in frags: a program may leave only an Ethernet
/// header in the linear part.
#[cold]
fn hash_across(frame: &Frame) -> Option<RxHash> {
    let mut headers = [0; HEADERS_BYTES];
    let len = frame.len().min(HEADERS_BYTES);
    frame.copy_from(0, &mut headers[..len]);
    hash_headers(&headers[..len])
}

/// As [`hash`], for a packet whose headers are in these bytes.
pub fn hash_of(linear: SharedBytes<'_>) -> Option<RxHash> {
    let mut headers = [0; HEADERS_BYTES];
    let len = linear.len().min(HEADERS_BYTES);
    linear.part(0..len).read(&mut headers[..len]);
    hash_headers(&headers[..len])
}

#[inline]
fn hash_headers(headers: &[u8]) -> Option<RxHash> {
    let flow = Flow::parse(headers)?;
    Some(RxHash { value: toeplitz(flow.input()), kind: flow.kind() })
}

/// The Toeplitz hash with [`KEY`] of at most 36 bytes.
fn toeplitz(input: &[u8]) -> u32 {
    let tables = TABLES.chunks_exact(2);
    input.iter().zip(tables).fold(0, |hash, (byte, tables)| {
        let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
        hash ^ tables[0][high] ^ tables[1][low]
    })
}

/// Contributions of each half byte of the input, by position and value.
static TABLES: [[u32; 16]; 2 * INPUT_BYTES_MAX] = tables();

const fn tables() -> [[u32; 16]; 2 * INPUT_BYTES_MAX] {
    let mut tables = [[0; 16]; 2 * INPUT_BYTES_MAX];
    let mut place = 0;
    while place < tables.len() {
        let mut value = 0;
        while value < 16 {
            let mut bit = 0;
            while bit < 4 {
                if value >> (3 - bit) & 1 == 1 {
                    tables[place][value] ^= key_at(4 * place + bit);
                }
                bit += 1;
            }
            value += 1;
        }
        place += 1;
    }
    tables
}

/// 32 bits of the key, starting at `bit`.
const fn key_at(bit: usize) -> u32 {
    let (mut word, mut at) = (0_u64, 0);
    while at < 5 {
        let byte = bit / 8 + at;
        word = word << 8 | if byte < KEY.len() { KEY[byte] as u64 } else { 0 };
        at += 1;
    }
    (word >> (8 - bit % 8)) as u32
}

/// Two IPv6 addresses and two ports.
const INPUT_BYTES_MAX: usize = 36;
const _: () = assert!(INPUT_BYTES_MAX == 2 * 16 + 2 * 2, "IPv6 addresses and ports");
const _: () = assert!(
    INPUT_BYTES_MAX + size_of::<u32>() <= KEY.len(),
    "the key has 32 bits behind each input bit"
);
/// Bytes within which headers are looked for.
const HEADERS_BYTES: usize = 256;

/// The key of Microsoft's published test vectors.
pub const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

#[cfg(test)]
mod tests;
