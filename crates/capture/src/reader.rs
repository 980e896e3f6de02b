//! Reads a capture of either format, recognised by the first four bytes.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::packed::Packing;
use crate::source::Source;
use crate::{Error, Interface, Packet, pcap, pcapng};

/// The two formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The classic format: one interface, no options.
    Pcap,
    /// The block format.
    Pcapng,
}

/// A stream of frames from a capture file.
///
/// Frames come one at a time from one buffer, so memory is bounded by the longest accepted frame.
/// After an error the stream is at its end: frames before it are intact, the rest is unknown.
///
/// ```
/// # fn main() -> Result<(), towpath_capture::Error> {
/// # let mut file = Vec::new();
/// # towpath_capture::pcap::Writer::new(&mut file)?.write(&[0; 60], 60, 1)?;
/// let mut reader = towpath_capture::Reader::new(file.as_slice())?;
/// while let Some(packet) = reader.next_packet()? {
///     println!("{} ns: {} bytes", packet.timestamp_ns, packet.data.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    decoder: Decoder<R>,
    ended: bool,
}

#[derive(Debug)]
enum Decoder<R> {
    Pcap(pcap::Decoder<R>),
    Pcapng(pcapng::Decoder<R>),
}

impl Reader<BufReader<File>> {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::Io { offset: 0, source })?;
        Self::new(BufReader::with_capacity(1 << 18, file))
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header that identifies the format; gzip and zstd are decompressed.
    pub fn new(input: R) -> Result<Self, Error> {
        let mut source = Source::new(input);
        let mut magic = [0; 4];
        if !source.begin(&mut magic, "the file's first 4 bytes")? {
            return Err(Error::NotACapture { found: "nothing: it is empty".to_owned() });
        }
        if let Some(packing) = Packing::of(magic) {
            source = source.unpacked(packing, magic);
            if !source.begin(&mut magic, "the file's first 4 bytes")? {
                return Err(Error::NotACapture { found: "nothing that is packed".to_owned() });
            }
        }
        let decoder = if magic == pcapng::SECTION_HEADER.to_le_bytes() {
            Decoder::Pcapng(pcapng::Decoder::start(source)?)
        } else {
            Decoder::Pcap(pcap::Decoder::start(source, magic)?)
        };
        Ok(Reader { decoder, ended: false })
    }

    /// Ends with an error after this number of decompressed bytes: for callers that keep all of
    /// them.
    #[must_use]
    pub fn limited(mut self, bytes: u64) -> Self {
        match &mut self.decoder {
            Decoder::Pcap(decoder) => decoder.limit(bytes),
            Decoder::Pcapng(decoder) => decoder.limit(bytes),
        }
        self
    }

    /// Format of the file.
    pub fn format(&self) -> Format {
        match self.decoder {
            Decoder::Pcap(_) => Format::Pcap,
            Decoder::Pcapng(_) => Format::Pcapng,
        }
    }

    /// The interfaces known so far; a pcapng file may describe more as it goes on.
    pub fn interfaces(&self) -> &[Interface] {
        match &self.decoder {
            Decoder::Pcap(decoder) => std::slice::from_ref(decoder.interface()),
            Decoder::Pcapng(decoder) => decoder.interfaces(),
        }
    }

    /// Lost frames reported in the part of the file read so far.
    pub fn dropped(&self) -> u64 {
        match &self.decoder {
            Decoder::Pcap(_) => 0,
            Decoder::Pcapng(decoder) => decoder.dropped(),
        }
    }

    /// Number of bytes taken from the input so far, for a progress bar.
    pub fn offset(&self) -> u64 {
        match &self.decoder {
            Decoder::Pcap(decoder) => decoder.offset(),
            Decoder::Pcapng(decoder) => decoder.offset(),
        }
    }

    /// The next frame, or `None` at the end.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Error> {
        if self.ended {
            return Ok(None);
        }
        // Set before decoding and cleared on success: an error ends the stream, too.
        self.ended = true;
        let packet = match &mut self.decoder {
            Decoder::Pcap(decoder) => decoder.next_packet(),
            Decoder::Pcapng(decoder) => decoder.next_packet(),
        }?;
        self.ended = packet.is_none();
        Ok(packet)
    }
}
