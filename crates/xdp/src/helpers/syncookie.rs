//! SYN cookies made from raw headers (`bpf_tcp_raw_gen_syncookie_ipv4` and its relatives).
//!
//! The construction is the kernel's (`net/ipv4/syncookies.c`): a keyed hash of the flow hides the
//! minute and an index into a table of segment sizes in the sequence number. The key is ours, so
//! cookies of a kernel are not accepted here, nor ours there.

use std::hash::{BuildHasher, RandomState};

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::{Call, Table, entry};

pub(super) const TABLE: Table = &[
    (id::TCP_RAW_GEN_SYNCOOKIE_IPV4, entry(generate_v4)),
    (id::TCP_RAW_GEN_SYNCOOKIE_IPV6, entry(generate_v6)),
    (id::TCP_RAW_CHECK_SYNCOOKIE_IPV4, entry(check_v4)),
    (id::TCP_RAW_CHECK_SYNCOOKIE_IPV6, entry(check_v6)),
];

/// The secret of all cookies: two keys, made once, random.
#[derive(Debug)]
pub(crate) struct CookieSecret([[u64; 2]; 2]);

impl Default for CookieSecret {
    fn default() -> Self {
        let random = |salt: u64| RandomState::new().hash_one(salt);
        CookieSecret([[random(0), random(1)], [random(2), random(3)]])
    }
}

/// `bpf_tcp_raw_gen_syncookie_ipv4(iph, th, th_len)`: the cookie, and above it the segment size.
#[inline(always)]
fn generate_v4(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    generate(call, args, Family::V4)
}

/// `bpf_tcp_raw_gen_syncookie_ipv6(iph, th, th_len)`
#[inline(always)]
fn generate_v6(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    generate(call, args, Family::V6)
}

/// `bpf_tcp_raw_check_syncookie_ipv4(iph, th)`: 0 when the ACK carries a cookie of ours.
#[inline(always)]
fn check_v4(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    check(call, args, Family::V4)
}

/// `bpf_tcp_raw_check_syncookie_ipv6(iph, th)`
#[inline(always)]
fn check_v6(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    check(call, args, Family::V6)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// Where source and destination address lie in the IP header, and how long it is.
    fn addresses(self) -> (std::ops::Range<usize>, usize) {
        match self {
            Family::V4 => (12..20, 20),
            Family::V6 => (8..40, 40),
        }
    }

    /// Segment sizes a cookie can say (`msstab`).
    fn sizes(self) -> [u16; 4] {
        match self {
            Family::V4 => [536, 1300, 1440, 1460],
            Family::V6 => [1280 - 60, 1480 - 60, 1500 - 60, 9000 - 60],
        }
    }

    /// Taken when a SYN names none.
    fn default_size(self) -> u16 {
        match self {
            Family::V4 => 536,
            Family::V6 => 1220,
        }
    }
}

fn generate(call: &mut Call<'_, '_>, args: [u64; 5], family: Family) -> Result<u64, Stop> {
    let [ip, tcp, len, ..] = args;
    let len = len as u32 as usize;
    if len < TCP_BYTES {
        return Ok(Errno::EINVAL.to_reg());
    }
    let tcp = call.run.view(tcp, len.min(TCP_BYTES_MAX) as u64)?;
    if len != usize::from(tcp[12] >> 4) * 4 {
        return Ok(Errno::EINVAL.to_reg());
    }
    let flow = Flow::read(call, ip, &tcp, family)?;
    let wanted = segment_size(&tcp[TCP_BYTES..]).unwrap_or(family.default_size());
    let sizes = family.sizes();
    let index = (1..sizes.len()).rev().find(|&index| wanted >= sizes[index]).unwrap_or(0);
    let secret = &call.run.surroundings.cookies;
    let cookie = flow.cookie(secret, flow.sequence, minutes(), index as u32);
    Ok(u64::from(cookie) | u64::from(sizes[index]) << 32)
}

fn check(call: &mut Call<'_, '_>, args: [u64; 5], family: Family) -> Result<u64, Stop> {
    let [ip, tcp, ..] = args;
    let tcp = call.run.view(tcp, TCP_BYTES as u64)?;
    let flow = Flow::read(call, ip, &tcp, family)?;
    let sequence = flow.sequence.wrapping_sub(1);
    let cookie = flow.acknowledged.wrapping_sub(1);
    let secret = &call.run.surroundings.cookies;
    let valid = flow
        .data(secret, sequence, minutes(), cookie)
        .is_some_and(|index| (index as usize) < family.sizes().len());
    Ok(if valid { 0 } else { Errno::EACCES.to_reg() })
}

/// What a cookie is bound to.
struct Flow {
    /// Source and destination address.
    addresses: [u64; 4],
    /// How many words of `addresses` there are.
    words: usize,
    ports: u32,
    sequence: u32,
    acknowledged: u32,
}

impl Flow {
    fn read(call: &Call<'_, '_>, ip: u64, tcp: &[u8], family: Family) -> Result<Flow, Stop> {
        let (range, len) = family.addresses();
        let header = call.run.view(ip, len as u64)?;
        let (words, _) = header[range].as_chunks::<8>();
        let mut addresses = [0; 4];
        for (word, bytes) in addresses.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        Ok(Flow {
            addresses,
            words: words.len(),
            ports: word(0),
            sequence: word(4),
            acknowledged: word(8),
        })
    }

    /// `cookie_hash`: SipHash, as in the kernel, over addresses, ports and a count.
    fn hash(&self, secret: &CookieSecret, count: u32, which: usize) -> u32 {
        let ports_and_count = u64::from(self.ports) << 32 | u64::from(count);
        let mut hash = SipHash::new(secret.0[which]);
        self.addresses[..self.words].iter().for_each(|word| hash.word(*word));
        hash.word(ports_and_count);
        hash.finish((self.words as u64 + 1) * 8) as u32
    }

    /// `secure_tcp_syn_cookie`
    fn cookie(&self, secret: &CookieSecret, sequence: u32, count: u32, data: u32) -> u32 {
        let hidden = self.hash(secret, count, 1).wrapping_add(data) & DATA_MASK;
        self.hash(secret, 0, 0)
            .wrapping_add(sequence)
            .wrapping_add(count << DATA_BITS)
            .wrapping_add(hidden)
    }

    /// `check_tcp_syn_cookie`: what was hidden, if the cookie is at most two minutes old.
    fn data(&self, secret: &CookieSecret, sequence: u32, now: u32, cookie: u32) -> Option<u32> {
        let cookie = cookie.wrapping_sub(self.hash(secret, 0, 0)).wrapping_sub(sequence);
        let age = now.wrapping_sub(cookie >> DATA_BITS) & (u32::MAX >> DATA_BITS);
        if age >= MINUTES_MAX {
            return None;
        }
        Some(cookie.wrapping_sub(self.hash(secret, now.wrapping_sub(age), 1)) & DATA_MASK)
    }
}

/// The maximum segment size option (`tcp_parse_mss_option`).
fn segment_size(mut options: &[u8]) -> Option<u16> {
    loop {
        match options {
            [] | [0, ..] => return None,
            [1, rest @ ..] => options = rest,
            [2, 4, high, low, ..] => {
                return Some(u16::from_be_bytes([*high, *low])).filter(|size| *size != 0);
            }
            [_, len, ..] if *len >= 2 => options = options.get(usize::from(*len)..)?,
            _ => return None,
        }
    }
}

/// Minutes since boot (`tcp_cookie_time`).
fn minutes() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    (now.tv_sec / 60) as u32
}

/// SipHash-2-4 of whole words (Aumasson and Bernstein, 2012).
struct SipHash([u64; 4]);

impl SipHash {
    fn new([low, high]: [u64; 2]) -> SipHash {
        SipHash([
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline]
    fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    /// The hash of `bytes` bytes: the last block holds nothing but their number.
    #[inline]
    fn finish(mut self, bytes: u64) -> u64 {
        self.word(bytes << 56);
        self.0[2] ^= 0xff;
        (0..4).for_each(|_| self.round());
        self.0.into_iter().fold(0, |hash, word| hash ^ word)
    }

    #[inline]
    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        (a, c) = (a.wrapping_add(b), c.wrapping_add(d));
        (b, d) = (b.rotate_left(13) ^ a, d.rotate_left(16) ^ c);
        a = a.rotate_left(32);
        (c, a) = (c.wrapping_add(b), a.wrapping_add(d));
        (b, d) = (b.rotate_left(17) ^ c, d.rotate_left(21) ^ a);
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }
}

const TCP_BYTES: usize = 20;
const TCP_BYTES_MAX: usize = 60;
/// `COOKIEBITS`
const DATA_BITS: u32 = 24;
const DATA_MASK: u32 = (1 << DATA_BITS) - 1;
/// `MAX_SYNCOOKIE_AGE`
const MINUTES_MAX: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_its_flow_and_two_minutes() {
        let secret = CookieSecret::default();
        let flow = |port: u32| Flow {
            addresses: [0x0200_000a_0100_000a, 0, 0, 0],
            words: 1,
            ports: port << 16 | 80,
            sequence: 77,
            acknowledged: 0,
        };
        let cookie = flow(1).cookie(&secret, 77, 1000, 3);
        assert_eq!(flow(1).data(&secret, 77, 1001, cookie), Some(3));
        assert_eq!(flow(1).data(&secret, 77, 1002, cookie), None);
        assert_ne!(flow(2).data(&secret, 77, 1000, cookie), Some(3));
    }

    /// The reference implementation's vectors: keys 0 to 15, text 0, 1, 2 and so on.
    #[test]
    fn the_hash_is_sip_hash() {
        let bytes = |start: u8| u64::from_le_bytes(std::array::from_fn(|at| start + at as u8));
        let hash = |words: u8| {
            let mut hash = SipHash::new([bytes(0), bytes(8)]);
            (0..words).for_each(|word| hash.word(bytes(word * 8)));
            hash.finish(u64::from(words) * 8)
        };
        assert_eq!(hash(0), 0x726f_db47_dd0e_0e31);
        assert_eq!(hash(1), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn the_size_option_is_found_behind_others() {
        assert_eq!(segment_size(&[1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 5, 0xb4]), Some(1460));
        assert_eq!(segment_size(&[3, 0, 2, 4]), None);
        assert_eq!(segment_size(&[]), None);
    }
}
