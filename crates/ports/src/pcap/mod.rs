//! `pcap`: replays a capture, and writes frames sent to it into another.

mod rx;
mod tx;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use towpath_capture::Reader;
use towpath_engine::port::{Device, Features, Rx, RxHints, Tx};
use towpath_xdp::Arena;

use crate::stream::{self, Opened};

pub(crate) use tx::{Capture, End, now_ns};

/// A port that replays and writes captures.
#[derive(Debug)]
pub struct Pcap {
    options: Options,
    output: Option<Arc<Capture>>,
}

/// Captures to replay and to write.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Capture to replay (pcap or pcapng, Ethernet); `-` is standard input.
    pub input: Option<PathBuf>,
    /// Capture to write (pcapng); replaced if it exists. `-` is standard output.
    pub output: Option<PathBuf>,
    /// When frames are replayed.
    pub timing: Timing,
    /// Starts again at the end.
    pub repeat: bool,
}

/// When frames are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timing {
    /// With the pauses of the capture.
    #[default]
    Original,
    /// At this number of frames per second.
    #[serde(skip)]
    Rate(u64),
    /// As fast as they are taken.
    Unlimited,
}

impl Pcap {
    /// Opens both captures. They may be FIFOs: packets written to the input while the port runs
    /// arrive.
    pub fn new(options: Options) -> io::Result<Pcap> {
        if let Some(path) = &options.input {
            check(path, options.repeat)?;
        }
        let output = match &options.output {
            Some(path) => Some(Arc::new(Capture::create(path)?)),
            None => None,
        };
        Ok(Pcap { options, output })
    }

    /// The capture to write, and its name.
    fn written(&self) -> Option<(std::path::Display<'_>, &Capture)> {
        Some((self.options.output.as_ref()?.display(), self.output.as_deref()?))
    }
}

impl Device for Pcap {
    fn kind(&self) -> &'static str {
        "pcap"
    }

    fn queues(&self) -> u32 {
        u32::from(self.options.input.is_some())
    }

    fn features(&self) -> Features {
        // Captured frames must look as on a wire.
        Features {
            rx_frags: true,
            tx_frags: true,
            zero_copy: true,
            rx_hints: RxHints { timestamp: true, ..RxHints::default() },
            ..Features::default()
        }
    }

    /// The largest frame that a capture may hold.
    fn mtu(&self) -> u32 {
        65535
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        let path = self.options.input.clone().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "there is no capture to replay")
        })?;
        Ok(Box::new(rx::Replay::new(path, self.options.timing, self.options.repeat)?))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(tx::Writer::new(self.output.clone())))
    }

    fn failures(&self) -> Vec<String> {
        let Some((path, capture)) = self.written() else { return Vec::new() };
        capture.end.failure(&format!("out {path}")).into_iter().collect()
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let input = self.options.input.as_ref().map(|path| ("in", path.display().to_string()));
        let written = self.written();
        let output = written.map(|(path, capture)| ("out", format!("{path}{}", capture.end)));
        input.into_iter().chain(output).collect()
    }
}

/// Checks early that the input is a capture; each replay opens it again. A stream is not checked,
/// because it can be read only once.
fn check(path: &Path, repeat: bool) -> io::Result<()> {
    if stream::is_file(path) {
        return open_file(path).map(drop);
    }
    if repeat {
        let message = format!("{}: only a file can start again at its end", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Opens a capture in a file.
fn open_file(path: &Path) -> io::Result<Reader<BufReader<File>>> {
    match stream::open(path).map_err(|error| named(path, &error))? {
        Opened::File(file) => reader(path, file),
        Opened::Stream(_) => {
            Err(named(path, &io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")))
        }
    }
}

fn reader(path: &Path, file: File) -> io::Result<Reader<BufReader<File>>> {
    let input = BufReader::with_capacity(1 << 18, file);
    Reader::new(input).map_err(|error| wrong(path, &error))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn wrong(path: &Path, error: &towpath_capture::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
}
