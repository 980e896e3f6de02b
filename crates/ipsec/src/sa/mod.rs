//! Security associations.

mod config;
mod lifetime;
mod outer;
mod owner;
mod window;

use std::net::IpAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use aes::Aes128;
use aes::cipher::KeyInit;
use parking_lot::{Mutex, MutexGuard};
use zeroize::Zeroizing;

use crate::esp::ESP_LEN;
use crate::refusal::{Counters, Refusal};
use crate::schedule::Schedule;
use crate::suite::{KeyError, Suite};
use crate::table::{Flow, Selector};
use lifetime::Ends;
use owner::Owner;

pub use config::{
    Config, ConfigError, Df, Direction, Dscp, Encapsulation, Mode, Replay, SPI_RESERVED_MAX,
    Tunnel, WINDOW_MIN,
};
pub use lifetime::{Lifetime, Limits};
pub(crate) use outer::{Inner, Outer};
pub use owner::QUIET_SECONDS;
pub use window::Window;

/// A security association: keys and state for packets of one direction.
#[derive(Debug)]
pub struct Sa {
    pub(crate) id: u32,
    pub(crate) spi: u32,
    pub(crate) direction: Direction,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) mode: Mode,
    pub(crate) encapsulation: Option<Encapsulation>,
    pub(crate) replay: Replay,
    pub(crate) selector: Option<Selector>,
    pub(crate) reqid: u32,
    pub(crate) outer: Outer,
    pub(crate) schedule: Schedule,
    pub(crate) sizes: Sizes,
    /// The highest possible sequence number.
    sequence_last: u64,
    /// The sequence number from which on the SA needs new keys.
    sequence_soft: u64,
    lifetime: Lifetime,
    soft: Ends,
    hard: Ends,
    added: u64,
    pub(crate) iv_source: IvSource,
    /// [`Events`] that were not taken yet, and flags of reached limits.
    events: AtomicU8,
    state: Mutex<State>,
}

/// The way in which the IVs of sent packets are made from their sequence numbers.
#[derive(Debug)]
pub(crate) enum IvSource {
    /// Packets have no IV, or the SA only receives.
    None,
    /// The sequence number XOR a random number, for an AEAD. After a restart, sequence numbers
    /// begin again, but another random number gives other nonces under the same key.
    Masked(u64),
    /// The sequence number encrypted with a random key, for CBC, whose IVs must be unpredictable.
    Encrypted(Box<Aes128>),
}

/// Sizes in each packet of an SA, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) is_aead: bool,
    pub(crate) iv: usize,
    pub(crate) icv: usize,
    /// The length of the encrypted part is a multiple of this number.
    pub(crate) block: usize,
    /// Bytes that encapsulation adds in front.
    pub(crate) front: usize,
}

/// The part of an SA that packets change.
#[derive(Debug)]
pub(crate) struct State {
    /// The last sequence number sent.
    pub(crate) sent: u64,
    pub(crate) window: Window,
    pub(crate) pmtu: u16,
    /// Selectors of the packets inside; `None` allows all.
    allowed: Option<Vec<Selector>>,
    /// Address and UDP port from which the peer's packets come, with UDP encapsulation.
    pub(crate) peer: Option<(IpAddr, u16)>,
    bytes: u64,
    packets: u64,
    used: u64,
    /// The user of an outbound SA.
    owner: Owner,
    /// The next limits to check: first the soft and the hard ones, later the hard ones only.
    next: Ends,
    refused: Counters,
}

/// Counters and state of an SA.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Statistics {
    /// IP packets encapsulated or decapsulated.
    pub packets: u64,
    /// Bytes of these IP packets, excluding ESP overhead.
    pub bytes: u64,
    /// Time at which the SA was made, in the caller's seconds.
    pub added: u64,
    /// Time of the last packet, in the caller's seconds; 0 if there was none.
    pub used: u64,
    /// The last sequence number sent, or the highest one received.
    pub sequence: u64,
    /// Address and UDP port from which the peer's packets come, with UDP encapsulation.
    pub peer: Option<(IpAddr, u16)>,
    /// Path MTU in bytes; 0: no limit.
    pub pmtu: u16,
    /// Number of refused packets, by reason.
    pub refused: Counters,
}

/// Events of an SA since the last call of [`Sa::take_events`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events {
    /// A soft limit was reached, or few sequence numbers are left: the SA needs new keys.
    pub soft: bool,
    /// A hard limit was reached: the SA refuses all packets.
    pub hard: bool,
    /// The peer's UDP address behind its NAT changed.
    pub mapping: bool,
}

impl Events {
    /// Whether there were no events.
    pub fn is_empty(self) -> bool {
        self == Events::default()
    }
}

impl Sa {
    /// An SA outside of any [`Table`](crate::Table). `now` is in seconds since any fixed moment.
    ///
    /// # Errors
    ///
    /// Fails with the first invalid value in the description.
    pub fn new(id: u32, config: Config, now: u64) -> Result<Sa, ConfigError> {
        config.check()?;
        let outer = Outer::new(&config);
        let Config { spi, direction, source, destination, mode, suite, allowed, .. } = config;
        let Config { keys, encapsulation, replay, lifetime, selector, reqid, pmtu, .. } = config;
        let schedule = Schedule::new(suite, keys)?;
        let sizes = Sizes {
            is_aead: matches!(suite, Suite::Aead(_)),
            iv: suite.iv_len(),
            icv: suite.icv_len(),
            block: suite.block_len(),
            front: outer.ip_len + outer.udp_len + ESP_LEN + suite.iv_len(),
        };
        let iv_source = match direction {
            Direction::Inbound => IvSource::None,
            Direction::Outbound => IvSource::new(suite)?,
        };
        let peer = match direction {
            Direction::Inbound => encapsulation.map(|it| (source, it.source_port)),
            Direction::Outbound => None,
        };
        let (soft, hard) = (Ends::new(lifetime.soft, now), Ends::new(lifetime.hard, now));
        let state = State {
            sent: replay.last,
            window: Window::new(replay.window, replay.esn, replay.last),
            pmtu,
            allowed,
            peer,
            bytes: 0,
            packets: 0,
            used: 0,
            owner: Owner::None,
            next: soft.first(hard),
            refused: Counters::default(),
        };
        let esn = replay.esn;
        Ok(Sa {
            id,
            spi,
            direction,
            source,
            destination,
            mode,
            encapsulation,
            replay,
            selector,
            reqid,
            outer,
            schedule,
            sizes,
            sequence_last: if esn { u64::MAX } else { u32::MAX.into() },
            sequence_soft: if esn { u64::MAX } else { SEQUENCE_SOFT },
            lifetime,
            soft,
            hard,
            added: now,
            iv_source,
            events: AtomicU8::new(0),
            state: Mutex::new(state),
        })
    }

    /// The number of the SA in its table.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Security parameters index.
    pub fn spi(&self) -> u32 {
        self.spi
    }

    /// Whether the SA sends or receives.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Outer source address, as configured.
    pub fn source(&self) -> IpAddr {
        self.source
    }

    /// Outer destination address.
    pub fn destination(&self) -> IpAddr {
        self.destination
    }

    /// Tunnel or transport mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Algorithms.
    pub fn suite(&self) -> Suite {
        self.schedule.suite()
    }

    /// UDP encapsulation.
    pub fn encapsulation(&self) -> Option<Encapsulation> {
        self.encapsulation
    }

    /// The number by which policies name the SA ([`Action::Protect`](crate::Action::Protect)).
    pub fn reqid(&self) -> u32 {
        self.reqid
    }

    /// Lifetimes.
    pub fn lifetime(&self) -> Lifetime {
        self.lifetime
    }

    /// Size of the replay window, and whether sequence numbers are extended, as configured.
    pub fn replay(&self) -> Replay {
        self.replay
    }

    /// The prepared keys.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Counters and state of the SA.
    pub fn statistics(&self) -> Statistics {
        let state = self.state.lock();
        Statistics {
            packets: state.packets,
            bytes: state.bytes,
            added: self.added,
            used: state.used,
            sequence: match self.direction {
                Direction::Inbound => state.window.top(),
                Direction::Outbound => state.sent,
            },
            peer: state.peer,
            pmtu: state.pmtu,
            refused: state.refused.clone(),
        }
    }

    /// Sets the path MTU in bytes, as reported by routers. 0: no limit.
    pub fn set_pmtu(&self, pmtu: u16) {
        self.state.lock().pmtu = pmtu;
    }

    /// Changes which packets an inbound SA may carry, as [`Config::allowed`].
    pub fn set_allowed(&self, allowed: Option<Vec<Selector>>) {
        self.state.lock().allowed = allowed;
    }

    /// Checks the time limits, even if no packets arrive.
    pub fn expire(&self, now: u64) {
        if now >= self.soft.at.min(self.hard.at) {
            self.note_limits(&mut self.state.lock(), now);
        }
    }

    /// The events since the last call.
    pub fn take_events(&self) -> Events {
        if self.events.load(Ordering::Relaxed) & EVENTS == 0 {
            return Events::default();
        }
        let events = self.events.fetch_and(!EVENTS, Ordering::Relaxed);
        Events {
            soft: events & SOFT != 0,
            hard: events & HARD != 0,
            mapping: events & MAPPING != 0,
        }
    }

    /// Whether a hard limit was reached.
    #[inline]
    pub fn is_expired(&self) -> bool {
        self.events.load(Ordering::Relaxed) & EXPIRED != 0
    }

    /// Whether a soft or a hard limit was reached.
    #[inline]
    pub fn is_dying(&self) -> bool {
        self.events.load(Ordering::Relaxed) & (EXPIRED | DYING) != 0
    }

    /// Locks the state of the SA, for a run of packets. `now` is in seconds.
    #[inline]
    pub fn lock<'a>(self: &'a Arc<Self>, now: u64) -> Locked<'a> {
        Locked::new(self, now)
    }

    /// Notes limits that were reached; returns whether the SA is still alive.
    #[cold]
    fn note_limits(&self, state: &mut State, now: u64) -> bool {
        let State { bytes, packets, .. } = *state;
        if self.hard.is_reached(bytes, packets, now) {
            self.note(HARD, EXPIRED);
            return false;
        }
        if self.soft.is_reached(bytes, packets, now) {
            self.note(SOFT, DYING);
            state.next = self.hard;
        }
        true
    }

    /// Notes an event that is reported only once.
    #[cold]
    fn note(&self, event: u8, forever: u8) {
        if self.events.fetch_or(forever, Ordering::Relaxed) & forever == 0 {
            self.events.fetch_or(event, Ordering::Relaxed);
        }
    }
}

/// The reference to an SA in a [`Job`](crate::Job); each job has a clone.
pub trait Handle: Clone + Deref<Target = Sa> {}

impl<T: Clone + Deref<Target = Sa>> Handle for T {}

/// A handle for the jobs of one thread. Cloning it costs a tenth of cloning an `Arc`, whose cost is
/// a large part of the work on a packet's headers.
#[derive(Debug, Clone)]
#[expect(clippy::redundant_allocation, reason = "the outer count is the one without atomics")]
pub struct LocalSa(Rc<Arc<Sa>>);

impl From<Arc<Sa>> for LocalSa {
    fn from(sa: Arc<Sa>) -> LocalSa {
        LocalSa(Rc::new(sa))
    }
}

impl Deref for LocalSa {
    type Target = Sa;

    #[inline]
    fn deref(&self) -> &Sa {
        &self.0
    }
}

/// An SA whose state is locked, for consecutive packets of the SA in a burst.
#[derive(Debug)]
pub struct Locked<'a, S = Arc<Sa>> {
    pub(crate) sa: &'a S,
    pub(crate) state: MutexGuard<'a, State>,
    pub(crate) now: u64,
}

impl<'a, S: Handle> Locked<'a, S> {
    /// The SA.
    #[inline]
    pub fn sa(&self) -> &S {
        self.sa
    }

    /// Like [`Sa::lock`], for any handle.
    #[inline]
    pub fn new(sa: &'a S, now: u64) -> Locked<'a, S> {
        Locked { sa, state: sa.state.lock(), now }
    }

    /// Fails if the SA has ended.
    #[inline]
    pub(crate) fn check_alive(&mut self) -> Result<(), Refusal> {
        let State { bytes, packets, next, .. } = *self.state;
        if next.is_reached(bytes, packets, self.now)
            && !self.sa.note_limits(&mut self.state, self.now)
        {
            return Err(Refusal::Expired);
        }
        Ok(())
    }

    /// The sequence number of the next packet.
    #[inline]
    pub(crate) fn next_sequence(&self) -> Result<u64, Refusal> {
        if self.state.sent >= self.sa.sequence_last {
            self.sa.note(SOFT, DYING);
            return Err(Refusal::SequenceExhausted);
        }
        Ok(self.state.sent + 1)
    }

    /// Uses up a sequence number.
    #[inline]
    pub(crate) fn note_sent(&mut self, sequence: u64, bytes: usize) {
        self.state.sent = sequence;
        if sequence >= self.sa.sequence_soft {
            self.sa.note(SOFT, DYING);
        }
        self.note_packet(bytes);
    }

    /// Counts a packet, and notes limits that it reaches.
    #[inline]
    pub(crate) fn note_packet(&mut self, len: usize) {
        let now = self.now;
        let state = &mut *self.state;
        state.packets += 1;
        state.bytes += len as u64;
        state.used = now;
        if state.next.is_reached(state.bytes, state.packets, now) {
            self.sa.note_limits(state, now);
        }
    }

    /// Notes the source of a packet whose integrity is known.
    #[inline]
    pub(crate) fn note_peer(&mut self, address: IpAddr, port: u16) {
        if self.state.peer.is_some_and(|peer| peer != (address, port)) {
            self.state.peer = Some((address, port));
            self.sa.events.fetch_or(MAPPING, Ordering::Relaxed);
        }
    }

    /// Whether a packet inside is one that the SA may carry.
    #[inline]
    pub(crate) fn permits(&self, flow: impl FnOnce() -> Result<Flow, Refusal>) -> bool {
        let (own, allowed) = (&self.sa.selector, &self.state.allowed);
        if own.is_none() && allowed.is_none() {
            return true;
        }
        flow().is_ok_and(|flow| {
            let contains = |selector: &Selector| selector.contains(&flow);
            own.as_ref().is_none_or(contains)
                && allowed.as_ref().is_none_or(|list| list.iter().any(contains))
        })
    }

    /// Counts a packet that was refused before it got to the SA.
    #[inline]
    pub fn count(&mut self, reason: Refusal) {
        self.state.refused.count(reason);
    }
}

impl IvSource {
    fn new(suite: Suite) -> Result<IvSource, KeyError> {
        Ok(match suite.iv_len() {
            0 => IvSource::None,
            8 => IvSource::Masked(u64::from_ne_bytes(random(suite)?)),
            _ => {
                let key: Zeroizing<[u8; 16]> = Zeroizing::new(random(suite)?);
                IvSource::Encrypted(Box::new(Aes128::new(&(*key).into())))
            }
        })
    }
}

fn random<const N: usize>(suite: Suite) -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_unspecified| KeyError::Library(suite))?;
    Ok(bytes)
}

/// Seven eighths of the 32-bit numbers, which leaves time to agree on new keys.
const SEQUENCE_SOFT: u64 = 7 << 29;

const SOFT: u8 = 1;
const HARD: u8 = 2;
const MAPPING: u8 = 4;
const EVENTS: u8 = SOFT | HARD | MAPPING;
const DYING: u8 = 8;
const EXPIRED: u8 = 16;
