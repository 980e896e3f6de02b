//! The capture that surviving frames are written to, each with its verdict.
//!
//! Every interface of the input becomes one of the output, and so does every redirect target, so
//! that Wireshark can tell them apart; verdict, queue and frame number are packet options, as
//! `xdpdump` writes them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use towpath_capture::pcapng::{Direction, Section, Writer};
use towpath_capture::{Interface, Packet, PacketOptions};
use towpath_xdp::Action;

use super::burst::Judged;
use crate::error::CliError;

/// A capture being written.
#[derive(Debug)]
pub(super) struct Sink {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    /// Output interface by input interface.
    inputs: HashMap<u32, u32>,
    /// Output interface by redirect target.
    targets: HashMap<String, u32>,
    /// A frame as one contiguous piece; reused for every frame.
    buffer: Vec<u8>,
}

impl Sink {
    pub(super) fn create(path: &Path) -> Result<Self, CliError> {
        let file = match path == Path::new("-") {
            true => io::stdout().as_fd().try_clone_to_owned().map(File::from),
            false => File::create(path),
        };
        let file = file.map_err(|source| CliError::File { path: path.to_owned(), source })?;
        let section = Section {
            application: concat!("towpath ", env!("CARGO_PKG_VERSION")).to_owned(),
            ..Section::default()
        };
        let writer = Writer::new(BufWriter::with_capacity(1 << 18, file), &section)
            .map_err(|source| CliError::Capture { path: path.to_owned(), source })?;
        Ok(Sink {
            path: path.to_owned(),
            writer,
            inputs: HashMap::new(),
            targets: HashMap::new(),
            buffer: Vec::new(),
        })
    }

    /// Writes a frame, if it survived.
    pub(super) fn write(
        &mut self,
        judged: &Judged<'_>,
        inputs: &[Interface],
    ) -> Result<(), CliError> {
        let Judged { frame, origin, verdict } = judged;
        let target = verdict.target.as_ref().map(ToString::to_string);
        let direction = match verdict.action {
            Action::Pass => Direction::Inbound,
            Action::Tx => Direction::Outbound,
            Action::Redirect if target.is_some() => Direction::Outbound,
            // A redirect without a target is dropped by the kernel, too.
            Action::Redirect | Action::Drop | Action::Aborted => return Ok(()),
        };
        let interface = match &target {
            Some(target) => self.target_interface(target, origin.interface, inputs)?,
            None => self.input_interface(origin.interface, inputs)?,
        };
        let comment = target.map(|target| format!("XDP_REDIRECT to {target}"));
        self.buffer.resize(frame.len(), 0);
        // Frames of more than 65535 bytes go beyond the helper's limit, not beyond ours.
        if frame.frag_count() == 0 {
            frame.shared_linear().read(&mut self.buffer);
        } else {
            self.buffer = frame.to_vec();
        }
        let packet = Packet {
            data: &self.buffer,
            original_len: (self.buffer.len() as u32).saturating_add(origin.missing),
            timestamp_ns: origin.timestamp_ns,
            interface,
            link_type: towpath_capture::LINK_TYPE_ETHERNET,
            options: PacketOptions {
                flags: Some(direction as u32),
                packet_id: Some(origin.number),
                queue: Some(frame.rx.queue_index),
                xdp_verdict: Some(verdict.returned.into()),
                comment: comment.as_deref(),
            },
        };
        self.writer.write(&packet).map_err(|source| self.failed(source))
    }

    /// Writes everything to the file.
    pub(super) fn finish(self) -> Result<(), CliError> {
        let Sink { path, writer, .. } = self;
        writer.finish().map(drop).map_err(|source| CliError::Capture { path, source })
    }

    fn input_interface(&mut self, index: u32, inputs: &[Interface]) -> Result<u32, CliError> {
        if let Some(known) = self.inputs.get(&index) {
            return Ok(*known);
        }
        let input = inputs.get(index as usize);
        let name = input.map(|interface| interface.name.clone()).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| format!("in{index}"));
        let added = self.add(&Interface::ethernet(&name))?;
        self.inputs.insert(index, added);
        Ok(added)
    }

    fn target_interface(
        &mut self,
        target: &str,
        input: u32,
        inputs: &[Interface],
    ) -> Result<u32, CliError> {
        if let Some(known) = self.targets.get(target) {
            return Ok(*known);
        }
        if self.targets.len() >= TARGETS_MAX {
            // The comment still says where the frame goes.
            return self.input_interface(input, inputs);
        }
        let interface =
            Interface { description: "redirect target".to_owned(), ..Interface::ethernet(target) };
        let added = self.add(&interface)?;
        self.targets.insert(target.to_owned(), added);
        Ok(added)
    }

    fn add(&mut self, interface: &Interface) -> Result<u32, CliError> {
        self.writer.add_interface(interface).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: towpath_capture::Error) -> CliError {
        CliError::Capture { path: self.path.clone(), source }
    }
}

/// Redirect targets that become interfaces of their own.
const TARGETS_MAX: usize = 4096;
