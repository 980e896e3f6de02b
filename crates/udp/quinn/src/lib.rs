//! QUIC by quinn over Towpath's UDP sockets.
//!
//! [`endpoint`] makes a quinn endpoint of a [`UdpSocket`]; [`Socket`] is the socket alone, for
//! [`quinn::Endpoint::new_with_abstract_socket`]. Runs of datagrams are sent and received by one
//! call, as with segmentation offloads of the kernel.
//!
//! ```no_run
//! use towpath_udp::{Options, UdpStack};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let stack = UdpStack::open(&Options::new("p0"))?;
//! let socket = stack.bind("10.0.0.1:0".parse().unwrap())?;
//! let endpoint = towpath_quinn::endpoint(socket, quinn::EndpointConfig::default(), None)?;
//! # let _ = endpoint;
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

/// The examples of docs/udp.md compile.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/udp.md")]
struct Page;

mod connection_ids;
mod readable_unsafe;
mod receive;
mod wake;

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, UdpPoller};
use towpath_udp::{TxDatagram, UdpSocket};

pub use crate::connection_ids::ServerConnectionIds;
use crate::wake::{Wakers, Writable};

/// An endpoint over a socket. Call it in a tokio runtime. If the socket has a server ID
/// ([`UdpStack::bind_quic`](towpath_udp::UdpStack::bind_quic)), so have the endpoint's connection
/// IDs, whatever generator `config` has. Keep the [`Arc`] of the socket to
/// [drain](UdpSocket::drain) it later.
///
/// # Errors
///
/// Fails if descriptors have run out.
///
/// # Panics
///
/// If there is no tokio runtime.
pub fn endpoint(
    socket: impl Into<Arc<UdpSocket>>,
    mut config: EndpointConfig,
    server: Option<ServerConfig>,
) -> io::Result<Endpoint> {
    let socket = socket.into();
    if let Some(id) = socket.server_id() {
        config.cid_generator(move || Box::new(ServerConnectionIds::new(id)));
    }
    let socket = Arc::new(Socket::new(socket)?);
    Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(TokioRuntime))
}

/// A UDP socket as quinn uses it.
pub struct Socket {
    socket: Arc<UdpSocket>,
    wakers: Wakers,
}

impl Socket {
    /// Wraps a socket. Call it in a tokio runtime, whose tasks watch the socket's descriptors.
    ///
    /// # Errors
    ///
    /// Fails if descriptors have run out.
    ///
    /// # Panics
    ///
    /// If there is no tokio runtime.
    pub fn new(socket: impl Into<Arc<UdpSocket>>) -> io::Result<Socket> {
        let socket = socket.into();
        let wakers = Wakers::watch(&socket)?;
        Ok(Socket { socket, wakers })
    }

    /// The socket, for statistics.
    pub fn udp(&self) -> &UdpSocket {
        &self.socket
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("address", &self.socket.local_addr()).finish()
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable::new(Arc::clone(&self.socket), self.wakers.writable()))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let datagram = TxDatagram {
            payload: transmit.contents,
            destination: transmit.destination,
            source: transmit.src_ip,
            ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
            segment_size: transmit.segment_size,
        };
        match self.socket.send_batch(&[datagram]) {
            Ok(_all) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // As with the kernel's sockets, QUIC treats it as a lost packet: a probe of the path's
            // MTU was too large, or a peer has gone. An error would end the task that drives the
            // connection, and nobody would tell the connection's users. If the daemon is gone,
            // receiving fails, which ends all connections.
            Err(error) => {
                tracing::debug!(%error, destination = %transmit.destination, "not sent");
                Ok(())
            }
        }
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let count = receive::receive(&self.socket, buffers, metas);
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
            self.wakers.register(context.waker());
            if self.socket.arm_recv() {
                if self.wakers.has_failed() && self.socket.is_gone() {
                    return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
                }
                return Poll::Pending;
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.socket.local_addr())
    }

    fn max_transmit_segments(&self) -> usize {
        SEGMENTS_MAX
    }

    fn max_receive_segments(&self) -> usize {
        SEGMENTS_MAX
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

/// Maximum number of datagrams of a run; quinn sizes its buffers for it.
const SEGMENTS_MAX: usize = 32;
