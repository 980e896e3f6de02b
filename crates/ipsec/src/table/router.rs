//! The SA of a packet, by its SPI or by its policy.

use std::sync::Arc;

use super::{Flow, Outbound, View};
use crate::esp::Esp;
use crate::refusal::Refusal;
use crate::sa::{Direction, Sa};
use crate::wire::{self, IPPROTO_ESP, IPPROTO_UDP, Ip};

/// Finds the SAs of the packets of a burst. Remembers the last flow, since its next packet often
/// follows.
#[derive(Debug)]
pub struct Router<'a> {
    view: &'a View<'a>,
    last: Option<(Flow, Option<&'a Arc<Sa>>)>,
}

/// A packet that is refused before its SA is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unrouted {
    /// Inbound if the packet is ESP without an SA, otherwise outbound.
    pub direction: Direction,
    /// The reason.
    pub reason: Refusal,
}

impl<'a> Router<'a> {
    /// A router for the packets of a burst.
    pub fn new(view: &'a View<'a>) -> Router<'a> {
        Router { view, last: None }
    }

    /// The SA of an Ethernet frame: for ESP the SA of its SPI, otherwise the SA of its policy;
    /// `None` if its policy lets it pass as it is.
    ///
    /// # Errors
    ///
    /// Fails if the frame is no IP packet, or has neither an SA nor such a policy.
    #[inline]
    pub fn find(&mut self, bytes: &[u8]) -> Result<Option<&'a Arc<Sa>>, Unrouted> {
        let ip = Ip::of_frame(bytes).map_err(outbound)?;
        if ip.protocol == IPPROTO_ESP
            && let Ok(sa) = Esp::in_ip(bytes, &ip).and_then(|esp| self.view.inbound(&esp))
        {
            return Ok(Some(sa));
        }
        // In two steps, since a `Result` of a flow would be packed and unpacked in memory.
        let upper = wire::upper(bytes, &ip).map_err(outbound)?;
        let flow = wire::flow_of(bytes, &ip, upper, ip.end());
        match &self.last {
            Some((last, sa)) if *last == flow => Ok(*sa),
            _ => self.by_flow(bytes, &ip, flow),
        }
    }

    fn by_flow(
        &mut self,
        bytes: &[u8],
        ip: &Ip,
        flow: Flow,
    ) -> Result<Option<&'a Arc<Sa>>, Unrouted> {
        let is_esp = flow.protocol == IPPROTO_ESP;
        let expects_udp = self.view.expects_udp();
        let mut unknown = None;
        if is_esp || flow.protocol == IPPROTO_UDP && expects_udp {
            match Esp::in_ip(bytes, ip).and_then(|esp| self.view.inbound(&esp)) {
                Ok(sa) => return Ok(Some(sa)),
                Err(reason) => unknown = is_telling(reason, is_esp).then_some(reason),
            }
        }
        match (self.view.outbound(&flow), unknown) {
            (Ok(found), _) => {
                let sa = match found {
                    Outbound::Protect(sa) => Some(sa),
                    Outbound::Bypass => None,
                };
                // Packets of such a flow may be ESP, also in UDP, of several SAs.
                self.last = (!is_esp && !expects_udp).then_some((flow, sa));
                Ok(sa)
            }
            (Err(Refusal::NoPolicy), Some(reason)) => {
                Err(Unrouted { direction: Direction::Inbound, reason })
            }
            (Err(reason), _) => Err(outbound(reason)),
        }
    }
}

fn outbound(reason: Refusal) -> Unrouted {
    Unrouted { direction: Direction::Outbound, reason }
}

/// Whether the reason is more precise than [`Refusal::NoPolicy`] for a packet without a policy. Any
/// UDP packet looks like ESP of an unknown SA.
fn is_telling(reason: Refusal, is_esp: bool) -> bool {
    is_esp || matches!(reason, Refusal::Keepalive | Refusal::Ike)
}
