//! Packets that are received in the memory of their application (zero copy).

use towpath_engine::QueueId;
use towpath_ring::Desc;
use towpath_xdp::{Frame, Pool};

use super::Bound;
use super::rx::Rx;
use crate::lent::Lent;
use crate::pool::{BufferPool, Fill};

impl Bound {
    /// Frames in chunks that the application has given.
    pub(super) fn lend(&self, frames: &mut Vec<Frame>, count: usize) {
        let umem = &self.pool.umem;
        let mut fill = self.pool.fill();
        let mut completion = self.pool.completion();
        let Some(mut lent) = umem.lent() else { return };
        lent.reclaim(&mut fill, &mut completion);
        fill.lend(umem, &mut lent, frames, count);
    }

    /// Takes back lent frames that were not needed.
    pub(super) fn take_back(&self, frames: &mut Vec<Frame>) {
        let mut fill = self.pool.fill();
        let Some(mut lent) = self.pool.umem.lent() else { return };
        let chunks = frames.drain(..).filter_map(|frame| lent.put(frame).ok());
        fill.returned.extend(chunks);
    }

    /// Delivers frames as far as possible; returns their number. Frames in other memory are copied.
    pub(super) fn deliver_lent(
        &self,
        from: QueueId,
        frames: &mut Vec<Frame>,
        pool: &mut Pool,
    ) -> usize {
        let (Some(rx), true) = (&self.rx, from == self.pool.queue) else {
            pool.give_all(frames);
            return 0;
        };
        let mut fill = self.pool.fill();
        let mut rx = rx.lock();
        let Some(mut lent) = self.pool.umem.lent() else { return 0 };
        let mut count = 0;
        for frame in frames.drain(..) {
            let is_delivered = if frame.has_frags() || !lent.has(&frame) {
                let is_delivered = rx.receive(&frame, &self.pool, &mut fill);
                pool.give(frame);
                is_delivered
            } else {
                rx.receive_lent(frame, &self.pool, &mut fill, &mut lent)
            };
            count += usize::from(is_delivered);
        }
        rx.note(count);
        count
    }
}

impl Rx {
    /// Delivers a packet in place: its chunk is the application's from now on.
    #[inline]
    fn receive_lent(
        &mut self,
        frame: Frame,
        pool: &BufferPool,
        fill: &mut Fill,
        lent: &mut Lent,
    ) -> bool {
        let (offset, len) = (frame.data_offset() as u64, frame.len() as u32);
        let has_room = self.ring.free(1) > 0;
        let options = match lent.start(&frame) {
            Some(chunk) if pool.umem.tells_rx_metadata() => {
                super::hints::tell(&frame, &pool.umem, chunk, chunk + offset)
            }
            _ => 0,
        };
        let Ok(chunk) = lent.put(frame) else { return false };
        debug_assert!(chunk < pool.umem.size, "a chunk of this memory");
        if !has_room {
            self.ring_full += 1;
            fill.returned.push(chunk);
            return false;
        }
        self.ring.write(Desc { addr: chunk + offset, len, options });
        self.without_copy += 1;
        true
    }
}
