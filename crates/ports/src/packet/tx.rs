//! Sending a burst with one system call.

use std::io;

use towpath_engine::port::Tx;
use towpath_xdp::{Frame, Pool};

use super::batch_unsafe::Batch;
use super::socket_unsafe::Socket;

pub(super) struct Transmitter {
    socket: Socket,
    batch: Batch,
    /// Frames the kernel has copied.
    sent: Vec<Frame>,
}

impl Transmitter {
    pub(super) fn new(socket: Socket) -> Transmitter {
        Transmitter { socket, batch: Batch::default(), sent: Vec::new() }
    }
}

impl Tx for Transmitter {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let mut sent = 0;
        let result = loop {
            if sent == frames.len() {
                break Ok(());
            }
            match self.batch.send(&self.socket, &frames[sent..]) {
                Ok(count) => sent += count,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // The driver or the socket is full: what is left is dropped.
                    Some(libc::EAGAIN | libc::ENOBUFS) => break Ok(()),
                    // The interface is down or gone, or does not take this frame.
                    _ => break Err(error),
                },
            }
        };
        self.sent.extend(frames.drain(..sent));
        pool.give_all(&mut self.sent);
        result
    }
}
