//! Receive metadata made in software, as by a NIC: hash, stripped VLAN tag, and receive timestamp.
//! Metadata from the device is left as it is.

use towpath_engine::port::{Features, RxHints};
use towpath_xdp::frame::ETH_HLEN;
use towpath_xdp::frame::rx_metadata::{SupportedHints, VlanTag};
use towpath_xdp::{Frame, Pool, tai_now};

use super::{Layer, Stage};
use crate::rss;

/// The added hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hint {
    /// The hash over addresses ([`rss`]).
    pub hash: bool,
    /// The time the frame was taken from its queue: nanoseconds of `CLOCK_TAI`, one for each burst.
    pub timestamp: bool,
    /// The outer VLAN tag, which is stripped.
    pub vlan: bool,
}

impl Layer for Hint {
    fn rx(&self, _queue: u32) -> Box<dyn Stage> {
        Box::new(Teller(*self))
    }

    fn tx(&self, _worker: u32) -> Box<dyn Stage> {
        Box::new(Teller(Hint::default()))
    }

    fn features(&self, inner: Features) -> Features {
        let RxHints { timestamp, hash, vlan_tag, checksum } = inner.rx_hints;
        let rx_hints = RxHints {
            timestamp: timestamp | self.timestamp,
            hash: hash | self.hash,
            vlan_tag: vlan_tag | self.vlan,
            checksum,
        };
        Features { rx_hints, ..inner }
    }

    fn details(&self) -> (&'static str, String) {
        let Hint { hash, timestamp, vlan } = *self;
        let told = [("rx_hash", hash), ("timestamp", timestamp), ("rx_vlan", vlan)];
        let told = told.iter().filter_map(|&(name, is_told)| is_told.then_some(name));
        ("hints in software", told.collect::<Vec<_>>().join(", "))
    }
}

struct Teller(Hint);

impl Stage for Teller {
    fn pass(&mut self, frames: &mut Vec<Frame>, start: usize, _pool: &mut Pool) {
        let Hint { hash, timestamp, vlan } = self.0;
        let frames = &mut frames[start..];
        if frames.is_empty() || self.0 == Hint::default() {
            return;
        }
        let now = if timestamp { tai_now() } else { 0 };
        for frame in frames {
            frame.tells_rx_metadata(SupportedHints { hash, timestamp, vlan });
            let known = frame.rx_metadata().unwrap_or_default();
            if hash
                && known.hash.is_none()
                && let Some(hash) = rss::hash(frame)
            {
                frame.store_rx_hash(hash);
            }
            if timestamp && known.timestamp_ns.is_none() {
                frame.store_rx_timestamp(now);
            }
            if vlan
                && known.vlan.is_none()
                && let Some(tag) = take_tag(frame)
            {
                frame.store_rx_vlan(tag);
            }
        }
    }
}

/// Strips the outer tag off a frame that has one.
fn take_tag(frame: &mut Frame) -> Option<VlanTag> {
    if frame.linear_len() < ETH_HLEN + TAG_BYTES {
        // The tag may be in a frag; without frags this fails.
        frame.pull_data(ETH_HLEN + TAG_BYTES).ok()?;
    }
    let mut bytes = frame.shared_linear_mut();
    let mut tag = [0; TAG_BYTES];
    bytes.as_shared().part(12..12 + TAG_BYTES).read(&mut tag);
    let [high, low, tci_high, tci_low] = tag;
    let protocol = u16::from_be_bytes([high, low]);
    if !matches!(protocol, ETH_P_8021Q | ETH_P_8021AD) {
        return None;
    }
    bytes.by_ref().copy_within(0..12, TAG_BYTES);
    frame.adjust_head(TAG_BYTES as i32).ok()?;
    Some(VlanTag { protocol, tci: u16::from_be_bytes([tci_high, tci_low]) })
}

const TAG_BYTES: usize = 4;
const _: () = assert!(TAG_BYTES < towpath_xdp::frame::HEADROOM_BYTES, "a tag fits before a frame");
const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;

#[cfg(test)]
mod tests {
    use towpath_xdp::Arena;
    use towpath_xdp::frame::rx_metadata::{RxHash, RxMetadata};

    use super::*;

    fn told(hint: Hint, frame: Frame) -> Frame {
        let arena = Arena::new(1).expect("there is memory");
        let mut frames = vec![frame];
        hint.rx(0).pass(&mut frames, 0, &mut Pool::new(&arena));
        frames.pop().expect("it passes")
    }

    const ALL: Hint = Hint { hash: true, timestamp: true, vlan: true };

    #[test]
    fn a_tag_is_taken_off_and_told() {
        let mut packet = [3; 60];
        packet[12..18].copy_from_slice(&[0x81, 0, 0x20, 5, 0x88, 0xb5]);
        let before = tai_now();
        let frame = told(ALL, Frame::new(&packet).expect("a frame"));
        let known = frame.rx_metadata().expect("something is told");
        assert_eq!(known.vlan, Some(VlanTag { protocol: 0x8100, tci: 0x2005 }));
        assert_eq!(known.hash, None, "it is no IP");
        assert!(known.timestamp_ns.is_some_and(|at| (before..=tai_now()).contains(&at)));
        assert_eq!(frame.len(), 56);
        assert_eq!(frame.to_vec()[..16], [&[3; 12][..], &[0x88, 0xb5, 3, 3]].concat());
        let kept = told(Hint { vlan: false, ..ALL }, Frame::new(&packet).expect("a frame"));
        assert_eq!(kept.to_vec(), packet);
        let short = told(ALL, Frame::new(&packet[..17]).expect("a frame"));
        assert_eq!(short.to_vec(), packet[..17], "there would be no Ethernet header left");
        let mut split = Frame::new(&packet[..14]).expect("a frame");
        split.append(Frame::new(&packet[14..]).expect("a frame")).expect("room for a frag");
        let split = told(ALL, split);
        let tag = |frame: &Frame| frame.rx_metadata().and_then(|known| known.vlan);
        assert_eq!((tag(&split), split.to_vec()), (tag(&frame), frame.to_vec()));
    }

    #[test]
    fn what_the_device_tells_stays() {
        let known = RxMetadata {
            hash: Some(RxHash { value: 7, kind: 8 }),
            timestamp_ns: Some(9),
            vlan: Some(VlanTag { protocol: 0x88a8, tci: 1 }),
            ..RxMetadata::NOTHING
        };
        let mut packet = [3; 60];
        packet[12..14].copy_from_slice(&[0x81, 0]);
        let mut frame = Frame::new(&packet).expect("a frame");
        frame.set_rx_metadata(&known);
        let frame = told(ALL, frame);
        assert_eq!(frame.rx_metadata(), Some(known));
        assert_eq!(frame.to_vec(), packet, "the tag that is there is another one");
        let bare = told(Hint::default(), Frame::new(&packet).expect("a frame"));
        assert_eq!(bare.rx_metadata(), None);
    }
}
