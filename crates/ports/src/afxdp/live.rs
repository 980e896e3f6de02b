//! Sends bursts as live frames, where that is faster than the socket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_kernel::LiveFrames;
use towpath_xdp::{Frame, Pool};

use super::Counters;
use crate::host::{Interface, XdpFeatures};

/// The egress path of an interface that needs no socket buffers, shared by all its transmitters.
#[derive(Debug)]
pub(super) struct WayOut {
    frames: Arc<LiveFrames>,
    features: XdpFeatures,
    interface: Interface,
}

impl WayOut {
    /// May be called only by threads in the interface's namespace. `None` if the kernel does not
    /// support live frames.
    pub(super) fn new(frames: Option<&Arc<LiveFrames>>, name: &str, index: u32) -> Option<WayOut> {
        let frames = Arc::clone(frames?);
        let features = XdpFeatures::new(index).ok()?;
        Some(WayOut { frames, features, interface: Interface::new(name).ok()? })
    }

    /// Whether the interface takes frames this way now. An interface that is down would lose them
    /// silently; the socket reports that.
    pub(super) fn is_open(&self) -> bool {
        let is_up = self.interface.flags().is_ok_and(|flags| flags & libc::IFF_UP != 0);
        is_up && self.features.has_ndo_xmit()
    }
}

/// State of one transmitter.
pub(super) struct LiveSender {
    way: Arc<WayOut>,
    /// Frames accepted and not copied yet.
    held: Vec<Frame>,
    is_open: bool,
    looked: Option<Instant>,
}

impl LiveSender {
    pub(super) fn new(way: &Arc<WayOut>) -> LiveSender {
        let held = Vec::with_capacity(HELD_MAX);
        LiveSender { way: Arc::clone(way), held, is_open: false, looked: None }
    }

    /// Takes a burst, if this path is faster for it. `is_idle` tells whether the socket has sent
    /// everything, so that no frame is overtaken.
    #[inline]
    pub(super) fn accept(
        &mut self,
        frames: &mut Vec<Frame>,
        is_idle: impl FnOnce() -> bool,
    ) -> bool {
        let is_burst = !self.held.is_empty() || frames.len() >= BURST_MIN;
        if !is_burst || !frames.iter().all(fits) || !self.is_open() || !is_idle() {
            return false;
        }
        self.held.append(frames);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Frames it has accepted and not sent.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether [`HELD_MAX`] frames are held, so that waiting for more is of no use.
    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= HELD_MAX
    }

    /// Sends the held frames. Frames that the kernel refuses stay.
    pub(super) fn send(&mut self, pool: &mut Pool, counters: &Counters) {
        let mut start = 0;
        while start < self.held.len() {
            let packets = self.held[start..].iter().map_while(|frame| Some(frame.own()?.linear()));
            match self.way.frames.send(packets.take(LiveFrames::PACKETS_MAX)) {
                Ok(sent) if sent.taken > 0 => {
                    start += sent.taken;
                    counters.refused.add(u64::from(sent.refused));
                    if sent.refused > 0 {
                        self.looked = None;
                    }
                }
                _ => break,
            }
        }
        if start == self.held.len() {
            pool.give_all(&mut self.held);
        } else {
            self.held.drain(..start).for_each(|frame| pool.give(frame));
        }
    }

    /// Closes this path; returns the held frames, for the socket to send.
    #[cold]
    pub(super) fn close(&mut self) -> Vec<Frame> {
        self.is_open = false;
        self.looked = Some(Instant::now());
        std::mem::take(&mut self.held)
    }

    #[inline]
    fn is_open(&mut self) -> bool {
        let now = Instant::now();
        if self.looked.is_none_or(|last| now.duration_since(last) > LOOK_PERIOD) {
            self.looked = Some(now);
            self.is_open = self.way.is_open();
        }
        self.is_open
    }
}

#[inline]
fn fits(frame: &Frame) -> bool {
    let bytes = LiveFrames::PACKET_BYTES_MIN..=LiveFrames::PACKET_BYTES_MAX;
    frame.is_plain() && frame.own().is_some_and(|own| bytes.contains(&own.linear().len()))
}

/// Fewest frames for which this path is faster than the socket.
const BURST_MIN: usize = 16;
/// Most frames held; more do not lower the cost per frame.
const HELD_MAX: usize = LiveFrames::PACKETS_MAX;
const _: () = assert!(BURST_MIN <= HELD_MAX);
/// Interval at which the interface is asked whether it still takes frames. Frames sent before a
/// change is noticed are lost, and counted as refused.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
