//! The classic pcap format: a 24-byte header, then one 16-byte record header per frame.

use std::io::{Read, Write};

use crate::source::{Endian, Fields, Source};
use crate::{
    Error, Interface, LINK_TYPE_ETHERNET, PACKET_BYTES_MAX, Packet, PacketOptions, fcs_bytes,
    without_fcs,
};

/// Reads the records of a file whose magic number has been read.
#[derive(Debug)]
pub(crate) struct Decoder<R> {
    source: Source<R>,
    endian: Endian,
    /// Nanoseconds in one unit of a record's fraction of a second: 1000 or 1.
    fraction_ns: u64,
    /// Size of a record's header, in bytes.
    record_bytes: usize,
    lengths: Lengths,
    /// Size of the frame check sequence that frames end with, in bytes.
    fcs: u32,
    interface: Interface,
    buffer: Vec<u8>,
}

impl<R: Read> Decoder<R> {
    pub(crate) fn start(mut source: Source<R>, magic: [u8; 4]) -> Result<Self, Error> {
        let Some((endian, fraction_ns, record_bytes)) = by_magic(magic) else {
            let found = magic.iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(Error::NotACapture { found });
        };
        let mut rest = [0; HEADER_BYTES - 4];
        source.fill(&mut rest, "the pcap file header", 0)?;
        let mut fields = Fields::new(&rest, endian);
        let header = parse_header(&mut fields).unwrap_or_default();
        let Some(lengths) = Lengths::of(header.version) else {
            return Err(Error::Malformed {
                offset: 4,
                what: "the pcap major version",
                found: header.version.0.into(),
                expected: "2".to_owned(),
            });
        };
        let interface = Interface {
            link_type: header.link_type,
            snaplen: header.snaplen,
            name: String::new(),
            description: String::new(),
        };
        let (fcs, buffer) = (header.fcs, Vec::new());
        Ok(Decoder { source, endian, fraction_ns, record_bytes, lengths, fcs, interface, buffer })
    }

    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }

    pub(crate) fn offset(&self) -> u64 {
        self.source.taken()
    }

    pub(crate) fn limit(&mut self, bytes: u64) {
        self.source.limit = bytes;
    }

    pub(crate) fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Error> {
        const WHAT: &str = "a packet record";
        let start = self.source.offset;
        let mut header = [0; MODIFIED_RECORD_BYTES];
        if !self.source.begin(&mut header[..self.record_bytes], WHAT)? {
            return Ok(None);
        }
        let word = |at: usize| {
            self.endian.u32([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (seconds, fraction) = (word(0), word(4));
        let (length, original_len) = self.lengths.in_order(word(8), word(12));
        if length > PACKET_BYTES_MAX {
            return Err(Error::TooLarge {
                offset: start + 8,
                what: "a packet",
                size: length.into(),
                limit: PACKET_BYTES_MAX.into(),
            });
        }
        self.buffer.resize(length as usize, 0);
        self.source.fill(&mut self.buffer, WHAT, start)?;
        let (data, original_len) = without_fcs(&self.buffer, original_len, self.fcs);
        Ok(Some(Packet {
            data,
            original_len,
            timestamp_ns: u64::from(seconds) * 1_000_000_000
                + u64::from(fraction) * self.fraction_ns,
            interface: 0,
            link_type: self.interface.link_type,
            options: PacketOptions::default(),
        }))
    }
}

#[derive(Default)]
struct Header {
    version: (u16, u16),
    fcs: u32,
    snaplen: u32,
    link_type: u16,
}

fn parse_header(fields: &mut Fields<'_>) -> Option<Header> {
    let version = (fields.u16()?, fields.u16()?);
    let _time_zone = fields.u32()?;
    let _accuracy = fields.u32()?;
    let snaplen = fields.u32()?;
    let network = fields.u32()?;
    let link_type = (network & 0xffff) as u16;
    let fcs = if network & FCS_IS_KNOWN == 0 { 0 } else { fcs_bytes(network >> 28, link_type) };
    Some(Header { version, fcs, snaplen, link_type })
}

/// Byte order, nanoseconds in a fraction's unit, and size of a record's header in bytes.
fn by_magic(magic: [u8; 4]) -> Option<(Endian, u64, usize)> {
    let of = |magic| match magic {
        MAGIC_MICROSECONDS => Some((1000, RECORD_BYTES)),
        MAGIC_NANOSECONDS => Some((1, RECORD_BYTES)),
        MAGIC_MODIFIED => Some((1000, MODIFIED_RECORD_BYTES)),
        _ => None,
    };
    let number = u32::from_le_bytes(magic);
    let little = of(number).map(|(fraction_ns, bytes)| (Endian::Little, fraction_ns, bytes));
    let big = || of(number.swap_bytes()).map(|(ns, bytes)| (Endian::Big, ns, bytes));
    little.or_else(big)
}

/// Order of a record's two lengths, as in libpcap (`pcap_check_header`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    /// Original length first: files before version 2.3, and those of DG/UX (543.0).
    OriginalFirst,
    /// Version 2.3 had both: the smaller one is the captured length.
    Either,
}

impl Lengths {
    fn of(version: (u16, u16)) -> Option<Lengths> {
        match version {
            (2, 0..=2) | (543, 0) => Some(Lengths::OriginalFirst),
            (2, 3) => Some(Lengths::Either),
            (2, _) => Some(Lengths::CapturedFirst),
            _ => None,
        }
    }

    /// Captured and original length.
    fn in_order(self, first: u32, second: u32) -> (u32, u32) {
        match self {
            Lengths::CapturedFirst => (first, second),
            Lengths::OriginalFirst => (second, first),
            Lengths::Either => (first.min(second), first.max(second)),
        }
    }
}

/// Writes Ethernet frames in the classic format, with nanoseconds.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    offset: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the file header.
    pub fn new(output: W) -> Result<Self, Error> {
        let mut writer = Writer { output, offset: 0 };
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC_NANOSECONDS.to_le_bytes());
        header.extend_from_slice(&2_u16.to_le_bytes());
        header.extend_from_slice(&4_u16.to_le_bytes());
        header.extend_from_slice(&[0; 8]);
        header.extend_from_slice(&PACKET_BYTES_MAX.to_le_bytes());
        header.extend_from_slice(&u32::from(LINK_TYPE_ETHERNET).to_le_bytes());
        writer.put(&header)?;
        Ok(writer)
    }

    /// Writes one frame.
    pub fn write(
        &mut self,
        data: &[u8],
        original_len: u32,
        timestamp_ns: u64,
    ) -> Result<(), Error> {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if length > PACKET_BYTES_MAX {
            return Err(Error::TooLarge {
                offset: self.offset,
                what: "a packet",
                size: data.len() as u64,
                limit: PACKET_BYTES_MAX.into(),
            });
        }
        // Seconds are 32 bits wide in this format, until 2106.
        let seconds = u32::try_from(timestamp_ns / 1_000_000_000).unwrap_or(u32::MAX);
        let fraction = (timestamp_ns % 1_000_000_000) as u32;
        let mut header = [0; RECORD_BYTES];
        for (slot, value) in
            header.chunks_exact_mut(4).zip([seconds, fraction, length, original_len])
        {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        self.put(&header)?;
        self.put(data)
    }

    /// Flushes buffered bytes.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.output.flush().map_err(|source| Error::Io { offset: self.offset, source })
    }

    /// Flushes buffered bytes and gives the output back.
    pub fn finish(mut self) -> Result<W, Error> {
        self.flush()?;
        Ok(self.output)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.output.write_all(bytes).map_err(|source| Error::Io { offset: self.offset, source })?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Alexey Kuznetzov's format, whose records also have interface, protocol and direction.
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;
/// Flag in the header's last word: its top four bits give the length of the frame check sequence.
const FCS_IS_KNOWN: u32 = 1 << 26;
const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 16;
const MODIFIED_RECORD_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    fn big_endian_microseconds(records: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
        let mut file = MAGIC_MICROSECONDS.to_be_bytes().to_vec();
        file.extend([0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 96, 0, 0, 0, 1]);
        for (seconds, fraction, data, original_len) in records {
            for word in [*seconds, *fraction, data.len() as u32, *original_len] {
                file.extend(word.to_be_bytes());
            }
            file.extend(*data);
        }
        file
    }

    #[test]
    fn both_byte_orders_and_resolutions_are_read() {
        let file = big_endian_microseconds(&[(1, 2, &[1, 2, 3], 1500)]);
        let mut reader = Reader::new(file.as_slice()).unwrap();
        assert_eq!(reader.interfaces()[0].snaplen, 96);
        let packet = reader.next_packet().unwrap().unwrap();
        assert_eq!((packet.timestamp_ns, packet.data), (1_000_002_000, &[1, 2, 3][..]));
        assert!(packet.is_cut_short());
        assert_eq!(reader.next_packet().unwrap(), None);

        let mut writer = Writer::new(Vec::new()).unwrap();
        writer.write(&[9; 60], 60, 5_000_000_007).unwrap();
        let file = writer.finish().unwrap();
        let mut reader = Reader::new(file.as_slice()).unwrap();
        let packet = reader.next_packet().unwrap().unwrap();
        assert_eq!((packet.timestamp_ns, packet.data), (5_000_000_007, &[9; 60][..]));
        assert!(!packet.is_cut_short());
    }

    /// A file of one frame of 8 bytes, with these lengths in its record.
    fn file(
        magic: u32,
        version: [u16; 2],
        network: u32,
        lengths: [u32; 2],
        more: usize,
    ) -> Vec<u8> {
        let mut file = magic.to_le_bytes().to_vec();
        file.extend(version.map(u16::to_le_bytes).concat());
        file.extend([0; 12]);
        file.extend(network.to_le_bytes());
        file.extend([1, 0].map(u32::to_le_bytes).concat());
        file.extend(lengths.map(u32::to_le_bytes).concat());
        file.extend(vec![0xee; more]);
        file.extend(1..=8);
        file
    }

    fn read_one(file: &[u8]) -> (Vec<u8>, u32) {
        let mut reader = Reader::new(file).unwrap();
        let packet = reader.next_packet().unwrap().unwrap();
        let found = (packet.data.to_vec(), packet.original_len);
        assert_eq!(reader.next_packet().unwrap(), None);
        found
    }

    #[test]
    fn old_files_have_their_lengths_in_another_order() {
        let whole: Vec<u8> = (1..=8).collect();
        let of = |version, lengths| read_one(&file(MAGIC_MICROSECONDS, version, 1, lengths, 0));
        assert_eq!(of([2, 4], [8, 12]), (whole.clone(), 12));
        for version in [[2, 2], [2, 3], [543, 0]] {
            assert_eq!(of(version, [12, 8]), (whole.clone(), 12), "{version:?}");
        }
        assert_eq!(of([2, 3], [8, 12]), (whole.clone(), 12));
        let modified = file(MAGIC_MODIFIED, [2, 4], 1, [8, 12], 8);
        assert_eq!(read_one(&modified), (whole, 12));
        assert!(Reader::new(&file(MAGIC_MICROSECONDS, [1, 0], 1, [8, 8], 0)[..]).is_err());
    }

    #[test]
    fn the_frame_check_sequence_is_taken_off() {
        let of = |network, original| {
            read_one(&file(MAGIC_MICROSECONDS, [2, 4], network, [8, original], 0))
        };
        let first = |count| (1..=count).collect::<Vec<u8>>();
        // In words as in the draft, and in bytes.
        for length in [2, 4] {
            assert_eq!(of(length << 28 | FCS_IS_KNOWN | 1, 8), (first(4), 4));
        }
        assert_eq!(of(4 << 28 | FCS_IS_KNOWN | 1, 10), (first(6), 6), "half of it was captured");
        assert_eq!(of(4 << 28 | FCS_IS_KNOWN | 1, 60), (first(8), 56), "none of it was");
        assert_eq!(of(4 << 28 | 1, 8), (first(8), 8), "the length isn't known");
    }

    #[test]
    fn a_truncated_file_gives_its_whole_frames_and_names_the_place() {
        let file = big_endian_microseconds(&[(1, 2, &[7; 60], 60), (1, 3, &[8; 60], 60)]);
        let mut reader = Reader::new(&file[..file.len() - 20]).unwrap();
        assert_eq!(reader.next_packet().unwrap().unwrap().data, [7; 60]);
        let message = reader.next_packet().unwrap_err().to_string();
        assert!(message.contains("starts at offset 100: 20 more bytes"), "{message}");
        assert_eq!(reader.next_packet().unwrap(), None);
    }

    #[test]
    fn lengths_are_bounded() {
        let mut file = big_endian_microseconds(&[(1, 2, &[], 60)]);
        let at = file.len() - 8;
        file[at..at + 4].copy_from_slice(&u32::MAX.to_be_bytes());
        let mut reader = Reader::new(file.as_slice()).unwrap();
        let error = reader.next_packet().unwrap_err();
        assert!(matches!(error, Error::TooLarge { offset: 32, .. }), "{error}");
    }

    #[test]
    fn other_files_are_refused_by_their_first_bytes() {
        let error = Reader::new(&b"\x7fELF\x02"[..]).unwrap_err();
        assert!(error.to_string().contains("starts with 7f454c46"), "{error}");
        assert!(matches!(Reader::new(&b""[..]), Err(Error::NotACapture { .. })));
        assert!(matches!(Reader::new(&b"\xd4\xc3"[..]), Err(Error::Truncated { .. })));
    }
}
