//! A driver that runs a program on its ring's own buffers, as virtio-net does: nothing is copied.
//! What the program sends back goes to the sending queue in the buffer that it came in.

use std::collections::VecDeque;

use anyhow::{Context as _, anyhow};
use towpath_workload::virtio::{Guest, HEADER_BYTES};
use towpath_xdp::frame::external::{CHUNK_BYTES, Chunks};
use towpath_xdp::{Action, Burst, Frame, Program, Worker};

use crate::guest::BURST;

/// The driver's buffers are chunks of the guest's memory, and each is in one place.
pub(crate) struct Driver<'p> {
    program: &'p Program,
    worker: Worker,
    chunks: Chunks,
    free: Vec<usize>,
    /// With the device, in the order in which they come back: to receive into, and to send.
    receiving: VecDeque<usize>,
    sending: VecDeque<usize>,
    frames: Vec<Frame>,
    burst: Burst,
}

impl<'p> Driver<'p> {
    /// All buffers of the first queue are with the device.
    pub(crate) fn new(guest: &Guest, program: &'p Program) -> anyhow::Result<Driver<'p>> {
        let file = guest.memory.file().try_clone_to_owned()?;
        let chunks_of = |queue: &towpath_workload::virtio::Queue| -> Vec<usize> {
            (0..queue.capacity()).map(|buffer| queue.buffer(buffer) / CHUNK_BYTES).collect()
        };
        Ok(Driver {
            program,
            worker: program.worker(0),
            chunks: Chunks::map(file, 0, guest.memory.len())?,
            // The sending queue's buffers; the first one is with the device, with a hello.
            free: chunks_of(&guest.tx[0])[1..].to_vec(),
            receiving: chunks_of(&guest.rx[0]).into(),
            sending: chunks_of(&guest.tx[0])[..1].to_vec().into(),
            frames: Vec::with_capacity(BURST),
            burst: Burst::default(),
        })
    }

    /// Receives a burst, runs the program, and does what it says; gives the number of frames.
    pub(crate) fn round(&mut self, guest: &mut Guest) -> anyhow::Result<usize> {
        self.receive(guest)?;
        let count = self.frames.len();
        if count > 0 {
            self.program.run_burst(&mut self.worker, &mut self.frames, &mut self.burst)?;
            self.send_back(guest)?;
            self.refill(guest);
        }
        Ok(count)
    }

    fn receive(&mut self, guest: &mut Guest) -> anyhow::Result<()> {
        while self.frames.len() < BURST
            && let Some((_place, len)) = guest.rx[0].reap()
        {
            let chunk = self.receiving.pop_front().context("more come back than were posted")?;
            let mut frame = self.chunks.take(chunk).context("a buffer is in two places")?;
            frame.set_packet(HEADER, (len as usize).saturating_sub(HEADER))?;
            self.frames.push(frame);
        }
        Ok(())
    }

    /// Queues what the program sends back, and tells the device once.
    fn send_back(&mut self, guest: &mut Guest) -> anyhow::Result<()> {
        let queue = &mut guest.tx[0];
        while queue.reap().is_some() {
            self.free.extend(self.sending.pop_front());
        }
        let mut is_any = false;
        for (index, frame) in self.frames.drain(..).enumerate() {
            let (start, len) = (frame.data_offset() - HEADER, frame.linear_len() + HEADER);
            let chunk = self.chunks.put(frame).map_err(|_other| anyhow!("another's frame"))?;
            if self.burst.action(index) != Action::Tx || queue.room() == 0 {
                self.free.push(chunk);
                continue;
            }
            let at = chunk * CHUNK_BYTES + start;
            guest.memory.write(at, &[0; HEADER]);
            queue.post_at(at, len as u32);
            self.sending.push_back(chunk);
            is_any = true;
        }
        if is_any {
            queue.publish();
            guest.kick(1);
        }
        Ok(())
    }

    fn refill(&mut self, guest: &mut Guest) {
        let queue = &mut guest.rx[0];
        while queue.room() > 0
            && let Some(chunk) = self.free.pop()
        {
            queue.post_at(chunk * CHUNK_BYTES, CHUNK_BYTES as u32);
            self.receiving.push_back(chunk);
        }
        queue.publish();
    }
}

const HEADER: usize = HEADER_BYTES as usize;
