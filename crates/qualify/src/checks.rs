//! Checks of a device's features with frames, one after the other.

use std::io;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use towpath_xdp::Frame;
use towpath_xdp::frame::LINEAR_BYTES_MAX;
use towpath_xdp::frame::external::{CHUNK_BYTES, Chunks};
use towpath_xdp::frame::rx_metadata::{RxChecksum, RxHash, RxMetadata, VlanTag};

use crate::far::Got;
use crate::line::Line;
use crate::packets::{self, Packet, TCI};
use crate::{Feature, Maker, Outcome, programs, socket};

/// Tries a feature of a device of ours.
pub(crate) fn try_feature(maker: &dyn Maker, feature: Feature) -> io::Result<Outcome> {
    match feature {
        Feature::Basic | Feature::Redirect | Feature::NdoXmit | Feature::Linear => {
            programs::try_feature(maker, feature)
        }
        Feature::RxSg => rx_sg(maker),
        Feature::NdoXmitSg => tx_sg(maker),
        Feature::Xsk | Feature::TxTimestamp => socket::try_feature(maker, feature),
        Feature::TxLaunchTime => programs::launch_time(maker),
        Feature::XskZerocopy => zero_copy(maker),
        Feature::RxTimestamp | Feature::RxHash | Feature::RxVlanTag | Feature::RxChecksum => {
            hint(maker, feature)
        }
        Feature::TxChecksum => tx_checksum(maker),
        Feature::Headroom | Feature::Tailroom | Feature::Metadata => room(maker, feature),
        Feature::Mtu => mtu(maker),
        Feature::RxCsumPartial => rx_offload(maker, &packets::partial(packets::udp(1, 0, 200))),
        Feature::RxTso => rx_offload(maker, &packets::large(packets::tcp(1, LARGE), SEGMENT)),
        Feature::TxTso => tx_large(maker, &packets::large(packets::tcp(1, LARGE), SEGMENT)),
        Feature::TxUso => tx_large(maker, &packets::large(packets::udp(1, 0, LARGE), SEGMENT)),
    }
}

pub(crate) fn fails(why: impl Into<String>) -> io::Result<Outcome> {
    Ok(Outcome::Fails(why.into()))
}

pub(crate) fn untried(why: &str) -> io::Result<Outcome> {
    Ok(Outcome::Untried(why.to_owned()))
}

pub(crate) const NONE_ARRIVE: &str = "nothing arrives at it";
pub(crate) const UNSEEN: &str = "sent frames can't be observed";
pub(crate) const UNSENDABLE: &str = "such frames can't be sent to it";

/// Lets packets arrive at a new device; returns them with the device, or the outcome if they do not
/// arrive.
fn arrived(
    maker: &dyn Maker,
    mtu: u32,
    sent: &[Packet],
    known: Option<&RxMetadata>,
) -> io::Result<Result<(Line, Vec<Frame>), Outcome>> {
    let arrivals: Vec<Vec<u8>> = sent.iter().map(|packet| packet.bytes.clone()).collect();
    let mut line = Line::new(maker, mtu, &arrivals)?;
    if !line.receives() {
        return Ok(Err(Outcome::Untried(NONE_ARRIVE.to_owned())));
    }
    let frames = line.arrive(sent, known)?;
    let count = frames.len();
    if count < sent.len() {
        line.pool.give_all(&mut { frames });
        return Ok(Err(Outcome::Fails(format!("{count} of {} frames arrived", sent.len()))));
    }
    Ok(Ok((line, frames)))
}

fn rx_sg(maker: &dyn Maker) -> io::Result<Outcome> {
    let sent = Packet::plain(packets::udp(1, 0, JUMBO));
    let (_line, frames) = match arrived(maker, 9000, std::slice::from_ref(&sent), None)? {
        Ok(arrived) => arrived,
        Err(outcome) => return Ok(outcome),
    };
    match frames.first() {
        Some(frame) if frame.to_vec() != sent.bytes => fails("other bytes arrived"),
        Some(frame) if !frame.has_frags() => fails("it arrived in one buffer"),
        _ => Ok(Outcome::Works),
    }
}

fn tx_sg(maker: &dyn Maker) -> io::Result<Outcome> {
    let mut line = Line::new(maker, 9000, &[packets::udp(9, 0, 64)])?;
    let sent = Packet::plain(packets::udp(1, 0, JUMBO));
    let frame = line.frame(&sent)?;
    match line.leave(frame, 1)? {
        None => fails("it does not take such a frame"),
        Some(_) if !line.far.sees() => untried(UNSEEN),
        Some(got) => same(&got, &sent.bytes),
    }
}

/// Whether exactly this packet came out.
fn same(got: &[Got], sent: &[u8]) -> io::Result<Outcome> {
    match got {
        [] => fails("the packet did not leave"),
        [got] if got.packet.bytes == sent => Ok(Outcome::Works),
        [_] => fails("other bytes came out"),
        more => fails(format!("{} packets left", more.len())),
    }
}

/// A device that receives into the frames of the pool that it is given.
fn zero_copy(maker: &dyn Maker) -> io::Result<Outcome> {
    let sent = Packet::plain(packets::udp(1, 0, 64));
    let mut line = Line::new(maker, 1500, std::slice::from_ref(&sent.bytes))?;
    if !line.receives() {
        return untried(NONE_ARRIVE);
    }
    // A device that does not advertise zero copy must not be given such memory: it would make
    // slices of it.
    if !line.device.features().zero_copy {
        return fails("it receives into its own memory");
    }
    let memory = memfd_create("towpath-qualify", MemfdFlags::ALLOW_SEALING)?;
    let len = CHUNKS * CHUNK_BYTES;
    ftruncate(&memory, len as u64)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK)?;
    let mut chunks = Chunks::map(memory, 0, len)?;
    let mut lent: Vec<Frame> = (0..CHUNKS).filter_map(|number| chunks.take(number)).collect();
    line.pool.put_external(&mut lent);
    let frames = line.arrive(std::slice::from_ref(&sent), None)?;
    line.pool.take_external(&mut lent);
    match frames.first() {
        None => fails("no frame arrived"),
        Some(frame) if frame.to_vec() != sent.bytes => fails("other bytes arrived"),
        Some(frame) if !frame.is_external() => fails("it arrived in other memory"),
        Some(_) => Ok(Outcome::Works),
    }
}

/// Two packets of one flow, and one of another; the last with a tag.
fn hint(maker: &dyn Maker, feature: Feature) -> io::Result<Outcome> {
    let mut sent = [1, 1, 2].map(|flow| Packet::plain(packets::udp(flow, 0, 100)));
    sent[2].bytes = packets::tagged(std::mem::take(&mut sent[2].bytes), TCI);
    // For ports that pass on another port's hints.
    let known = RxMetadata {
        hash: Some(RxHash { value: 7, kind: 8 }),
        timestamp_ns: Some(1),
        vlan: None,
        checksum: RxChecksum::Unnecessary,
    };
    let (line, frames) = match arrived(maker, 1500, &sent, Some(&known))? {
        Ok(arrived) => arrived,
        Err(outcome) => return Ok(outcome),
    };
    let told: Vec<RxMetadata> =
        frames.iter().map(|frame| frame.rx_metadata().unwrap_or_default()).collect();
    let [first, second, third] = &told[..] else { return fails("more frames arrived") };
    let outcome = match feature {
        Feature::RxTimestamp => {
            let times = told.iter().map(|told| told.timestamp_ns).collect::<Option<Vec<u64>>>();
            match times {
                None => Err("no timestamp is reported"),
                Some(times) if !times.is_sorted() => Err("the time goes back"),
                Some(times) if times[0] == 0 => Err("the time is 0"),
                Some(_) => Ok(()),
            }
        }
        Feature::RxHash => match [first.hash, second.hash, third.hash] {
            hashes if hashes == [known.hash; 3] => Ok(()),
            [Some(one), Some(same), Some(other)] if one == same && one != other => Ok(()),
            [None, None, None] => Err("no hash is reported"),
            _ => Err("hashes are not those of flows"),
        },
        Feature::RxVlanTag => {
            let is_off = frames[2].to_vec().get(12..14) == Some(&[8, 0]);
            let is_told = third.vlan == Some(VlanTag { protocol: 0x8100, tci: TCI });
            match (is_off, is_told, first.vlan) {
                (true, true, None) => Ok(()),
                (false, false, None) if line.far.lacks_tags() => {
                    return untried("no stack here removes tags from packets");
                }
                (false, false, None) => return passes_tag_on(maker, &known),
                (true, false, None) => Err("the tag is gone, and not told"),
                _ => Err("a tag is told that was not there"),
            }
        }
        _ => match first.checksum {
            RxChecksum::None => Err("no checksum state is reported"),
            _ => Ok(()),
        },
    };
    match outcome {
        Ok(()) => Ok(Outcome::Works),
        Err(why) => fails(why),
    }
}

/// A port that takes no tags off may still report tags taken off elsewhere.
fn passes_tag_on(maker: &dyn Maker, known: &RxMetadata) -> io::Result<Outcome> {
    let known = RxMetadata { vlan: Some(VlanTag { protocol: 0x8100, tci: TCI }), ..*known };
    let sent = Packet::plain(packets::udp(3, 0, 100));
    match arrived(maker, 1500, std::slice::from_ref(&sent), Some(&known))? {
        Ok((_line, frames)) => {
            let told = frames.first().and_then(|frame| frame.rx_metadata());
            match told.is_some_and(|told| told.vlan == known.vlan) {
                true => Ok(Outcome::Works),
                false => fails("tags stay in packets"),
            }
        }
        Err(outcome) => Ok(outcome),
    }
}

fn tx_checksum(maker: &dyn Maker) -> io::Result<Outcome> {
    let mut line = Line::new(maker, 1500, &[packets::udp(9, 0, 64)])?;
    let sent = packets::partial(packets::udp(1, 0, 200));
    let frame = line.frame(&sent)?;
    let Some(got) = line.leave(frame, 1)? else { return fails("it does not take such a frame") };
    if !line.far.sees() {
        return untried(UNSEEN);
    }
    match &got[..] {
        [] => fails("the packet did not leave"),
        [got] if got.packet == sent || packets::is_sum_right(&got.packet.bytes) => {
            Ok(Outcome::Works)
        }
        _ => fails("the packet left with a wrong checksum"),
    }
}

fn room(maker: &dyn Maker, feature: Feature) -> io::Result<Outcome> {
    let sent = Packet::plain(packets::udp(1, 0, 100));
    let arrived = arrived(maker, 1500, std::slice::from_ref(&sent), None)?;
    let (_line, mut frames) = match arrived {
        Ok(arrived) => arrived,
        Err(outcome) => return Ok(outcome),
    };
    let Some(frame) = frames.first_mut() else { return fails("no frame arrived") };
    let moved = match feature {
        Feature::Headroom => frame.adjust_head(-ROOM),
        Feature::Tailroom => frame.adjust_tail((LINEAR_BYTES_MAX - sent.bytes.len()) as i32),
        _ => frame.adjust_meta(-ROOM),
    };
    match moved {
        Ok(()) => Ok(Outcome::Works),
        Err(errno) => fails(format!("there is less room: {errno}")),
    }
}

/// Frames as long as the MTU says pass both ways.
fn mtu(maker: &dyn Maker) -> io::Result<Outcome> {
    let mtu = {
        let line = Line::new(maker, 1500, &[packets::udp(9, 0, 64)])?;
        line.device.mtu().min(MTU_TRIED)
    };
    let longest = Packet::plain(packets::udp(1, 0, 14 + mtu as usize));
    let mut line = Line::new(maker, mtu, std::slice::from_ref(&longest.bytes))?;
    if line.receives() {
        let frames = line.arrive(std::slice::from_ref(&longest), None)?;
        let is_same = frames.first().is_some_and(|frame| frame.to_vec() == longest.bytes);
        line.pool.give_all(&mut { frames });
        if !is_same {
            return fails(format!("{} bytes did not arrive", longest.bytes.len()));
        }
    }
    let frame = line.frame(&longest)?;
    let Some(got) = line.leave(frame, 1)? else { return fails("it does not take such a frame") };
    if line.far.sees()
        && let failed @ Outcome::Fails(_) = same(&got, &longest.bytes)?
    {
        return Ok(failed);
    }
    programs::refuses_longer(maker, mtu)
}

/// A packet with offload work arrives with this work recorded, or done.
fn rx_offload(maker: &dyn Maker, sent: &Packet) -> io::Result<Outcome> {
    let mut line = Line::new(maker, 1500, std::slice::from_ref(&sent.bytes))?;
    if !line.receives() {
        return untried(NONE_ARRIVE);
    }
    if !line.far.sends() {
        return untried(UNSENDABLE);
    }
    let Ok(frames) = line.arrive(std::slice::from_ref(sent), None) else {
        return untried(UNSENDABLE);
    };
    match &frames[..] {
        [] => fails("it did not arrive"),
        [frame] => {
            let bytes = frame.to_vec();
            let offload = frame.offload();
            let is_large = sent.offload.is_some_and(|offload| offload.gso.is_some());
            let (stated, wanted) =
                (offload.map(|it| it.checksum), sent.offload.map(|it| it.checksum));
            let size = |offload: Option<towpath_xdp::frame::offload::Offload>| {
                offload.and_then(|it| it.gso).map(|gso| (gso.kind, gso.size))
            };
            match () {
                () if is_large && size(offload) != size(sent.offload) => {
                    fails("it arrived as no large packet")
                }
                () if stated == wanted && bytes == sent.bytes => Ok(Outcome::Works),
                () if !is_large && packets::is_sum_right(&bytes) => Ok(Outcome::Works),
                () => fails("it arrived with a wrong checksum, not marked as incomplete"),
            }
        }
        more => fails(format!("it arrived as {} packets", more.len())),
    }
}

/// A large packet comes out as one packet marked as such, or as its pieces.
fn tx_large(maker: &dyn Maker, sent: &Packet) -> io::Result<Outcome> {
    let mut line = Line::new(maker, 1500, &[packets::udp(9, 0, 64)])?;
    let frame = line.frame(sent)?;
    let pieces = packets::payload(&sent.bytes).len().div_ceil(usize::from(SEGMENT));
    let Some(got) = line.leave(frame, pieces)? else { return fails("it does not take it") };
    if !line.far.sees() {
        return untried(UNSEEN);
    }
    let is_whole = |got: &Got| got.packet.offload.is_some_and(|offload| offload.gso.is_some());
    if let [one] = &got[..]
        && is_whole(one)
        && packets::payload(&one.packet.bytes) == packets::payload(&sent.bytes)
    {
        return Ok(Outcome::Works);
    }
    let all = got.iter().flat_map(|got| packets::payload(&got.packet.bytes)).copied();
    if !got.is_empty() && !all.eq(packets::payload(&sent.bytes).iter().copied()) {
        return fails("other bytes came out");
    }
    let is_good =
        |got: &Got| got.packet.offload.is_some() || packets::is_sum_right(&got.packet.bytes);
    match got.len() {
        0 => fails("the packet did not leave"),
        count if count != pieces => fails(format!("{count} packets left, not {pieces}")),
        _ if !got.iter().all(is_good) => fails("pieces have wrong checksums"),
        _ => Ok(Outcome::Works),
    }
}

/// Several buffers of 4096 bytes.
const JUMBO: usize = 9000;
/// A large packet, and the payload of its pieces.
const LARGE: usize = 5000;
const SEGMENT: u16 = 1000;
/// The kernel keeps 40 of 256 bytes.
const ROOM: i32 = 216;
const CHUNKS: usize = 64;
/// Longer ones take more than a frame.
const MTU_TRIED: u32 = 9000;
