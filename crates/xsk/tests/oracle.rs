//! The calls that were recorded on Linux 6.18 (`data/afxdp-6.18.txt`: a veth in native mode, chunks
//! of 4096, a program that puts eight bytes of metadata in front), in the same order, with the same
//! answers.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use towpath_bpf::MapDef;
use towpath_bpf::program::MapType;
use towpath_engine::{QueueId, Socket as _};
use towpath_maps::{CreateOptions, Domain, Environment, Map, Value};
use towpath_ring::{Consumer, Desc, Entry, Mapped, Memory, OFFSETS, Producer, Shared as _};
use towpath_xdp::{Arena, Frame, Pool};
use towpath_xsk::abi::*;
use towpath_xsk::rings::Which;
use towpath_xsk::{Device, Errno, Host, Shared, Socket, Sockets};

/// Two ports, and the map that sockets are in.
#[derive(Debug)]
struct Ports {
    map: Mutex<Option<Arc<Map>>>,
    descriptors: Arc<Descriptors>,
}

impl Host for Ports {
    fn device(&self, ifindex: u32) -> Option<Device> {
        [VA, VB].contains(&ifindex).then_some(Device { queues: 1, zero_copy: false })
    }

    fn detach(&self, sockets: &[Arc<Socket>]) {
        let is_gone = |id: u32| sockets.iter().any(|socket| socket.id() == id);
        let Some(map) = self.map.lock().clone() else { return };
        for (key, target) in map.targets() {
            if is_gone(target.id) {
                map.user().delete(&key.to_ne_bytes()).unwrap();
            }
        }
        self.descriptors.0.lock().retain(|_, known| !is_gone(*known));
    }
}

/// Sockets by descriptor.
#[derive(Debug, Default)]
struct Descriptors(Mutex<HashMap<u32, u32>>);

impl Environment for Descriptors {
    fn socket(&self, number: u32) -> Result<(u32, u32), towpath_bpf::Errno> {
        let known = self.0.lock();
        known.get(&number).map(|id| (*id, 0)).ok_or(towpath_bpf::Errno(88))
    }
}

fn code<T>(result: Result<T, Errno>) -> i32 {
    result.map_or_else(|errno| -errno.raw_os_error(), |_| 0)
}

struct Run {
    sockets: Arc<Sockets>,
    descriptors: Arc<Descriptors>,
    host: Arc<Ports>,
    memory: OwnedFd,
    out: String,
}

macro_rules! say {
    ($run:expr, $($arguments:tt)*) => { write!($run.out, $($arguments)*).unwrap() };
}

impl Run {
    fn open(&self) -> Arc<Socket> {
        self.sockets.socket(3, 0).unwrap()
    }

    fn register(&self, socket: &Socket, numbers: [u32; 4], len: u64) -> i32 {
        let [chunk_size, headroom, flags, tx_metadata_len] = numbers;
        let reg = UmemReg { addr: 1 << 30, len, chunk_size, headroom, flags, tx_metadata_len };
        let file = self.memory.try_clone().unwrap();
        code(socket.set_option(UMEM_REG, &reg.to_bytes(), Some((file, 0))))
    }

    /// Registers on a socket of its own.
    fn try_register(&self, numbers: [u32; 4], len: u64) -> i32 {
        let socket = self.open();
        let answer = self.register(&socket, numbers, len);
        socket.close();
        answer
    }

    fn registration(&mut self) {
        say!(self, "DGRAM {}\n", code(self.sockets.socket(2, 0)));
        say!(self, "proto5 {}\n", code(self.sockets.socket(3, 5)));
        for chunk in [1024, 2048, 3000, 4096, 8192] {
            let plain = self.try_register([chunk, 0, 0, 0], UMEM);
            let unaligned = self.try_register([chunk, 0, 1, 0], UMEM);
            say!(self, "chunk {chunk} {plain} unaligned {unaligned}\n");
        }
        let bad = (1300..1800).find_map(|headroom| {
            let answer = self.try_register([2048, headroom, 0, 0], UMEM);
            (answer != 0).then_some((headroom, answer))
        });
        let (headroom, answer) = bad.unwrap();
        say!(self, "chunk 2048 first bad headroom {headroom} {answer}\n");
        for len in [8, 16, 24, 20, 248, 256] {
            say!(self, "txmeta {len} {}\n", self.try_register([4096, 0, 4, len], UMEM));
        }
        let flag = self.try_register([4096, 0, 8, 0], UMEM);
        let odd = self.try_register([4096, 0, 0, 0], UMEM - 2048);
        let short = self.try_register([4096, 0, 0, 0], 2048);
        say!(self, "flag8 {flag} len odd {odd} len<chunk {short}\n");
    }

    fn set(&self, socket: &Socket, name: u32, value: u32) -> i32 {
        code(socket.set_option(name, &value.to_ne_bytes(), None))
    }

    fn bind(&self, socket: &Arc<Socket>, flags: u16, at: (u32, u32), shared: &Shared) -> i32 {
        let (ifindex, queue) = at;
        let address = Address { family: AF_XDP, flags, ifindex, queue, shared_umem_fd: 0 };
        code(socket.bind(&address.to_bytes(), shared))
    }

    /// The socket that stays.
    fn first(&mut self) -> Arc<Socket> {
        let s = self.open();
        let none = Shared::NoSocket;
        let usual = [4096, 0, 0, 0];
        // The program that was recorded made several calls in one printf: from right to left.
        let again = self.register(&s, usual, UMEM);
        say!(self, "reg {} again {again}\n", self.register(&s, usual, UMEM));
        let rings = [64, 64, 3, 0].map(|entries| self.set(&s, RX_RING, entries));
        let [again, good, odd, zero] = rings;
        say!(self, "ring 0 {zero} 3 {odd} 64 {good} again {again}\n");
        let (set, get) = (self.set(&s, 99, 0), code(s.get_option(99, 4)));
        say!(self, "opt99 {set} get99 {get}\n");
        say!(self, "bind nofill {}\n", self.bind(&s, COPY, (VB, 0), &none));
        let both = (self.set(&s, UMEM_FILL_RING, 64), self.set(&s, UMEM_COMPLETION_RING, 64));
        say!(self, "fill {} comp {}\n", both.0, both.1);
        let flag = self.bind(&s, 32, (VB, 0), &none);
        let device = self.bind(&s, COPY, (999, 0), &none);
        let queue = self.bind(&s, COPY, (VB, 9), &none);
        let two = self.bind(&s, COPY | ZEROCOPY, (VB, 0), &none);
        let zero_copy = self.bind(&s, ZEROCOPY, (VB, 0), &none);
        say!(self, "bind flag32 {flag} ifi999 {device} q9 {queue} copy|zc {two} zc {zero_copy}\n");
        let t = self.open();
        say!(self, "bind noring {}\n", self.bind(&t, COPY, (VB, 0), &none));
        t.close();
        say!(self, "send unbound {}\n", code(s.check_send(false)));
        let bound = self.bind(&s, COPY | USE_NEED_WAKEUP | USE_SG, (VB, 0), &none);
        say!(self, "bind ok {bound} again {}\n", self.bind(&s, COPY, (VB, 0), &none));
        say!(self, "ring after bind {}\n", self.set(&s, TX_RING, 64));
        let (send, wait) = (code(s.check_send(false)), code(s.check_send(true)));
        say!(self, "send notx {send} send wait {wait}\n");
        s
    }

    fn sharing(&mut self, s: &Arc<Socket>) -> Vec<Arc<Socket>> {
        let none = Shared::NoSocket;
        let with = Shared::Socket(Arc::clone(s));
        let t = self.open();
        self.register(&t, [4096, 0, 0, 0], UMEM);
        for name in [RX_RING, UMEM_FILL_RING, UMEM_COMPLETION_RING] {
            self.set(&t, name, 64);
        }
        say!(self, "second own umem same q {}\n", self.bind(&t, COPY, (VB, 0), &none));
        t.close();
        let t = self.open();
        self.set(&t, RX_RING, 64);
        let flags = self.bind(&t, SHARED_UMEM | COPY, (VB, 0), &with);
        let bad = self.bind(&t, SHARED_UMEM, (VB, 0), &none);
        say!(self, "(rtl) shared flags {flags} badfd {bad} stdin {bad} ");
        let unbound = Shared::Socket(self.open());
        let other = self.bind(&t, SHARED_UMEM, (VB, 0), &Shared::OtherFamily);
        let unbound = self.bind(&t, SHARED_UMEM, (VB, 0), &unbound);
        let same = self.bind(&t, SHARED_UMEM, (VB, 0), &with);
        say!(self, "udp {other} unbound {unbound} same ok {same}\n");
        let t2 = self.open();
        self.set(&t2, RX_RING, 64);
        let rings = self.bind(&t2, SHARED_UMEM, (VA, 0), &with);
        say!(self, "shared otherdev without rings {rings}\n");
        self.set(&t2, UMEM_FILL_RING, 64);
        say!(self, "only fill {}\n", self.bind(&t2, SHARED_UMEM, (VA, 0), &with));
        self.set(&t2, UMEM_COMPLETION_RING, 64);
        say!(self, "both {}\n", self.bind(&t2, SHARED_UMEM, (VA, 0), &with));
        let t3 = self.open();
        for name in [RX_RING, UMEM_FILL_RING, UMEM_COMPLETION_RING] {
            self.set(&t3, name, 64);
        }
        let with_rings = self.bind(&t3, SHARED_UMEM, (VB, 0), &with);
        say!(self, "shared same q with rings {with_rings}\n");
        vec![t, t2]
    }

    fn map(&mut self, s: &Arc<Socket>) {
        let def = MapDef::new("xm", MapType::Xskmap, 4, 4, 4);
        let mut options = CreateOptions::new(Domain::new(1));
        options.environment = Arc::clone(&self.descriptors) as _;
        let map = Map::create(&def, &options).unwrap();
        *self.host.map.lock() = Some(Arc::clone(&map));
        let put = |key: u32, value: u32, flags| {
            let value = Value::One(value.to_ne_bytes().to_vec());
            map.user().update(&key.to_ne_bytes(), &value, flags).map_or_else(|e| -e.0, |()| 0)
        };
        let descriptor = |socket: &Socket, number| {
            self.descriptors.0.lock().insert(number, socket.id());
            number
        };
        let (t, s) = (self.open(), descriptor(s, 10));
        let tv = descriptor(&t, 11);
        let without = put(0, tv, 0);
        self.set(&t, RX_RING, 64);
        let (unbound, same) = (put(0, tv, 0), put(0, tv, 1));
        t.close();
        let closed = put(0, s, 2);
        let (other, key, flag) = (put(0, 1, 0), put(9, s, 0), put(0, s, 8));
        let lookup = map.user().lookup(&[0; 4], 0).map_or_else(|e| -e.0, |_| 0);
        let set = put(0, s, 1);
        say!(self, "xskmap norx {without} unbound {unbound} same noexist {same} ");
        say!(self, "after close exist {closed} fd1 {other} key9 {key} flag8 {flag} ");
        say!(self, "lookup {lookup} set {set}\nattach 0\n");
    }

    fn traffic(&mut self, s: &Arc<Socket>) {
        let offsets = s.get_option(MMAP_OFFSETS, 128).unwrap();
        let word = |at: usize| u64::from_ne_bytes(*offsets[at..].first_chunk().unwrap());
        let [p, c, d, f] = [0, 8, 16, 24].map(word);
        // A file cannot refuse a mapping longer than the ring.
        say!(self, "offs {p} {c} {d} {f}  mmap big -22\n");
        let mut fill = Producer::new(ring::<u64>(s, Which::Fill));
        let mut rx = Consumer::new(ring::<Desc>(s, Which::Rx));
        for addr in [4096 + 100, 8192, 0x7fff_ffff, 3 * 4096, 4 * 4096, 5 * 4096] {
            fill.write(addr);
        }
        fill.submit();
        let mut pool = Pool::new(&Arena::new(16).unwrap());
        for len in [60, 3840, 3841, 8014] {
            say!(self, "sent {len}({len}):");
            let mut bytes = METADATA.to_ne_bytes().to_vec();
            bytes.resize(8 + len, 0xff);
            let mut frames = vec![Frame::with_metadata(&bytes, 8).unwrap()];
            s.deliver(QueueId { ifindex: VB, queue: 0 }, &mut frames, &mut pool);
            s.flush();
            for _ in 0..rx.available(64) {
                let Desc { addr, len, options } = rx.read();
                let mut meta = [0; 8];
                rustix::io::pread(&self.memory, &mut meta, addr - 8).unwrap();
                let meta = u64::from_ne_bytes(meta);
                say!(self, " [addr {addr} len {len} opt {options} meta {meta:x}]");
            }
            let statistics = s.get_option(STATISTICS, 48).unwrap();
            let numbers =
                statistics.chunks_exact(8).map(|b| u64::from_ne_bytes(b.try_into().unwrap()));
            say!(self, " stats{}\n", numbers.map(|n| format!(" {n}")).collect::<String>());
        }
    }
}

fn ring<T: Entry>(socket: &Socket, which: Which) -> Mapped<T> {
    let memory = Memory::map::<T>(socket.rings(), which.page_offset(), &OFFSETS, 64).unwrap();
    let ring = Mapped::new(&memory, &OFFSETS, 64).unwrap();
    assert_eq!(ring.size(), 64);
    ring
}

#[test]
fn every_answer_is_the_kernels() {
    let descriptors = Arc::new(Descriptors::default());
    let map = Mutex::default();
    let host = Arc::new(Ports { map, descriptors: Arc::clone(&descriptors) });
    let memory = memfd_create("xsk-oracle", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, UMEM).unwrap();
    let sockets = Sockets::new(Arc::clone(&host) as _);
    let mut run = Run { sockets, descriptors, host, memory, out: String::new() };
    run.registration();
    let s = run.first();
    let others = run.sharing(&s);
    run.map(&s);
    run.traffic(&s);
    let recorded = include_str!("data/afxdp-6.18.txt");
    for (ours, theirs) in run.out.lines().zip(recorded.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(run.out.lines().count(), recorded.lines().count());
    drop(others);
}

/// Bytes of packet memory.
const UMEM: u64 = 4096 * 64;
const VA: u32 = 11;
const VB: u32 = 12;
const METADATA: u64 = 0x1122_3344_5566_7788;
