//! Transmission of a burst with one system call.

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
    /// Number of frames that fit the empty send buffer; `credit` is the known room now.
    most: usize,
    credit: usize,
}

impl Transmitter {
    pub(super) fn new(socket: Socket) -> Transmitter {
        // If the socket does not report its buffer, there is no limit.
        let most = socket.send_buffer().map_or(usize::MAX, |bytes| bytes.div_ceil(FRAME_COST));
        Transmitter { socket, batch: Batch::default(), sent: Vec::new(), most, credit: most }
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
                    // The driver or the socket is full: the remaining frames are dropped.
                    Some(libc::EAGAIN | libc::ENOBUFS) => {
                        self.credit = 0;
                        break Ok(());
                    }
                    // The interface is down or gone, or does not take this frame.
                    _ => break Err(error),
                },
            }
        };
        self.credit = self.credit.saturating_sub(sent);
        self.sent.extend(frames.drain(..sent));
        pool.give_all(&mut self.sent);
        result
    }

    /// Room in the send buffer. The kernel is not asked while no frame is in flight.
    fn credit(&mut self) -> usize {
        if self.credit < self.most {
            let unsent = self.socket.unsent().unwrap_or(0);
            self.credit = self.most.saturating_sub(unsent.div_ceil(FRAME_COST));
        }
        self.credit
    }
}

/// Most bytes of the send buffer that a single-buffer frame takes (`skb->truesize`): its bytes,
/// headroom and `skb_shared_info` rounded up to a power of two, and the `sk_buff`.
const FRAME_COST: usize = 8192 + 256;
