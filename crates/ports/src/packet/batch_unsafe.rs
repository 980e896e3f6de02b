//! `sendmmsg(2)`: many frames of many pieces in one call, without an allocation.

#![expect(unsafe_code, reason = "the kernel gets addresses of what is to be sent")]

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd as _, AsRawFd as _};

use towpath_xdp::Frame;

use super::socket_unsafe::Socket;
use crate::vnet;

/// Memory for the lists that the kernel reads, reused for every burst.
#[derive(Default)]
pub(super) struct Batch {
    headers: Vec<[u8; vnet::BYTES]>,
    pieces: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

impl Batch {
    /// Sends frames from the front, each behind its header; returns the number sent, at least 1. An
    /// error concerns the first frame.
    pub(super) fn send(&mut self, socket: &Socket, frames: &[Frame]) -> io::Result<usize> {
        self.describe(frames);
        let count = self.messages.len() as u32;
        let (socket, messages) = (socket.as_fd().as_raw_fd(), self.messages.as_mut_ptr());
        // SAFETY: the messages point to pieces, and the pieces to headers and frames, all of which
        // live and stay where they are until the call returns; the kernel only reads them.
        let sent = unsafe { libc::sendmmsg(socket, messages, count, libc::MSG_DONTWAIT) };
        usize::try_from(sent).map_err(|_negative| io::Error::last_os_error())
    }

    fn describe(&mut self, frames: &[Frame]) {
        self.headers.clear();
        self.pieces.clear();
        self.messages.clear();
        self.headers.extend(frames.iter().map(|frame| match frame.offload() {
            None => [0; vnet::BYTES],
            Some(offload) => vnet::emit(Some(&offload), frame.len()),
        }));
        for (frame, header) in frames.iter().zip(&self.headers) {
            let before = self.pieces.len();
            self.pieces.push(piece(header.as_ptr(), header.len()));
            let pieces = frame.shared_pieces();
            self.pieces.extend(pieces.map(|bytes| piece(bytes.as_ptr(), bytes.len())));
            // SAFETY: all zeros is an `mmsghdr`.
            let mut message: libc::mmsghdr = unsafe { zeroed() };
            message.msg_hdr.msg_iovlen = self.pieces.len() - before;
            self.messages.push(message);
        }
        // From here on the list of pieces does not move any more.
        let mut first = self.pieces.as_mut_ptr();
        for message in &mut self.messages {
            message.msg_hdr.msg_iov = first;
            first = first.wrapping_add(message.msg_hdr.msg_iovlen);
        }
    }
}

fn piece(base: *const u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: base.cast_mut().cast(), iov_len: len }
}

// SAFETY: the addresses in the lists are used only inside of `send`, which writes them first.
unsafe impl Send for Batch {}
