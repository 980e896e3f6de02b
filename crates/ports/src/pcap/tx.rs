//! Writing what is sent into a capture. A file is written on the worker's thread: a slow disk slows
//! the worker, a full one is an error of the port. A stream that is read too slowly loses frames.

use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use towpath_capture::pcapng::{Direction, Section, Writer as Pcapng};
use towpath_capture::{Error, Interface, Packet, PacketOptions};
use towpath_engine::port::Tx;
use towpath_xdp::{Frame, Pool};

use crate::stream::writer::Outlet;

/// The capture, shared by all workers.
pub(crate) struct Output {
    writer: Pcapng<BufWriter<Outlet>>,
    /// Output interfaces by the ifindex that frames arrived on.
    interfaces: Vec<(u32, u32)>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

impl Output {
    pub(crate) fn create(path: &Path) -> io::Result<Output> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let outlet = Outlet::create(path).map_err(named)?;
        let section = Section {
            application: concat!("towpath ", env!("CARGO_PKG_VERSION")).to_owned(),
            ..Section::default()
        };
        let writer = Pcapng::new(BufWriter::with_capacity(1 << 18, outlet), &section);
        let mut writer = writer.map_err(|error| io::Error::other(error.to_string()))?;
        writer.output_mut().flush()?;
        Ok(Output { writer, interfaces: Vec::new(), buffer: Vec::new() })
    }

    /// Appends frames that pass now; gives how many were written, and why not all: without an error
    /// there is no room for more just now.
    pub(crate) fn write_all(
        &mut self,
        frames: &[Frame],
        direction: Direction,
    ) -> (usize, Result<(), Error>) {
        let now = now_ns();
        let mut written = 0;
        for frame in frames {
            match self.is_full() {
                Ok(false) => {}
                Ok(true) => break,
                Err(source) => return (written, Err(Error::Io { offset: 0, source })),
            }
            if let Err(error) = self.write(frame, now, direction) {
                return (written, Err(error));
            }
            written += 1;
        }
        let output = self.writer.output_mut();
        if output.get_ref().is_live() {
            // An error is told of the next frame.
            let _later = output.flush();
        }
        (written, Ok(()))
    }

    fn is_full(&mut self) -> io::Result<bool> {
        self.writer.output_mut().get_ref().is_full()
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

/// The time, in nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

pub(super) struct Writer {
    output: Option<Arc<Mutex<Output>>>,
}

impl Writer {
    pub(super) fn new(output: Option<Arc<Mutex<Output>>>) -> Writer {
        Writer { output }
    }
}

impl Tx for Writer {
    /// Without a capture to write, frames are taken and forgotten.
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        if let Some(output) = &self.output {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            let (written, result) = output.write_all(frames, Direction::Outbound);
            drop(output);
            frames.drain(..written).for_each(|frame| pool.give(frame));
            return result.map_err(|error| io::Error::other(error.to_string()));
        }
        pool.give_all(frames);
        Ok(())
    }
}
