//! `ipsec`: an accelerator for ESP (RFC 4303). Frames sent to the port are encapsulated or
//! decapsulated, and then arrive at the port, where the program on the `rx` hook decides where
//! they go. Programs can also use the port's SAs at once (`synchronous.rs`).
//!
//! The worker that sends a frame finds its SA (`tx.rs`). The worker that polls the receive queue
//! does the rest (`rx.rs`, or `queued.rs` for engines that return packets later), so that one
//! option, `workers`, moves all cryptography to other cores. All frames of one SA go through one
//! queue, which keeps their order.

mod arrivals;
mod buffer;
mod meta;
mod queued;
mod rx;
mod synchronous;
mod tx;

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use towpath_engine::port::{Device, Features, Rx, RxHints, Tx};
use towpath_ipsec::{AwsLc, Counters, Nothing, Refusal, Table};
use towpath_ipsec_mb::{IpsecMb, Library, OpenError};
use towpath_xdp::Arena;
use towpath_xdp::host::Esp;

use crate::frame_ring::FrameRing;
use synchronous::Synchronous;

pub use buffer::Packet;
pub use meta::{Direction, EspMeta, Status};
pub use queued::FrameEngine;

/// A port of kind `ipsec`.
pub struct Ipsec {
    shared: Arc<Shared>,
    options: Options,
    engine: &'static str,
    open_engine: Option<OpenEngine>,
    /// The library of [`EngineKind::IpsecMb`], once a queue was opened.
    library: OnceLock<Library>,
}

/// Opens the engine of a queue, which must hold the given number of tasks.
type OpenEngine = Box<dyn Fn(usize) -> io::Result<FrameEngine> + Send + Sync>;

/// Options of the port.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of receive queues, over which SAs are spread.
    pub queues: u32,
    /// Maximum number of frames that wait in a queue, and of frames that its engine holds.
    pub ring: usize,
    /// MTU in bytes: the longest packet to encapsulate. ESP packets may be longer by what ESP adds.
    pub mtu: u32,
    /// Ethernet address of the port.
    pub mac: [u8; 6],
    /// Engine for the cryptography.
    pub engine: EngineKind,
    /// Whether refused frames arrive at the port, with the reason in their metadata, instead of
    /// being dropped. A gateway needs them to inform senders of packets that are too big.
    pub deliver_refused: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            queues: 1,
            ring: 1024,
            mtu: 1500,
            mac: [0x02, 0, 0, 0, 0, 0xe],
            engine: EngineKind::Direct,
            deliver_refused: false,
        }
    }
}

/// Engines for the cryptography.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// AWS-LC and the crate `aes`, on the worker that polls the queue.
    Direct,
    /// AES-CBC and HMACs by libipsec-mb, which must be installed, and AEADs by AWS-LC.
    IpsecMb,
    /// No cryptography: payloads are neither encrypted nor authenticated. For measurements.
    Null,
}

impl EngineKind {
    fn name(self) -> &'static str {
        match self {
            EngineKind::Direct => "aws-lc",
            EngineKind::IpsecMb => "ipsec-mb",
            EngineKind::Null => "null",
        }
    }
}

/// A frame on its way from a transmitter to a queue.
struct Chosen {
    packet: Packet,
    route: Route,
}

/// The decision for a frame, in one register, so that queues move frames by two registers: number
/// of the SA, direction and status.
#[derive(Clone, Copy)]
struct Route(u64);

impl Route {
    #[inline]
    fn new(sa: u32, direction: Direction, status: Status) -> Route {
        Route(u64::from(sa) << 16 | (direction as u64) << 8 | status as u64)
    }

    /// Number of the SA; 0 if the frame needs no SA, or was refused.
    #[inline]
    fn sa(self) -> u32 {
        (self.0 >> 16) as u32
    }

    fn meta(self) -> EspMeta {
        let [status, direction, ..] = self.0.to_le_bytes();
        let direction = Direction::from_repr(direction).unwrap_or_default();
        let status = Status::from_repr(status).unwrap_or_default();
        EspMeta { sa: self.sa(), direction, status, ..EspMeta::default() }
    }
}

/// State that all queues and transmitters of a port share.
struct Shared {
    table: Arc<Table>,
    rings: Box<[FrameRing<Chosen>]>,
    /// Number of frames that were refused before their SA was known, by reason.
    refused: Mutex<Counters>,
    deliver_refused: bool,
    /// Packets are neither encrypted nor checked ([`EngineKind::Null`]).
    is_null: bool,
}

impl Shared {
    /// Adds the refusals of one burst to the counters, and clears `refused`.
    fn count(&self, refused: &mut Counters) {
        if refused.total() > 0 {
            self.refused.lock().merge(refused);
            *refused = Counters::default();
        }
    }
}

impl Ipsec {
    /// A port that uses the SAs and policies of `table`, which may change at any time. The clock of
    /// the table is [`now`].
    pub fn new(options: Options, table: Arc<Table>) -> Ipsec {
        let ring = || FrameRing::new(options.ring);
        let rings = (0..options.queues.max(1)).map(|_| ring()).collect();
        let deliver_refused = options.deliver_refused;
        let is_null = options.engine == EngineKind::Null;
        let refused = Mutex::default();
        let shared = Shared { table, rings, refused, deliver_refused, is_null };
        let engine = options.engine.name();
        let library = OnceLock::new();
        Ipsec { shared: Arc::new(shared), options, engine, open_engine: None, library }
    }

    /// Like [`Ipsec::new`], with engines of the caller's, one for each queue, and their name.
    /// `open` gets the number of packets that an engine must hold.
    pub fn with_engine(
        options: Options,
        table: Arc<Table>,
        engine: &'static str,
        open: impl Fn(usize) -> io::Result<FrameEngine> + Send + Sync + 'static,
    ) -> Ipsec {
        Ipsec { engine, open_engine: Some(Box::new(open)), ..Ipsec::new(options, table) }
    }

    /// Number of frames that were refused before their SA was known, by reason. Each SA counts its
    /// own refusals.
    pub fn refused(&self) -> Counters {
        self.shared.refused.lock().clone()
    }
}

impl fmt::Debug for Ipsec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ipsec").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Device for Ipsec {
    fn kind(&self) -> &'static str {
        "ipsec"
    }

    fn queues(&self) -> u32 {
        self.shared.rings.len() as u32
    }

    /// Checksums and segments are completed before a frame arrives here, because they can't be
    /// completed after the encryption.
    fn features(&self) -> Features {
        let rx_hints = RxHints { timestamp: true, ..RxHints::NONE };
        Features {
            tx_checksum: false,
            tx_tso: false,
            tx_uso: false,
            rx_hints,
            ..Features::IN_PROCESS
        }
    }

    fn mac(&self) -> [u8; 6] {
        self.options.mac
    }

    fn mtu(&self) -> u32 {
        self.options.mtu
    }

    fn mtu_excess(&self) -> u32 {
        ESP_EXCESS
    }

    fn esp(&self) -> Option<Box<dyn Esp>> {
        Some(Box::new(Synchronous::new(&self.shared)))
    }

    fn open_rx(&self, queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        let (shared, queue) = (&self.shared, queue as usize);
        if let Some(open) = &self.open_engine {
            let engine = open(self.options.ring.max(1))?;
            return Ok(Box::new(queued::Queue::new(shared, queue, engine)));
        }
        Ok(match self.options.engine {
            EngineKind::Direct => Box::new(rx::Queue::<AwsLc>::new(shared, queue)),
            EngineKind::IpsecMb => {
                let library = opened(&self.library).map_err(io::Error::other)?;
                let engine = IpsecMb::new(library, self.options.ring.max(1));
                let engine = Box::new(engine.map_err(io::Error::other)?);
                Box::new(queued::Queue::new(shared, queue, engine))
            }
            EngineKind::Null => Box::new(rx::Queue::<Nothing>::new(shared, queue)),
        })
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(tx::Transmitter::new(&self.shared)))
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let (sas, policies) = self.shared.table.counts();
        let mut details = vec![
            ("engine", self.engine.to_owned()),
            ("sas", sas.to_string()),
            ("policies", policies.to_string()),
        ];
        details.extend(self.library.get().map(|it| ("library", it.version().to_owned())));
        let refused = self.refused();
        details.extend(refused.iter().map(|(why, count)| (why.name(), count.to_string())));
        details
    }
}

/// Most bytes that ESP adds to a packet, apart from traffic flow confidentiality: outer IPv6 and
/// UDP headers, SPI and sequence number, IV, padding and its trailer, and ICV.
const ESP_EXCESS: u32 = 40 + 8 + 8 + 16 + 255 + 2 + 32;

/// The library, which the first call opens.
fn opened(library: &OnceLock<Library>) -> Result<&Library, OpenError> {
    match library.get() {
        Some(library) => Ok(library),
        None => {
            let opened = Library::open()?;
            Ok(library.get_or_init(|| opened))
        }
    }
}

/// Seconds since the machine was started, including time in suspend: the clock of SAs' lifetimes.
pub fn now() -> u64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec.unsigned_abs()
}

/// The status by which programs see a reason for a refusal.
fn status_of(reason: Refusal) -> Status {
    match reason {
        Refusal::TooBig | Refusal::TooLong => Status::TooBig,
        Refusal::UnknownSpi | Refusal::NoSa | Refusal::ReservedSpi => Status::NoSa,
        Refusal::NoPolicy | Refusal::PolicyDiscard => Status::NoPolicy,
        Refusal::Expired | Refusal::SequenceExhausted => Status::Expired,
        Refusal::Replayed | Refusal::OutsideWindow => Status::Replayed,
        Refusal::BadIcv => Status::BadIcv,
        Refusal::EngineFailed => Status::EngineFailed,
        Refusal::Busy => Status::Busy,
        _ => Status::Refused,
    }
}

#[cfg(test)]
mod tests;
