//! Sending to the host's stack: one `writev` a frame, with what is left to do to it in front.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::{Errno, writev};
use towpath_engine::port::Tx;
use towpath_xdp::frame::FRAGS_MAX;
use towpath_xdp::{Frame, Pool};

use crate::vnet;

pub(super) struct Transmitter {
    fd: Arc<OwnedFd>,
    /// Frames the kernel has copied.
    sent: Vec<Frame>,
}

impl Transmitter {
    pub(super) fn new(fd: &Arc<OwnedFd>) -> Transmitter {
        Transmitter { fd: Arc::clone(fd), sent: Vec::new() }
    }

    fn write(&self, frame: &Frame) -> Result<(), Errno> {
        let mut header = [0; vnet::BYTES_WITH_BUFFERS];
        if let Some(offload) = frame.offload() {
            header[..vnet::BYTES].copy_from_slice(&vnet::emit(Some(&offload), frame.len()));
        }
        let mut slices = [IoSlice::new(&[]); 2 + FRAGS_MAX];
        slices[0] = IoSlice::new(&header);
        let mut count = 1;
        for (slice, piece) in slices[1..].iter_mut().zip(frame.pieces()) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        writev(&*self.fd, &slices[..count]).map(drop)
    }
}

impl Tx for Transmitter {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let mut sent = 0;
        let result = loop {
            let Some(frame) = frames.get(sent) else { break Ok(()) };
            match self.write(frame) {
                Ok(()) => sent += 1,
                Err(Errno::INTR) => {}
                // It is full: what is left is dropped.
                Err(Errno::AGAIN) => break Ok(()),
                // Deleted, set down, or a frame that the kernel does not believe.
                Err(errno) => break Err(errno.into()),
            }
        };
        self.sent.extend(frames.drain(..sent));
        pool.give_all(&mut self.sent);
        result
    }
}
