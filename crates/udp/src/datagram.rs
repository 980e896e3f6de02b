//! Datagrams as applications see them.

use std::net::{IpAddr, SocketAddr};

/// A received datagram. Its bytes lie in memory that the daemon wrote to.
#[derive(Debug, Clone, Copy)]
pub struct RxDatagram<'a> {
    /// The bytes behind the UDP header.
    pub payload: &'a [u8],
    /// The sender's address and port.
    pub source: SocketAddr,
    /// The address and port that it was sent to. The address differs from the socket's if that is
    /// the unspecified one.
    pub destination: SocketAddr,
    /// Explicit congestion notification: the low two bits of the traffic class (RFC 3168).
    pub ecn: u8,
    /// The port's queue at which it arrived.
    pub queue: u32,
}

/// One datagram to send, or a run of datagrams to one destination.
#[derive(Debug, Clone, Copy)]
pub struct TxDatagram<'a> {
    /// The bytes behind the UDP header.
    pub payload: &'a [u8],
    /// The receiver's address and port.
    pub destination: SocketAddr,
    /// The sender's address, for sockets bound to the unspecified address; `None` leaves the choice
    /// to the route.
    pub source: Option<IpAddr>,
    /// Explicit congestion notification: the low two bits of the traffic class (RFC 3168).
    pub ecn: u8,
    /// Bytes of each datagram of a run (`UDP_SEGMENT`): the payload is cut into datagrams of this
    /// size, of which the last may be shorter.
    pub segment_size: Option<usize>,
}

impl<'a> TxDatagram<'a> {
    /// One datagram, without congestion notification.
    pub fn new(payload: &'a [u8], destination: SocketAddr) -> TxDatagram<'a> {
        TxDatagram { payload, destination, source: None, ecn: 0, segment_size: None }
    }

    /// The payloads of the datagrams that are sent.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        // An empty payload is one empty datagram.
        let size = self.segment_size.unwrap_or(self.payload.len()).max(1);
        let is_empty = self.payload.is_empty();
        self.payload.chunks(size).chain(is_empty.then_some(&[][..]))
    }

    /// The number of datagrams that are sent.
    pub(crate) fn count(&self) -> usize {
        match self.segment_size {
            Some(size) => self.payload.len().div_ceil(size.max(1)).max(1),
            None => 1,
        }
    }

    /// The size of the largest of them.
    pub(crate) fn largest(&self) -> usize {
        self.segment_size.map_or(self.payload.len(), |size| size.min(self.payload.len()))
    }
}
