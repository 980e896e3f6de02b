//! Choice of the guest's queue for a frame: the one by which the guest sent the last frame of the
//! same flow (virtio 1.3, 5.1.6.5.6, automatic receive steering), or one chosen by the flow's hash.

use std::sync::atomic::{AtomicU8, Ordering};

use towpath_xdp::Frame;

/// By flow: the number of a pair plus 1, or 0 if the guest has not sent any frame of it.
#[derive(Debug)]
pub(super) struct Steering {
    pairs: [AtomicU8; FLOWS],
}

impl Default for Steering {
    fn default() -> Steering {
        Steering { pairs: [const { AtomicU8::new(0) }; FLOWS] }
    }
}

impl Steering {
    /// Notes that the guest sent a frame by this pair.
    #[inline]
    pub(super) fn learn(&self, frame: &Frame, pair: u32) {
        let place = &self.pairs[flow(frame) as usize % FLOWS];
        let number = pair as u8 + 1;
        // Written only on a change, so that the cache line stays shared.
        if place.load(Ordering::Relaxed) != number {
            place.store(number, Ordering::Relaxed);
        }
    }

    /// The index in `open`, the usable pairs, of the pair for a frame.
    #[inline]
    pub(super) fn place(&self, frame: &Frame, open: &[u32]) -> u8 {
        let flow = flow(frame);
        let known = self.pairs[flow as usize % FLOWS].load(Ordering::Relaxed);
        let known = open.iter().position(|&pair| pair + 1 == u32::from(known));
        let place = known.unwrap_or(((u64::from(flow) * open.len() as u64) >> 32) as usize);
        place as u8
    }

    /// Forgets all flows, for another guest or driver.
    pub(super) fn forget(&self) {
        self.pairs.iter().for_each(|pair| pair.store(0, Ordering::Relaxed));
    }
}

/// A symmetric hash: both directions of a flow have the same value.
fn flow(frame: &Frame) -> u32 {
    let mut head = [0; HEAD_BYTES];
    let linear = frame.shared_linear();
    let len = linear.len().min(HEAD_BYTES);
    linear.part(0..len).read(&mut head[..len]);
    let be16 = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let words = |from: usize, to: usize| {
        (from..to).step_by(4).map(word).fold(0u32, |sum, it| sum.rotate_left(5) ^ it)
    };
    let tag = if matches!(be16(12), 0x8100 | 0x88a8) { 4 } else { 0 };
    let at = 14 + tag;
    let (addresses, protocol, ports) = match be16(12 + tag) {
        0x0800 => {
            let header = usize::from(head[at] & 15) * 4;
            let is_whole = be16(at + 6) & 0x3fff == 0;
            let ports = (is_whole && header <= 24).then_some(at + header);
            (word(at + 12) ^ word(at + 16), head[at + 9], ports)
        }
        0x86dd => (words(at + 8, at + 24) ^ words(at + 24, at + 40), head[at + 6], Some(at + 40)),
        // Symmetric in source and destination.
        _ => (word(0) ^ word(6) ^ u32::from(be16(4) ^ be16(10)), 0, None),
    };
    let ports = ports.filter(|_| matches!(protocol, IPPROTO_TCP | IPPROTO_UDP | IPPROTO_SCTP));
    let ports = ports.map_or(0, |at| u32::from(be16(at) ^ be16(at + 2)));
    let mixed = u64::from(addresses ^ ports ^ u32::from(protocol) << 24)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

const FLOWS: usize = 4096;
const _: () = assert!(FLOWS.is_power_of_two(), "a remainder is a mask");
/// Bytes of a VLAN tag, and the headers up to the ports.
const HEAD_BYTES: usize = 64;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const IPPROTO_SCTP: u8 = 132;

#[cfg(test)]
mod tests {
    use super::*;

    /// A UDP packet between these ports of two hosts.
    fn packet(from: u16, to: u16, is_back: bool) -> Frame {
        let mut bytes = [0; 60];
        bytes[12..14].copy_from_slice(&[8, 0]);
        (bytes[14], bytes[23]) = (0x45, IPPROTO_UDP);
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (source, target) = if is_back { (b, a) } else { (a, b) };
        bytes[26..30].copy_from_slice(&source);
        bytes[30..34].copy_from_slice(&target);
        let (from, to) = if is_back { (to, from) } else { (from, to) };
        bytes[34..36].copy_from_slice(&from.to_be_bytes());
        bytes[36..38].copy_from_slice(&to.to_be_bytes());
        Frame::new(&bytes).unwrap()
    }

    #[test]
    fn answers_go_where_the_guest_sent_from() {
        let steering = Steering::default();
        let open = [0, 1, 2, 3];
        for port in 0..100 {
            let (there, back) = (packet(port, 9, false), packet(port, 9, true));
            assert_eq!(flow(&there), flow(&back));
            assert_eq!(steering.place(&there, &open), steering.place(&back, &open));
            steering.learn(&there, u32::from(port % 4));
            assert_eq!(steering.place(&back, &open), (port % 4) as u8);
            // A pair that is no longer usable is not chosen.
            assert!(steering.place(&back, &open[..2]) < 2);
        }
        steering.forget();
        let spread: Vec<u8> =
            (0..1000).map(|port| steering.place(&packet(port, 9, false), &open)).collect();
        for place in 0..4 {
            let count = spread.iter().filter(|&&it| it == place).count();
            assert!(count > 150, "{count} of 1000 flows go to queue {place}");
        }
    }
}
