//! Capture files: pcap and pcapng, read as a stream and written with XDP verdicts.
//!
//! This is own code because the reader must survive any bytes with bounded memory and report where
//! a damaged file becomes invalid, and because the writer records a program's verdict for each
//! frame in the pcapng packet options that `xdpdump` uses: verdict, queue and packet id.
//!
//! Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng, plain or packed by gzip or zstd.

#![forbid(unsafe_code)]

mod error;
mod packed;
pub mod pcap;
pub mod pcapng;
mod reader;
mod source;

pub use error::Error;
pub use reader::{Format, Reader};

/// Longest frame read or written, in bytes: Wireshark and tcpdump have the same limit.
pub const PACKET_BYTES_MAX: u32 = 262_144;

/// The link type of Ethernet frames, the only one an XDP program can be run on.
pub const LINK_TYPE_ETHERNET: u16 = 1;

/// One frame of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Captured bytes, without a frame check sequence; fewer than `original_len` if the capture cut
    /// the frame short.
    pub data: &'a [u8],
    /// Length on the wire, in bytes, without a frame check sequence.
    pub original_len: u32,
    /// Capture time in nanoseconds since 1970; 0 if the capture, or a simple packet block, has no
    /// time.
    pub timestamp_ns: u64,
    /// Index into the reader's or writer's interfaces.
    pub interface: u32,
    /// Link type of that interface; ignored when writing.
    pub link_type: u16,
    /// Further properties in pcapng; all absent in a pcap file.
    pub options: PacketOptions<'a>,
}

/// Removes the frame check sequence of `fcs` bytes from a frame that has all of it, or a part.
pub(crate) fn without_fcs(data: &[u8], original_len: u32, fcs: u32) -> (&[u8], u32) {
    if original_len < fcs || data.len() as u64 > u64::from(original_len) {
        return (data, original_len);
    }
    let wire = original_len - fcs;
    (&data[..data.len().min(wire as usize)], wire)
}

/// Size in bytes of a frame check sequence that a file gives as `written` units.
///
/// draft-ietf-opsawg-pcap counts 16-bit words and pcapng bits; files have bytes in either.
/// Ethernet's sequence has 4 bytes for any unit.
pub(crate) fn fcs_bytes(written: u32, link_type: u16) -> u32 {
    match written {
        0 => 0,
        _ if link_type == LINK_TYPE_ETHERNET => ETHERNET_FCS_BYTES,
        16.. => written / 8,
        _ => written,
    }
}

/// Size in bytes of Ethernet's frame check sequence (IEEE 802.3 section 3.2.9).
const ETHERNET_FCS_BYTES: u32 = 4;

impl Packet<'_> {
    /// Whether the capture kept only the start of the frame (its `snaplen` was shorter).
    pub fn is_cut_short(&self) -> bool {
        (self.data.len() as u64) < u64::from(self.original_len)
    }
}

/// Options of an enhanced packet block (draft-ietf-opsawg-pcapng section 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketOptions<'a> {
    /// `epb_flags`: the low two bits are the direction, see [`pcapng::Direction`].
    pub flags: Option<u32>,
    /// `epb_packetid`: the same for every record of one frame, e.g. before and after a program.
    pub packet_id: Option<u64>,
    /// `epb_queue`: the receive queue.
    pub queue: Option<u32>,
    /// `epb_verdict` of type "Linux eBPF XDP": the program's return value.
    pub xdp_verdict: Option<u64>,
    /// `opt_comment`: a sentence for the reader.
    pub comment: Option<&'a str>,
}

/// Origin of frames of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// `LINKTYPE_*`; see [`LINK_TYPE_ETHERNET`].
    pub link_type: u16,
    /// Number of bytes to which frames are cut; 0 if they are not cut.
    pub snaplen: u32,
    /// `if_name`, e.g. `eth0`; empty if the file has none.
    pub name: String,
    /// `if_description`; empty if the file has none.
    pub description: String,
}

impl Interface {
    /// An Ethernet interface whose frames are not cut.
    pub fn ethernet(name: &str) -> Self {
        Interface {
            link_type: LINK_TYPE_ETHERNET,
            snaplen: 0,
            name: name.to_owned(),
            description: String::new(),
        }
    }
}
