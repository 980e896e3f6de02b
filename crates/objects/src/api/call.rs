//! A command with its attribute, made from Rust values.

use towpath_bpf::program::AttachType;

use super::{ApiError, Session};
use crate::attr::ATTR_BYTES;
use crate::command::Command;
use crate::object::program::{ATTACH_XDP, ATTACH_XDP_CPUMAP, ATTACH_XDP_DEVMAP};

/// A command and its attribute.
pub(super) struct Request<'a> {
    command: Command,
    attr: [u8; ATTR_BYTES],
    args: Vec<(usize, Arg<'a>)>,
}

/// What a pointer in the attribute leads to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arg<'a> {
    Null,
    In(&'a [u8]),
    /// Room for so many bytes.
    Out(usize),
}

/// What came back.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) number: u32,
    /// The contents of each [`Arg::Out`].
    pub(super) outputs: Vec<Vec<u8>>,
    /// The attribute as it is now.
    attr: Vec<u8>,
}

impl Reply {
    /// The contents of the first, or only, [`Arg::Out`].
    pub(super) fn output(self) -> Vec<u8> {
        self.outputs.into_iter().next().unwrap_or_default()
    }

    /// The 32-bit field of the attribute at an offset.
    pub(super) fn answer(&self, at: usize) -> u32 {
        let bytes = self.attr.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }
}

impl<'a> Request<'a> {
    pub(super) fn new(command: Command) -> Request<'a> {
        Request { command, attr: [0; ATTR_BYTES], args: Vec::new() }
    }

    pub(super) fn number(self, at: usize, number: u32) -> Self {
        self.bytes(at, &number.to_ne_bytes())
    }

    pub(super) fn long(self, at: usize, number: u64) -> Self {
        self.bytes(at, &number.to_ne_bytes())
    }

    pub(super) fn bytes(mut self, at: usize, bytes: &[u8]) -> Self {
        self.attr[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(super) fn arg(mut self, at: usize, arg: Arg<'a>) -> Self {
        self.args.push((at, arg));
        self
    }
}

impl Session {
    /// Makes a call in the session's own memory.
    pub(super) fn call(
        &mut self,
        what: &'static str,
        request: Request<'_>,
    ) -> Result<Reply, ApiError> {
        let Request { command, mut attr, args } = request;
        let mut places = Vec::new();
        for (at, arg) in args {
            let address = match arg {
                Arg::Null => 0,
                Arg::In([]) => 0,
                Arg::In(bytes) => self.process.map_bytes(bytes),
                Arg::Out(len) => {
                    let address = self.process.map_bytes(&vec![0; len]);
                    places.push((address, len));
                    address
                }
            };
            attr[at..at + 8].copy_from_slice(&address.to_ne_bytes());
        }
        let address = self.process.map_bytes(&attr);
        let size = ATTR_BYTES as u32;
        let result = self.objects.bpf(&mut self.process, command as u32, address, size);
        places.push((address, ATTR_BYTES));
        let bytes = |&(at, len)| self.process.bytes(at).and_then(|bytes| bytes.get(..len));
        let read = places.iter().map(|place| bytes(place).unwrap_or_default().to_vec());
        let mut outputs: Vec<Vec<u8>> = read.collect();
        let attr = outputs.pop().unwrap_or_default();
        self.process.unmap();
        match result {
            Ok(number) => Ok(Reply { number, outputs, attr }),
            Err(errno) => Err(ApiError::Refused { what, errno }),
        }
    }
}

/// `expected_attach_type`
pub(super) fn attach_number(attach: AttachType) -> u32 {
    match attach {
        AttachType::Xdp => ATTACH_XDP,
        AttachType::Devmap => ATTACH_XDP_DEVMAP,
        AttachType::Cpumap => ATTACH_XDP_CPUMAP,
    }
}
