//! One socket over memory that the test shares with it, as an application would.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use towpath_engine::Socket as _;
use towpath_ring::{Consumer, Desc, Mapped, Memory, OFFSETS, Producer};
use towpath_xdp::frame::RxInfo;
use towpath_xdp::{Arena, Pool};

use super::*;
use crate::abi::*;
use crate::rings::Which;
use crate::sockets::{Device, Host};

#[derive(Debug)]
struct TwoPorts;

impl Host for TwoPorts {
    fn device(&self, ifindex: u32) -> Option<Device> {
        (1..=2).contains(&ifindex).then_some(Device { queues: 2, zero_copy: false })
    }
}

const ENTRIES: u32 = 8;
const CHUNK: u32 = 2048;
const HERE: QueueId = QueueId { ifindex: 1, queue: 0 };
/// Frames of that length come with metadata.
const WITH_METADATA: usize = 128;

/// The application's side, and frames for the other.
struct Bench {
    socket: Arc<Socket>,
    _sockets: Arc<Sockets>,
    memory: OwnedFd,
    rx: Consumer<Mapped<Desc>>,
    tx: Producer<Mapped<Desc>>,
    fill: Producer<Mapped<u64>>,
    completion: Consumer<Mapped<u64>>,
    pool: Pool,
    /// Frames are delivered one by one.
    is_scalar: bool,
}

fn ring<T: towpath_ring::Entry>(socket: &Socket, which: Which) -> Mapped<T> {
    let at = which.page_offset();
    let memory = Memory::map::<T>(socket.rings(), at, &OFFSETS, ENTRIES).unwrap();
    Mapped::new(&memory, &OFFSETS, ENTRIES).unwrap()
}

fn bench(umem_flags: u32, bind_flags: u16) -> Bench {
    let sockets = Sockets::new(Arc::new(TwoPorts));
    let socket = sockets.open().unwrap();
    let memory = memfd_create("test-umem", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, 64 * u64::from(CHUNK)).unwrap();
    let reg = UmemReg {
        len: 64 * u64::from(CHUNK),
        chunk_size: CHUNK,
        flags: umem_flags,
        tx_metadata_len: match umem_flags {
            flags if flags & UMEM_RX_METADATA != 0 => RxMetadata::END as u32,
            flags if flags & UMEM_TX_METADATA_LEN != 0 => 24,
            _ => 0,
        },
        ..UmemReg::default()
    };
    let file = memory.try_clone().unwrap();
    socket.set_option(UMEM_REG, &reg.to_bytes(), Some((file, 0))).unwrap();
    for name in [RX_RING, TX_RING, UMEM_FILL_RING, UMEM_COMPLETION_RING] {
        socket.set_option(name, &ENTRIES.to_ne_bytes(), None).unwrap();
    }
    let address = Address { family: AF_XDP, flags: bind_flags, ifindex: 1, ..Address::default() };
    socket.bind(&address.to_bytes(), &Shared::NoSocket).unwrap();
    Bench {
        rx: Consumer::new(ring(&socket, Which::Rx)),
        tx: Producer::new(ring(&socket, Which::Tx)),
        fill: Producer::new(ring(&socket, Which::Fill)),
        completion: Consumer::new(ring(&socket, Which::Completion)),
        pool: Pool::new(&Arena::new(256).unwrap()),
        is_scalar: false,
        socket,
        _sockets: sockets,
        memory,
    }
}

impl Bench {
    fn give_chunks(&mut self, chunks: &[u64]) {
        assert!(self.fill.free(ENTRIES) as usize >= chunks.len());
        chunks.iter().for_each(|&chunk| self.fill.write(chunk));
        self.fill.submit();
    }

    /// Delivers packets of these lengths, filled with their number, and returns how many arrived.
    fn deliver(&mut self, lens: &[usize]) -> usize {
        let frame = |(number, len): (usize, &usize)| {
            let bytes = vec![number as u8 + 1; *len];
            let mut frame = self.pool.frame(&bytes).unwrap().unwrap();
            frame.rx = RxInfo { ifindex: 1, queue_index: 0, ..frame.rx };
            if *len == WITH_METADATA {
                frame.adjust_meta(-8).unwrap();
            }
            frame
        };
        let mut frames: Vec<Frame> = lens.iter().enumerate().map(frame).collect();
        let mut count = 0;
        let together = if self.is_scalar { 1 } else { frames.len() };
        while !frames.is_empty() {
            let mut burst: Vec<Frame> = frames.drain(..together).collect();
            count += self.socket.deliver(HERE, &mut burst, &mut self.pool);
            assert!(burst.is_empty());
        }
        self.socket.flush();
        count
    }

    fn received(&mut self) -> Vec<Desc> {
        let count = self.rx.available(ENTRIES);
        let descs = (0..count).map(|_| self.rx.read()).collect();
        self.rx.release();
        descs
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert_eq!(rustix::io::pread(&self.memory, &mut bytes, at).unwrap(), len);
        bytes
    }

    fn send(&mut self, descs: &[Desc]) {
        descs.iter().for_each(|&desc| self.tx.write(desc));
        self.tx.submit();
    }

    fn completed(&mut self) -> Vec<u64> {
        let count = self.completion.available(ENTRIES);
        let addrs = (0..count).map(|_| self.completion.read()).collect();
        self.completion.release();
        addrs
    }
}

fn desc(addr: u64, len: u32, options: u32) -> Desc {
    Desc { addr, len, options }
}

#[test]
fn packets_arrive_in_order() {
    let mut bench = bench(0, COPY);
    bench.give_chunks(&[0, 2048 + 100, 6144]);
    assert_eq!(bench.deliver(&[60, 1792, 64]), 3);
    let expected = [desc(256, 60, 0), desc(2304, 1792, 0), desc(6400, 64, 0)];
    assert_eq!(bench.received(), expected);
    for (number, Desc { addr, len, .. }) in expected.into_iter().enumerate() {
        assert_eq!(bench.bytes(addr, len as usize), vec![number as u8 + 1; len as usize]);
    }
}

#[test]
fn what_has_no_place_is_counted() {
    let mut bench = bench(0, COPY);
    assert_eq!(bench.deliver(&[60]), 0, "no chunks");
    bench.give_chunks(&[1 << 40, 0]);
    assert_eq!(bench.deliver(&[1793, 60]), 1, "too long for one chunk");
    let statistics = bench.socket.statistics();
    assert_eq!((statistics.rx_dropped, statistics.rx_fill_ring_empty_descs), (2, 1));
    assert_eq!((statistics.fill_invalid, statistics.rx_invalid_descs), (1, 0));
    bench.give_chunks(&[2048, 4096, 6144, 8192, 10240, 12288, 14336, 16384]);
    assert_eq!(bench.deliver(&[60; 8]), 7, "the ring has eight places");
    assert_eq!(bench.socket.statistics().rx_ring_full, 1);
    assert_eq!(bench.received().len(), 8);
    assert_eq!(bench.deliver(&[60]), 1, "its chunk is still there");
}

#[test]
fn long_packets_arrive_whole_or_not_at_all() {
    let mut bench = bench(0, COPY | USE_SG);
    bench.give_chunks(&[0, 2048, 1 << 40, 4096, 6144]);
    assert_eq!(bench.deliver(&[1793, 4000]), 1, "the second takes three");
    assert_eq!(bench.received(), [desc(256, 1792, Desc::CONTINUES), desc(2304, 1, 0)]);
    assert_eq!(bench.socket.statistics().rx_dropped, 1);
    assert_eq!(bench.socket.statistics().rx_fill_ring_empty_descs, 0);
    assert_eq!(bench.deliver(&[3584]), 1, "both chunks were kept");
    assert_eq!(bench.received().len(), 2);
}

#[test]
fn packets_leave_and_complete() {
    let mut bench = bench(0, COPY);
    bench.send(&[desc(64, 60, 0), desc(2048, 1000, 1), desc(4096, 1000, 0), desc(8192, 60, 0)]);
    let mut frames = Vec::new();
    assert_eq!(bench.socket.collect(&mut bench.pool, &mut frames, 64), 3);
    assert_eq!(frames.iter().map(|f| f.len()).collect::<Vec<_>>(), [60, 2000, 60]);
    assert!(bench.completed().is_empty());
    bench.socket.sent(2);
    assert_eq!(bench.completed(), [64, 2048, 4096]);
    frames.clear();
    assert_eq!(bench.socket.collect(&mut bench.pool, &mut frames, 64), 1, "the rest again");
    bench.socket.sent(1);
    assert_eq!(bench.completed(), [8192]);
    assert_eq!(bench.socket.statistics().tx_packets, 3);
}

#[test]
fn nonsense_to_send_is_counted_and_hurts_nobody() {
    let mut bench = bench(0, COPY);
    bench.send(&[
        desc(64, 0, 0),
        desc(1 << 40, 60, 0),
        desc(2000, 60, 0),
        desc(0, 60, 8),
        desc(0, 60, 1),
        desc(u64::MAX, 60, 0),
        desc(64, 60, 0),
    ]);
    let mut frames = Vec::new();
    assert_eq!(bench.socket.collect(&mut bench.pool, &mut frames, 64), 1);
    bench.socket.sent(1);
    let all = [64, 1 << 40, 2000, 0, 0, u64::MAX, 64];
    assert_eq!(bench.completed(), all, "whatever it was comes back");
    assert_eq!(bench.socket.statistics().tx_invalid_descs, 6);
    // No packet, but no nonsense either.
    bench.send(&[desc(64, 13, 0)]);
    assert_eq!(bench.socket.collect(&mut bench.pool, &mut frames, 64), 0);
    assert_eq!(bench.completed(), [64]);
    assert_eq!(bench.socket.statistics().tx_invalid_descs, 6);
}

#[test]
fn indices_that_jump_move_nothing() {
    use std::sync::atomic::Ordering::Relaxed;
    use towpath_ring::Shared as _;
    let mut bench = bench(0, COPY);
    for index in [9, u32::MAX, 1 << 31] {
        bench.tx.ring().producer().store(index, Relaxed);
        bench.fill.ring().producer().store(index, Relaxed);
        bench.rx.ring().consumer().store(index, Relaxed);
        let mut frames = Vec::new();
        assert_eq!(bench.socket.collect(&mut bench.pool, &mut frames, 64), 0);
        assert_eq!(bench.deliver(&[60]), 0);
    }
    assert!(bench.socket.statistics().index_jumps >= 6);
    bench.socket.close();
    assert_eq!(bench.deliver(&[60]), 0, "closed");
}

#[test]
fn metadata_asks_for_checksum_and_timestamp() {
    for flags in [UMEM_TX_METADATA_LEN, UMEM_TX_METADATA_LEN | UMEM_TX_SW_CSUM] {
        let mut bench = bench(flags, COPY);
        let put = |at: u64, bytes: &[u8]| {
            assert_eq!(rustix::io::pwrite(&bench.memory, bytes, at).unwrap(), bytes.len());
        };
        // At 4096: timestamp and checksum. At 8192: a checksum outside. At 12288: unknown flags.
        put(4096, &[3, 0, 0, 0, 0, 0, 0, 0, 20, 0, 6, 0]);
        put(8192, &[2, 0, 0, 0, 0, 0, 0, 0, 20, 0, 39, 0]);
        put(12288, &[8, 0, 0, 0, 0, 0, 0, 0]);
        put(4096 + 24, &[1; 60]);
        let metadata = Desc::METADATA;
        bench.send(&[
            desc(4096 + 24, 60, metadata),
            desc(8192 + 24, 60, metadata),
            desc(12288 + 24, 60, metadata),
            desc(12288 + 24, 60, 0),
            desc(20, 60, 0),
        ]);
        let mut frames = Vec::new();
        assert_eq!(bench.socket.collect(&mut bench.pool, &mut frames, 64), 2);
        let is_software = flags & UMEM_TX_SW_CSUM != 0;
        let offload = frames[0].offload().and_then(|offload| offload.checksum);
        let wanted = towpath_xdp::frame::offload::Checksum { start: 20, offset: 6 };
        assert_eq!(offload, (!is_software).then_some(wanted));
        let linear = frames[0].to_vec();
        // 20 words of 0x0101 sum up to 0x1414.
        assert_eq!(linear[26..28] == [0xeb, 0xeb], is_software, "{:?}", &linear[26..28]);
        assert_eq!(bench.bytes(4096 + 8, 8), [20, 0, 6, 0, 0, 0, 0, 0], "not before it is sent");
        bench.socket.sent(2);
        let stamp = u64::from_ne_bytes(*bench.bytes(4096 + 8, 8).first_chunk().unwrap());
        assert!(stamp > 1 << 60, "nanoseconds since 1970");
        assert_eq!(bench.completed(), [4120, 8216, 12312, 12312, 20], "addresses as they were");
        assert_eq!(bench.socket.statistics().tx_invalid_descs, 3);
    }
}

#[test]
fn launch_times_are_the_frames() {
    let mut bench = bench(UMEM_TX_METADATA_LEN, COPY);
    let mut metadata = [0; 24];
    metadata[0] = 4;
    metadata[16..].copy_from_slice(&1_234_567_u64.to_ne_bytes());
    rustix::io::pwrite(&bench.memory, &metadata, 256 - 24).unwrap();
    bench.send(&[desc(256, 64, Desc::METADATA), desc(2304, 64, 0)]);
    let mut frames = Vec::new();
    assert_eq!(bench.socket.collect(&mut bench.pool, &mut frames, 64), 2);
    let times = frames.iter().map(|frame| frame.launch_time());
    assert_eq!(times.collect::<Vec<_>>(), [Some(1_234_567), None]);
    bench.pool.give_all(&mut frames);
    bench.socket.sent(2);
}

/// The metadata of a packet is in front of it, and the descriptor that it came with sends it.
#[test]
fn hints_are_told_in_front_of_packets() {
    use towpath_xdp::frame::rx_metadata::{RxChecksum, RxHash, VlanTag};
    let mut bench = bench(UMEM_TX_METADATA_LEN | UMEM_RX_METADATA, COPY | USE_SG);
    bench.give_chunks(&[0, 2048, 4096, 6144, 8192]);
    let known = towpath_xdp::frame::rx_metadata::RxMetadata {
        hash: Some(RxHash { value: 0xdead_beef, kind: 25 }),
        timestamp_ns: Some(77),
        vlan: Some(VlanTag { protocol: 0x8100, tci: 5 }),
        checksum: RxChecksum::Complete(99),
    };
    let frame = |pool: &mut Pool, len: usize, is_known: bool, metadata: i32| {
        let mut frame = pool.frame(&vec![7; len]).unwrap().unwrap();
        if is_known {
            frame.set_rx_metadata(&known);
        }
        frame.adjust_meta(-metadata).unwrap();
        frame
    };
    let mut frames = vec![
        frame(&mut bench.pool, 60, true, 0),
        frame(&mut bench.pool, 60, false, 0),
        frame(&mut bench.pool, 60, true, 8),
        frame(&mut bench.pool, 3000, true, 0),
    ];
    assert_eq!(bench.socket.deliver(HERE, &mut frames, &mut bench.pool), 4);
    bench.socket.flush();
    let descs = bench.received();
    let options: Vec<u32> = descs.iter().map(|desc| desc.options).collect();
    assert_eq!(options, [2, 0, 0, 2 | 1, 0], "not of unknown ones, nor beside what programs say");
    let told = RxMetadata {
        hash: Some((0xdead_beef, 25)),
        vlan: Some((0x8100, 5)),
        timestamp_ns: Some(77),
        checksum: Some((4, 99)),
    };
    for desc in [&descs[0], &descs[3]] {
        let area = bench.bytes(desc.addr - RxMetadata::END as u64, RxMetadata::END);
        let (request, area) = area.split_first_chunk::<{ RxMetadata::START }>().unwrap();
        assert_eq!(*request, [0; RxMetadata::START], "nothing is asked of a sender");
        assert_eq!(RxMetadata::from_bytes(area.first_chunk().unwrap()), told);
    }
    bench.send(&descs[..1]);
    assert_eq!(bench.socket.collect(&mut bench.pool, &mut frames, 64), 1);
    assert_eq!(frames[0].to_vec(), [7; 60]);
    bench.pool.give_all(&mut frames);
    bench.socket.sent(1);
    assert_eq!(bench.completed(), [256]);
}

#[test]
fn hints_need_room() {
    let register = |flags, tx_metadata_len| {
        let reg =
            UmemReg { len: 4096, chunk_size: 2048, flags, tx_metadata_len, addr: 0, headroom: 0 };
        crate::umem::check(&reg)
    };
    let no_room = Err(Errno::NOSPC);
    assert_eq!(register(UMEM_RX_METADATA, 0), no_room);
    assert_eq!(register(UMEM_RX_METADATA | UMEM_TX_METADATA_LEN, 24), no_room);
    assert_eq!(register(UMEM_RX_METADATA | UMEM_TX_METADATA_LEN, 56), Ok(()));
}

#[test]
fn unaligned_chunks_say_their_offset() {
    let mut bench = bench(UMEM_UNALIGNED, COPY);
    bench.give_chunks(&[100, 63 * 2048 + 1, 5000 | 7 << 48]);
    assert_eq!(bench.deliver(&[60, 60]), 2, "the second entry is too far at the end");
    assert_eq!(bench.received(), [desc(100 | 256 << 48, 60, 0), desc(5000 | 256 << 48, 60, 0)]);
    assert_eq!(bench.bytes(5256, 60), [2; 60]);
    bench.send(&[desc(100 | 256 << 48, 60, 0), desc(1 | u64::from(u16::MAX) << 48, 2048, 0)]);
    let mut frames = Vec::new();
    assert_eq!(bench.socket.collect(&mut bench.pool, &mut frames, 64), 2);
    assert_eq!(frames[0].to_vec(), [1; 60]);
    bench.socket.sent(2);
    assert_eq!(bench.completed(), [100 | 256 << 48, 1 | u64::from(u16::MAX) << 48]);
}

#[test]
fn sockets_share_memory() {
    let mut bench = bench(0, COPY);
    let with = Shared::Socket(Arc::clone(&bench.socket));
    let share = |ifindex: u32, queue: u32, has_pool: bool| {
        let other = bench._sockets.open().unwrap();
        let pool: &[u32] = if has_pool { &[UMEM_FILL_RING, UMEM_COMPLETION_RING] } else { &[] };
        for &name in [RX_RING, TX_RING].iter().chain(pool) {
            other.set_option(name, &ENTRIES.to_ne_bytes(), None).unwrap();
        }
        let address =
            Address { flags: SHARED_UMEM, ifindex, queue, family: AF_XDP, ..Address::default() };
        other.bind(&address.to_bytes(), &with).unwrap();
        other
    };
    let (same, other) = (share(1, 0, false), share(1, 1, true));
    let far = share(2, 1, true);
    bench.give_chunks(&[0, 2048]);
    let mut fill = Producer::new(ring::<u64>(&other, Which::Fill));
    fill.write(4096);
    fill.submit();
    assert_eq!(bench.deliver(&[60]), 1);
    let mut frames = vec![bench.pool.frame(&[9; 60]).unwrap().unwrap()];
    assert_eq!(same.deliver(HERE, &mut frames, &mut bench.pool), 1, "from the common fill ring");
    frames.push(bench.pool.frame(&[8; 60]).unwrap().unwrap());
    assert_eq!(other.deliver(HERE, &mut frames, &mut bench.pool), 0, "another queue's");
    frames.push(bench.pool.frame(&[8; 60]).unwrap().unwrap());
    let there = QueueId { queue: 1, ..HERE };
    assert_eq!(other.deliver(there, &mut frames, &mut bench.pool), 1, "from a ring of its own");
    assert_eq!((bench.bytes(2304, 60), bench.bytes(4352, 60)), (vec![9; 60], vec![8; 60]));
    let mut fill = Producer::new(ring::<u64>(&far, Which::Fill));
    fill.write(8192);
    fill.submit();
    frames.push(bench.pool.frame(&[6; 60]).unwrap().unwrap());
    let other_port = QueueId { ifindex: 2, queue: 1 };
    assert_eq!(far.deliver(other_port, &mut frames, &mut bench.pool), 1, "another port's queue");
    assert_eq!(bench.bytes(8448, 60), [6; 60]);
    far.close();
    // The first may go: its queue belongs to the sockets that are left.
    bench.socket.close();
    frames.push(bench.pool.frame(&[7; 60]).unwrap().unwrap());
    bench.give_chunks(&[6144]);
    assert_eq!(same.deliver(HERE, &mut frames, &mut bench.pool), 1);
    same.close();
    other.close();
    assert!(!bench._sockets.has_pool(HERE) && !bench._sockets.has_pool(there));
}

/// A burst gives the same results as its frames one by one, for any lengths, any entries of the
/// fill ring, and any level of the rings.
#[test]
fn a_burst_is_its_frames() {
    let mut seed = 1u64;
    let mut below = |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    for (umem_flags, bind_flags) in
        [(0, COPY), (0, COPY | USE_SG), (UMEM_UNALIGNED, COPY), (UMEM_UNALIGNED, COPY | USE_SG)]
    {
        let mut benches = [bench(umem_flags, bind_flags), bench(umem_flags, bind_flags)];
        benches[1].is_scalar = true;
        for round in 0..400 {
            // One entry in eight names no chunk.
            let room = benches[0].fill.free(ENTRIES).min(below(9) as u32);
            let chunks: Vec<u64> = (0..room).map(|_| below(73) * 2048 + below(100)).collect();
            let long = [60, 64, 65, 127, 128, 129, 500, 1792, 1793, 3600];
            let lens: Vec<usize> = (0..below(9)).map(|_| long[below(10) as usize]).collect();
            let is_taken = below(3) > 0;
            let [burst, scalar] = benches.each_mut().map(|bench| {
                bench.give_chunks(&chunks);
                let count = bench.deliver(&lens);
                let descs = if is_taken { bench.received() } else { Vec::new() };
                let bytes = descs.iter().map(|desc| {
                    let at = (desc.addr & ((1 << 48) - 1)) + (desc.addr >> 48);
                    bench.bytes(at, desc.len as usize)
                });
                let bytes: Vec<_> = bytes.collect();
                (count, descs, bytes, bench.socket.statistics())
            });
            assert_eq!(burst, scalar, "round {round}, flags {umem_flags} {bind_flags}");
        }
        assert!(benches[0].socket.statistics().rx_ring_full > 0);
        assert!(benches[0].socket.statistics().rx_fill_ring_empty_descs > 0);
        assert!(benches[0].socket.statistics().fill_invalid > 0);
    }
}

/// The flag in the tx ring is for sockets bound with `XDP_USE_NEED_WAKEUP`: set while no worker
/// polls. Other sockets never see it, and wake us every time.
#[test]
fn the_tx_ring_says_whether_to_wake() {
    for (flags, says) in [(COPY | USE_NEED_WAKEUP, true), (COPY, false)] {
        let mut bench = bench(0, flags);
        let is_set = |bench: &Bench| {
            use towpath_ring::Shared as _;
            let flags = bench.tx.ring().flags().unwrap();
            towpath_ring::Word::load(flags, Ordering::Relaxed) & towpath_ring::NEED_WAKEUP != 0
        };
        assert_eq!(is_set(&bench), says, "nobody polls yet");
        bench.socket.disarm();
        assert!(!is_set(&bench), "a worker polls");
        assert!(matches!(bench.socket.arm(), Wake::Readable(_)));
        assert_eq!(is_set(&bench), says, "it sleeps");
        bench.socket.disarm();
        bench.send(&[desc(0, 60, 0)]);
        assert!(matches!(bench.socket.arm(), Wake::Now), "there is something to send");
    }
}

#[test]
fn busy_polling_keeps_workers_awake() {
    let mut bench = bench(0, COPY | USE_NEED_WAKEUP);
    let socket = Arc::clone(&bench.socket);
    let set = |name, value: i32| socket.set_option(name, &value.to_ne_bytes(), None);
    for (name, bad) in [
        (BUSY_POLL, -1),
        (PREFER_BUSY_POLL, 2),
        (BUSY_POLL_BUDGET, -1),
        (BUSY_POLL_BUDGET, 0x10000),
    ] {
        assert_eq!(set(name, bad), Err(Errno::INVAL));
        assert_eq!(socket.get_option(name, 4), Ok(vec![0; 4]), "off");
    }
    assert_eq!(socket.set_option(BUSY_POLL, &[1, 0], None), Err(Errno::INVAL));
    assert_eq!(socket.set_option(46, &[0; 4], None), Err(Errno::NOPROTOOPT), "the other level");
    let sleeps = || matches!(socket.arm(), Wake::Readable(_));
    set(BUSY_POLL, 60_000_000).unwrap();
    assert!(sleeps(), "nothing is preferred yet");
    set(PREFER_BUSY_POLL, 1).unwrap();
    assert!(!sleeps() && !sleeps());
    set(BUSY_POLL, 1).unwrap();
    std::thread::sleep(Duration::from_millis(1));
    assert!(sleeps(), "nothing came for that long");
    bench.give_chunks(&[0]);
    assert_eq!(bench.deliver(&[60]), 1);
    assert!(!sleeps(), "a packet");
    // The budget is about one turn.
    set(BUSY_POLL_BUDGET, 2).unwrap();
    bench.send(&[desc(0, 60, 0), desc(2048, 60, 0), desc(4096, 60, 0)]);
    let mut frames = Vec::new();
    for expected in [2, 1] {
        assert_eq!(socket.collect(&mut bench.pool, &mut frames, 64), expected);
        socket.sent(expected);
    }
    assert_eq!(socket.get_option(BUSY_POLL_BUDGET, 4), Ok(vec![2, 0, 0, 0]));
}
