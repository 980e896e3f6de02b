//! A byte stream with its offset, so that every error can name the place.

use std::io::{self, Read};

use crate::Error;
use crate::packed::{Input, Packing};

/// A reader with the number of bytes taken from it.
#[derive(Debug)]
pub(crate) struct Source<R> {
    inner: Input<R>,
    /// Number of bytes taken so far; of a compressed input, of its contents.
    pub(crate) offset: u64,
    /// Largest number of bytes to take.
    pub(crate) limit: u64,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(inner: R) -> Self {
        Source { inner: Input::Plain(inner), offset: 0, limit: u64::MAX }
    }

    /// The contents of a compressed input of which only `magic` has been read.
    pub(crate) fn unpacked(self, packing: Packing, magic: [u8; 4]) -> Self {
        let inner = match self.inner {
            Input::Plain(inner) => Input::unpacked(inner, packing, magic),
            packed => packed,
        };
        Source { inner, offset: 0, limit: UNPACKED_BYTES_MAX }
    }

    /// Number of bytes taken from the input, in its compressed form if it is compressed.
    pub(crate) fn taken(&self) -> u64 {
        self.inner.packed_bytes().unwrap_or(self.offset)
    }

    /// Fills `buffer`, the beginning of `what`; `false` if the stream ends before its first byte.
    pub(crate) fn begin(&mut self, buffer: &mut [u8], what: &'static str) -> Result<bool, Error> {
        let start = self.offset;
        let count = self.read_up_to(buffer)?;
        match count {
            0 => Ok(false),
            n if n == buffer.len() => Ok(true),
            n => Err(self.truncated(what, start, buffer.len() - n)),
        }
    }

    /// Fills `buffer`, a further part of `what` that started at offset `start`.
    pub(crate) fn fill(
        &mut self,
        buffer: &mut [u8],
        what: &'static str,
        start: u64,
    ) -> Result<(), Error> {
        let count = self.read_up_to(buffer)?;
        if count < buffer.len() {
            return Err(self.truncated(what, start, buffer.len() - count));
        }
        Ok(())
    }

    /// Skips `count` bytes of `what`, which started at offset `start`.
    pub(crate) fn skip(&mut self, count: u64, what: &'static str, start: u64) -> Result<(), Error> {
        let skipped = io::copy(&mut self.inner.by_ref().take(count), &mut io::sink())
            .map_err(|source| Error::Io { offset: self.offset, source })?;
        self.offset += skipped;
        self.check_limit()?;
        if skipped < count {
            return Err(Error::Truncated {
                what,
                start,
                end: self.offset,
                missing: count - skipped,
            });
        }
        Ok(())
    }

    fn read_up_to(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut count = 0;
        while count < buffer.len() {
            match self.inner.read(&mut buffer[count..]) {
                Ok(0) => break,
                Ok(n) => count += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::Io { offset: self.offset + count as u64, source });
                }
            }
        }
        self.offset += count as u64;
        self.check_limit()?;
        Ok(count)
    }

    /// Checks the limit: a small compressed file can expand enormously, and reading it would take
    /// days.
    fn check_limit(&self) -> Result<(), Error> {
        if self.offset <= self.limit {
            return Ok(());
        }
        Err(Error::TooLarge {
            offset: self.offset,
            what: "a capture",
            size: self.offset,
            limit: self.limit,
        })
    }

    fn truncated(&self, what: &'static str, start: u64, missing: usize) -> Error {
        Error::Truncated { what, start, end: self.offset, missing: missing as u64 }
    }
}

/// Largest decompressed size, in bytes: an hour of frames at 100 Mbit/s, and a limit for bombs.
const UNPACKED_BYTES_MAX: u64 = 64 << 30;

/// Byte order of a file: both formats are written in the order of the capturing machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endian {
    Little,
    Big,
}

impl Endian {
    pub(crate) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Endian::Little => u16::from_le_bytes(bytes),
            Endian::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(crate) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        }
    }

    pub(crate) fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Endian::Little => u64::from_le_bytes(bytes),
            Endian::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// Fields taken one after the other from bytes in memory; `None` once they are used up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    endian: Endian,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8], endian: Endian) -> Self {
        Fields { rest: bytes, endian }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(self.endian.u16(*taken))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(self.endian.u32(*taken))
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }
}
