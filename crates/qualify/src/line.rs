//! A device and its other end, polled by hand: nothing in between makes up for the device.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use towpath_engine::port::{Device, Rx, Tx};
use towpath_xdp::frame::rx_metadata::RxMetadata;
use towpath_xdp::{Arena, Frame, Pool};

use crate::far::Got;
use crate::packets::{Packet, is_ours};
use crate::{Far, Maker, PATIENCE, Purpose, Setup};

/// A device with its queues open.
pub(crate) struct Line {
    rx: Option<Box<dyn Rx>>,
    tx: Box<dyn Tx>,
    pub(crate) pool: Pool,
    pub(crate) far: Far,
    pub(crate) device: Box<dyn Device>,
}

impl Line {
    /// Sets a device up for packets to arrive.
    pub(crate) fn new(maker: &dyn Maker, mtu: u32, arrivals: &[Vec<u8>]) -> io::Result<Line> {
        let purpose = Purpose { mtu, arrivals: arrivals.to_vec() };
        let Setup { device, far } = maker.make(&purpose)?;
        let arena = Arena::new(FRAMES)?;
        Line::over(device, far, &arena)
    }

    fn over(device: Box<dyn Device>, mut far: Far, arena: &Arc<Arena>) -> io::Result<Line> {
        let rx = if device.queues() > 0 { Some(device.open_rx(0, arena)?) } else { None };
        let tx = device.open_tx(0, arena)?;
        far.come(|| device.link())?;
        Ok(Line { rx, tx, pool: Pool::new(arena), far, device })
    }

    /// Whether frames arrive at all.
    pub(crate) fn receives(&self) -> bool {
        self.rx.is_some()
    }

    /// Lets packets arrive; returns their frames.
    pub(crate) fn arrive(
        &mut self,
        packets: &[Packet],
        known: Option<&RxMetadata>,
    ) -> io::Result<Vec<Frame>> {
        let mut frames = Vec::new();
        for packet in packets {
            self.far.send(packet, known)?;
        }
        let start = Instant::now();
        while frames.len() < packets.len() && start.elapsed() < PATIENCE {
            if self.poll(&mut frames)? == 0 {
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        }
        Ok(frames)
    }

    fn poll(&mut self, frames: &mut Vec<Frame>) -> io::Result<usize> {
        let Some(rx) = &mut self.rx else { return Ok(0) };
        let start = frames.len();
        rx.receive(&mut self.pool, frames, 64)?;
        for frame in frames.split_off(start) {
            match is_ours(&frame.to_vec()) {
                true => frames.push(frame),
                false => self.pool.give(frame),
            }
        }
        Ok(frames.len() - start)
    }

    /// A frame with a packet, to be sent.
    pub(crate) fn frame(&mut self, packet: &Packet) -> io::Result<Frame> {
        let frame = self.pool.frame(&packet.bytes).map_err(io::Error::other)?;
        let mut frame = frame.ok_or(io::ErrorKind::OutOfMemory)?;
        frame.set_offload(packet.offload);
        Ok(frame)
    }

    /// Lets a frame leave; returns the packets that arrive at the other end, at least `count`
    /// unless it takes too long. `None`: the device did not take the frame.
    pub(crate) fn leave(&mut self, frame: Frame, count: usize) -> io::Result<Option<Vec<Got>>> {
        let mut frames = vec![frame];
        let result = self.tx.transmit(&mut frames, &mut self.pool);
        let is_taken = frames.is_empty() && result.is_ok();
        self.pool.give_all(&mut frames);
        if !is_taken {
            return Ok(None);
        }
        self.tx.flush(&mut self.pool)?;
        let (tx, pool) = (&mut self.tx, &mut self.pool);
        self.far.receive(count, || _ = tx.reap(pool)).map(Some)
    }
}

/// For both directions; AF_XDP wants many.
const FRAMES: usize = 4096;
