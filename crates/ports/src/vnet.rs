//! `struct virtio_net_hdr`: offload work left by a sender, in front of a frame (virtio 1.3, 5.1.6;
//! `include/uapi/linux/virtio_net.h`). Taps, packet sockets and virtual machines use it.
//!
//! Fields are in the machine's byte order, as taps and packet sockets have them by default.

use towpath_xdp::frame::offload::{Checksum, Gso, GsoKind, Offload};
use towpath_xdp::frame::rx_metadata::{RxChecksum, RxMetadata};

/// Bytes of the basic header.
pub const BYTES: usize = 10;
/// Bytes of the header with `num_buffers` behind.
pub const BYTES_WITH_BUFFERS: usize = 12;
const _: () = assert!(BYTES_WITH_BUFFERS == BYTES + size_of::<u16>(), "num_buffers follows");

/// Error for a header that is inconsistent with itself or its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The checksum is to be stored behind the frame's end.
    #[error("the checksum goes to byte {at}, but the frame has {len}")]
    Checksum {
        /// Offset of the checksum field.
        at: usize,
        /// Bytes of the frame.
        len: usize,
    },
    /// A GSO type that was not negotiated.
    #[error("large packets of kind {0}")]
    Kind(u8),
    /// Segments without payload, or without a checksum to set.
    #[error("a large packet without a segment size or without a checksum to set")]
    Segment,
}

/// Reads the header of a frame of `len` bytes; `None` if there is no offload work.
pub fn parse(header: &[u8; BYTES], len: usize) -> Result<Option<Offload>, Malformed> {
    let [flags, kind, ..] = *header;
    if flags & NEEDS_CSUM == 0 && kind == GSO_NONE {
        return Ok(None);
    }
    let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let checksum =
        (flags & NEEDS_CSUM != 0).then(|| Checksum { start: field(6), offset: field(8) });
    if let Some(checksum) = checksum {
        let at = usize::from(checksum.start) + usize::from(checksum.offset);
        if at + 2 > len {
            return Err(Malformed::Checksum { at, len });
        }
    }
    let kind = match kind & !GSO_ECN {
        GSO_NONE => {
            return Ok(checksum.map(|checksum| Offload { checksum: Some(checksum), gso: None }));
        }
        GSO_TCPV4 => GsoKind::Tcp4,
        GSO_TCPV6 => GsoKind::Tcp6,
        GSO_UDP_L4 => GsoKind::UdpL4,
        _ => return Err(Malformed::Kind(kind)),
    };
    let gso = Gso { kind, size: field(4), header: field(2), ecn: header[1] & GSO_ECN != 0 };
    if gso.size == 0 || checksum.is_none() {
        return Err(Malformed::Segment);
    }
    Ok(Some(Offload { checksum, gso: Some(gso) }))
}

/// Receive metadata in a header, besides offload work.
pub fn rx_metadata(header: &[u8; BYTES]) -> RxMetadata {
    let is_valid = header[0] & (NEEDS_CSUM | DATA_VALID) == DATA_VALID;
    let checksum = if is_valid { RxChecksum::Unnecessary } else { RxChecksum::None };
    RxMetadata { checksum, ..RxMetadata::default() }
}

/// Marks a received frame's checksum as valid, if it is known and no checksum is left to do
/// (`VIRTIO_NET_HDR_F_DATA_VALID`). Taps of Linux 6.18 ignore the flag.
pub fn mark_valid(header: &mut [u8], checksum: RxChecksum) {
    if let Some(flags) = header.first_mut().filter(|flags| **flags & NEEDS_CSUM == 0)
        && checksum == RxChecksum::Unnecessary
    {
        *flags |= DATA_VALID;
    }
}

/// Adapts the header after `bytes` bytes were inserted in front of the checksummed part.
pub fn move_checksum(header: &mut [u8; BYTES_WITH_BUFFERS], bytes: u16) {
    let [flags, _, len_low, len_high, _, _, start_low, start_high, ..] = *header;
    if flags & NEEDS_CSUM == 0 {
        return;
    }
    let start = u16::from_ne_bytes([start_low, start_high]).saturating_add(bytes);
    header[6..8].copy_from_slice(&start.to_ne_bytes());
    let len = u16::from_ne_bytes([len_low, len_high]);
    if len > 0 {
        header[2..4].copy_from_slice(&len.saturating_add(bytes).to_ne_bytes());
    }
}

/// Writes the header for a frame of `len` bytes.
pub fn emit(offload: Option<&Offload>, len: usize) -> [u8; BYTES] {
    let mut header = [0; BYTES];
    let Some(Offload { checksum, gso }) = offload else { return header };
    let mut put = |at: usize, value: u16| header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    if let Some(Checksum { start, offset }) = *checksum {
        put(6, start);
        put(8, offset);
    }
    if let Some(gso) = gso {
        // A hint for the length of the headers; a value beyond the frame would be refused.
        put(2, usize::from(gso.header).min(len) as u16);
        put(4, gso.size);
        let kind = match gso.kind {
            GsoKind::Tcp4 => GSO_TCPV4,
            GsoKind::Tcp6 => GSO_TCPV6,
            GsoKind::UdpL4 => GSO_UDP_L4,
        };
        header[1] = kind | if gso.ecn { GSO_ECN } else { 0 };
    }
    if checksum.is_some() {
        header[0] = NEEDS_CSUM;
    }
    header
}

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let checksum = Some(Checksum { start: 34, offset: 16 });
        for kind in [GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::UdpL4] {
            for ecn in [false, true] {
                let gso = Some(Gso { kind, size: 1448, header: 66, ecn });
                let offload = Offload { checksum, gso };
                assert_eq!(parse(&emit(Some(&offload), 9000), 9000), Ok(Some(offload)));
            }
        }
        let offload = Offload { checksum, gso: None };
        assert_eq!(parse(&emit(Some(&offload), 60), 60), Ok(Some(offload)));
        assert_eq!(emit(None, 60), [0; BYTES]);
        assert_eq!(parse(&[0; BYTES], 60), Ok(None));
    }

    #[test]
    fn a_checksum_that_was_right_is_known() {
        let known = |flags| rx_metadata(&[flags, 0, 0, 0, 0, 0, 34, 0, 16, 0]).checksum;
        assert_eq!(known(DATA_VALID), RxChecksum::Unnecessary);
        assert_eq!(known(0), RxChecksum::None);
        assert_eq!(known(NEEDS_CSUM), RxChecksum::None, "there is none yet");
    }

    #[test]
    fn what_is_put_in_front_moves_the_checksum() {
        let checksum = Some(Checksum { start: 34, offset: 16 });
        let gso = Some(Gso { kind: GsoKind::Tcp4, size: 1448, header: 66, ecn: false });
        for gso in [None, gso] {
            let mut header = [0; BYTES_WITH_BUFFERS];
            let known = emit(Some(&Offload { checksum, gso }), 9000);
            header[..BYTES].copy_from_slice(&known);
            mark_valid(&mut header, RxChecksum::Unnecessary);
            move_checksum(&mut header, 4);
            let moved = Offload {
                checksum: Some(Checksum { start: 38, offset: 16 }),
                gso: gso.map(|gso| Gso { header: 70, ..gso }),
            };
            let header = *header.first_chunk().expect("it is longer");
            assert_eq!(parse(&header, 9004), Ok(Some(moved)), "and it is not valid yet");
        }
        let mut header = [0; BYTES_WITH_BUFFERS];
        move_checksum(&mut header, 4);
        mark_valid(&mut header, RxChecksum::Complete(1));
        assert_eq!(header, [0; BYTES_WITH_BUFFERS]);
        mark_valid(&mut header, RxChecksum::Unnecessary);
        let header = *header.first_chunk().expect("it is longer");
        assert_eq!(rx_metadata(&header).checksum, RxChecksum::Unnecessary);
    }

    #[test]
    fn contradictions_are_refused() {
        let offload = Offload { checksum: Some(Checksum { start: 40, offset: 16 }), gso: None };
        let header = emit(Some(&offload), 60);
        assert_eq!(parse(&header, 57), Err(Malformed::Checksum { at: 56, len: 57 }));
        assert!(parse(&header, 58).is_ok());
        let with = |flags, kind, size: u16| {
            let [low, high] = size.to_ne_bytes();
            parse(&[flags, kind, 0, 0, low, high, 34, 0, 16, 0], 1000)
        };
        assert_eq!(with(1, 3, 100), Err(Malformed::Kind(3)), "UFO is fragmentation");
        assert_eq!(with(1, 1, 0), Err(Malformed::Segment));
        assert_eq!(with(0, 1, 100), Err(Malformed::Segment));
    }
}
