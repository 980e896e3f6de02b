//! Datagrams from the far host, received at the near one.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_bench::hosts::{FAR, Hosts, NEAR};
use towpath_bench::world::pin;

use crate::{Counted, Side, count};

/// Measures the near side while the far host sends as fast as it can.
pub(crate) fn measure(
    hosts: &Hosts,
    side: Side,
    bytes: usize,
    window: Duration,
) -> anyhow::Result<Counted> {
    let (stop, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let near = Near { stop: Arc::clone(&stop), received: Arc::clone(&received) };
    let address = SocketAddr::from((NEAR, PORT));
    let name = std::thread::Builder::new().name("near".to_owned());
    let receiver = if side == Side::Towpath {
        let socket = hosts.stack()?.bind(address)?;
        name.spawn(move || near.over_towpath(&socket))?
    } else {
        let socket = UdpSocket::bind(address)?;
        name.spawn(move || near.over_kernel(&socket, side))?
    };
    let far = far_sender(hosts, bytes, Arc::clone(&stop))?;
    let counted = count(window, || Ok(received.load(Ordering::Relaxed)));
    stop.store(true, Ordering::Relaxed);
    for thread in [receiver, far] {
        thread.join().map_err(|_panicked| anyhow::anyhow!("a thread panicked"))??;
    }
    counted
}

struct Near {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
}

impl Near {
    fn over_towpath(&self, socket: &towpath_udp::UdpSocket) -> anyhow::Result<()> {
        pin(1);
        while !self.stop.load(Ordering::Relaxed) {
            let mut bytes = 0;
            let count = socket.recv_batch(64, |datagram| bytes += datagram.payload.len());
            std::hint::black_box(bytes);
            self.received.fetch_add(count as u64, Ordering::Relaxed);
            if count == 0 {
                socket.wait_recv(Some(Duration::from_millis(50)))?;
            }
        }
        Ok(())
    }

    fn over_kernel(&self, socket: &UdpSocket, side: Side) -> anyhow::Result<()> {
        pin(1);
        let state = UdpSocketState::new(socket.into())?;
        let segments = if side == Side::KernelOffload { state.gro_segments() } else { 1 };
        let mut memory = vec![vec![0; segments * 1500]; quinn_udp::BATCH_SIZE];
        let mut metas = [RecvMeta::default(); quinn_udp::BATCH_SIZE];
        while !self.stop.load(Ordering::Relaxed) {
            let mut buffers: Vec<_> =
                memory.iter_mut().map(|it| std::io::IoSliceMut::new(it)).collect();
            match state.recv(socket.into(), &mut buffers, &mut metas) {
                Ok(messages) => {
                    let datagrams = |meta: &RecvMeta| meta.len.div_ceil(meta.stride.max(1));
                    let count: usize = metas[..messages].iter().map(datagrams).sum();
                    self.received.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let fd = socket.as_fd();
                    let limit = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Sends from the far host until it is stopped.
fn far_sender(
    hosts: &Hosts,
    bytes: usize,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<std::thread::JoinHandle<anyhow::Result<()>>> {
    let far = towpath_kernel::Namespace::open(&hosts.far.path())?;
    let thread = std::thread::Builder::new().name("far".to_owned());
    Ok(thread.spawn(move || {
        pin(0);
        far.enter()?;
        let socket = UdpSocket::bind(SocketAddr::from((FAR, 0)))?;
        let state = UdpSocketState::new((&socket).into())?;
        let segments = state.max_gso_segments().min(60_000 / bytes);
        let contents = vec![7; bytes * segments];
        let transmit = Transmit {
            destination: SocketAddr::from((NEAR, PORT)),
            ecn: None,
            contents: &contents,
            segment_size: Some(bytes),
            src_ip: None,
        };
        while !stop.load(Ordering::Relaxed) {
            // A full socket buffer, and the answer of a host that has stopped, are no reason to end.
            let _sent = state.send((&socket).into(), &transmit);
        }
        Ok(())
    })?)
}

const PORT: u16 = 4433;
