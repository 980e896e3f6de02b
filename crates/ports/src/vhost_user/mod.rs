//! `vhost-user`: the network card of a virtual machine, over a socket to its monitor (QEMU,
//! Cloud Hypervisor, DPDK's virtio-user).
//!
//! The guest's queues are in memory that the monitor passes: what the guest sends is copied out of
//! its buffers into frames, and frames are copied into buffers that it made available. A thread of
//! the port's own talks with the monitor; workers only look at rings. Nothing that the guest or its
//! monitor does goes further than its own queues: see `burst`, `fault_unsafe` and `session`.

mod bell_unsafe;
mod burst;
mod connection;
mod control;
mod fault_unsafe;
mod feature;
mod generation;
mod inflight;
mod log;
mod mapping_unsafe;
mod memory;
mod message;
mod packed;
mod ring;
mod run;
mod rx;
mod session;
mod split;
mod steering;
mod tx;
mod vring;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Deserialize;
use towpath_engine::port::{Device, Features, Peer, Rx, Tx};
use towpath_host::socket::Access;
use towpath_xdp::{Arena, Frame, Pool};

use bell_unsafe::Signals;
use control::Control;
use feature::Negotiated;
use generation::Generation;
use memory::Memory;
use steering::Steering;
use vring::Vring;

pub use burst::Violation;
pub use feature::Offer;

/// How a port of a virtual machine is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The socket, at most 107 bytes.
    pub path: PathBuf,
    /// The side that listens there.
    pub mode: Mode,
    /// Which other users may connect, where we listen.
    pub access: Access,
    /// Pairs of queues that the guest may use, 1 to [`QUEUES_MAX`].
    pub queues: u32,
    /// Largest payload, 68 to 65521 bytes.
    pub mtu: u32,
    /// Address of our end.
    pub mac: [u8; 6],
    /// Features offered to the guest's driver.
    pub offer: Offer,
}

/// The side that listens at the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// We do, and monitors come and go (QEMU: `reconnect=1`).
    Server,
    /// The monitor does, and we connect again and again (QEMU: `server=on`).
    Client,
}

impl Options {
    /// The usual options: we listen, one pair of queues, everything is offered but what few
    /// monitors speak.
    pub fn new(path: impl Into<PathBuf>) -> Options {
        let offer = Offer {
            offloads: true,
            packed: true,
            mergeable: true,
            in_order: true,
            queue_reset: false,
        };
        let mac = [0x02, 0, 0, 0, 0, 1];
        Options {
            path: path.into(),
            mode: Mode::Server,
            access: Access::default(),
            queues: 1,
            mtu: 1500,
            mac,
            offer,
        }
    }
}

/// Why there is no such port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A number outside of what the kind takes.
    #[error("{what} is {value}, but must be from {min} to {max}")]
    Range {
        /// The option.
        what: &'static str,
        /// Its value.
        value: u32,
        /// The smallest that is taken.
        min: u32,
        /// The largest.
        max: u32,
    },
    /// Guests cannot be interrupted (`io_setup(2)`).
    #[error(
        "asynchronous I/O, by which guests are interrupted: {0}; `sysctl fs.aio-nr` says how much of \
         fs.aio-max-nr is in use"
    )]
    Signals(#[source] io::Error),
    /// The socket cannot be made.
    #[error("{}: {source}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A virtual machine's network card. The socket goes when this is dropped.
#[derive(Debug)]
pub struct VhostUser {
    shared: Arc<Shared>,
    _control: Control,
}

impl VhostUser {
    /// Makes the socket, or begins to look for it.
    pub fn new(options: Options) -> Result<VhostUser, Error> {
        let range = |what, value, min, max| match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(Error::Range { what, value, min, max }),
        };
        range("queues", options.queues, 1, QUEUES_MAX)?;
        range("mtu", options.mtu, 68, MTU_MAX)?;
        let path = options.path.clone();
        let signals = Arc::new(Signals::new().map_err(Error::Signals)?);
        let shared = Arc::new(Shared::new(options, signals));
        let control = Control::start(&shared).map_err(|source| Error::Socket { path, source })?;
        Ok(VhostUser { shared, _control: control })
    }
}

impl Device for VhostUser {
    fn kind(&self) -> &'static str {
        "vhost-user"
    }

    fn queues(&self) -> u32 {
        self.shared.options.queues
    }

    /// It takes everything: what the guest's driver did not agree on is done when it is sent.
    fn features(&self) -> Features {
        Features {
            rx_frags: true,
            tx_frags: true,
            tx_checksum: true,
            tx_tso: true,
            tx_uso: true,
            rx_checksum: true,
            rx_offloads: true,
            ..Features::default()
        }
    }

    fn mac(&self) -> [u8; 6] {
        self.shared.options.mac
    }

    fn mtu(&self) -> u32 {
        self.shared.options.mtu
    }

    /// Up while the guest's driver receives.
    fn link(&self) -> bool {
        self.shared.open.load(Ordering::Acquire) != 0
    }

    fn open_rx(&self, queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Ok(Box::new(rx::Queue::new(&self.shared, queue)))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(tx::Transmitter::new(&self.shared)))
    }

    fn failures(&self) -> Vec<String> {
        self.shared.failures()
    }

    fn restarts(&self) -> u64 {
        self.shared.generation.restarts()
    }

    fn peer(&self) -> Option<Peer> {
        let notes = &self.shared.notes;
        let (refusals, refusal) = notes.refusal.lock().clone();
        Some(Peer {
            is_there: notes.is_connected.load(Ordering::Relaxed),
            comings: notes.connections.load(Ordering::Relaxed),
            refusals,
            refusal,
        })
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        self.shared.details()
    }
}

/// State shared by the control thread and workers.
#[derive(Debug)]
struct Shared {
    options: Options,
    /// Signals that interrupt guests.
    signals: Arc<Signals>,
    /// Two for each pair: what the guest receives by, and what it sends by.
    vrings: Box<[Vring]>,
    /// Pairs by which the guest receives now, a bit for each.
    open: AtomicU64,
    steering: Steering,
    has_announcements: AtomicBool,
    /// Addresses that the guest has here now, to be told to everybody.
    announcements: Mutex<Vec<[u8; 6]>>,
    notes: Notes,
    generation: Generation,
}

/// For people.
#[derive(Debug, Default)]
struct Notes {
    is_connected: AtomicBool,
    /// How often a monitor came.
    connections: AtomicU64,
    features: AtomicU64,
    memory_bytes: AtomicU64,
    memory_regions: AtomicU64,
    /// 0 while the monitor has said nothing about it.
    mtu: AtomicU32,
    /// How often what one said was refused, and why the last time.
    refusal: Mutex<(u64, Option<String>)>,
    /// Why there is no connection to a monitor that is to listen.
    absence: Mutex<Option<Absence>>,
}

/// Why the port could not connect.
#[derive(Debug, Clone)]
struct Absence {
    why: String,
    /// It will not mend itself by the monitor's being started.
    is_failure: bool,
}

impl Shared {
    fn new(options: Options, signals: Arc<Signals>) -> Shared {
        let vrings = (0..2 * options.queues).map(|_| Vring::default()).collect();
        Shared {
            options,
            signals,
            vrings,
            open: AtomicU64::new(0),
            steering: Steering::default(),
            has_announcements: AtomicBool::new(false),
            announcements: Mutex::default(),
            notes: Notes::default(),
            generation: Generation::default(),
        }
    }

    /// The guest's receive queue.
    #[inline]
    fn guest_rx(&self, pair: u32) -> &Vring {
        &self.vrings[2 * pair as usize]
    }

    /// The guest's send queue.
    #[inline]
    fn guest_tx(&self, pair: u32) -> &Vring {
        &self.vrings[2 * pair as usize + 1]
    }

    fn offered(&self) -> u64 {
        self.options.offer.bits()
    }

    /// Pairs by which the guest receives now.
    #[inline]
    fn open_to_guest<'a>(&self, pairs: &'a mut [u32; QUEUES_MAX as usize]) -> &'a [u32] {
        let (mut left, mut count) = (self.open.load(Ordering::Acquire), 0);
        while left != 0 {
            let pair = left.trailing_zeros();
            left &= left - 1;
            if self.guest_rx(pair).is_running() {
                pairs[count] = pair;
                count += 1;
            }
        }
        &pairs[..count]
    }

    /// Whether it matters by which pair the guest sends.
    #[inline]
    fn steers(&self) -> bool {
        self.open.load(Ordering::Relaxed).count_ones() > 1
    }

    #[inline]
    fn learn(&self, frame: &Frame, pair: u32) {
        self.steering.learn(frame, pair);
    }

    #[inline]
    fn place(&self, frame: &Frame, open: &[u32]) -> u8 {
        self.steering.place(frame, open)
    }

    /// Queues started, stopped, or were enabled or disabled.
    fn note_queues(&self) {
        let mut open = 0;
        for pair in 0..self.options.queues {
            let vring = self.guest_rx(pair);
            if vring.is_running() && vring.lock().setup.is_enabled {
                open |= 1 << pair;
            }
        }
        self.open.store(open, Ordering::Release);
        let is_running = self.vrings.iter().any(Vring::is_running);
        self.generation.note(is_running, open != 0, || self.is_fresh());
    }

    /// Whether no queue that runs was ever used.
    fn is_fresh(&self) -> bool {
        let is_at_start = |vring: &Vring| {
            let state = vring.lock();
            state.active.as_ref().is_none_or(|active| active.ring.base() & POSITIONS == 0)
        };
        self.vrings.iter().all(is_at_start)
    }

    fn stop_queues(&self) {
        self.open.store(0, Ordering::Release);
        for vring in &self.vrings {
            let _base = vring.stop();
        }
        self.generation.note(false, false, || false);
        self.steering.forget();
    }

    fn reset_queues(&self) {
        self.open.store(0, Ordering::Release);
        self.vrings.iter().for_each(Vring::reset);
        self.generation.note(false, false, || false);
        self.steering.forget();
    }

    /// Has the network told that the guest is here: by the first queue, as if the guest had.
    fn announce(&self, mac: [u8; 6]) {
        let mut waiting = self.announcements.lock();
        if waiting.len() < ANNOUNCEMENTS_MAX {
            waiting.push(mac);
        }
        self.has_announcements.store(true, Ordering::Release);
        drop(waiting);
        self.guest_tx(0).wake();
    }

    /// Makes frames of announcements; gives their number.
    #[inline]
    fn take_announcements(
        &self,
        pair: u32,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> usize {
        if pair != 0 || !self.has_announcements.load(Ordering::Acquire) {
            return 0;
        }
        let mut waiting = self.announcements.lock();
        let mut count = 0;
        while count < limit
            && let Some(mac) = waiting.pop()
        {
            // Without memory it is lost, as on a wire.
            if let Ok(Some(frame)) = pool.frame(&rarp(mac)) {
                frames.push(frame);
                count += 1;
            }
        }
        self.has_announcements.store(!waiting.is_empty(), Ordering::Release);
        count
    }

    fn has_broken_queue(&self) -> bool {
        self.vrings.iter().any(|vring| vring.lock().broken.is_some())
    }

    fn failures(&self) -> Vec<String> {
        let why = |(index, vring): (usize, &Vring)| {
            let violation = vring.lock().broken?;
            Some(format!("queue {index} of the guest is broken: {violation}"))
        };
        let absence = self.notes.absence.lock().clone().filter(|absence| absence.is_failure);
        let absent = absence.map(|absence| {
            format!(
                "the monitor can't be connected to: {}; its socket must be writable for the daemon's \
                 user or group (a daemon under systemd needs CAP_DAC_OVERRIDE for others' sockets)",
                absence.why
            )
        });
        self.vrings.iter().enumerate().filter_map(why).chain(absent).collect()
    }

    fn note_connection(&self, is_connected: bool) {
        self.notes.is_connected.store(is_connected, Ordering::Relaxed);
        self.notes.connections.fetch_add(u64::from(is_connected), Ordering::Relaxed);
    }

    /// The monitor can't be connected to, or can again.
    fn note_absence(&self, why: Option<&io::Error>) {
        let told = why.map(|why| Absence {
            why: format!("{}: {why}", self.options.path.display()),
            // Without a listener yet, waiting may help.
            is_failure: !matches!(
                why.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ),
        });
        let mut absence = self.notes.absence.lock();
        *absence = told;
    }

    fn note_features(&self, features: Negotiated) {
        self.notes.features.store(features.0, Ordering::Relaxed);
    }

    fn note_memory(&self, memory: &Memory) {
        self.notes.memory_bytes.store(memory.bytes(), Ordering::Relaxed);
        self.notes.memory_regions.store(memory.regions() as u64, Ordering::Relaxed);
    }

    fn note_mtu(&self, mtu: u32) {
        self.notes.mtu.store(mtu, Ordering::Relaxed);
    }

    fn note_refusal(&self, what: String) {
        let mut refusal = self.notes.refusal.lock();
        *refusal = (refusal.0 + 1, Some(what));
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let notes = &self.notes;
        let number = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let sum = |count: fn(&vring::Counters) -> &AtomicU64| {
            self.vrings.iter().map(|it| number(count(&it.counters))).sum::<u64>()
        };
        let state = match notes.is_connected.load(Ordering::Relaxed) {
            true => "connected",
            false => "waiting",
        };
        let (memory, regions) = (number(&notes.memory_bytes), number(&notes.memory_regions));
        let mut details = vec![
            ("socket", self.options.path.display().to_string()),
            ("front_end", state.to_owned()),
            ("connections", number(&notes.connections).to_string()),
            ("features", Negotiated(number(&notes.features)).names()),
            ("memory", format!("{memory} bytes in {regions} regions")),
            ("queues", self.queue_list()),
            ("malformed", sum(|it| &it.malformed).to_string()),
            ("sent_while_disabled", sum(|it| &it.disabled).to_string()),
            ("queues_broken", sum(|it| &it.broken).to_string()),
        ];
        let mtu = notes.mtu.load(Ordering::Relaxed);
        if mtu != 0 {
            details.push(("mtu_of_guest", mtu.to_string()));
        }
        let refusal = notes.refusal.lock();
        details.extend(refusal.1.as_ref().map(|what| ("refused", what.clone())));
        let absence = notes.absence.lock();
        details.extend(absence.as_ref().map(|absence| ("waits_for", absence.why.clone())));
        details
    }

    /// Queues that run: number, format and size.
    fn queue_list(&self) -> String {
        let text = |(index, vring): (usize, &Vring)| {
            let state = vring.lock();
            let ring = &state.active.as_ref()?.ring;
            let off = if state.setup.is_enabled { "" } else { " disabled" };
            Some(format!("{index}: {} {}{off}", ring.format(), ring.size()))
        };
        let running = self.vrings.iter().enumerate().filter_map(text);
        running.collect::<Vec<_>>().join(", ")
    }
}

/// A broadcast that a host with this address is here now (RFC 903, as QEMU's `announce_self`).
fn rarp(mac: [u8; 6]) -> [u8; 60] {
    let mut packet = [0; 60];
    packet[..6].fill(0xff);
    packet[6..12].copy_from_slice(&mac);
    // Ethernet and IPv4, a request to be told one's own address.
    packet[12..22].copy_from_slice(&[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    packet[22..28].copy_from_slice(&mac);
    packet[32..38].copy_from_slice(&mac);
    packet
}

/// Most pairs of queues.
pub const QUEUES_MAX: u32 = 64;
/// In a ring's base: its positions, without the wrap counters of a packed one.
const POSITIONS: u32 = 0x7fff_7fff;
const _: () = assert!(POSITIONS & (1 << 15 | 1 << 31) == 0, "wrap counters are apart");
/// `65535 - ETH_HLEN`
const MTU_MAX: u32 = 65521;
const _: () = assert!(MTU_MAX + 14 == u16::MAX as u32, "a header counts, too");
/// More that wait are the same ones again.
const ANNOUNCEMENTS_MAX: usize = 64;
