//! Writes sent frames into a capture. A file is written on the worker's thread: a slow disk slows
//! the worker, a full one is an error of the port. A stream that is read too slowly loses frames.

use std::fmt;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use towpath_capture::pcapng::{Direction, Section, Writer as Pcapng};
use towpath_capture::{Error, Interface, Packet, PacketOptions};
use towpath_engine::port::Tx;
use towpath_xdp::frame::BUFFER_BYTES;
use towpath_xdp::{Frame, Pool};

use crate::stream::writer::Outlet;

/// A capture that all workers write to, until writing fails.
#[derive(Debug)]
pub(crate) struct Capture {
    output: Mutex<Output>,
    pub(crate) end: End,
}

/// The end of a recording and its reason: the disk is full, the file is too large, or its reader is
/// gone.
#[derive(Debug, Default)]
pub(crate) struct End {
    why: OnceLock<String>,
    /// Frames that were not written.
    lost: AtomicU64,
}

impl Capture {
    pub(crate) fn create(path: &Path) -> io::Result<Capture> {
        Ok(Capture { output: Mutex::new(Output::create(path)?), end: End::default() })
    }

    /// Appends frames with the present time; returns the number written. The others find no room
    /// now, or the recording has ended.
    pub(crate) fn write_all(&self, frames: &[Frame], direction: Direction) -> usize {
        if frames.is_empty() || self.end.why().is_some() {
            return 0;
        }
        let mut output = self.output.lock();
        let (written, result) = output.write_all(frames, direction);
        match result {
            Ok(()) => {}
            Err(Error::Io { source, .. }) => self.end.come(&source),
            Err(error) => self.end.come(&error),
        }
        written
    }

    /// Number of single-buffer frames that the capture takes now. After its end it takes all, to
    /// report the error.
    fn credit(&self) -> usize {
        let mut output = self.output.lock();
        match output.room() {
            Ok(room) if room < usize::MAX => room.div_ceil(RECORD_BYTES_MAX),
            _ => usize::MAX,
        }
    }

    /// Flushes written data to the file, so that a reader finds it.
    fn flush(&self) {
        let mut output = self.output.lock();
        if let Err(error) = output.writer.output_mut().flush() {
            self.end.come(&error);
        }
    }
}

impl End {
    pub(crate) fn come(&self, error: &dyn std::error::Error) {
        self.why.get_or_init(|| error.to_string());
    }

    /// The reason, if the recording has ended.
    pub(crate) fn why(&self) -> Option<&str> {
        self.why.get().map(String::as_str)
    }

    /// Counts frames that are not written.
    pub(crate) fn lose(&self, frames: usize) {
        self.lost.fetch_add(frames as u64, Ordering::Relaxed);
    }

    /// Why recording to `of` stopped, if it did.
    pub(crate) fn failure(&self, of: &str) -> Option<String> {
        self.why.get().map(|why| format!("{of} ended: {why}"))
    }
}

/// The text after the name of the file.
impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = self.why.get() {
            write!(f, ", ended: {why}")?;
        }
        match self.lost.load(Ordering::Relaxed) {
            0 => Ok(()),
            lost => write!(f, ", {lost} frames not written"),
        }
    }
}

/// The output file.
struct Output {
    writer: Pcapng<BufWriter<Outlet>>,
    /// Ids of the file's interfaces, by ingress ifindex.
    interfaces: Vec<(u32, u32)>,
    buffer: Vec<u8>,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

impl Output {
    fn create(path: &Path) -> io::Result<Output> {
        let outlet = Outlet::create(path).map_err(|error| super::named(path, &error))?;
        let section = Section {
            application: concat!("towpath ", env!("CARGO_PKG_VERSION")).to_owned(),
            ..Section::default()
        };
        let writer = Pcapng::new(BufWriter::with_capacity(1 << 18, outlet), &section);
        let mut writer = writer.map_err(|error| io::Error::other(error.to_string()))?;
        writer.output_mut().flush()?;
        Ok(Output { writer, interfaces: Vec::new(), buffer: Vec::new() })
    }

    /// Appends frames with the present time; returns the number written, and the error. Fewer
    /// frames without an error mean that there is no room now.
    fn write_all(&mut self, frames: &[Frame], direction: Direction) -> (usize, Result<(), Error>) {
        let now = now_ns();
        let mut written = 0;
        for frame in frames {
            match self.room() {
                Ok(0) => break,
                Ok(_) => {}
                Err(source) => return (written, Err(Error::Io { offset: 0, source })),
            }
            if let Err(error) = self.write(frame, now, direction) {
                return (written, Err(error));
            }
            written += 1;
        }
        let output = self.writer.output_mut();
        if output.get_ref().is_live() {
            // An error is reported with the next frame.
            let _later = output.flush();
        }
        (written, Ok(()))
    }

    fn room(&mut self) -> io::Result<usize> {
        self.writer.output_mut().get_ref().room()
    }

    fn write(
        &mut self,
        frame: &Frame,
        timestamp_ns: u64,
        direction: Direction,
    ) -> Result<(), Error> {
        let ifindex = frame.rx.ifindex;
        let known = self.interfaces.iter().find(|(known, _)| *known == ifindex);
        let interface = match known {
            Some((_, interface)) => *interface,
            None => {
                let name = format!("if{ifindex}");
                let interface = self.writer.add_interface(&Interface::ethernet(&name))?;
                self.interfaces.push((ifindex, interface));
                interface
            }
        };
        self.buffer.clear();
        frame.shared_pieces().for_each(|piece| piece.append_to(&mut self.buffer));
        self.writer.write(&Packet {
            data: &self.buffer,
            original_len: self.buffer.len() as u32,
            timestamp_ns,
            interface,
            link_type: towpath_capture::LINK_TYPE_ETHERNET,
            options: PacketOptions {
                flags: Some(direction as u32),
                queue: Some(frame.rx.queue_index),
                ..PacketOptions::default()
            },
        })
    }
}

/// Most bytes that a single-buffer frame takes in a file: the buffer, the block around it, its
/// options.
const RECORD_BYTES_MAX: usize = BUFFER_BYTES + 256;

/// The time, in nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

pub(super) struct Writer {
    capture: Option<Arc<Capture>>,
    /// Written data may not be in the file yet.
    is_dirty: bool,
}

impl Writer {
    pub(super) fn new(capture: Option<Arc<Capture>>) -> Writer {
        Writer { capture, is_dirty: false }
    }
}

impl Tx for Writer {
    /// Without a capture to write, frames are accepted and discarded.
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let Some(capture) = &self.capture else {
            pool.give_all(frames);
            return Ok(());
        };
        let written = capture.write_all(frames, Direction::Outbound);
        self.is_dirty |= written > 0;
        frames.drain(..written).for_each(|frame| pool.give(frame));
        match capture.end.why() {
            Some(why) if !frames.is_empty() => {
                // This concerns the first frame; the rest is tried again.
                capture.end.lose(1);
                Err(io::Error::other(why.to_owned()))
            }
            _ => {
                capture.end.lose(frames.len());
                Ok(())
            }
        }
    }

    fn credit(&mut self) -> usize {
        self.capture.as_ref().map_or(usize::MAX, |capture| capture.credit())
    }

    /// Flushes the capture when the worker is idle, so that readers find all frames.
    fn reap(&mut self, _pool: &mut Pool) -> bool {
        if let Some(capture) = self.capture.as_ref().filter(|_| self.is_dirty) {
            capture.flush();
            self.is_dirty = false;
        }
        false
    }
}
