//! `vhost-user`: the network card of a virtual machine, over a socket to its monitor (QEMU,
//! Cloud Hypervisor, DPDK's virtio-user).
//!
//! The guest's queues are in memory that the monitor passes: frames from the guest are copied out
//! of its buffers, and frames to the guest are copied into buffers that it made available. A thread
//! of the port handles the monitor's messages; workers only access rings. Misbehaviour of a guest
//! or its monitor affects only its own queues: see `burst`, `fault_unsafe`, `session` (refusals of
//! messages) and `connection` (the refusals that end it).

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

/// Options of a vhost-user port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Path of the socket, at most 107 bytes.
    pub path: PathBuf,
    /// The side that listens at the socket.
    pub mode: Mode,
    /// Permission of other users to connect, in server mode.
    pub access: Access,
    /// Pairs of queues that the guest may use, 1 to [`QUEUES_MAX`].
    pub queues: u32,
    /// MTU, 68 to 65521 bytes.
    pub mtu: u32,
    /// Address of the port.
    pub mac: [u8; 6],
    /// Features offered to the guest's driver.
    pub offer: Offer,
}

/// The side that listens at the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The port listens, and monitors connect (QEMU: `reconnect=1`).
    Server,
    /// The monitor listens, and the port connects, with retries (QEMU: `server=on`).
    Client,
}

impl Options {
    /// Default options: server mode, one pair of queues, and all features except those few monitors
    /// support.
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

/// Reasons why a port cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option's number outside of its range.
    #[error("{what} is {value}, but must be from {min} to {max}")]
    Range {
        /// The option.
        what: &'static str,
        /// Its value.
        value: u32,
        /// The smallest valid value.
        min: u32,
        /// The largest valid value.
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
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A virtual machine's network card. The socket file is removed when this is dropped.
#[derive(Debug)]
pub struct VhostUser {
    shared: Arc<Shared>,
    _control: Control,
}

impl VhostUser {
    /// Makes the socket, or starts trying to connect to it.
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

    /// The port accepts all offloads: those that the guest's driver did not negotiate are done in
    /// software on transmit.
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
    /// Two queues for each pair: the guest's receive queue and its transmit queue.
    vrings: Box<[Vring]>,
    /// Pairs by which the guest receives now, as a bit mask.
    open: AtomicU64,
    steering: Steering,
    has_announcements: AtomicBool,
    /// Addresses of the guest that are to be announced to the network.
    announcements: Mutex<Vec<[u8; 6]>>,
    notes: Notes,
    generation: Generation,
}

/// State for display.
#[derive(Debug, Default)]
struct Notes {
    is_connected: AtomicBool,
    /// Number of connections of monitors.
    connections: AtomicU64,
    features: AtomicU64,
    memory_bytes: AtomicU64,
    memory_regions: AtomicU64,
    /// MTU set by the monitor; 0 if it did not set any.
    mtu: AtomicU32,
    /// Number of refused messages, and the reason of the last one.
    refusal: Mutex<(u64, Option<String>)>,
    /// In client mode: why there is no connection.
    absence: Mutex<Option<Absence>>,
}

/// Why the port could not connect.
#[derive(Debug, Clone)]
struct Absence {
    why: String,
    /// Starting the monitor will not help.
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

    /// The guest's transmit queue.
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

    /// Whether the guest receives by several pairs, so that flows are steered.
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

    /// Updates the port's state after queues were started, stopped, enabled or disabled.
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

    /// Whether all running queues are unused.
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

    /// Announces the guest's address to the network, by the first queue, as if the guest had sent
    /// it.
    fn announce(&self, mac: [u8; 6]) {
        let mut waiting = self.announcements.lock();
        if waiting.len() < ANNOUNCEMENTS_MAX {
            waiting.push(mac);
        }
        self.has_announcements.store(true, Ordering::Release);
        drop(waiting);
        self.guest_tx(0).wake();
    }

    /// Makes frames of announcements; returns their number.
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
            // Without memory the announcement is lost, as on a wire.
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

    /// Notes that connecting to the monitor fails, or succeeded again.
    fn note_absence(&self, why: Option<&io::Error>) {
        let told = why.map(|why| Absence {
            why: format!("{}: {why}", self.options.path.display()),
            // A listener may still appear.
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

    /// Running queues: number, format and size.
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

/// A RARP broadcast that announces a host's address (RFC 903, as QEMU's `announce_self`).
fn rarp(mac: [u8; 6]) -> [u8; 60] {
    let mut packet = [0; 60];
    packet[..6].fill(0xff);
    packet[6..12].copy_from_slice(&mac);
    // Ethernet and IPv4, operation 3: request reverse.
    packet[12..22].copy_from_slice(&[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    packet[22..28].copy_from_slice(&mac);
    packet[32..38].copy_from_slice(&mac);
    packet
}

/// Most pairs of queues.
pub const QUEUES_MAX: u32 = 64;
/// Mask of the positions in a ring's base, without the wrap counters of a packed ring.
const POSITIONS: u32 = 0x7fff_7fff;
const _: () = assert!(POSITIONS & (1 << 15 | 1 << 31) == 0, "wrap counters are apart");
/// `65535 - ETH_HLEN`
const MTU_MAX: u32 = 65521;
const _: () = assert!(MTU_MAX + 14 == u16::MAX as u32, "a header counts, too");
/// Most waiting announcements; further ones would be repetitions.
const ANNOUNCEMENTS_MAX: usize = 64;
