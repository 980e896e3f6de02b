//! Datagrams from the far host, received at the near one.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::ensure;
use quinn_udp::{RecvMeta, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_bench::hosts::{FAR, Hosts, NEAR};
use towpath_bench::world::{index, pin};
use towpath_kernel::{Kernel, TestRun};
use towpath_workload::small;

use crate::{Counted, Side, count};

/// Measures the near side while the far host sends this number of datagrams a second, or as many as
/// it can.
pub(crate) fn measure(
    hosts: &Hosts,
    side: Side,
    bytes: usize,
    rate: Option<u64>,
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
    let far = match rate {
        None => far_flood(hosts, bytes, Arc::clone(&stop))?,
        Some(rate) => far_sender(hosts, bytes, rate, Arc::clone(&stop))?,
    };
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
            if count == 0 && !self.stop.load(Ordering::Relaxed) {
                socket.wait_recv(Some(Duration::from_millis(50)))?;
            }
        }
        let statistics = socket.stack().statistics();
        ensure!(statistics.received > 0, "nothing was received: {statistics:?}");
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

/// Sends from the far host until it is stopped: frames that the kernel makes (`BPF_PROG_RUN`), many
/// more than a socket could send.
fn far_flood(
    hosts: &Hosts,
    bytes: usize,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<JoinHandle<anyhow::Result<()>>> {
    let far = towpath_kernel::Namespace::open(&hosts.far.path())?;
    let frame = frame(hosts.near_mac()?, &vec![7; bytes]);
    let thread = std::thread::Builder::new().name("far".to_owned());
    Ok(thread.spawn(move || {
        pin(0);
        far.enter()?;
        let program = small::redirect(index("far")?);
        let kernel = Kernel::open()?;
        let program = kernel.load(&program, &kernel.load_maps(&program.maps)?)?;
        while !stop.load(Ordering::Relaxed) {
            let run = TestRun { repeat: 1 << 18, live_frames: true, ..TestRun::new(&frame) };
            program.test_run(&run)?;
        }
        Ok(())
    })?)
}

/// Sends this number of datagrams a second from the far host, by a socket, until it is stopped.
fn far_sender(
    hosts: &Hosts,
    bytes: usize,
    rate: u64,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<JoinHandle<anyhow::Result<()>>> {
    let far = towpath_kernel::Namespace::open(&hosts.far.path())?;
    let thread = std::thread::Builder::new().name("far".to_owned());
    Ok(thread.spawn(move || {
        pin(0);
        far.enter()?;
        let socket = UdpSocket::bind(SocketAddr::from((FAR, 0)))?;
        socket.connect(SocketAddr::from((NEAR, PORT)))?;
        let payload = vec![7; bytes];
        let (start, mut sent) = (Instant::now(), 0);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..BURST {
                // The receiver may not be there yet.
                let _refused = socket.send(&payload);
            }
            sent += BURST;
            let due = Duration::from_nanos(sent * 1_000_000_000 / rate);
            while start.elapsed() < due {
                std::hint::spin_loop();
            }
        }
        Ok(())
    })?)
}

/// A frame with a datagram from the far host to the near one.
fn frame(near_mac: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let udp_len = (8 + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend((20 + udp_len).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend([FAR, NEAR].concat());
    let ip_checksum = checksum(&packet);
    packet[10..12].copy_from_slice(&ip_checksum);
    packet.extend([9, PORT, udp_len, 0].map(u16::to_be_bytes).concat());
    packet.extend(payload);
    let pseudo = [&packet[12..20], &[0, 17], &udp_len.to_be_bytes(), &packet[20..]].concat();
    let udp_checksum = checksum(&pseudo);
    packet[26..28].copy_from_slice(&udp_checksum);
    [&near_mac[..], &[2, 0, 0, 0, 0, 1, 8, 0], &packet].concat()
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let word = |pair: &[u8]| u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// Datagrams that arrive together where the far host keeps a rate.
const BURST: u64 = 8;
const PORT: u16 = 4433;
