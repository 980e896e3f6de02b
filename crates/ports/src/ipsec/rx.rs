//! Reception with an engine that runs at once: each frame is encapsulated or decapsulated, and
//! arrives at the port, before the next one.

use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use towpath_engine::Waker;
use towpath_engine::port::{Rx, Wake};
use towpath_ipsec::{Buffer, Cryptography, Direction, Esp, Locked};
use towpath_xdp::{Frame, Pool};

use super::arrivals::{Arrivals, meta};
use super::buffer::Packet;
use super::{Chosen, Shared};

/// A queue with the cryptography `C`.
pub(super) struct Queue<C> {
    shared: Arc<Shared>,
    queue: usize,
    waiting: Vec<Chosen>,
    missed: u64,
    cryptography: PhantomData<fn() -> C>,
}

impl<C> Queue<C> {
    pub(super) fn new(shared: &Arc<Shared>, queue: usize) -> Queue<C> {
        let (shared, cryptography) = (Arc::clone(shared), PhantomData);
        Queue { shared, queue, waiting: Vec::new(), missed: 0, cryptography }
    }
}

/// Encapsulates or decapsulates a frame, and delivers it.
#[inline]
fn process<C: Cryptography>(arrivals: &mut Arrivals<'_>, sa: &mut Locked<'_>, mut packet: Packet) {
    let done = match sa.sa().direction() {
        Direction::Outbound => sa.encap_at_once::<C>(&mut packet),
        // A reference, because a copy would be read before its fields have reached the cache.
        Direction::Inbound => match &Esp::of_frame(packet.bytes()) {
            Ok(esp) => sa.decap_at_once::<C>(&mut packet, esp),
            Err(reason) => {
                sa.count(*reason);
                Err(*reason)
            }
        },
    };
    match done {
        Ok(moved) => arrivals.arrive(packet, meta(sa.sa(), moved)),
        Err(reason) => arrivals.refuse(packet, sa.sa(), reason),
    }
}

impl<C: Cryptography> Rx for Queue<C> {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let Queue { shared, queue, waiting, missed, .. } = self;
        let start = frames.len();
        if shared.rings[*queue].pop(limit, waiting) > 0 {
            let mut arrivals = Arrivals { shared, pool, frames, missed };
            arrivals.each(waiting, process::<C>);
        }
        Ok(frames.len() - start)
    }

    fn arm(&mut self) -> Wake<'_> {
        let is_empty = self.shared.rings[self.queue].is_empty();
        if is_empty { Wake::Waker } else { Wake::Now }
    }

    fn set_waker(&mut self, waker: &Arc<Waker>) {
        self.shared.rings[self.queue].set_waker(waker);
    }

    fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }
}
