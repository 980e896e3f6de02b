//! Sockets of a stack.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_xsk_client::protocol::ServerId;

use crate::bindings::{Bound, Signal};
use crate::datagram::{RxDatagram, TxDatagram};
use crate::stack::{Blocked, UdpStack};

/// A bound UDP socket. One thread may receive while another one sends. Dropping it frees its
/// address and port.
#[derive(Debug)]
pub struct UdpSocket {
    stack: UdpStack,
    bound: Arc<Bound>,
    /// The queue to receive from first, so that none is starved.
    turn: AtomicUsize,
    /// The datagrams for which the last send had no room.
    blocked: Mutex<Blocked>,
    server: Option<ServerId>,
}

impl UdpSocket {
    pub(crate) fn new(stack: UdpStack, bound: Arc<Bound>, server: Option<ServerId>) -> UdpSocket {
        UdpSocket { stack, bound, turn: AtomicUsize::new(0), blocked: Mutex::default(), server }
    }

    /// The address and port that the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.bound.address
    }

    /// The server ID of [`UdpStack::bind_quic`], which the server's connection IDs must have.
    pub fn server_id(&self) -> Option<ServerId> {
        self.server
    }

    /// Leaves new connections to the other sockets of the address and port: only packets with this
    /// socket's server ID reach it from now on. For a server that is to be replaced without
    /// breaking its connections.
    ///
    /// # Errors
    ///
    /// Fails with `EINVAL` if the socket has no server ID, and with
    /// [`io::ErrorKind::UnexpectedEof`] or `EPIPE` if the daemon is gone.
    pub fn drain(&self) -> io::Result<()> {
        self.stack.inner().drain(&self.bound)
    }

    /// The stack of the socket.
    pub fn stack(&self) -> &UdpStack {
        &self.stack
    }

    /// Shows up to `limit` received datagrams to `look`; returns their number, which is 0 if none
    /// has arrived. `look` may send, but must not receive or bind.
    pub fn recv_batch(&self, limit: usize, mut look: impl FnMut(&RxDatagram<'_>)) -> usize {
        let inner = self.stack.inner();
        let queues = inner.queues.len();
        let first = match queues {
            1 => 0,
            _ => self.turn.fetch_add(1, Ordering::Relaxed),
        };
        let mut count = 0;
        for queue in (first..first + queues).map(|queue| queue % queues) {
            count += inner.receive(&self.bound, queue, limit - count, &mut look);
            if count >= limit {
                break;
            }
        }
        count
    }

    /// Sends datagrams in order, and returns the number of leading ones that were taken. A run of
    /// segments is taken whole or not at all. A datagram to a destination whose Ethernet address is
    /// not known yet is taken, and sent when it is known; the newest 64 are kept.
    ///
    /// # Errors
    ///
    /// The error is that of the first datagram: `EAGAIN` if there is no room ([`arm_send`]),
    /// `EMSGSIZE` if it is larger than the path's MTU, `ENETUNREACH` or `EHOSTUNREACH` if there is
    /// no way to its destination, `EINVAL` for port 0, for segments of 0 bytes and for more than 64
    /// of them, `EAFNOSUPPORT` for a destination of the other family, and `ENETDOWN` or `EPIPE` if
    /// the daemon is gone.
    ///
    /// [`arm_send`]: UdpSocket::arm_send
    pub fn send_batch(&self, datagrams: &[TxDatagram<'_>]) -> io::Result<usize> {
        let mut blocked = None;
        let sent = self.stack.inner().send(&self.bound, datagrams, &mut blocked);
        if let Some(blocked) = blocked {
            *self.blocked.lock() = blocked;
        }
        sent
    }

    /// Asks for a wake-up when a datagram arrives: one of [`UdpSocket::recv_descriptors`] becomes
    /// readable then. Returns whether the caller may sleep, because no datagram is there yet.
    pub fn arm_recv(&self) -> bool {
        self.bound.receives.arm();
        self.stack.inner().arm_receiving(&self.bound)
    }

    /// Asks for a wake-up when there is room for the datagrams of the last [`send_batch`] that
    /// returned `EAGAIN`: one of [`UdpSocket::send_descriptors`] becomes readable then. Returns
    /// whether the caller may sleep, because there is no room yet.
    ///
    /// [`send_batch`]: UdpSocket::send_batch
    pub fn arm_send(&self) -> bool {
        self.bound.sends.arm();
        self.stack.inner().arm_sending(&self.bound, *self.blocked.lock())
    }

    /// Descriptors of which one becomes readable when datagrams arrive, after
    /// [`UdpSocket::arm_recv`]. Each may also become readable for other reasons. For
    /// edge-triggered polling; otherwise use [`UdpSocket::wait_recv`].
    pub fn recv_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let bells = self.stack.inner().bells();
        bells.chain([self.bound.receives.fd()]).collect()
    }

    /// As [`UdpSocket::recv_descriptors`], for room to send after [`UdpSocket::arm_send`].
    pub fn send_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let bells = self.stack.inner().bells();
        bells.chain([self.bound.sends.fd()]).collect()
    }

    /// Waits until a datagram is there, or until `timeout` has passed; returns whether one may be
    /// there. A datagram that no socket has read yet may be for another socket of the stack.
    ///
    /// # Errors
    ///
    /// Fails with [`io::ErrorKind::NotConnected`] if the port or the daemon is gone.
    pub fn wait_recv(&self, timeout: Option<Duration>) -> io::Result<bool> {
        self.wait(&self.bound.receives, || self.arm_recv(), &self.recv_descriptors(), timeout)
    }

    /// Waits until there is room for the datagrams of the last [`UdpSocket::send_batch`] that
    /// returned `EAGAIN`, or until `timeout` has passed; returns whether there is room.
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::wait_recv`].
    pub fn wait_send(&self, timeout: Option<Duration>) -> io::Result<bool> {
        self.wait(&self.bound.sends, || self.arm_send(), &self.send_descriptors(), timeout)
    }

    /// Whether the port or the daemon is gone: no datagram will arrive or leave any more.
    pub fn is_gone(&self) -> bool {
        self.sleep(&self.recv_descriptors(), Some(Duration::ZERO)).is_err()
    }

    /// The largest payload of one datagram to a destination, in bytes; `None` while the way is not
    /// known.
    pub fn max_payload(&self, destination: SocketAddr) -> Option<usize> {
        self.stack.inner().max_payload(destination)
    }

    fn wait(
        &self,
        signal: &Signal,
        arm: impl Fn() -> bool,
        descriptors: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        let end = timeout.and_then(|time| Instant::now().checked_add(time));
        loop {
            signal.silence();
            if !arm() {
                return Ok(true);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            // The wake-up may be for another socket, or an old one.
            self.sleep(descriptors, left)?;
            if left == Some(Duration::ZERO) {
                return Ok(!arm());
            }
        }
    }

    fn sleep(&self, descriptors: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let mut fds: Vec<PollFd<'_>> =
            descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let gone = PollFlags::HUP | PollFlags::ERR;
        if fds.iter().any(|fd| fd.revents().intersects(gone)) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the port or daemon is gone"));
        }
        Ok(())
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.stack.inner().unbind(&self.bound);
    }
}
