//! Software offload for ports that lack it: checksums and segmentation.
//!
//! Kernel counterparts: `skb_checksum_help`, `tcp_gso_segment`, `__udp_gso_segment`.

use towpath_xdp::frame::offload::{Checksum, Gso, GsoKind, Offload};
use towpath_xdp::frame::{Body, LINEAR_BYTES_MAX};
use towpath_xdp::{Frame, Pool};

use crate::counters::DropReason;
use crate::port::Features;

/// Converts a frame for a port with these features, and appends the result to `out`. Returns
/// whether the frame was consumed and replaced by segments, which are new frames.
///
/// # Errors
///
/// Returns the frame and the reason if the frame cannot be converted.
pub fn prepare_xmit(
    mut frame: Frame,
    features: &Features,
    pool: &mut Pool,
    out: &mut Vec<Frame>,
) -> Result<bool, (Frame, DropReason)> {
    let Some(offload) = frame.offload() else {
        out.push(frame);
        return Ok(false);
    };
    if let Some(gso) = offload.gso.filter(|gso| !can_segment(features, gso.kind)) {
        let before = out.len();
        return match segment(&frame, gso, pool, out) {
            Ok(()) => {
                let pieces = &mut out[before..];
                hand_on(&mut frame, pieces);
                pool.give(frame);
                let pieces = pieces.iter_mut();
                pieces.filter(|_| !features.tx_frags).for_each(|piece| pool.linearize(piece));
                Ok(true)
            }
            Err(why) => {
                out.drain(before..).for_each(|piece| pool.give(piece));
                Err((frame, why))
            }
        };
    }
    if frame.has_frags() && !features.tx_frags {
        pool.linearize(&mut frame);
    }
    if let Some(checksum) = offload.checksum.filter(|_| !features.tx_checksum) {
        if complete(&mut frame, checksum).is_none() {
            return Err((frame, DropReason::Malformed));
        }
        frame.set_offload(offload.gso.map(|gso| Offload { gso: Some(gso), checksum: None }));
    }
    out.push(frame);
    Ok(false)
}

/// Passes a large packet's requests on to its segments: all get its launch time, and the last one
/// its TX timestamp request.
fn hand_on(frame: &mut Frame, pieces: &mut [Frame]) {
    if let Some(time_ns) = frame.launch_time() {
        pieces.iter_mut().for_each(|piece| piece.set_launch_time(time_ns));
    }
    if let Some(last) = pieces.last_mut()
        && let Some(number) = frame.take_tx_request()
    {
        last.set_tx_request(number);
    }
}

/// Completes missing checksums of the burst's frames, except for large (GSO) packets, whose
/// segments get their own.
pub fn complete_checksums(frames: &mut [Frame]) {
    for frame in frames {
        // A frame with an invalid checksum position stays as it is; its egress reports it.
        complete_checksum(frame);
    }
}

/// Completes the missing checksum of a frame that is one packet; returns whether no offload work is
/// left.
pub fn complete_checksum(frame: &mut Body) -> bool {
    match frame.offload() {
        None => true,
        Some(Offload { checksum: Some(checksum), gso: None }) => {
            let is_done = complete(frame, checksum).is_some();
            if is_done {
                frame.set_offload(None);
            }
            is_done
        }
        Some(_large) => false,
    }
}

fn can_segment(features: &Features, kind: GsoKind) -> bool {
    let can_cut = match kind {
        GsoKind::Tcp4 | GsoKind::Tcp6 => features.tx_tso,
        GsoKind::UdpL4 => features.tx_uso,
    };
    // Segmentation needs checksums for each segment, so TSO and USO depend on checksum offload.
    can_cut && features.tx_checksum
}

/// Stores the checksum over all bytes from `start` on into its field, which holds the sum of the
/// pseudo header before.
fn complete(frame: &mut Body, checksum: Checksum) -> Option<()> {
    let (start, at) = place(checksum);
    let mut sum = Sum::default();
    let mut skip = start;
    let mut add = |piece: &[u8]| {
        let from = skip.min(piece.len());
        skip -= from;
        sum.add(&piece[from..]);
    };
    match frame.own() {
        Some(own) => own.pieces().for_each(add),
        None => add(&frame.to_vec()),
    }
    if skip > 0 || at + 2 > frame.linear_len() {
        return None;
    }
    let folded = not_zero(!sum.fold());
    frame.shared_linear_mut().part(at..at + 2).write(&folded.to_be_bytes());
    Some(())
}

fn place(checksum: Checksum) -> (usize, usize) {
    let start = usize::from(checksum.start);
    (start, start + usize::from(checksum.offset))
}

/// Offsets of the headers of a large packet.
struct Layout {
    /// Start of the IP header.
    network: usize,
    /// Start of the TCP or UDP header.
    transport: usize,
    /// Start of the payload.
    payload: usize,
    is_v6: bool,
}

/// Cuts a large packet into packets of `gso.size` bytes of payload.
fn segment(
    frame: &Frame,
    gso: Gso,
    pool: &mut Pool,
    out: &mut Vec<Frame>,
) -> Result<(), DropReason> {
    let layout = frame.with_linear(|packet| Layout::of(packet, gso.kind));
    let layout = layout.ok_or(DropReason::Malformed)?;
    let size = usize::from(gso.size);
    // A segment must have a length that an IP header can express.
    if size == 0 || layout.payload + size - layout.network > IP_BYTES_MAX {
        return Err(DropReason::Malformed);
    }
    let payload_bytes = frame.len() - layout.payload;
    let count = payload_bytes.div_ceil(size).max(1);
    for index in 0..count {
        let start = index * size;
        let part = size.min(payload_bytes - start);
        let place = Segment { index, offset: start, is_last: index + 1 == count };
        let mut piece = cut(frame, &layout, gso.kind, &place, part, pool)?;
        piece.descend_from(frame);
        out.push(piece);
    }
    Ok(())
}

/// Makes one segment with `part` bytes of payload, of several buffers if it is longer than one.
fn cut(
    frame: &Frame,
    layout: &Layout,
    kind: GsoKind,
    place: &Segment,
    part: usize,
    pool: &mut Pool,
) -> Result<Frame, DropReason> {
    let len = layout.payload + part;
    let fill = |packet: &mut [u8]| {
        let (headers, payload) = packet.split_at_mut(layout.payload);
        frame.copy_from(0, headers);
        frame.copy_from(layout.payload + place.offset, payload);
        layout.adapt(packet, kind, place);
    };
    if len > LINEAR_BYTES_MAX {
        let mut packet = vec![0; len];
        fill(&mut packet);
        return pool
            .frame(&packet)
            .map_err(|_too_long| DropReason::Malformed)?
            .ok_or(DropReason::NoMemory);
    }
    let mut piece = pool.take().ok_or(DropReason::NoMemory)?;
    let Some(own) = piece.own_mut() else {
        pool.give(piece);
        return Err(DropReason::NoMemory);
    };
    fill(&mut own.room()[..len]);
    piece.set_linear(len);
    Ok(piece)
}

/// Position of a segment in the large packet.
struct Segment {
    index: usize,
    /// Bytes of payload before it.
    offset: usize,
    is_last: bool,
}

impl Layout {
    fn of(bytes: &[u8], kind: GsoKind) -> Option<Layout> {
        let mut network = 14;
        let mut ethertype = be16(bytes, 12)?;
        while matches!(ethertype, 0x8100 | 0x88a8) {
            ethertype = be16(bytes, network + 2)?;
            network += 4;
        }
        let (transport, protocol, is_v6) = match ethertype {
            0x0800 => {
                let ihl = usize::from(bytes.get(network)? & 15) * 4;
                (network + ihl.max(20), *bytes.get(network + 9)?, false)
            }
            0x86dd => {
                let (at, protocol) = skip_extensions(bytes, network)?;
                (at, protocol, true)
            }
            _ => return None,
        };
        let header = match (kind, protocol) {
            (GsoKind::Tcp4 | GsoKind::Tcp6, IPPROTO_TCP) => {
                usize::from(bytes.get(transport + 12)? >> 4).max(5) * 4
            }
            (GsoKind::UdpL4, IPPROTO_UDP) => 8,
            _ => return None,
        };
        let payload = transport + header;
        (payload <= bytes.len()).then_some(Layout { network, transport, payload, is_v6 })
    }

    /// Gives a segment its own lengths, numbers, flags and checksums.
    fn adapt(&self, packet: &mut [u8], kind: GsoKind, place: &Segment) {
        let (network, transport, len) = (self.network, self.transport, packet.len());
        if self.is_v6 {
            put16(packet, network + 4, (len - network - 40) as u16);
        } else {
            put16(packet, network + 2, (len - network) as u16);
            let id = u16::from_be_bytes([packet[network + 4], packet[network + 5]]);
            put16(packet, network + 4, id.wrapping_add(place.index as u16));
            put16(packet, network + 10, 0);
            let mut sum = Sum::default();
            sum.add(&packet[network..transport]);
            put16(packet, network + 10, !sum.fold());
        }
        let (check, protocol) = match kind {
            GsoKind::Tcp4 | GsoKind::Tcp6 => {
                adapt_tcp(&mut packet[transport..], place);
                (transport + 16, IPPROTO_TCP)
            }
            GsoKind::UdpL4 => {
                put16(packet, transport + 4, (len - transport) as u16);
                (transport + 6, IPPROTO_UDP)
            }
        };
        put16(packet, check, 0);
        let addresses =
            if self.is_v6 { network + 8..network + 40 } else { network + 12..network + 20 };
        let mut sum = Sum::default();
        sum.add(&packet[addresses]);
        sum.add(&(len as u32 - transport as u32).to_be_bytes());
        sum.add(&[0, protocol]);
        sum.add(&packet[transport..]);
        let folded = !sum.fold();
        put16(packet, check, if protocol == IPPROTO_UDP { not_zero(folded) } else { folded });
    }
}

/// Sequence number and flags of a segment: FIN and PSH belong to the last one, CWR to the first.
fn adapt_tcp(tcp: &mut [u8], place: &Segment) {
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    tcp[4..8].copy_from_slice(&sequence.wrapping_add(place.offset as u32).to_be_bytes());
    if !place.is_last {
        tcp[13] &= !(TCP_FIN | TCP_PSH);
    }
    if place.index > 0 {
        tcp[13] &= !TCP_CWR;
    }
}

/// The transport header behind IPv6 extension headers, and its protocol.
fn skip_extensions(bytes: &[u8], network: usize) -> Option<(usize, u8)> {
    let mut protocol = *bytes.get(network + 6)?;
    let mut at = network + 40;
    // Hop-by-hop, routing, destination options (RFC 8200, 4).
    while matches!(protocol, 0 | 43 | 60) {
        protocol = *bytes.get(at)?;
        at += (usize::from(*bytes.get(at + 1)?) + 1) * 8;
    }
    Some((at, protocol))
}

/// A one's-complement sum (RFC 1071) over pieces of any length.
#[derive(Default)]
struct Sum {
    sum: u64,
    is_odd: bool,
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.is_odd
            && let Some((&low, rest)) = bytes.split_first()
        {
            self.sum += u64::from(low);
            self.is_odd = false;
            bytes = rest;
        }
        let (pairs, last) = bytes.as_chunks::<2>();
        self.sum += pairs.iter().map(|&pair| u64::from(u16::from_be_bytes(pair))).sum::<u64>();
        if let [high] = *last {
            self.sum += u64::from(high) << 8;
            self.is_odd = true;
        }
    }

    fn fold(&self) -> u16 {
        let mut sum = self.sum;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }
}

/// A transmitted checksum of 0 means none (RFC 768); the other zero is sent instead.
fn not_zero(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Largest value of the 16-bit length in an IP header.
const IP_BYTES_MAX: usize = 65535;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const TCP_FIN: u8 = 1;
const TCP_PSH: u8 = 8;
const TCP_CWR: u8 = 128;

#[cfg(test)]
mod tests;
