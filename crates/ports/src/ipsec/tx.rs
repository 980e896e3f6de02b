//! Transmission: finds a frame's SA, and puts the frame into the SA's queue.

use std::io;
use std::sync::Arc;

use towpath_engine::port::Tx;
use towpath_ipsec::{Buffer, Counters, Refusal, Router, Sa, Unrouted, View};
use towpath_xdp::{Frame, Pool};

use super::buffer::Packet;
use super::meta::{Direction, EspMeta, Status};
use super::{Chosen, Route, Shared, status_of};

pub(super) struct Transmitter {
    shared: Arc<Shared>,
    /// Frames for each queue; empty between calls.
    lanes: Vec<Vec<Chosen>>,
    refused: Counters,
}

impl Transmitter {
    pub(super) fn new(shared: &Arc<Shared>) -> Transmitter {
        let lanes = shared.rings.iter().map(|_| Vec::new()).collect();
        Transmitter { shared: Arc::clone(shared), lanes, refused: Counters::default() }
    }
}

/// The SA for a frame: the SA that a program chose, otherwise the SA of its SPI or its policy.
#[inline]
fn choose(view: &View<'_>, router: &mut Router<'_>, packet: &Packet) -> Result<Route, Unrouted> {
    if let Some((sa, spi)) = EspMeta::chosen(packet.metadata()) {
        // Another SA could be the SA of another peer.
        let sa = view.by_id(sa).filter(|sa| sa.spi() == spi);
        let unknown =
            Unrouted { direction: towpath_ipsec::Direction::Outbound, reason: Refusal::NoSa };
        return sa.map(|sa| of(sa)).ok_or(unknown);
    }
    let sa = router.find(packet.bytes())?;
    Ok(sa.map_or(Route::new(0, Direction::Bypass, Status::Done), |sa| of(sa)))
}

fn of(sa: &Sa) -> Route {
    Route::new(sa.id(), sa.direction().into(), Status::Done)
}

impl Tx for Transmitter {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let Transmitter { shared, lanes, refused } = self;
        let view = shared.table.read();
        let mut router = Router::new(&view);
        for frame in frames.drain(..) {
            let packet = Packet::new(frame, pool);
            let route = match choose(&view, &mut router, &packet) {
                Ok(route) => route,
                Err(Unrouted { direction, reason }) => {
                    refused.count(reason);
                    if !shared.deliver_refused {
                        pool.give(packet.into_frame());
                        continue;
                    }
                    Route::new(0, direction.into(), status_of(reason))
                }
            };
            let lane = if lanes.len() == 1 { 0 } else { route.sa() as usize % lanes.len() };
            lanes[lane].push(Chosen { packet, route });
        }
        drop(view);
        shared.count(refused);
        for (ring, lane) in shared.rings.iter().zip(lanes) {
            if !lane.is_empty() {
                ring.push(lane);
                // Frames for which the ring has no room.
                frames.extend(lane.drain(..).map(|chosen| chosen.packet.into_frame()));
            }
        }
        Ok(())
    }

    /// The room of the fullest queue, because all frames may be for one SA.
    fn credit(&mut self) -> usize {
        self.shared.rings.iter().map(|ring| ring.room()).min().unwrap_or(0)
    }
}
