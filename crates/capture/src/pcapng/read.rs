//! Reads pcapng block by block: packets are returned, interfaces remembered, other blocks skipped.

use std::io::Read;

use super::options::{self, Options};
use super::{
    BYTE_ORDER_MAGIC, EMPTY_BLOCK_BYTES, ENHANCED_PACKET, INTERFACE_DESCRIPTION,
    INTERFACE_STATISTICS, OBSOLETE_PACKET, SECTION_HEADER, SIMPLE_PACKET,
};
use crate::source::{Endian, Fields, Source};
use crate::{Error, Interface, PACKET_BYTES_MAX, Packet, PacketOptions, fcs_bytes, without_fcs};

/// Reads the blocks of a file whose first block type has been read.
#[derive(Debug)]
pub(crate) struct Decoder<R> {
    source: Source<R>,
    endian: Endian,
    /// Interfaces of all sections: those of the current one begin at `section_base`.
    interfaces: Vec<Interface>,
    clocks: Vec<Clock>,
    /// Size in bytes of the frame check sequence that each interface's frames end with.
    fcs: Vec<u32>,
    /// Number of lost frames of each interface, as the file reports it.
    dropped: Vec<u64>,
    section_base: usize,
    /// Body of the current block.
    block: Vec<u8>,
}

/// The current block: its body is in the decoder's buffer.
#[derive(Debug, Clone, Copy)]
struct Block {
    kind: u32,
    /// Offset of the block in the file.
    start: u64,
}

/// Offset of a block's body from its start.
const BODY_OFFSET: u64 = 8;

impl<R: Read> Decoder<R> {
    pub(crate) fn start(source: Source<R>) -> Result<Self, Error> {
        let mut decoder = Decoder {
            source,
            endian: Endian::Little,
            interfaces: Vec::new(),
            clocks: Vec::new(),
            fcs: Vec::new(),
            dropped: Vec::new(),
            section_base: 0,
            block: Vec::new(),
        };
        let mut length = [0; 4];
        decoder.source.fill(&mut length, "the section header", 0)?;
        decoder.read_section(length, 0)?;
        Ok(decoder)
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    pub(crate) fn offset(&self) -> u64 {
        self.source.taken()
    }

    pub(crate) fn limit(&mut self, bytes: u64) {
        self.source.limit = bytes;
    }

    pub(crate) fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Error> {
        while let Some(block) = self.next_block()? {
            match block.kind {
                INTERFACE_DESCRIPTION => self.add_interface(block)?,
                INTERFACE_STATISTICS => self.statistics(block),
                ENHANCED_PACKET | OBSOLETE_PACKET => return self.packet(block).map(Some),
                SIMPLE_PACKET => return self.simple_packet(block).map(Some),
                _ => {} // A section header, already taken in.
            }
        }
        Ok(None)
    }

    /// Reads the next block of a known kind, skipping all others.
    fn next_block(&mut self) -> Result<Option<Block>, Error> {
        loop {
            let start = self.source.offset;
            let mut header = [0; 8];
            if !self.source.begin(&mut header, "a block header")? {
                return Ok(None);
            }
            let [k0, k1, k2, k3, l0, l1, l2, l3] = header;
            let kind = self.endian.u32([k0, k1, k2, k3]);
            let length = [l0, l1, l2, l3];
            match kind {
                SECTION_HEADER => self.read_section(length, start)?,
                INTERFACE_DESCRIPTION
                | INTERFACE_STATISTICS
                | OBSOLETE_PACKET
                | SIMPLE_PACKET
                | ENHANCED_PACKET => {
                    let length = self.checked_length(self.endian.u32(length), start)?;
                    self.read_body(length, start)?;
                    return Ok(Some(Block { kind, start }));
                }
                _ => {
                    let length = self.checked_length(self.endian.u32(length), start)?;
                    let body = u64::from(length - EMPTY_BLOCK_BYTES);
                    self.source.skip(body, "a block", start)?;
                    self.read_trailer(length, start)?;
                }
            }
        }
    }

    /// Reads a section header, which also gives the byte order; its type and `length` have been
    /// read.
    fn read_section(&mut self, length: [u8; 4], start: u64) -> Result<(), Error> {
        const WHAT: &str = "a section header";
        let mut magic = [0; 4];
        self.source.fill(&mut magic, WHAT, start)?;
        self.endian = match u32::from_le_bytes(magic) {
            BYTE_ORDER_MAGIC => Endian::Little,
            other if other.swap_bytes() == BYTE_ORDER_MAGIC => Endian::Big,
            other => {
                return Err(Error::Malformed {
                    offset: start + BODY_OFFSET,
                    what: "the byte-order magic",
                    found: other.into(),
                    expected: format!("{BYTE_ORDER_MAGIC} in either byte order"),
                });
            }
        };
        let length = self.checked_length(self.endian.u32(length), start)?;
        if length < SECTION_BYTES_MIN {
            return Err(bad_length(length, start, SECTION_BYTES_MIN));
        }
        let mut version = [0; 4];
        self.source.fill(&mut version, WHAT, start)?;
        let major = self.endian.u16([version[0], version[1]]);
        if major != 1 {
            return Err(Error::Malformed {
                offset: start + BODY_OFFSET + 4,
                what: "the pcapng major version",
                found: major.into(),
                expected: "1".to_owned(),
            });
        }
        let read = magic.len() + version.len();
        self.source.skip(u64::from(length - EMPTY_BLOCK_BYTES) - read as u64, WHAT, start)?;
        self.read_trailer(length, start)?;
        self.section_base = self.interfaces.len();
        Ok(())
    }

    fn checked_length(&self, length: u32, start: u64) -> Result<u32, Error> {
        if length < EMPTY_BLOCK_BYTES || !length.is_multiple_of(4) {
            return Err(bad_length(length, start, EMPTY_BLOCK_BYTES));
        }
        Ok(length)
    }

    fn read_body(&mut self, length: u32, start: u64) -> Result<(), Error> {
        if length > BLOCK_BYTES_MAX {
            return Err(Error::TooLarge {
                offset: start + 4,
                what: "a block",
                size: length.into(),
                limit: BLOCK_BYTES_MAX.into(),
            });
        }
        self.block.resize((length - EMPTY_BLOCK_BYTES) as usize, 0);
        self.source.fill(&mut self.block, "a block", start)?;
        self.read_trailer(length, start)
    }

    fn read_trailer(&mut self, length: u32, start: u64) -> Result<(), Error> {
        let offset = self.source.offset;
        let mut trailer = [0; 4];
        self.source.fill(&mut trailer, "a block", start)?;
        let found = self.endian.u32(trailer);
        if found != length {
            return Err(Error::Malformed {
                offset,
                what: "the length at the end of a block",
                found: found.into(),
                expected: format!("{length}, as at its start (offset {})", start + 4),
            });
        }
        Ok(())
    }

    fn add_interface(&mut self, block: Block) -> Result<(), Error> {
        let mut fields = Fields::new(&self.block, self.endian);
        let header = (fields.u16(), fields.u16(), fields.u32());
        let (Some(link_type), Some(_reserved), Some(snaplen)) = header else {
            return Err(short_block(block, self.block.len(), 8));
        };
        if self.interfaces.len() >= INTERFACE_COUNT_MAX {
            return Err(Error::TooLarge {
                offset: block.start,
                what: "the list of interfaces",
                size: INTERFACE_COUNT_MAX as u64 + 1,
                limit: INTERFACE_COUNT_MAX as u64,
            });
        }
        let mut interface =
            Interface { link_type, snaplen, name: String::new(), description: String::new() };
        let (mut clock, mut fcs) = (Clock::default(), 0);
        for option in Options::new(fields) {
            let (code, value) = option.map_err(|overrun| overrun_error(block, &overrun))?;
            match (code, value) {
                (options::INTERFACE_NAME, text) => interface.name = short_text(text),
                (options::INTERFACE_DESCRIPTION, text) => interface.description = short_text(text),
                (options::INTERFACE_TIME_RESOLUTION, [resolution]) => {
                    clock.resolution = *resolution;
                }
                (options::INTERFACE_FCS_LENGTH, [written]) => {
                    fcs = fcs_bytes((*written).into(), link_type);
                }
                (options::INTERFACE_TIME_OFFSET, &[a, b, c, d, e, f, g, h]) => {
                    clock.offset_s = self.endian.u64([a, b, c, d, e, f, g, h]) as i64;
                }
                _ => {}
            }
        }
        self.interfaces.push(interface);
        self.clocks.push(clock);
        self.fcs.push(fcs);
        self.dropped.push(0);
        Ok(())
    }

    /// Records the number of lost frames of an interface; the last block that has it counts.
    fn statistics(&mut self, block: Block) {
        let mut fields = Fields::new(&self.block, self.endian);
        let header = (fields.u32(), fields.u32(), fields.u32());
        let (Some(interface), Some(_high), Some(_low)) = header else { return };
        // No frame depends on statistics: invalid ones are ignored.
        let Ok(interface) = self.interface_index(interface, block) else { return };
        for (code, value) in Options::new(fields).map_while(Result::ok) {
            if let (options::STATISTICS_DROPPED, &[a, b, c, d, e, f, g, h]) = (code, value) {
                self.dropped[interface] = self.endian.u64([a, b, c, d, e, f, g, h]);
            }
        }
    }

    /// Reads an enhanced packet block, or the obsolete packet block.
    fn packet(&self, block: Block) -> Result<Packet<'_>, Error> {
        let mut fields = Fields::new(&self.block, self.endian);
        let interface = if block.kind == ENHANCED_PACKET {
            fields.u32()
        } else {
            let interface = fields.u16().map(u32::from);
            fields.u16().and(interface) // A count of drops sits between.
        };
        let header = (interface, fields.u32(), fields.u32(), fields.u32(), fields.u32());
        let (Some(interface), Some(high), Some(low), Some(length), Some(original_len)) = header
        else {
            return Err(short_block(block, self.block.len(), PACKET_HEADER_BYTES));
        };
        let interface = self.interface_index(interface, block)?;
        check_packet_length(length, block.start + BODY_OFFSET + 12)?;
        let remaining = fields.remaining();
        let padded = (length as usize).next_multiple_of(4);
        let Some(data) = fields.bytes(padded) else {
            return Err(Error::Malformed {
                offset: block.start + BODY_OFFSET + 12,
                what: "the captured length",
                found: length.into(),
                expected: format!("at most the {remaining} bytes left in the block"),
            });
        };
        let options = packet_options(fields, self.endian, block)?;
        let link_type = self.interfaces[interface].link_type;
        // The frame's own flags take precedence, in octets.
        let fcs = match options.flags.map_or(0, |flags| flags >> FCS_SHIFT & FCS_MASK) {
            0 => self.fcs[interface],
            octets => fcs_bytes(octets, link_type),
        };
        let (data, original_len) = without_fcs(&data[..length as usize], original_len, fcs);
        let ticks = u64::from(high) << 32 | u64::from(low);
        let timestamp_ns = self.clocks[interface].nanoseconds(ticks);
        let interface = interface as u32;
        Ok(Packet { data, original_len, timestamp_ns, interface, link_type, options })
    }

    /// Reads a block with nothing but data, from the section's first interface.
    fn simple_packet(&self, block: Block) -> Result<Packet<'_>, Error> {
        let mut fields = Fields::new(&self.block, self.endian);
        let Some(original_len) = fields.u32() else {
            return Err(short_block(block, self.block.len(), 4));
        };
        let interface = self.interface_index(0, block)?;
        let snaplen = match self.interfaces[interface].snaplen {
            0 => u32::MAX,
            snaplen => snaplen,
        };
        // The captured length is not in the block: it follows from the other lengths.
        let length = original_len.min(snaplen).min(fields.remaining() as u32);
        check_packet_length(length, block.start + BODY_OFFSET)?;
        let data = fields.bytes(length as usize).unwrap_or_default();
        let (data, original_len) = without_fcs(data, original_len, self.fcs[interface]);
        Ok(Packet {
            data,
            original_len,
            timestamp_ns: 0,
            interface: interface as u32,
            link_type: self.interfaces[interface].link_type,
            options: PacketOptions::default(),
        })
    }

    /// Index among all interfaces for an index in the section.
    fn interface_index(&self, interface: u32, block: Block) -> Result<usize, Error> {
        let index = self.section_base.saturating_add(interface as usize);
        if index >= self.interfaces.len() {
            return Err(Error::UnknownInterface {
                offset: block.start,
                interface,
                count: (self.interfaces.len() - self.section_base) as u32,
            });
        }
        Ok(index)
    }
}

/// Units of an interface's timestamps.
#[derive(Debug, Clone, Copy)]
struct Clock {
    /// `if_tsresol`: a negative power of 10, or of 2 if the top bit is set.
    resolution: u8,
    /// `if_tsoffset`: seconds to add.
    offset_s: i64,
}

impl Default for Clock {
    fn default() -> Self {
        Clock { resolution: 6, offset_s: 0 }
    }
}

impl Clock {
    /// Converts ticks to nanoseconds since 1970, clamped to the range of `u64`.
    fn nanoseconds(self, ticks: u64) -> u64 {
        let exponent = u32::from(self.resolution & 0x7f);
        let base: u128 = if self.resolution & 0x80 == 0 { 10 } else { 2 };
        let scaled = u128::from(ticks) * 1_000_000_000;
        // A unit too small for 128 bits makes every timestamp 0.
        let ns = base.checked_pow(exponent).map_or(0, |ticks_per_second| scaled / ticks_per_second);
        let ns = i128::try_from(ns).unwrap_or(i128::MAX);
        let ns = ns.saturating_add(i128::from(self.offset_s) * 1_000_000_000);
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

fn packet_options<'a>(
    fields: Fields<'a>,
    endian: Endian,
    block: Block,
) -> Result<PacketOptions<'a>, Error> {
    let mut found = PacketOptions::default();
    for option in Options::new(fields) {
        let (code, value) = option.map_err(|overrun| overrun_error(block, &overrun))?;
        match (code, value) {
            (options::COMMENT, text) => found.comment = std::str::from_utf8(text).ok(),
            (options::PACKET_FLAGS, &[a, b, c, d]) => found.flags = Some(endian.u32([a, b, c, d])),
            (options::PACKET_ID, &[a, b, c, d, e, f, g, h]) => {
                found.packet_id = Some(endian.u64([a, b, c, d, e, f, g, h]));
            }
            (options::PACKET_QUEUE, &[a, b, c, d]) => found.queue = Some(endian.u32([a, b, c, d])),
            (options::PACKET_VERDICT, &[options::VERDICT_LINUX_XDP, a, b, c, d, e, f, g, h]) => {
                found.xdp_verdict = Some(endian.u64([a, b, c, d, e, f, g, h]));
            }
            _ => {}
        }
    }
    Ok(found)
}

fn check_packet_length(length: u32, offset: u64) -> Result<(), Error> {
    if length > PACKET_BYTES_MAX {
        return Err(Error::TooLarge {
            offset,
            what: "a packet",
            size: length.into(),
            limit: PACKET_BYTES_MAX.into(),
        });
    }
    Ok(())
}

/// A name, cut to a readable length, so that hostile files can't fill memory with names.
fn short_text(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(NAME_BYTES_MAX)];
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

fn bad_length(length: u32, start: u64, least: u32) -> Error {
    Error::Malformed {
        offset: start + 4,
        what: "the length of a block",
        found: length.into(),
        expected: format!("a multiple of 4, at least {least}"),
    }
}

fn short_block(block: Block, length: usize, needed: u64) -> Error {
    Error::Malformed {
        offset: block.start + BODY_OFFSET,
        what: "the size of a block's body",
        found: length as u64,
        expected: format!("at least {needed} for a block of type {}", block.kind),
    }
}

fn overrun_error(block: Block, overrun: &options::Overrun) -> Error {
    Error::Malformed {
        offset: block.start,
        what: "the length of an option in the block",
        found: overrun.length.into(),
        expected: format!("at most the {} bytes left", overrun.remaining),
    }
}

/// Position in `epb_flags` of the number of octets of the frame check sequence.
const FCS_SHIFT: u32 = 5;
const FCS_MASK: u32 = 0xf;
const SECTION_BYTES_MIN: u32 = 28;
const PACKET_HEADER_BYTES: u64 = 20;
/// Largest block: the longest packet, with as much again for its options.
const BLOCK_BYTES_MAX: u32 = 2 * PACKET_BYTES_MAX;
const INTERFACE_COUNT_MAX: usize = 16_384;
const NAME_BYTES_MAX: usize = 256;
