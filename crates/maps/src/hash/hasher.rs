//! Hashes of keys: a fast seeded one, and the kernel's for maps made with `BPF_F_ZERO_SEED`.

use std::hash::{BuildHasher, RandomState};

use crate::memory::partial_word;

/// The hash function of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hasher {
    /// Two wide multiplications with secrets of this map, so that chosen keys don't collide.
    Seeded([u64; 2]),
    /// `jhash` with seed 0: the order of iteration is the kernel's.
    Jenkins,
    /// The key itself, a 32-bit number.
    Number,
}

impl Hasher {
    pub(crate) fn new(zero_seed: bool) -> Self {
        if zero_seed {
            return Hasher::Jenkins;
        }
        let random = |salt: u64| RandomState::new().hash_one(salt);
        Hasher::Seeded([random(0), random(1)])
    }

    /// The secrets, if there are any.
    pub(crate) fn seed(&self) -> Option<[u64; 2]> {
        if let Hasher::Seeded(seed) = self { Some(*seed) } else { None }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u32 {
        match self {
            Hasher::Seeded(seed) => seeded(*seed, key),
            Hasher::Jenkins => jhash(key, 0),
            Hasher::Number => crate::prog_array::number(key),
        }
    }
}

#[inline]
fn seeded(seed: [u64; 2], key: &[u8]) -> u32 {
    let mut lanes = Lanes::new(seed, key.len() as u64);
    let (pairs, rest) = key.as_chunks::<16>();
    for pair in pairs {
        lanes.add(words(pair));
    }
    if !rest.is_empty() {
        lanes.add(match rest.split_first_chunk() {
            Some((low, high)) => [u64::from_le_bytes(*low), partial_word(high).to_le()],
            None => [partial_word(rest).to_le(), 0],
        });
    }
    lanes.finish()
}

/// As [`seeded`], for a key of `size` bytes given as words, the last one filled up with zeroes.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn seeded_words<const WORDS: usize>(
    seed: [u64; 2],
    size: u32,
    key: [u64; WORDS],
) -> u32 {
    let mut lanes = Lanes::new(seed, size.into());
    let (pairs, rest) = key.as_chunks::<2>();
    for pair in pairs {
        lanes.add(*pair);
    }
    for low in rest {
        lanes.add([*low, 0]);
    }
    lanes.finish()
}

/// Two states that take pairs of words in turn, so that no multiplication waits for the one before
/// it. Each has a secret in its state and another one in its pairs, so that a change in one state
/// cannot be compensated in the other.
#[derive(Clone, Copy)]
struct Lanes {
    /// The state whose turn it is, and the secret that its pairs are mixed with.
    next: (u64, u64),
    other: (u64, u64),
    /// Whether the turn is the second one's.
    is_odd: bool,
}

impl Lanes {
    #[inline(always)]
    fn new([first, second]: [u64; 2], size: u64) -> Self {
        let turned = second.rotate_left(32);
        Lanes { next: (first ^ size, second), other: (turned, first), is_odd: false }
    }

    #[inline(always)]
    fn add(&mut self, [low, high]: [u64; 2]) {
        let (state, secret) = self.next;
        let added = (fold(state ^ low, secret ^ high), secret);
        (self.next, self.other) = (self.other, added);
        self.is_odd = !self.is_odd;
    }

    #[inline(always)]
    fn finish(self) -> u32 {
        let (first, second) =
            if self.is_odd { (self.other, self.next) } else { (self.next, self.other) };
        let mixed = fold(first.0, second.0 ^ GOLDEN);
        (mixed ^ (mixed >> 32)) as u32
    }
}

/// 2^64 divided by the golden ratio, odd: a multiplier with well spread bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
fn words(pair: &[u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(*pair);
    [both as u64, (both >> 64) as u64]
}

/// Both halves of the 128-bit product, folded into one.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Bob Jenkins' lookup3 (<https://burtleburtle.net/bob/c/lookup3.c>, public domain), with the start
/// value the kernel uses in `jhash()` and `jhash2()`.
pub(crate) fn jhash(key: &[u8], seed: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(key.len() as u32).wrapping_add(seed);
    let [mut a, mut b, mut c] = [start; 3];
    let mut rest = key;
    while rest.len() > 12 {
        let (block, after) = rest.split_at(12);
        add(&mut a, &mut b, &mut c, block);
        mix(&mut a, &mut b, &mut c);
        rest = after;
    }
    if !rest.is_empty() {
        add(&mut a, &mut b, &mut c, rest);
        finish(&mut a, &mut b, &mut c);
    }
    c
}

fn add(a: &mut u32, b: &mut u32, c: &mut u32, bytes: &[u8]) {
    let mut block = [0; 12];
    block[..bytes.len()].copy_from_slice(bytes);
    let word =
        |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    *a = a.wrapping_add(word(0));
    *b = b.wrapping_add(word(4));
    *c = c.wrapping_add(word(8));
}

fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    // (a -= c; a ^= rot(c, 4); c += b) and so on, around the three words.
    *a = a.wrapping_sub(*c) ^ c.rotate_left(4);
    *c = c.wrapping_add(*b);
    *b = b.wrapping_sub(*a) ^ a.rotate_left(6);
    *a = a.wrapping_add(*c);
    *c = c.wrapping_sub(*b) ^ b.rotate_left(8);
    *b = b.wrapping_add(*a);
    *a = a.wrapping_sub(*c) ^ c.rotate_left(16);
    *c = c.wrapping_add(*b);
    *b = b.wrapping_sub(*a) ^ a.rotate_left(19);
    *a = a.wrapping_add(*c);
    *c = c.wrapping_sub(*b) ^ b.rotate_left(4);
    *b = b.wrapping_add(*a);
}

fn finish(a: &mut u32, b: &mut u32, c: &mut u32) {
    let turn = |x: &mut u32, y: u32, bits: u32| {
        *x = (*x ^ y).wrapping_sub(y.rotate_left(bits));
    };
    turn(c, *b, 14);
    turn(a, *c, 11);
    turn(b, *a, 25);
    turn(c, *b, 16);
    turn(a, *c, 4);
    turn(b, *a, 14);
    turn(c, *b, 24);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jenkins_matches_lookup3s_own_vectors() {
        // From the self-test of lookup3.c (hashlittle, initval 0 and 1): the same function but
        // for the start value, which the kernel passes as seed.
        let text = b"Four score and seven years ago";
        assert_eq!(jhash(text, 0), 0x1777_0551);
        assert_eq!(jhash(text, 1), 0xcd62_8161);
        assert_eq!(jhash(b"", 0), 0xdead_beef);
    }

    #[test]
    fn nearby_short_keys_spread() {
        let hasher = Hasher::new(false);
        for size in [4usize, 8, 16] {
            let mut used = vec![false; 4096];
            for key in 0u64..4096 {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&key.to_ne_bytes());
                used[hasher.hash(&bytes[..size]) as usize & 4095] = true;
            }
            let filled = used.iter().filter(|&&used| used).count();
            assert!(filled > 2300, "{filled} of 4096 buckets used for keys of {size} bytes");
        }
    }
}
