//! Reception from the ring: packets are copied into frames, so that blocks are returned at once.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::time::ClockId;
use towpath_engine::port::{Rx, Wake};
use towpath_xdp::frame::ETH_HLEN;
use towpath_xdp::frame::rx_metadata::RxMetadata;
use towpath_xdp::{Frame, FrameError, Pool, now_ns, tai_now};

use super::ring_unsafe::{Received, Ring, Stamp};
use crate::host::Interface;
use crate::vnet;

pub(super) struct Queue {
    ring: Ring,
    interface: Arc<Interface>,
    index: u32,
    /// Number of truncated frames, and frames with an inconsistent header.
    malformed: u64,
    /// Empty polls since the last check of the interface.
    idle: u32,
    /// Nanoseconds by which `CLOCK_TAI` is ahead of `CLOCK_REALTIME`.
    tai_ahead_ns: u64,
}

impl Queue {
    pub(super) fn new(ring: Ring, interface: &Arc<Interface>, index: u32) -> Queue {
        Queue {
            ring,
            interface: Arc::clone(interface),
            index,
            malformed: 0,
            idle: 0,
            tai_ahead_ns: tai_ahead(),
        }
    }

    /// Fails if the interface is gone. If it is only down, nothing arrives.
    #[cold]
    fn check(&mut self) -> io::Result<()> {
        self.idle = 0;
        if self.ring.socket().take_error()?.is_none() {
            return Ok(());
        }
        match self.interface.index() {
            Ok(index) if index == self.index => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::NotConnected, "the interface was deleted")),
        }
    }
}

impl Rx for Queue {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let mut count = 0;
        while count < limit {
            let Some(received) = self.ring.peek()? else { break };
            match frame_of(&received, pool, self.tai_ahead_ns) {
                Ok(Some(frame)) => {
                    frames.push(frame);
                    count += 1;
                }
                // The packet stays in the ring until there is memory again.
                Ok(None) => break,
                Err(Malformed) => self.malformed += 1,
            }
            self.ring.advance();
        }
        if count == 0 {
            self.idle += 1;
            if self.idle >= IDLE_POLLS {
                self.check()?;
            }
        }
        Ok(count)
    }

    fn arm(&mut self) -> Wake<'_> {
        // The sleep may be ended by an error, so the next poll checks for one.
        self.idle = IDLE_POLLS;
        Wake::Readable(self.ring.socket().as_fd())
    }

    fn take_missed(&mut self) -> u64 {
        let drops = self.ring.socket().take_drops().unwrap_or(0);
        std::mem::take(&mut self.malformed) + drops
    }
}

/// A packet that cannot become a frame.
struct Malformed;

/// Copies a packet; `None` for lack of memory.
fn frame_of(
    received: &Received<'_>,
    pool: &mut Pool,
    tai_ahead_ns: u64,
) -> Result<Option<Frame>, Malformed> {
    let bytes = received.bytes;
    if bytes.len() < received.len || bytes.len() < ETH_HLEN {
        return Err(Malformed);
    }
    let offload = vnet::parse(received.header, bytes.len()).map_err(|_why| Malformed)?;
    let too_long = |_: FrameError| Malformed;
    let Some(mut frame) = pool.frame(bytes).map_err(too_long)? else { return Ok(None) };
    frame.set_offload(offload);
    let timestamp_ns = Some(match received.stamp {
        Stamp::Device(ns) => ns,
        Stamp::Kernel(ns) => ns + tai_ahead_ns,
    });
    frame.set_rx_metadata(&RxMetadata { timestamp_ns, ..vnet::rx_metadata(received.header) });
    if let Some(tag) = received.tag {
        frame.adjust_head(-TAG_BYTES).map_err(|_no_room| Malformed)?;
        put_tag(&mut frame, tag);
    }
    Ok(Some(frame))
}

/// Nanoseconds by which `CLOCK_TAI` is ahead of `CLOCK_REALTIME`: whole seconds, or 0 if the
/// kernel's offset is not set.
fn tai_ahead() -> u64 {
    let ahead = tai_now().saturating_sub(now_ns(ClockId::Realtime));
    (ahead + 500_000_000) / 1_000_000_000 * 1_000_000_000
}

/// Inserts a VLAN tag behind the addresses of a frame that has headroom for it.
fn put_tag(frame: &mut Frame, [protocol, value]: [u16; 2]) {
    let mut bytes = frame.shared_linear_mut();
    bytes.by_ref().copy_within(4..16, 0);
    bytes.by_ref().part(12..14).write(&protocol.to_be_bytes());
    bytes.part(14..16).write(&value.to_be_bytes());
}

const TAG_BYTES: i32 = 4;
/// Empty polls between two checks of the interface.
const IDLE_POLLS: u32 = 4096;
