//! Datagrams from the near host, dropped as soon as they reach the far one.

use std::io::IoSlice;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, sendmmsg};
use quinn_udp::{Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_bench::hosts::{FAR, Hosts, NEAR};
use towpath_bench::world::pin;
use towpath_kernel::IngressDrop;
use towpath_udp::TxDatagram;

use crate::{Counted, Side, count};

/// Measures the near side while it sends as fast as it can.
pub(crate) fn measure(
    hosts: &Hosts,
    side: Side,
    bytes: usize,
    window: Duration,
) -> anyhow::Result<Counted> {
    let _drop = drop_at_far(hosts)?;
    let stop = Arc::new(AtomicBool::new(false));
    let near = Near { stop: Arc::clone(&stop), payload: vec![7; bytes] };
    let address = SocketAddr::from((NEAR, 0));
    let name = std::thread::Builder::new().name("near".to_owned());
    let sender = if side == Side::Towpath {
        let socket = hosts.stack()?.bind(address)?;
        name.spawn(move || near.over_towpath(&socket))?
    } else {
        let socket = UdpSocket::bind(address)?;
        name.spawn(move || match side {
            Side::KernelOffload => near.with_gso(&socket),
            _ => near.with_sendmmsg(&socket),
        })?
    };
    // Datagrams that are lost on the way do not count.
    let counted = count(window, || hosts.far_received());
    stop.store(true, Ordering::Relaxed);
    sender.join().map_err(|_panicked| anyhow::anyhow!("a thread panicked"))??;
    counted
}

/// Drops what arrives at the far host.
fn drop_at_far(hosts: &Hosts) -> anyhow::Result<IngressDrop> {
    let far = towpath_kernel::Namespace::open(&hosts.far.path())?;
    let thread = std::thread::spawn(move || {
        far.enter()?;
        let ifindex = towpath_bench::world::index("far")?;
        IngressDrop::new(ifindex).map_err(|errno| anyhow::anyhow!("a tcx program: {errno}"))
    });
    thread.join().map_err(|_panicked| anyhow::anyhow!("a thread panicked"))?
}

struct Near {
    stop: Arc<AtomicBool>,
    payload: Vec<u8>,
}

impl Near {
    fn over_towpath(&self, socket: &towpath_udp::UdpSocket) -> anyhow::Result<()> {
        pin(1);
        let burst = [TxDatagram::new(&self.payload, far()); BURST];
        while !self.stop.load(Ordering::Relaxed) {
            match socket.send_batch(&burst) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    socket.wait_send(Some(Duration::from_millis(50)))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn with_sendmmsg(&self, socket: &UdpSocket) -> anyhow::Result<()> {
        pin(1);
        let SocketAddr::V4(to) = far() else { anyhow::bail!("IPv4 only") };
        let to = Some(SockaddrIn::from(SocketAddrV4::new(*to.ip(), to.port())));
        let slices: Vec<[IoSlice<'_>; 1]> =
            (0..BURST).map(|_| [IoSlice::new(&self.payload)]).collect();
        let mut headers = MultiHeaders::preallocate(BURST, None);
        while !self.stop.load(Ordering::Relaxed) {
            let flags = MsgFlags::empty();
            let _sent =
                sendmmsg(socket.as_raw_fd(), &mut headers, &slices, vec![to; BURST], [], flags)?;
        }
        Ok(())
    }

    fn with_gso(&self, socket: &UdpSocket) -> anyhow::Result<()> {
        pin(1);
        let state = UdpSocketState::new(socket.into())?;
        let segments = state.max_gso_segments().min(60_000 / self.payload.len());
        let contents = self.payload.repeat(segments);
        let transmit = Transmit {
            destination: far(),
            ecn: None,
            contents: &contents,
            segment_size: Some(self.payload.len()),
            src_ip: None,
        };
        while !self.stop.load(Ordering::Relaxed) {
            match state.try_send(socket.into(), &transmit) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let fd = socket.as_fd();
                    let limit = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                    poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&limit))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn far() -> SocketAddr {
    SocketAddr::from((FAR, 9))
}

/// Datagrams a call.
const BURST: usize = 64;
