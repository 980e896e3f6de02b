//! Capture files: pcap and pcapng, read as a stream and written with XDP verdicts.
//!
//! Own code because the reader must survive any bytes with bounded memory and say where a damaged
//! file stops being one, and because the writer records what a program decided about each frame in
//! the pcapng packet options that `xdpdump` uses: verdict, queue and packet id.
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

/// Longest frame read or written, in bytes: what Wireshark and tcpdump accept too.
pub const PACKET_BYTES_MAX: u32 = 262_144;

/// The link type of Ethernet frames, the only one an XDP program can be run on.
pub const LINK_TYPE_ETHERNET: u16 = 1;

/// One frame of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The bytes captured, without a frame check sequence; fewer than `original_len` when the
    /// capture cut the frame short.
    pub data: &'a [u8],
    /// Length on the wire, in bytes, without a frame check sequence.
    pub original_len: u32,
    /// Nanoseconds since 1970; 0 when the capture, or a simple packet block, has no time.
    pub timestamp_ns: u64,
    /// Index into the reader's or writer's interfaces.
    pub interface: u32,
    /// Link type of that interface; not looked at when writing.
    pub link_type: u16,
    /// What pcapng can say besides; all absent in a pcap file.
    pub options: PacketOptions<'a>,
}

/// Takes the frame check sequence of `fcs` bytes off a frame that has one, or the beginning of one.
pub(crate) fn without_fcs(data: &[u8], original_len: u32, fcs: u32) -> (&[u8], u32) {
    if original_len < fcs || data.len() as u64 > u64::from(original_len) {
        return (data, original_len);
    }
    let wire = original_len - fcs;
    (&data[..data.len().min(wire as usize)], wire)
}

/// Bytes of a frame check sequence, of which a file says that it has `written` units.
///
/// draft-ietf-opsawg-pcap counts 16-bit words and pcapng bits; files have bytes in either. That of
/// Ethernet has 4 bytes whatever the unit.
pub(crate) fn fcs_bytes(written: u32, link_type: u16) -> u32 {
    match written {
        0 => 0,
        _ if link_type == LINK_TYPE_ETHERNET => ETHERNET_FCS_BYTES,
        16.. => written / 8,
        _ => written,
    }
}

/// IEEE 802.3 section 3.2.9.
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
    /// `epb_verdict` of type "Linux eBPF XDP": what the program returned.
    pub xdp_verdict: Option<u64>,
    /// `opt_comment`: a sentence for the reader.
    pub comment: Option<&'a str>,
}

/// Where frames of a capture came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// `LINKTYPE_*`; see [`LINK_TYPE_ETHERNET`].
    pub link_type: u16,
    /// Frames are cut to so many bytes; 0 when they are not.
    pub snaplen: u32,
    /// `if_name`, e.g. `eth0`; empty when the file does not say.
    pub name: String,
    /// `if_description`; empty when the file does not say.
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
