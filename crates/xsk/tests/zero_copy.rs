//! Frames in an application's memory: proved by addresses, and left alone by whatever it does.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use fastrand::Rng;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use towpath_engine::{QueueId, Socket as _};
use towpath_ring::{Consumer, Desc, Entry, Mapped, Memory, OFFSETS, Producer, Shared as _};
use towpath_xdp::{Arena, Frame, Pool};
use towpath_xsk::abi::*;
use towpath_xsk::rings::Which;
use towpath_xsk::{Device, Errno, Host, Shared, Socket, Sockets};

/// Port 1 receives into memory that it is given, port 2 does not.
#[derive(Debug)]
struct Ports;

impl Host for Ports {
    fn device(&self, ifindex: u32) -> Option<Device> {
        (1..=2).contains(&ifindex).then_some(Device { queues: 2, zero_copy: ifindex == 1 })
    }
}

const ENTRIES: u32 = 64;
const CHUNKS: u64 = 64;
const PAGE: u64 = 4096;
const HERE: QueueId = QueueId { ifindex: 1, queue: 0 };

/// The application's side, and a worker's pool.
struct App {
    socket: Arc<Socket>,
    _sockets: Arc<Sockets>,
    memory: OwnedFd,
    rx: Consumer<Mapped<Desc>>,
    tx: Producer<Mapped<Desc>>,
    fill: Producer<Mapped<u64>>,
    completion: Consumer<Mapped<u64>>,
    pool: Pool,
    arena: Arc<Arena>,
}

fn ring<T: Entry>(socket: &Socket, which: Which) -> Mapped<T> {
    let at = which.page_offset();
    let memory = Memory::map::<T>(socket.rings(), at, &OFFSETS, ENTRIES).unwrap();
    Mapped::new(&memory, &OFFSETS, ENTRIES).unwrap()
}

fn open(reg: UmemReg, ifindex: u32, flags: u16) -> Result<App, Errno> {
    let sockets = Sockets::new(Arc::new(Ports));
    let socket = sockets.open()?;
    let memory = memfd_create("test-umem", MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, CHUNKS * PAGE)?;
    let reg = UmemReg { len: CHUNKS * PAGE, ..reg };
    socket.set_option(UMEM_REG, &reg.to_bytes(), Some((memory.try_clone().unwrap(), 0)))?;
    for name in [RX_RING, TX_RING, UMEM_FILL_RING, UMEM_COMPLETION_RING] {
        socket.set_option(name, &ENTRIES.to_ne_bytes(), None)?;
    }
    let address = Address { family: AF_XDP, flags, ifindex, ..Address::default() };
    socket.bind(&address.to_bytes(), &Shared::NoSocket)?;
    let arena = Arena::new(256).unwrap();
    Ok(App {
        rx: Consumer::new(ring(&socket, Which::Rx)),
        tx: Producer::new(ring(&socket, Which::Tx)),
        fill: Producer::new(ring(&socket, Which::Fill)),
        completion: Consumer::new(ring(&socket, Which::Completion)),
        pool: Pool::new(&arena),
        arena,
        socket,
        _sockets: sockets,
        memory,
    })
}

fn usual() -> UmemReg {
    UmemReg { chunk_size: 4096, ..UmemReg::default() }
}

fn app() -> App {
    open(usual(), 1, ZEROCOPY).unwrap()
}

impl App {
    fn give(&mut self, chunks: impl IntoIterator<Item = u64>) {
        for chunk in chunks {
            assert!(self.fill.free(1) > 0);
            self.fill.write(chunk * PAGE);
        }
        self.fill.submit();
    }

    /// Frames to receive into.
    fn lend(&self, count: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        self.socket.lend(&mut frames, count);
        frames
    }

    fn deliver(&mut self, frame: Frame) -> usize {
        let count = self.socket.deliver(HERE, &mut vec![frame], &mut self.pool);
        self.socket.flush();
        count
    }

    fn received(&mut self) -> Vec<Desc> {
        let came = (0..self.rx.available(u32::MAX)).map(|_| self.rx.read()).collect();
        self.rx.release();
        came
    }

    fn completed(&mut self) -> Vec<u64> {
        let done =
            (0..self.completion.available(u32::MAX)).map(|_| self.completion.read()).collect();
        self.completion.release();
        done
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert_eq!(rustix::io::pread(&self.memory, &mut bytes, at).unwrap(), len);
        bytes
    }

    fn send(&mut self, addr: u64, len: u32) {
        assert!(self.tx.free(1) > 0);
        self.tx.write(Desc { addr, len, options: 0 });
        self.tx.submit();
    }

    fn collect(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        self.socket.collect(&mut self.pool, &mut frames, 64);
        frames
    }

    fn is_zero_copy(&self) -> bool {
        self.socket.get_option(OPTIONS, 4).unwrap() == [1, 0, 0, 0]
    }
}

fn filled(mut frame: Frame, byte: u8, len: usize) -> Frame {
    frame.fill(&vec![byte; len]);
    frame.rx.ifindex = 1;
    frame
}

#[test]
fn who_gets_it() {
    let granted = |reg, ifindex, flags| open(reg, ifindex, flags).map(|app| app.is_zero_copy());
    let half = UmemReg { chunk_size: 2048, ..UmemReg::default() };
    let headroom = UmemReg { headroom: 64, ..usual() };
    let unaligned = UmemReg { flags: UMEM_UNALIGNED, ..usual() };
    assert_eq!(granted(usual(), 1, ZEROCOPY), Ok(true));
    assert_eq!(granted(usual(), 1, 0), Ok(true));
    assert_eq!(granted(usual(), 1, COPY), Ok(false));
    for (reg, ifindex) in [(usual(), 2), (half, 1), (headroom, 1), (unaligned, 1)] {
        assert_eq!(granted(reg, ifindex, ZEROCOPY), Err(Errno::OPNOTSUPP));
        assert_eq!(granted(reg, ifindex, 0), Ok(false));
    }
}

#[test]
fn a_packet_is_received_where_it_is() {
    let mut app = app();
    app.give([7, 3, 9]);
    let frames = app.lend(2);
    let places: Vec<_> = frames.iter().map(|frame| frame.shared_linear().as_ptr() as u64).collect();
    // The fill ring's order, and each a chunk away from the other.
    assert_eq!(places[0] - places[1], 4 * PAGE);
    for (frame, chunk) in frames.into_iter().zip([7, 3]) {
        let before = frame.shared_linear().as_ptr();
        let mut frame = filled(frame, chunk as u8, 100);
        assert_eq!(frame.shared_linear().as_ptr(), before);
        // A program takes a header off, the other packet gets one.
        let delta = if chunk == 7 { 20 } else { -8 };
        frame.adjust_head(delta).unwrap();
        let len = frame.len();
        assert_eq!(app.deliver(frame), 1);
        let addr = (chunk * PAGE + 256).wrapping_add_signed(i64::from(delta));
        assert_eq!(app.received(), [Desc { addr, len: len as u32, options: 0 }]);
        let at = chunk * PAGE + 276;
        assert_eq!(app.bytes(at, 80), vec![chunk as u8; 80]);
    }
    let statistics = app.socket.statistics();
    assert_eq!((statistics.rx_packets, statistics.rx_zero_copy), (2, 2));
}

#[test]
fn what_is_elsewhere_is_copied() {
    let mut app = app();
    app.give(0..4);
    let frame = filled(app.pool.take().unwrap(), 5, 60);
    assert_eq!(app.deliver(frame), 1);
    let came = app.received();
    assert_eq!(app.bytes(came[0].addr, 60), [5; 60]);
    let statistics = app.socket.statistics();
    assert_eq!((statistics.rx_packets, statistics.rx_zero_copy), (1, 0));
}

#[test]
fn a_chunk_that_comes_twice_is_there_once() {
    let mut app = app();
    app.give([5, 5, 6, 5, 70, 6]);
    let frames = app.lend(64);
    assert_eq!(frames.len(), 2);
    assert_eq!(app.socket.statistics().fill_invalid, 4);
    // Dropped by a program, it is there again, without the application's help.
    drop(frames);
    let frames = app.lend(64);
    assert_eq!(frames.len(), 2);
    app.socket.take_back(&mut { frames });
    assert_eq!(app.lend(64).len(), 2);
}

#[test]
fn a_full_rx_ring_costs_no_chunk() {
    let mut app = app();
    app.give(0..64);
    let frames = app.lend(64);
    let copied = filled(app.pool.take().unwrap(), 1, 60);
    assert_eq!((frames.len(), app.deliver(copied)), (64, 0));
    let delivered: usize = frames.into_iter().map(|frame| app.deliver(filled(frame, 1, 60))).sum();
    assert_eq!(delivered, 64);
    let chunks: Vec<_> = app.received().iter().map(|desc| desc.addr / PAGE).collect();
    app.give(chunks.iter().copied());
    for _ in 0..3 {
        let frames = app.lend(64);
        assert_eq!(frames.len(), 64);
        for frame in frames {
            app.deliver(filled(frame, 1, 60));
        }
        assert_eq!(app.rx.available(u32::MAX), 64);
        // One that finds no room.
        app.give([]);
        let chunks: Vec<_> = app.received().iter().map(|desc| desc.addr / PAGE).collect();
        app.give(chunks);
    }
}

#[test]
fn a_packet_is_sent_from_where_it_is() {
    let mut app = app();
    for (addr, len) in
        [(2 * PAGE, 60), (3 * PAGE + 256, 1000), (4 * PAGE + 4000, 96), (4 * PAGE, 60)]
    {
        rustix::io::pwrite(&app.memory, &vec![9; len], addr).unwrap();
        app.send(addr, len as u32);
    }
    let mut frames = app.collect();
    let lent: Vec<_> = frames.iter().map(|frame| frame.is_external()).collect();
    // The last one's chunk is on its way already.
    assert_eq!(lent, [true, true, true, false]);
    assert!(frames.iter().all(|frame| frame.to_vec().iter().all(|&byte| byte == 9)));
    app.socket.sent(4);
    assert_eq!(app.completed(), [4 * PAGE], "the others are still in use");
    assert_eq!(app.socket.statistics().levels[1], 0, "and not in the ring");
    drop(frames.remove(1));
    app.collect();
    assert_eq!(app.completed(), [3 * PAGE + 256]);
    app.pool.give_all(&mut frames);
    app.collect();
    assert_eq!(app.completed(), [2 * PAGE, 4 * PAGE + 4000]);
    assert_eq!(app.socket.statistics().tx_zero_copy, 3);
}

#[test]
fn what_a_port_does_not_take_is_sent_later() {
    let mut app = app();
    (0..4).for_each(|chunk| app.send(chunk * PAGE, 60));
    let mut frames = app.collect();
    // Frames that are taken may be gone before they are reported as sent.
    drop(frames.drain(..2));
    app.lend(0);
    app.socket.sent(2);
    app.pool.give_all(&mut frames);
    assert_eq!(app.completed(), [0, PAGE]);
    let again = app.collect();
    assert!(again.iter().all(|frame| frame.is_external()));
    app.socket.sent(2);
    drop(again);
    app.collect();
    assert_eq!(app.completed(), [2 * PAGE, 3 * PAGE]);
}

#[test]
fn a_chunk_to_receive_into_is_sent_as_a_copy() {
    let mut app = app();
    app.give([1]);
    let lent = app.lend(1);
    app.send(PAGE + 300, 60);
    app.send(2 * PAGE, 60);
    app.send(2 * PAGE, 60);
    let frames = app.collect();
    let are_lent: Vec<_> = frames.iter().map(|frame| frame.is_external()).collect();
    assert_eq!(are_lent, [false, true, false]);
    app.socket.sent(3);
    drop((frames, lent));
    app.collect();
    let mut done = app.completed();
    done.sort_unstable();
    assert_eq!(done, [PAGE + 300, 2 * PAGE, 2 * PAGE]);
}

/// A holder of frames can keep using them when socket and application are gone.
#[test]
fn frames_on_their_way_outlive_the_socket() {
    let mut app = app();
    app.give(0..8);
    app.send(20 * PAGE, 60);
    let mut frames = app.lend(8);
    frames.extend(app.collect());
    app.socket.close();
    let App { socket, _sockets, memory, mut pool, .. } = app;
    drop((socket, _sockets, memory));
    for mut frame in frames {
        let mut bytes = frame.linear_len();
        frame.fill(&[4; 500]);
        bytes += frame.to_vec().iter().map(|&byte| usize::from(byte)).sum::<usize>();
        assert!(bytes >= 2000);
        pool.give(frame);
    }
}

/// An application that does what it likes, and ports that keep frames as long as they like: no
/// chunk is lost, none is two frames, and what was sent is completed once.
#[test]
fn whatever_an_application_does() {
    for round in 1..=15u64 {
        let mut random = Rng::with_seed(round);
        let mut app = app();
        let mut held: Vec<Frame> = Vec::new();
        for _ in 0..3000 {
            step(&mut app, &mut held, &mut random);
            let mut places: Vec<_> = held
                .iter()
                .filter(|frame| frame.is_external())
                .map(|frame| frame.shared_linear().as_ptr() as u64 / PAGE)
                .collect();
            places.sort_unstable();
            assert!(places.windows(2).all(|pair| pair[0] != pair[1]), "one chunk, two frames");
        }
        app.pool.give_all(&mut held);
        app.collect().clear();
        app.socket.sent(0);
        // All chunks are there again: given once more, each can be a frame.
        while !app.lend(64).is_empty() && app.fill.waiting() > 0 {}
        let Statistics { tx_packets, .. } = app.socket.statistics();
        assert!(tx_packets > 0);
        let arena = Arc::clone(&app.arena);
        drop(app);
        assert_eq!(arena.free(), arena.total(), "a frame is lost");
    }
}

use towpath_xsk::Statistics;

/// One thing that an application, a worker or another port may do.
fn step(app: &mut App, held: &mut Vec<Frame>, random: &mut Rng) {
    let random = random.u64(..);
    let (what, number) = (random % 12, random >> 8);
    match what {
        0 | 1 if app.fill.free(1) > 0 => {
            app.fill.write(number % (CHUNKS * PAGE + PAGE));
            app.fill.submit();
        }
        2 | 3 if app.tx.free(1) > 0 => {
            let (len, options) = ((number >> 32) as u32 % 4200, (number >> 50) as u32 % 4 / 3);
            app.tx.write(Desc { addr: number % (CHUNKS * PAGE), len, options });
            app.tx.submit();
        }
        // An index that jumps, and is put right again.
        4 => {
            let producer = app.fill.ring().producer();
            let before = producer.load(std::sync::atomic::Ordering::Relaxed);
            producer.store(number as u32, std::sync::atomic::Ordering::Relaxed);
            held.extend(app.lend(number as usize % 8));
            let ring = app.fill.ring().producer();
            ring.store(before, std::sync::atomic::Ordering::Relaxed);
        }
        5 | 6 => held.extend(app.lend(number as usize % 16)),
        7 | 8 => {
            let mut frames = app.collect();
            let count = number as usize % (frames.len() + 1);
            held.extend(frames.drain(..count));
            app.socket.sent(count);
            app.pool.give_all(&mut frames);
        }
        9 | 10 if !held.is_empty() => {
            let frame = held.swap_remove(number as usize % held.len());
            match number % 3 {
                0 => drop(frame),
                1 => app.pool.give(frame),
                _ => {
                    app.deliver(frame);
                }
            }
        }
        _ => {
            app.received();
            app.completed();
        }
    }
}
