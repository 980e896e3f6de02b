//! Errors in a capture file, with their place.

use std::io;

/// An error of reading or writing a capture. Offsets are bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system failed.
    #[error("at offset {offset}: {source}")]
    Io {
        /// Number of bytes read or written before.
        offset: u64,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The first bytes belong to no known capture format.
    #[error(
        "not a capture file: it starts with {found}, and pcap starts with d4c3b2a1 or 4d3cb2a1 \
         (either byte order), pcapng with 0a0d0d0a; of packed ones, those of gzip and zstd are read"
    )]
    NotACapture {
        /// The first bytes, in hex.
        found: String,
    },
    /// The file ends inside a header, block or record.
    #[error(
        "ends at offset {end}, inside {what} that starts at offset {start}: \
             {missing} more bytes were expected; the frames before it are intact"
    )]
    Truncated {
        /// Name of the part that was being read.
        what: &'static str,
        /// Offset of its start.
        start: u64,
        /// Offset of the end of the file.
        end: u64,
        /// Number of bytes that are missing at least.
        missing: u64,
    },
    /// A length is beyond what is accepted.
    #[error("at offset {offset}: {what} of {size} bytes, at most {limit} are accepted")]
    TooLarge {
        /// Offset of the length, or of the data.
        offset: u64,
        /// Name of the part that is too large.
        what: &'static str,
        /// Its size in bytes, as the file gives it.
        size: u64,
        /// Largest accepted size, in bytes.
        limit: u64,
    },
    /// A field has an invalid value.
    #[error("at offset {offset}: {what} is {found}, expected {expected}")]
    Malformed {
        /// Offset of the field.
        offset: u64,
        /// Name of the field.
        what: &'static str,
        /// Value of the field.
        found: u64,
        /// Allowed values.
        expected: String,
    },
    /// A packet refers to an interface that no block described.
    #[error(
        "at offset {offset}: the packet is from interface {interface}, \
         but only {count} were described before it"
    )]
    UnknownInterface {
        /// Offset of the packet's block.
        offset: u64,
        /// Index of the interface.
        interface: u32,
        /// Number of interfaces described so far.
        count: u32,
    },
}
