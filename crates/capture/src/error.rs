//! Mistakes in a capture file, with their place.

use std::io;

/// An error of reading or writing a capture. Offsets are bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system failed.
    #[error("at offset {offset}: {source}")]
    Io {
        /// Bytes read or written before.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The first bytes belong to no capture format.
    #[error(
        "not a capture file: it starts with {found}, and pcap starts with d4c3b2a1 or 4d3cb2a1 \
         (either byte order), pcapng with 0a0d0d0a; of packed ones, those of gzip and zstd are read"
    )]
    NotACapture {
        /// The first bytes, in hex.
        found: String,
    },
    /// The file ends inside something.
    #[error(
        "ends at offset {end}, inside {what} that starts at offset {start}: \
             {missing} more bytes were expected; the frames before it are intact"
    )]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where it starts.
        start: u64,
        /// Where the file ends.
        end: u64,
        /// Bytes that are missing at least.
        missing: u64,
    },
    /// A length is beyond what is accepted.
    #[error("at offset {offset}: {what} of {size} bytes, at most {limit} are accepted")]
    TooLarge {
        /// Where.
        offset: u64,
        /// What is too large.
        what: &'static str,
        /// Its size according to the file.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A field has a value it cannot have.
    #[error("at offset {offset}: {what} is {found}, expected {expected}")]
    Malformed {
        /// Where.
        offset: u64,
        /// Which field.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What it may be.
        expected: String,
    },
    /// A packet names an interface that no block described.
    #[error(
        "at offset {offset}: the packet is from interface {interface}, \
         but only {count} were described before it"
    )]
    UnknownInterface {
        /// Where.
        offset: u64,
        /// The interface named.
        interface: u32,
        /// Interfaces described so far.
        count: u32,
    },
}
