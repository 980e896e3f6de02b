//! The frames of one burst, on their way from the queue to the port's program.

use std::sync::Arc;

use towpath_ipsec::{Locked, Refusal, Sa};
use towpath_xdp::frame::Body;
use towpath_xdp::frame::rx_metadata::RxMetadata;
use towpath_xdp::{Frame, Pool};

use super::buffer::Packet;
use super::meta::{Direction, EspMeta};
use super::{Chosen, Shared, now, status_of};

/// Destination of the frames of one call of `receive`.
pub(super) struct Arrivals<'a> {
    pub(super) shared: &'a Shared,
    pub(super) pool: &'a mut Pool,
    pub(super) frames: &'a mut Vec<Frame>,
    /// Number of dropped frames since the last call of `take_missed`.
    pub(super) missed: &'a mut u64,
}

impl Arrivals<'_> {
    /// Calls `work` for each frame that has an SA, and delivers the other frames. Locks each SA
    /// once per run of consecutive frames. The table is not locked during `work`, since
    /// cryptography takes long.
    #[inline]
    pub(super) fn each(
        &mut self,
        waiting: &mut Vec<Chosen>,
        mut work: impl FnMut(&mut Self, &mut Locked<'_>, Packet),
    ) {
        let now = now();
        let mut waiting = waiting.drain(..).peekable();
        while let Some(mut chosen) = waiting.next() {
            let number = chosen.route.sa();
            let sa = self.shared.table.read().by_id(number).map(Arc::clone);
            let Some(sa) = sa else {
                self.without_sa(chosen);
                continue;
            };
            let mut locked = sa.lock(now);
            locked.claim_for_queue();
            loop {
                chosen.packet.strip_metadata();
                work(self, &mut locked, chosen.packet);
                match waiting.next_if(|next| next.route.sa() == number) {
                    Some(next) => chosen = next,
                    None => break,
                }
            }
        }
    }

    /// Handles a frame that its policy lets through, that was refused before, or whose SA is gone.
    #[cold]
    fn without_sa(&mut self, chosen: Chosen) {
        let Chosen { packet, route } = chosen;
        let meta = route.meta();
        if route.sa() == 0 {
            return self.arrive(packet, meta);
        }
        self.shared.refused.lock().count(Refusal::NoSa);
        self.deliver_refused(packet, EspMeta { status: status_of(Refusal::NoSa), ..meta });
    }

    /// Handles a frame that its SA refused.
    #[cold]
    pub(super) fn refuse(&mut self, packet: Packet, sa: &Sa, reason: Refusal) {
        self.deliver_refused(packet, EspMeta { status: status_of(reason), ..meta(sa, 0) });
    }

    fn deliver_refused(&mut self, packet: Packet, meta: EspMeta) {
        if self.shared.deliver_refused {
            self.arrive(packet, meta);
        } else {
            self.miss(packet.into_frame());
        }
    }

    fn miss(&mut self, frame: Frame) {
        *self.missed += 1;
        self.pool.give(frame);
    }

    /// Delivers a frame with its record.
    #[inline]
    pub(super) fn arrive(&mut self, packet: Packet, meta: EspMeta) {
        let mut frame = packet.into_frame();
        let meta = EspMeta { ingress_ifindex: frame.rx.ifindex, ..meta };
        if frame.replace_metadata(&meta.to_bytes()).is_err() {
            return self.miss(frame);
        }
        if meta.direction != Direction::Bypass {
            keep_timestamp(&mut frame);
        }
        frame.cross();
        self.frames.push(frame);
    }
}

/// Removes all RX hints but the timestamp, because they describe the packet before the operation.
#[inline]
pub(super) fn keep_timestamp(frame: &mut Body) {
    if let Some(known) = frame.rx_metadata() {
        let timestamp_ns = known.timestamp_ns;
        frame.set_rx_metadata(&RxMetadata { timestamp_ns, ..RxMetadata::default() });
    }
}

/// The record of a frame of an SA, without the ifindex of its ingress.
#[inline]
pub(super) fn meta(sa: &Sa, moved: isize) -> EspMeta {
    EspMeta {
        sa: sa.id(),
        spi: sa.spi(),
        direction: sa.direction().into(),
        moved: moved as i16,
        ..EspMeta::default()
    }
}
