//! Writes pcapng: one little-endian section, times in nanoseconds, verdicts as packet options.

use std::io::Write;

use super::{
    BYTE_ORDER_MAGIC, EMPTY_BLOCK_BYTES, ENHANCED_PACKET, INTERFACE_DESCRIPTION,
    INTERFACE_STATISTICS, SECTION_HEADER, options,
};
use crate::{Error, Interface, PACKET_BYTES_MAX, Packet, PacketOptions};

/// Properties of the file's author in the section header; empty texts are left out.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// `shb_userappl`, e.g. `towpath 0.1.0`.
    pub application: String,
    /// `shb_hardware`.
    pub hardware: String,
    /// `shb_os`.
    pub os: String,
    /// `opt_comment`: a description of the file.
    pub comment: String,
}

/// Writes a pcapng file as a stream.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    offset: u64,
    interface_count: u32,
    /// The block that is being built.
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the section header.
    pub fn new(output: W, section: &Section) -> Result<Self, Error> {
        let mut writer = Writer { output, offset: 0, interface_count: 0, block: Vec::new() };
        writer.begin(SECTION_HEADER);
        let block = &mut writer.block;
        block.extend_from_slice(&BYTE_ORDER_MAGIC.to_le_bytes());
        block.extend_from_slice(&[1, 0, 0, 0]); // Version 1.0.
        block.extend_from_slice(&u64::MAX.to_le_bytes()); // Length of the section: unknown.
        options::push_text(block, options::COMMENT, &section.comment);
        options::push_text(block, options::SECTION_HARDWARE, &section.hardware);
        options::push_text(block, options::SECTION_OS, &section.os);
        options::push_text(block, options::SECTION_APPLICATION, &section.application);
        options::finish(block);
        writer.end()?;
        Ok(writer)
    }

    /// Describes an interface and gives its index; later packets may refer to it.
    pub fn add_interface(&mut self, interface: &Interface) -> Result<u32, Error> {
        self.begin(INTERFACE_DESCRIPTION);
        let block = &mut self.block;
        block.extend_from_slice(&interface.link_type.to_le_bytes());
        block.extend_from_slice(&[0; 2]);
        block.extend_from_slice(&interface.snaplen.to_le_bytes());
        options::push_text(block, options::INTERFACE_NAME, &interface.name);
        options::push_text(block, options::INTERFACE_DESCRIPTION, &interface.description);
        options::push(block, options::INTERFACE_TIME_RESOLUTION, &[9]);
        options::finish(block);
        self.end()?;
        self.interface_count += 1;
        Ok(self.interface_count - 1)
    }

    /// Reports the number of frames of an interface that were lost so far, for lack of time or
    /// memory (draft-ietf-opsawg-pcapng section 4.6). The counts are cumulative: the last one
    /// counts.
    pub fn write_dropped(
        &mut self,
        interface: u32,
        timestamp_ns: u64,
        dropped: u64,
    ) -> Result<(), Error> {
        self.check_interface(interface)?;
        self.begin(INTERFACE_STATISTICS);
        for word in [interface, (timestamp_ns >> 32) as u32, timestamp_ns as u32] {
            self.block.extend_from_slice(&word.to_le_bytes());
        }
        options::push(&mut self.block, options::STATISTICS_DROPPED, &dropped.to_le_bytes());
        options::finish(&mut self.block);
        self.end()
    }

    /// Writes one frame.
    pub fn write(&mut self, packet: &Packet<'_>) -> Result<(), Error> {
        let Packet { data, original_len, timestamp_ns, interface, link_type: _, options } = packet;
        self.check_interface(*interface)?;
        if data.len() > PACKET_BYTES_MAX as usize {
            return Err(Error::TooLarge {
                offset: self.offset,
                what: "a packet",
                size: data.len() as u64,
                limit: PACKET_BYTES_MAX.into(),
            });
        }
        self.begin(ENHANCED_PACKET);
        let words = [
            *interface,
            (timestamp_ns >> 32) as u32,
            *timestamp_ns as u32,
            data.len() as u32,
            *original_len,
        ];
        for word in words {
            self.block.extend_from_slice(&word.to_le_bytes());
        }
        self.block.extend_from_slice(data);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
        push_packet_options(&mut self.block, options);
        self.end()
    }

    /// The output; while it buffers, it may hold less than was written.
    pub fn output_mut(&mut self) -> &mut W {
        &mut self.output
    }

    /// Flushes buffered bytes and gives the output back.
    pub fn finish(mut self) -> Result<W, Error> {
        self.output.flush().map_err(|source| Error::Io { offset: self.offset, source })?;
        Ok(self.output)
    }

    fn check_interface(&self, interface: u32) -> Result<(), Error> {
        if interface < self.interface_count {
            return Ok(());
        }
        let (offset, count) = (self.offset, self.interface_count);
        Err(Error::UnknownInterface { offset, interface, count })
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.block.extend_from_slice(&kind.to_le_bytes());
        self.block.extend_from_slice(&[0; 4]); // The length, known at the end.
    }

    fn end(&mut self) -> Result<(), Error> {
        let length = (self.block.len() as u32 + 4).to_le_bytes();
        debug_assert!(self.block.len() as u32 + 4 >= EMPTY_BLOCK_BYTES);
        debug_assert!(self.block.len().is_multiple_of(4));
        self.block[4..8].copy_from_slice(&length);
        self.block.extend_from_slice(&length);
        self.output
            .write_all(&self.block)
            .map_err(|source| Error::Io { offset: self.offset, source })?;
        self.offset += self.block.len() as u64;
        Ok(())
    }
}

fn push_packet_options(block: &mut Vec<u8>, packet: &PacketOptions<'_>) {
    let PacketOptions { flags, packet_id, queue, xdp_verdict, comment } = packet;
    if *packet == PacketOptions::default() {
        return;
    }
    if let Some(comment) = comment {
        options::push_text(block, options::COMMENT, comment);
    }
    if let Some(flags) = flags {
        options::push(block, options::PACKET_FLAGS, &flags.to_le_bytes());
    }
    if let Some(packet_id) = packet_id {
        options::push(block, options::PACKET_ID, &packet_id.to_le_bytes());
    }
    if let Some(queue) = queue {
        options::push(block, options::PACKET_QUEUE, &queue.to_le_bytes());
    }
    if let Some(verdict) = xdp_verdict {
        let mut value = [options::VERDICT_LINUX_XDP; 9];
        value[1..].copy_from_slice(&verdict.to_le_bytes());
        options::push(block, options::PACKET_VERDICT, &value);
    }
    options::finish(block);
}
