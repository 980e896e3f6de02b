//! Transmission to the host's stack: one `writev` per frame, with its offload work in the header. A
//! VLAN tag that was stripped, and is kept as a hint, is inserted again, because the stack has no
//! other way to get it.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, writev};
use towpath_engine::port::Tx;
use towpath_xdp::frame::FRAGS_MAX;
use towpath_xdp::frame::rx_metadata::VlanTag;
use towpath_xdp::{Frame, Pool};

use crate::vnet;

pub(super) struct Transmitter {
    fd: Arc<OwnedFd>,
    /// Frames the kernel has copied.
    sent: Vec<Frame>,
    /// The last write found no room.
    is_full: bool,
}

impl Transmitter {
    pub(super) fn new(fd: &Arc<OwnedFd>) -> Transmitter {
        Transmitter { fd: Arc::clone(fd), sent: Vec::new(), is_full: false }
    }

    fn write(&self, frame: &Frame) -> Result<(), Errno> {
        let mut header = [0; vnet::BYTES_WITH_BUFFERS];
        if let Some(offload) = frame.offload() {
            header[..vnet::BYTES].copy_from_slice(&vnet::emit(Some(&offload), frame.len()));
        }
        let known = frame.rx_metadata();
        if let Some(known) = known {
            vnet::mark_valid(&mut header, known.checksum);
        }
        let tag = known.and_then(|known| known.vlan).map(tag_bytes);
        if tag.is_some() {
            vnet::move_checksum(&mut header, TAG_BYTES as u16);
        }
        let mut slices = [IoSlice::new(&[]); 4 + FRAGS_MAX];
        slices[0] = IoSlice::new(&header);
        let mut count = 1;
        let copy;
        let pieces: ArrayVec<&[u8], { 1 + FRAGS_MAX }> = match frame.own() {
            Some(own) => own.pieces().collect(),
            None => {
                copy = frame.to_vec();
                std::iter::once(&*copy).collect()
            }
        };
        for piece in &pieces {
            let (addresses, rest) = piece.split_at(if count == 1 { ADDRESSES_BYTES } else { 0 });
            if let Some(tag) = tag.as_ref().filter(|_| count == 1) {
                slices[1..4].copy_from_slice(&[addresses, tag, rest].map(IoSlice::new));
                count += 3;
            } else {
                slices[count] = IoSlice::new(piece);
                count += 1;
            }
        }
        writev(&*self.fd, &slices[..count]).map(drop)
    }
}

/// The bytes of a VLAN tag in a packet.
fn tag_bytes(VlanTag { protocol, tci }: VlanTag) -> [u8; TAG_BYTES] {
    let ([a, b], [c, d]) = (protocol.to_be_bytes(), tci.to_be_bytes());
    [a, b, c, d]
}

/// Bytes of the addresses, which the tag follows.
const ADDRESSES_BYTES: usize = 12;
const TAG_BYTES: usize = 4;

impl Tx for Transmitter {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let mut sent = 0;
        self.is_full = false;
        let result = loop {
            let Some(frame) = frames.get(sent) else { break Ok(()) };
            match self.write(frame) {
                Ok(()) => sent += 1,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.is_full = true;
                    break Ok(());
                }
                // The interface was deleted or is down, or the kernel rejects the frame.
                Err(errno) => break Err(errno.into()),
            }
        };
        self.sent.extend(frames.drain(..sent));
        pool.give_all(&mut self.sent);
        result
    }

    /// The kernel's stack accepts every frame, and counts its drops. Only a reduced send buffer
    /// (`TUNSETSNDBUF`) refuses frames, until it is writable again.
    fn credit(&mut self) -> usize {
        if self.is_full {
            let mut fds = [PollFd::new(&*self.fd, PollFlags::OUT)];
            let ready = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
            self.is_full = ready == Ok(0);
        }
        if self.is_full { 0 } else { usize::MAX }
    }
}
