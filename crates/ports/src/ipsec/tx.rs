//! Transmission: finds a frame's SA, and puts the frame into the SA's queue.

use std::io;
use std::sync::Arc;

use towpath_engine::port::Tx;
use towpath_ipsec::{Buffer, Counters, Esp, Flow, Outbound, Refusal, Sa, View};
use towpath_xdp::{Frame, Pool};

use super::buffer::Packet;
use super::meta::{Direction, EspMeta, Status};
use super::{Chosen, Shared, status_of};

pub(super) struct Transmitter {
    shared: Arc<Shared>,
    /// Frames for each queue; empty between calls.
    lanes: Vec<Vec<Chosen>>,
    refused: Counters,
}

/// The decision for a frame: the number of its SA, or 0 for none, and the SA's direction.
type Choice = (u32, Direction);

impl Transmitter {
    pub(super) fn new(shared: &Arc<Shared>) -> Transmitter {
        let lanes = shared.rings.iter().map(|_| Vec::new()).collect();
        Transmitter { shared: Arc::clone(shared), lanes, refused: Counters::default() }
    }
}

/// The SA for a frame: the SA that a program chose, otherwise the SA of the packet's SPI, otherwise
/// the SA of its policy. `last` is the previous flow with its decision.
#[inline]
fn choose(
    view: &View<'_>,
    packet: &Packet,
    last: &mut Option<(Flow, Choice)>,
) -> Result<Choice, (Direction, Refusal)> {
    let metadata = packet.metadata();
    if let Some((sa, spi)) = EspMeta::chosen(metadata) {
        // Another SA could be the SA of another peer.
        let sa = view.by_id(sa).filter(|sa| sa.spi() == spi);
        return sa.map(|sa| of(sa)).ok_or((Direction::Out, Refusal::NoSa));
    }
    let bytes = packet.bytes();
    let flow = Flow::of_frame(bytes).map_err(|reason| (Direction::Out, reason))?;
    if let Some((_, choice)) = last.filter(|(known, _)| *known == flow) {
        return Ok(choice);
    }
    let is_esp = flow.protocol == IPPROTO_ESP;
    let mut unknown = None;
    if is_esp || flow.protocol == IPPROTO_UDP && view.expects_udp() {
        match Esp::of_frame(bytes).and_then(|esp| view.inbound(&esp)) {
            Ok(sa) => return Ok(of(sa)),
            Err(reason) => unknown = is_telling(reason, is_esp).then_some(reason),
        }
    }
    match (view.outbound(&flow), unknown) {
        (Ok(found), _) => {
            let choice = match found {
                Outbound::Protect(sa) => of(sa),
                Outbound::Bypass => (0, Direction::Bypass),
            };
            // Packets of such a flow may be ESP, also in UDP, of several SAs.
            *last = (!is_esp && !view.expects_udp()).then_some((flow, choice));
            Ok(choice)
        }
        (Err(Refusal::NoPolicy), Some(reason)) => Err((Direction::In, reason)),
        (Err(reason), _) => Err((Direction::Out, reason)),
    }
}

/// Whether the reason is more precise than [`Refusal::NoPolicy`] for a packet without a policy. Any
/// UDP packet looks like ESP of an unknown SA.
fn is_telling(reason: Refusal, is_esp: bool) -> bool {
    is_esp || matches!(reason, Refusal::Keepalive | Refusal::Ike)
}

fn of(sa: &Sa) -> Choice {
    (sa.id(), sa.direction().into())
}

impl Tx for Transmitter {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let Transmitter { shared, lanes, refused } = self;
        let view = shared.table.read();
        let mut last = None;
        for frame in frames.drain(..) {
            let packet = Packet::new(frame, pool);
            let chosen = match choose(&view, &packet, &mut last) {
                Ok((sa, direction)) => Chosen { packet, sa, direction, status: Status::Done },
                Err((direction, reason)) => {
                    refused.count(reason);
                    if !shared.deliver_refused {
                        pool.give(packet.into_frame());
                        continue;
                    }
                    Chosen { packet, sa: 0, direction, status: status_of(reason) }
                }
            };
            let lane = if lanes.len() == 1 { 0 } else { chosen.sa as usize % lanes.len() };
            lanes[lane].push(chosen);
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

const IPPROTO_ESP: u8 = 50;
const IPPROTO_UDP: u8 = 17;
