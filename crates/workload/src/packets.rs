//! Packets to run programs on: a wide range of input for parsers, the same in every run.
//!
//! Packet `i` of a seed depends on nothing else, so a failure identifies a packet for good. Headers
//! are usually well-formed (checksums included), then a third of the packets is damaged: cut short,
//! lengths wrong, bytes flipped.

mod layers;

use crate::random::Random;

use layers::Layers;

/// Largest packet in bytes for an XDP program without frags support in a test run: a page less
/// headroom 256 and the kernel's `skb_shared_info` 320.
pub const LINEAR_BYTES_MAX: usize = 3520;
/// The smallest packet that `BPF_PROG_TEST_RUN` accepts, in bytes (`ETH_HLEN`).
pub const BYTES_MIN: usize = 14;

/// `count` packets; jumbo ones (several buffers) among them only if the program handles frags.
pub fn packets(seed: u64, count: usize, frags: bool) -> Vec<Vec<u8>> {
    (0..count).map(|index| packet(seed, index, frags)).collect()
}

/// One packet.
pub fn packet(seed: u64, index: usize, frags: bool) -> Vec<u8> {
    let mut random = Random::new(seed ^ (index as u64).wrapping_mul(0xa076_1d64_78bd_642f));
    let mut bytes = match index % 16 {
        15 => noise(&mut random),
        14 => long(&mut random, frags),
        _ => Layers::new(&mut random).build(),
    };
    if random.one_in(3) {
        damage(&mut bytes, &mut random);
    }
    let most = if frags { JUMBO_BYTES_MAX } else { LINEAR_BYTES_MAX };
    bytes.truncate(most);
    bytes.resize(bytes.len().max(BYTES_MIN), 0);
    bytes
}

/// Random bytes, of any length.
fn noise(random: &mut Random) -> Vec<u8> {
    let count = random.below(256) + BYTES_MIN;
    random.bytes(count)
}

/// A packet whose payload fills one buffer, or several.
fn long(random: &mut Random, frags: bool) -> Vec<u8> {
    let most = if frags { JUMBO_BYTES_MAX } else { LINEAR_BYTES_MAX };
    let payload = random.below(most - 200) + 100;
    let mut layers = Layers::new(random);
    layers.payload_bytes(payload);
    layers.build()
}

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    match random.below(4) {
        // Usually cut off inside a header.
        0 => bytes.truncate(random.below(bytes.len().min(96)) + 1),
        1 => {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        // Version and header length, at the usual offset of an IPv4 header.
        2 if bytes.len() > 15 => bytes[14] = random.bits() as u8,
        _ => {
            let at = random.below(bytes.len().min(64));
            bytes[at] = *random.pick(&[0, 0xff, 0x7f, 0x80, 1]);
        }
    }
}

const JUMBO_BYTES_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_the_same_every_time_and_varied() {
        let first = packets(7, 200, false);
        assert_eq!(first, packets(7, 200, false));
        assert!(first.iter().all(|p| (BYTES_MIN..=LINEAR_BYTES_MAX).contains(&p.len())));
        let ether_type =
            |wanted: u16| first.iter().filter(|p| p[12..14] == wanted.to_be_bytes()).count();
        assert!(ether_type(0x0800) > 40);
        assert!(ether_type(0x86dd) > 20);
        assert!(ether_type(0x8100) > 5);
        assert!(ether_type(0x0806) > 2);
        assert!(packets(7, 200, true).iter().any(|p| p.len() > LINEAR_BYTES_MAX));
    }
}
