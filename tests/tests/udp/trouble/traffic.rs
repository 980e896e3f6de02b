//! Datagrams of both directions, and what becomes of each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use towpath_udp::{Options, TxDatagram, UdpSocket, UdpStack};

use super::world::World;
use crate::kernel::Kernel;
use crate::lab::{FAR, NEAR, PATIENCE, at, errno};

/// All datagrams that were sent, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sent: Mutex<Vec<Entry>>,
    /// Nothing that is sent to the near host now may arrive.
    is_shut: AtomicBool,
}

#[derive(Debug)]
struct Entry {
    destination: SocketAddr,
    was_shut: bool,
    has_arrived: bool,
}

impl Ledger {
    /// A datagram to send: its number, its destination, and bytes that follow from the number.
    fn make(&self, destination: SocketAddr, len: usize) -> (u64, Vec<u8>) {
        let mut sent = self.sent.lock();
        let number = sent.len() as u64;
        let is_near = NEAR.contains(&destination.ip().to_string().as_str());
        let was_shut = is_near && self.is_shut.load(Ordering::SeqCst);
        sent.push(Entry { destination, was_shut, has_arrived: false });
        (number, bytes_of(number, len))
    }

    /// Notes the arrival of a datagram, which must be one that was sent there, once.
    fn take(&self, payload: &[u8], destination: SocketAddr) -> u64 {
        let number = u64::from_le_bytes(*payload.first_chunk().expect("a number"));
        let mut sent = self.sent.lock();
        let entry =
            sent.get_mut(number as usize).unwrap_or_else(|| panic!("{number} was never sent"));
        assert_eq!(entry.destination, destination, "{number} is at the wrong socket");
        assert!(!entry.was_shut, "{number} passed a port that is shut");
        assert!(!entry.has_arrived, "{number} arrived twice");
        entry.has_arrived = true;
        drop(sent);
        assert!(payload == bytes_of(number, payload.len()), "{number} has other bytes");
        number
    }

    fn has(&self, number: u64) -> bool {
        self.sent.lock()[number as usize].has_arrived
    }

    /// From now on nothing, or everything, may arrive.
    pub(crate) fn shut(&self, is_shut: bool) {
        self.is_shut.store(is_shut, Ordering::SeqCst);
    }
}

fn bytes_of(number: u64, len: usize) -> Vec<u8> {
    let rest = (8..len).map(|at| (number as u8).wrapping_mul(31).wrapping_add(at as u8));
    number.to_le_bytes().into_iter().chain(rest).collect()
}

/// An application's sockets: one of each family with an address, and one wildcard.
pub(crate) struct Sockets {
    pub(crate) stack: UdpStack,
    pub(crate) all: Vec<UdpSocket>,
}

impl Sockets {
    pub(crate) fn open(options: &Options) -> std::io::Result<Sockets> {
        let stack = UdpStack::open(options)?;
        let addresses = [at(NEAR[0], PORT), at(NEAR[2], PORT), at("0.0.0.0", PORT + 1)];
        let all = addresses.into_iter().map(|address| stack.bind(address));
        let all = all.collect::<std::io::Result<_>>()?;
        Ok(Sockets { stack, all })
    }
}

/// Both ends of the traffic.
pub(crate) struct Ends {
    pub(crate) ledger: Ledger,
    options: Options,
    near: RwLock<Arc<Sockets>>,
    far: Vec<Kernel>,
}

/// Errors of sending while something is wrong.
const SEND_ERRORS: [Errno; 6] = [
    Errno::AGAIN,
    Errno::NETUNREACH,
    Errno::HOSTUNREACH,
    Errno::ADDRNOTAVAIL,
    Errno::NETDOWN,
    Errno::PIPE,
];

impl Ends {
    pub(crate) fn new(world: &World) -> Ends {
        let options = world.options();
        let start = Instant::now();
        let sockets = loop {
            match Sockets::open(&options) {
                Ok(sockets) => break sockets,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let far = [FAR[0], FAR[2]].map(|address| world.kernel(&at(address, PORT).to_string()));
        let near = RwLock::new(Arc::new(sockets));
        Ends { ledger: Ledger::default(), options, near, far: far.into() }
    }

    pub(crate) fn sockets(&self) -> Arc<Sockets> {
        Arc::clone(&self.near.read())
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Opens the application's sockets again. The old ones go first.
    pub(crate) fn try_reopen(&self) -> std::io::Result<()> {
        let fresh = Sockets::open(&self.options)?;
        *self.near.write() = Arc::new(fresh);
        Ok(())
    }

    /// Takes all that has arrived at either end.
    pub(crate) fn drain(&self) {
        for socket in &self.sockets().all {
            while socket.recv_batch(64, |it| {
                self.ledger.take(it.payload, it.destination);
                assert_eq!(it.destination.port(), socket.local_addr().port());
            }) > 0
            {}
        }
        for (kernel, address) in self.far.iter().zip([FAR[0], FAR[2]]) {
            for it in kernel.received() {
                self.ledger.take(&it.payload, at(address, PORT));
            }
        }
    }

    /// Sends one datagram to each socket; gives their numbers.
    pub(crate) fn send(&self, len: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        for (index, socket) in self.sockets().all.iter().enumerate() {
            let address = if index == 1 { 2 } else { 0 };
            let there = &self.far[address / 2];
            let to = at(NEAR[address], socket.local_addr().port());
            let (number, payload) = self.ledger.make(to, len);
            numbers.push(number);
            there.send_if_possible(&payload, to);
            let to = at(FAR[address], PORT);
            let (number, payload) = self.ledger.make(to, len);
            numbers.push(number);
            if let Err(error) = socket.send_batch(&[TxDatagram::new(&payload, to)]) {
                let is_known = SEND_ERRORS.contains(&errno(&error));
                assert!(is_known, "sending to {to}: {error}");
            }
        }
        numbers
    }

    /// Exchanges datagrams, none of which may be lost.
    pub(crate) fn exchange(&self, count: usize) {
        for _ in 0..count {
            let numbers = self.send(100);
            let start = Instant::now();
            loop {
                self.drain();
                let missing: Vec<_> = numbers.iter().filter(|it| !self.ledger.has(**it)).collect();
                if missing.is_empty() {
                    break;
                }
                let statistics = self.sockets().stack.statistics();
                assert!(start.elapsed() < PATIENCE, "{missing:?} of {numbers:?}: {statistics:?}");
                self.pause();
            }
        }
    }

    /// Exchanges datagrams until all of a round arrive. Sockets that are gone are opened again.
    /// Returns whether that was needed.
    pub(crate) fn exchange_again(&self, what: &str) -> bool {
        let (start, mut was_gone, mut last) = (Instant::now(), false, None);
        while start.elapsed() < PATIENCE {
            if self.sockets().all.iter().any(UdpSocket::is_gone) {
                was_gone = true;
                self.check_gone();
                last = self.try_reopen().err();
            }
            let (numbers, start) = (self.send(100), Instant::now());
            while start.elapsed() < ROUND {
                self.drain();
                if numbers.iter().all(|number| self.ledger.has(*number)) {
                    return was_gone;
                }
                self.pause();
            }
        }
        let addresses: Vec<_> = self.sockets().all.iter().map(UdpSocket::local_addr).collect();
        let missing = self.send(100);
        std::thread::sleep(ROUND);
        self.drain();
        let missing: Vec<_> = missing.iter().map(|it| self.ledger.has(*it)).collect();
        panic!("nothing works after {what}: {last:?}, {addresses:?}: {missing:?}");
    }

    /// Sockets that are gone say so, and nothing waits for them.
    pub(crate) fn check_gone(&self) {
        for socket in &self.sockets().all {
            let start = Instant::now();
            while !socket.is_gone() {
                assert!(start.elapsed() < PATIENCE, "{} is not gone", socket.local_addr());
                std::thread::sleep(Duration::from_millis(1));
            }
            socket.recv_batch(usize::MAX, |it| {
                self.ledger.take(it.payload, it.destination);
            });
            let kind = socket.wait_recv(Some(PATIENCE)).map_err(|error| error.kind());
            // What arrived before may still be there.
            assert!(matches!(kind, Ok(true) | Err(std::io::ErrorKind::NotConnected)), "{kind:?}");
            assert!(start.elapsed() < PATIENCE, "waiting takes {:?}", start.elapsed());
            socket.stack().bind(at(NEAR[0], PORT + 2)).expect_err("it is gone");
        }
    }

    /// Sends a lot in both directions, until it is told to stop.
    pub(crate) fn flood(&self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            for _ in 0..8 {
                self.send(600);
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Exchanges datagrams, none of which may be lost, until it is told to stop.
    pub(crate) fn flow(&self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            self.exchange(1);
        }
    }

    /// Takes what arrives, until it is told to stop.
    pub(crate) fn drain_until(&self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            self.drain();
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    fn pause(&self) {
        let sockets = self.sockets();
        // It ends when the sockets are gone.
        let _gone = sockets.all[0].wait_recv(Some(Duration::from_millis(1)));
    }
}

pub(crate) const PORT: u16 = 6000;
const ROUND: Duration = Duration::from_millis(200);
