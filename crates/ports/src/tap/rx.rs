//! Reception of frames from the host's stack: one `readv` per frame, into the frame's own buffers.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{Errno, readv};
use towpath_engine::port::{Rx, Wake};
use towpath_xdp::frame::{BUFFER_BYTES, ETH_HLEN, FRAGS_MAX, LINEAR_BYTES_MAX, OwnFrameMut};
use towpath_xdp::{Frame, Pool};

use crate::vnet;

pub(super) struct Queue {
    fd: Arc<OwnedFd>,
    /// Buffers for the next frame while it is received: one for its linear part, the rest for
    /// frags, as it may be long. They are not kept, because a thousand taps would hold all memory.
    buffers: Vec<Frame>,
    /// Number of frames with an inconsistent header.
    malformed: u64,
}

impl Queue {
    pub(super) fn new(fd: &Arc<OwnedFd>) -> Queue {
        Queue { fd: Arc::clone(fd), buffers: Vec::with_capacity(1 + FRAGS_MAX), malformed: 0 }
    }

    /// Reads the next frame into the buffers; returns its length and its header.
    fn read(&mut self) -> Result<(usize, [u8; vnet::BYTES_WITH_BUFFERS]), Errno> {
        let mut header = [0; vnet::BYTES_WITH_BUFFERS];
        let mut slices: [IoSliceMut<'_>; 2 + FRAGS_MAX] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        slices[0] = IoSliceMut::new(&mut header);
        if let Some((linear, frags)) = self.buffers.split_first_mut() {
            let frags = frags.iter_mut().map(|frag| Some(frag.own_mut()?.buffer()));
            let rooms = std::iter::once(linear.own_mut().map(OwnFrameMut::room)).chain(frags);
            for (slice, room) in slices[1..].iter_mut().zip(rooms) {
                *slice = IoSliceMut::new(room.ok_or(Errno::FAULT)?);
            }
        }
        let bytes = readv(&*self.fd, &mut slices)?;
        Ok((bytes.saturating_sub(header.len()), header))
    }

    /// The frame of `len` bytes that is in the buffers; unused buffers stay.
    fn take(&mut self, len: usize) -> Option<Frame> {
        let linear = len.min(LINEAR_BYTES_MAX);
        let frags = (len - linear).div_ceil(BUFFER_BYTES);
        let mut left = len - linear;
        let mut used = self.buffers.drain(..1 + frags);
        let mut frame = used.next()?;
        frame.set_linear(linear);
        for frag in used {
            let part = left.min(BUFFER_BYTES);
            left -= part;
            frame.append_buffer(frag, part).ok()?;
        }
        Some(frame)
    }

    /// Reads one frame; `None` if there is none.
    fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            let (len, header) = match self.read() {
                Ok(read) => read,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(gone(errno)),
            };
            let (known, _buffers) = header.split_first_chunk().unwrap_or((&[0; vnet::BYTES], &[]));
            if len < ETH_HLEN {
                self.malformed += 1;
                continue;
            }
            match vnet::parse(known, len) {
                Ok(offload) => {
                    let mut frame = self.take(len);
                    if let Some(frame) = &mut frame {
                        frame.set_offload(offload);
                        frame.set_rx_metadata(&vnet::rx_metadata(known));
                    }
                    return Ok(frame);
                }
                Err(_malformed) => self.malformed += 1,
            }
        }
    }

    fn receive_some(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let mut count = 0;
        while count < limit {
            let missing = 1 + FRAGS_MAX - self.buffers.len();
            if pool.take_many(missing, &mut self.buffers) < missing {
                // The frame stays in the tap until there is memory again.
                break;
            }
            match self.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                // Received frames are returned first; the error will occur again.
                Err(_later) if count > 0 => break,
                Err(error) => return Err(error),
            }
            count += 1;
        }
        Ok(count)
    }
}

impl Rx for Queue {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let count = self.receive_some(pool, frames, limit);
        pool.give_all(&mut self.buffers);
        count
    }

    fn arm(&mut self) -> Wake<'_> {
        Wake::Readable(self.fd.as_fd())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.malformed)
    }
}

/// Explains an error of a tap's queue.
fn gone(errno: Errno) -> io::Error {
    match errno {
        Errno::BADFD => io::Error::new(io::ErrorKind::NotConnected, "the interface was deleted"),
        errno => errno.into(),
    }
}
