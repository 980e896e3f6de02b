//! Captures compressed by gzip or zstd, decompressed while they are read.
//!
//! Memory is bounded for any input: a window of gzip's 32 KiB, or of at most 128 MiB, as in the
//! `zstd` command. The amount of output has the limit of [`crate::Reader::limited`].

use std::fmt;
use std::io::{self, Chain, Cursor, Read};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Compression of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    /// The compression by the first bytes (RFC 1952 section 2.3.1, RFC 8878 sections 3.1.1 and
    /// 3.1.2).
    pub(crate) fn of(magic: [u8; 4]) -> Option<Packing> {
        match magic {
            [0x1f, 0x8b, 8, _] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Some(Packing::Zstd),
            _ => None,
        }
    }
}

/// An input, plain or decompressed.
#[derive(Debug)]
pub(crate) enum Input<R> {
    Plain(R),
    Gzip(Box<MultiGzDecoder<Begun<R>>>),
    Zstd(Box<Zstd<Begun<R>>>),
}

impl<R: Read> Input<R> {
    /// Decompresses a plain input whose first four bytes have been read.
    pub(crate) fn unpacked(input: R, packing: Packing, magic: [u8; 4]) -> Self {
        let begun = Begun { input: Cursor::new(magic).chain(input), taken: 0 };
        match packing {
            Packing::Gzip => Input::Gzip(Box::new(MultiGzDecoder::new(begun))),
            Packing::Zstd => Input::Zstd(Box::new(Zstd::new(begun))),
        }
    }

    /// Number of bytes taken from a compressed input.
    pub(crate) fn packed_bytes(&self) -> Option<u64> {
        match self {
            Input::Plain(_) => None,
            Input::Gzip(decoder) => Some(decoder.get_ref().taken),
            Input::Zstd(decoder) => Some(decoder.input.taken),
        }
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::Plain(input) => input.read(bytes),
            Input::Gzip(decoder) => decoder.read(bytes),
            Input::Zstd(decoder) => decoder.read(bytes),
        }
    }
}

/// An input whose first bytes are read once more.
#[derive(Debug)]
pub(crate) struct Begun<R> {
    input: Chain<Cursor<[u8; 4]>, R>,
    taken: u64,
}

impl<R: Read> Read for Begun<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(bytes)?;
        self.taken += count as u64;
        Ok(count)
    }
}

/// Frames of zstd, one behind the other; skippable ones are skipped.
pub(crate) struct Zstd<R> {
    input: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R> fmt::Debug for Zstd<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zstd").field("is_in_frame", &self.is_in_frame).finish_non_exhaustive()
    }
}

impl<R: Read> Zstd<R> {
    fn new(input: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Zstd { input, decoder, is_in_frame: false }
    }

    /// Begins the next frame, if there is one.
    fn begin_frame(&mut self) -> io::Result<bool> {
        let mut first = [0];
        let mut input = self.input.by_ref().take(1);
        if io::copy(&mut input, &mut &mut first[..])? == 0 {
            return Ok(false);
        }
        match self.decoder.init(Cursor::new(first).chain(&mut self.input)) {
            Ok(()) => self.is_in_frame = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                io::copy(&mut self.input.by_ref().take(length.into()), &mut io::sink())?;
            }
            Err(error) => return Err(damaged(&error)),
        }
        Ok(true)
    }

    /// Ends a frame whose contents were all returned, and checks its checksum.
    fn end_frame(&mut self) -> io::Result<()> {
        self.is_in_frame = false;
        let written = self.decoder.get_checksum_from_data();
        match written.zip(self.decoder.get_calculated_checksum()) {
            Some((written, found)) if written != found => Err(damaged(&"its checksum is wrong")),
            _ => Ok(()),
        }
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_in_frame && self.decoder.can_collect() > 0 || bytes.is_empty() {
                return self.decoder.read(bytes);
            }
            if self.is_in_frame && self.decoder.is_finished() {
                self.end_frame()?;
            } else if self.is_in_frame {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder
                    .decode_blocks(&mut self.input, one)
                    .map_err(|error| damaged(&error))?;
            } else if !self.begin_frame()? {
                return Ok(0);
            }
        }
    }
}

fn damaged(error: &dyn fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged zstd data: {error}"))
}

/// Largest window, in bytes: `zstd --long` makes such windows, and the `zstd` command accepts them
/// by default.
const WINDOW_BYTES_MAX: u64 = 128 << 20;
