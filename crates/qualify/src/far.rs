//! The other end of a port's wire.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use towpath_capture::{LINK_TYPE_ETHERNET, Reader};
use towpath_engine::port::{Device, Rx, Tx};
use towpath_ports::vnet;
use towpath_workload::virtio::{Guest, GuestOptions};
use towpath_xdp::frame::rx_metadata::RxMetadata;
use towpath_xdp::{Arena, Pool};

use crate::PATIENCE;
use crate::packets::{self, Packet, is_ours};

/// The peer that sends to a port, and receives from it.
pub enum Far {
    /// Another port.
    Port(Wire),
    /// A guest, which comes when the port is ready for it.
    Guest(PathBuf, Option<Box<Guest>>),
    /// The port has its arriving frames, and writes leaving ones into a capture.
    Capture(PathBuf),
    /// The port brings its own frames, and leaving frames can't be seen.
    Nobody,
}

/// A port at the other end.
pub struct Wire {
    rx: Box<dyn Rx>,
    tx: Box<dyn Tx>,
    pool: Pool,
    /// A device that tags packets of the stack, as a stack does.
    tagging: Option<(Box<dyn Tx>, Box<dyn Device>)>,
    /// A stack would put tags beside packets, and there is none that does.
    lacks_tags: bool,
    _device: Box<dyn Device>,
}

/// A packet that arrived at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    /// The packet, with its offload.
    pub packet: Packet,
    /// The time at which it was seen.
    pub at: Instant,
}

impl Far {
    /// This port at the other end.
    ///
    /// # Errors
    ///
    /// Fails if its queues cannot be opened.
    pub fn port(device: Box<dyn Device>) -> io::Result<Far> {
        let arena = Arena::new(FRAMES)?;
        Far::over(device, &arena)
    }

    fn over(device: Box<dyn Device>, arena: &Arc<Arena>) -> io::Result<Far> {
        let (rx, tx) = (device.open_rx(0, arena)?, device.open_tx(0, arena)?);
        let pool = Pool::new(arena);
        Ok(Far::Port(Wire { rx, tx, pool, tagging: None, lacks_tags: false, _device: device }))
    }

    /// Connects a peer that needs the port's queues to be open; waits until it is seen.
    ///
    /// # Errors
    ///
    /// Fails if the port does not answer.
    pub(crate) fn come(&mut self, is_there: impl Fn() -> bool) -> io::Result<()> {
        let Far::Guest(path, guest) = self else { return Ok(()) };
        let options = GuestOptions {
            size: GUEST_BUFFERS,
            buffer: GUEST_BUFFER_BYTES,
            features: GUEST_FEATURES.iter().fold(0, |all, bit| all | 1 << bit),
            ..GuestOptions::default()
        };
        *guest = Some(Box::new(Guest::connect(path, options)?));
        let start = Instant::now();
        while !is_there() {
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other("the guest's queues do not run"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// From now on packets with a tag are sent without it by this device, which puts the tag on.
    pub(crate) fn tag_by(&mut self, device: Box<dyn Device>) -> io::Result<()> {
        if let Far::Port(wire) = self {
            let tx = device.open_tx(0, wire.pool.arena())?;
            wire.tagging = Some((tx, device));
        }
        Ok(())
    }

    /// Notes that tags are sent only in packets, so that a driver has none to take off.
    pub(crate) fn lack_tags(&mut self) {
        if let Far::Port(wire) = self {
            wire.lacks_tags = true;
        }
    }

    /// Whether [`Far::lack_tags`] was called.
    pub(crate) fn lacks_tags(&self) -> bool {
        matches!(self, Far::Port(wire) if wire.lacks_tags)
    }

    /// Sends a packet; `known` is for ports that pass on metadata.
    pub(crate) fn send(&mut self, packet: &Packet, known: Option<&RxMetadata>) -> io::Result<()> {
        if let Far::Guest(_, Some(guest)) = self {
            return match guest.send(0, &header_of(packet), &packet.bytes) {
                true => Ok(()),
                false => Err(io::Error::other("the guest's queue is full")),
            };
        }
        let Far::Port(wire) = self else { return Ok(()) };
        let (tx, bytes) = match (&mut wire.tagging, packets::untagged(&packet.bytes)) {
            (Some((tx, _)), Some(untagged)) => (tx, untagged),
            _ => (&mut wire.tx, packet.bytes.clone()),
        };
        let frame = wire.pool.frame(&bytes).map_err(io::Error::other)?;
        let mut frame = frame.ok_or(io::ErrorKind::OutOfMemory)?;
        frame.set_offload(packet.offload);
        if let Some(known) = known {
            frame.set_rx_metadata(known);
        }
        let mut frames = vec![frame];
        let sent = tx.transmit(&mut frames, &mut wire.pool);
        let is_full = !frames.is_empty();
        wire.pool.give_all(&mut frames);
        sent?;
        tx.flush(&mut wire.pool)?;
        if is_full { Err(io::Error::other("the other end is full")) } else { Ok(()) }
    }

    /// Whether leaving frames can be seen.
    pub(crate) fn sees(&self) -> bool {
        !matches!(self, Far::Nobody)
    }

    /// Whether frames can be sent to it.
    pub(crate) fn sends(&self) -> bool {
        matches!(self, Far::Port(_) | Far::Guest(..))
    }

    /// Our packets that have arrived, at least `count` unless it takes too long.
    pub(crate) fn receive(&mut self, count: usize, mut poll: impl FnMut()) -> io::Result<Vec<Got>> {
        let start = Instant::now();
        let mut got = Vec::new();
        loop {
            poll();
            self.take(&mut got)?;
            if got.len() >= count || start.elapsed() > PATIENCE {
                return Ok(got);
            }
            std::thread::sleep(POLL);
        }
    }

    fn take(&mut self, got: &mut Vec<Got>) -> io::Result<()> {
        let at = Instant::now();
        match self {
            Far::Port(Wire { rx, pool, .. }) => {
                let mut frames = Vec::new();
                rx.receive(pool, &mut frames, 64)?;
                for frame in &frames {
                    let packet = Packet { bytes: frame.to_vec(), offload: frame.offload() };
                    if is_ours(&packet.bytes) {
                        got.push(Got { packet, at });
                    }
                }
                pool.give_all(&mut frames);
            }
            Far::Guest(_, guest) => {
                let guest = guest.iter_mut();
                for (header, bytes) in guest.flat_map(|it| std::iter::from_fn(|| it.receive(0))) {
                    let known = header.first_chunk().map(|header| vnet::parse(header, bytes.len()));
                    let offload = known.and_then(Result::ok).flatten();
                    if is_ours(&bytes) {
                        got.push(Got { packet: Packet { bytes, offload }, at });
                    }
                }
            }
            Far::Capture(path) => {
                got.clear();
                // A capture that is being written may end in the middle of a packet.
                let Ok(mut reader) = Reader::open(path) else { return Ok(()) };
                while let Ok(Some(packet)) = reader.next_packet() {
                    if packet.link_type == LINK_TYPE_ETHERNET && is_ours(packet.data) {
                        got.push(Got { packet: Packet::plain(packet.data.to_vec()), at });
                    }
                }
            }
            Far::Nobody => {}
        }
        Ok(())
    }
}

/// The header in which a guest's driver states the offload of a packet.
fn header_of(packet: &Packet) -> [u8; vnet::BYTES_WITH_BUFFERS] {
    let mut header = [0; vnet::BYTES_WITH_BUFFERS];
    let known = vnet::emit(packet.offload.as_ref(), packet.bytes.len());
    header[..vnet::BYTES].copy_from_slice(&known);
    header
}

/// Each for the largest packet, and its header.
const GUEST_BUFFER_BYTES: u32 = 68 * 1024;
const GUEST_BUFFERS: u16 = 64;
/// `CSUM`, `GUEST_CSUM`, `GUEST_TSO4`, `GUEST_TSO6`, `HOST_TSO4`, `HOST_TSO6`, `MRG_RXBUF`,
/// `IN_ORDER`, `GUEST_USO4`, `GUEST_USO6`, `HOST_USO`.
const GUEST_FEATURES: [u32; 11] = [0, 1, 7, 8, 11, 12, 15, 35, 54, 55, 56];
/// For both directions.
const FRAMES: usize = 1024;
const POLL: std::time::Duration = std::time::Duration::from_micros(200);
