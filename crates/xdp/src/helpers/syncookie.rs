//! SYN cookies made from raw headers (`bpf_tcp_raw_gen_syncookie_ipv4` and its relatives).
//!
//! The construction is the kernel's (`net/ipv4/syncookies.c`): a keyed hash of the flow hides the
//! minute and an index into a table of segment sizes in the sequence number. The key is different,
//! so cookies of a kernel are not accepted here, or vice versa.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::{Call, Table, entry};
use crate::memory::{self, Grant};

pub(super) const TABLE: Table = &[
    (id::TCP_RAW_GEN_SYNCOOKIE_IPV4, entry(generate_v4)),
    (id::TCP_RAW_GEN_SYNCOOKIE_IPV6, entry(generate_v6)),
    (id::TCP_RAW_CHECK_SYNCOOKIE_IPV4, entry(check_v4)),
    (id::TCP_RAW_CHECK_SYNCOOKIE_IPV6, entry(check_v6)),
];

/// The secret of all cookies: two random keys, generated once.
#[derive(Debug)]
pub(crate) struct CookieSecret([[u64; 2]; 2]);

impl Default for CookieSecret {
    fn default() -> Self {
        let random = |salt: u64| RandomState::new().hash_one(salt);
        CookieSecret([[random(0), random(1)], [random(2), random(3)]])
    }
}

/// `bpf_tcp_raw_gen_syncookie_ipv4(iph, th, th_len)`: the cookie in the low 32 bits, and the
/// segment size above it.
#[inline(always)]
fn generate_v4(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    generate(call, args, Family::V4)
}

/// `bpf_tcp_raw_gen_syncookie_ipv6(iph, th, th_len)`
#[inline(always)]
fn generate_v6(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    generate(call, args, Family::V6)
}

/// `bpf_tcp_raw_check_syncookie_ipv4(iph, th)`: 0 if the ACK carries a valid cookie.
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
    /// Range of the source and destination addresses in the IP header, and the header's length.
    fn addresses(self) -> (Range<u64>, u64) {
        match self {
            Family::V4 => (12..20, 20),
            Family::V6 => (8..40, 40),
        }
    }

    /// Segment sizes that a cookie can encode (`msstab`).
    fn sizes(self) -> [u16; 4] {
        match self {
            Family::V4 => [536, 1300, 1440, 1460],
            Family::V6 => [1280 - 60, 1480 - 60, 1500 - 60, 9000 - 60],
        }
    }

    /// Segment size of a SYN without the option.
    fn default_size(self) -> u16 {
        match self {
            Family::V4 => 536,
            Family::V6 => 1220,
        }
    }
}

#[inline(always)]
fn generate(call: &mut Call<'_, '_>, args: [u64; 5], family: Family) -> Result<u64, Stop> {
    let [ip, tcp, len, ..] = args;
    let len = len as u32 as usize;
    if len < TCP_BYTES {
        return Ok(Errno::EINVAL.to_reg());
    }
    let tcp = call.run.grant(tcp, len.min(TCP_BYTES_MAX) as u64, false)?;
    if len != (memory::load(tcp.part(12, 1)) as usize >> 4) * 4 {
        return Ok(Errno::EINVAL.to_reg());
    }
    let flow = Flow::read(call, ip, tcp, family)?;
    let mut options = [0; TCP_BYTES_MAX - TCP_BYTES];
    let options = &mut options[..len - TCP_BYTES];
    memory::copy_out(tcp.part(TCP_BYTES as u64, options.len() as u64), options);
    let wanted = segment_size(options).unwrap_or(family.default_size());
    let sizes = family.sizes();
    let index = (1..sizes.len()).rev().find(|&index| wanted >= sizes[index]).unwrap_or(0);
    let secret = &call.run.surroundings.cookies;
    let cookie = flow.cookie(secret, flow.sequence, minutes(), index as u32);
    Ok(u64::from(cookie) | u64::from(sizes[index]) << 32)
}

#[inline(always)]
fn check(call: &mut Call<'_, '_>, args: [u64; 5], family: Family) -> Result<u64, Stop> {
    let [ip, tcp, ..] = args;
    let tcp = call.run.grant(tcp, TCP_BYTES as u64, false)?;
    let flow = Flow::read(call, ip, tcp, family)?;
    let sequence = flow.sequence.wrapping_sub(1);
    let cookie = flow.acknowledged.wrapping_sub(1);
    let secret = &call.run.surroundings.cookies;
    let valid = flow
        .data(secret, sequence, minutes(), cookie)
        .is_some_and(|index| (index as usize) < family.sizes().len());
    Ok(if valid { 0 } else { Errno::EACCES.to_reg() })
}

/// The flow that a cookie is bound to.
struct Flow {
    /// Source and destination address.
    addresses: [u64; 4],
    /// Number of words used in `addresses`.
    words: usize,
    ports: u32,
    sequence: u32,
    acknowledged: u32,
}

impl Flow {
    /// Reads each field with the width that programs write, as a wider load would stall on store
    /// forwarding.
    #[inline(always)]
    fn read(call: &Call<'_, '_>, ip: u64, tcp: Grant, family: Family) -> Result<Flow, Stop> {
        let (range, len) = family.addresses();
        let ip = call.run.grant(ip, len, false)?;
        let mut addresses = [0; 4];
        let words = ((range.end - range.start) / 8) as usize;
        for (word, at) in addresses.iter_mut().zip(range.step_by(8)) {
            *word = memory::load(ip.part(at, 4)) | memory::load(ip.part(at + 4, 4)) << 32;
        }
        let word = |at: u64| (memory::load(tcp.part(at, 4)) as u32).swap_bytes();
        Ok(Flow { addresses, words, ports: word(0), sequence: word(4), acknowledged: word(8) })
    }

    /// Two `cookie_hash` values: SipHash, as in the kernel, over addresses, ports and a count. The
    /// first hash is for count 0; each has its own key.
    #[inline(always)]
    fn hashes(&self, secret: &CookieSecret, count: u32) -> [u32; 2] {
        let mut hash = SipHashes::new(secret.0);
        self.addresses[..self.words].iter().for_each(|word| hash.words([*word; 2]));
        let ports = u64::from(self.ports) << 32;
        hash.words([ports, ports | u64::from(count)]);
        hash.finish((self.words as u64 + 1) * 8).map(|hash| hash as u32)
    }

    /// `secure_tcp_syn_cookie`
    #[inline(always)]
    fn cookie(&self, secret: &CookieSecret, sequence: u32, count: u32, data: u32) -> u32 {
        let [base, hidden] = self.hashes(secret, count);
        let hidden = hidden.wrapping_add(data) & DATA_MASK;
        base.wrapping_add(sequence).wrapping_add(count << DATA_BITS).wrapping_add(hidden)
    }

    /// The hidden data, if the cookie is at most two minutes old (`check_tcp_syn_cookie`).
    #[inline(always)]
    fn data(&self, secret: &CookieSecret, sequence: u32, now: u32, cookie: u32) -> Option<u32> {
        // Most cookies are of this minute, so its hash is computed together with the one that tells
        // the age.
        let [base, mut hidden] = self.hashes(secret, now);
        let cookie = cookie.wrapping_sub(base).wrapping_sub(sequence);
        let age = now.wrapping_sub(cookie >> DATA_BITS) & (u32::MAX >> DATA_BITS);
        if age >= MINUTES_MAX {
            return None;
        }
        if age > 0 {
            [_, hidden] = self.hashes(secret, now.wrapping_sub(age));
        }
        Some(cookie.wrapping_sub(hidden) & DATA_MASK)
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

/// Two SipHash-2-4 hashes of whole words at once (Aumasson and Bernstein, 2012): each step depends
/// on the previous one, so interleaving two hashes uses the processor better.
struct SipHashes([[u64; 4]; 2]);

impl SipHashes {
    #[inline(always)]
    fn new(keys: [[u64; 2]; 2]) -> SipHashes {
        SipHashes(keys.map(|[low, high]| {
            [
                low ^ 0x736f_6d65_7073_6575,
                high ^ 0x646f_7261_6e64_6f6d,
                low ^ 0x6c79_6765_6e65_7261,
                high ^ 0x7465_6462_7974_6573,
            ]
        }))
    }

    #[inline(always)]
    fn words(&mut self, words: [u64; 2]) {
        let [first, second] = &mut self.0;
        (first[3], second[3]) = (first[3] ^ words[0], second[3] ^ words[1]);
        self.round();
        self.round();
        let [first, second] = &mut self.0;
        (first[0], second[0]) = (first[0] ^ words[0], second[0] ^ words[1]);
    }

    /// The hashes of `bytes` bytes each; the last block holds only their number.
    #[inline(always)]
    fn finish(mut self, bytes: u64) -> [u64; 2] {
        self.words([bytes << 56; 2]);
        self.0.iter_mut().for_each(|state| state[2] ^= 0xff);
        (0..4).for_each(|_| self.round());
        self.0.map(|state| state.into_iter().fold(0, |hash, word| hash ^ word))
    }

    #[inline(always)]
    fn round(&mut self) {
        self.0 = self.0.map(round);
    }
}

/// One round of SipHash.
#[inline(always)]
fn round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
    (a, c) = (a.wrapping_add(b), c.wrapping_add(d));
    (b, d) = (b.rotate_left(13) ^ a, d.rotate_left(16) ^ c);
    a = a.rotate_left(32);
    (c, a) = (c.wrapping_add(b), a.wrapping_add(d));
    (b, d) = (b.rotate_left(17) ^ c, d.rotate_left(21) ^ a);
    c = c.rotate_left(32);
    [a, b, c, d]
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
        assert_eq!(flow(1).data(&secret, 77, 1000, cookie), Some(3));
    }

    /// The reference implementation's vectors: keys 0 to 15, text 0, 1, 2 and so on.
    #[test]
    fn the_hash_is_sip_hash() {
        let bytes = |start: u8| u64::from_le_bytes(std::array::from_fn(|at| start + at as u8));
        let hash = |words: u8| {
            let mut hash = SipHashes::new([[bytes(0), bytes(8)]; 2]);
            (0..words).for_each(|word| hash.words([bytes(word * 8); 2]));
            hash.finish(u64::from(words) * 8)
        };
        assert_eq!(hash(0), [0x726f_db47_dd0e_0e31; 2]);
        assert_eq!(hash(1), [0x93f5_f579_9a93_2462; 2]);
    }

    #[test]
    fn the_size_option_is_found_behind_others() {
        assert_eq!(segment_size(&[1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 5, 0xb4]), Some(1460));
        assert_eq!(segment_size(&[3, 0, 2, 4]), None);
        assert_eq!(segment_size(&[]), None);
    }
}
