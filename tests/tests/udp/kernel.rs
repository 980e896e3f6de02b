//! A socket of the kernel that tells and sets everything about its datagrams.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::lab::{Datagram, PATIENCE};

pub(crate) struct Kernel {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl Kernel {
    pub(crate) fn new(socket: UdpSocket) -> Kernel {
        set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).unwrap();
        let state = UdpSocketState::new(UdpSockRef::from(&socket)).unwrap();
        Kernel { socket, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.socket.local_addr().unwrap().port()
    }

    pub(crate) fn send(&self, datagram: &Datagram) {
        let transmit = Transmit {
            destination: datagram.destination,
            ecn: EcnCodepoint::from_bits(datagram.ecn),
            contents: &datagram.payload,
            segment_size: None,
            src_ip: Some(datagram.source.ip()),
        };
        loop {
            match self.state.try_send(UdpSockRef::from(&self.socket), &transmit) {
                Ok(()) => return,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::OUT);
                }
                Err(error) => panic!("{error}: {datagram:?}"),
            }
        }
    }

    /// Sends a payload from the socket's own address.
    pub(crate) fn send_to(&self, payload: &[u8], destination: SocketAddr) {
        self.socket.send_to(payload, destination).unwrap();
    }

    /// The same, where there may be no way, or no room.
    pub(crate) fn send_if_possible(&self, payload: &[u8], destination: SocketAddr) {
        let _lost = self.socket.send_to(payload, destination);
    }

    /// Receives this number of datagrams.
    #[track_caller]
    pub(crate) fn receive(&self, count: usize) -> Vec<Datagram> {
        let mut received = Vec::new();
        while received.len() < count {
            let is_there = self.wait(PollFlags::IN);
            assert!(is_there, "{} of {count} datagrams", received.len());
            received.extend(self.received());
        }
        received
    }

    /// Datagrams that are there.
    pub(crate) fn received(&self) -> Vec<Datagram> {
        let mut bytes = vec![vec![0; 1 << 16]; BATCH_SIZE];
        let mut metas = vec![RecvMeta::default(); BATCH_SIZE];
        let mut buffers: Vec<_> = bytes.iter_mut().map(|it| IoSliceMut::new(it)).collect();
        let socket = UdpSockRef::from(&self.socket);
        let count = match self.state.recv(socket, &mut buffers, &mut metas) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        };
        let mut received = Vec::new();
        for (meta, bytes) in metas.iter().zip(&bytes).take(count) {
            let datagram = |payload: &[u8]| Datagram {
                payload: payload.to_vec(),
                source: meta.addr,
                destination: SocketAddr::new(meta.dst_ip.unwrap(), self.port()),
                ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
            };
            match meta.len {
                0 => received.push(datagram(&[])),
                len => received.extend(bytes[..len].chunks(meta.stride).map(datagram)),
            }
        }
        received
    }

    fn wait(&self, event: PollFlags) -> bool {
        let timeout = Timespec::try_from(PATIENCE).unwrap();
        poll(&mut [PollFd::new(&self.socket, event)], Some(&timeout)).unwrap() > 0
    }
}

const BUFFER_BYTES: usize = 8 << 20;
