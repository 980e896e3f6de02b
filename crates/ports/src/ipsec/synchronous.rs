//! ESP on the worker that calls it, without the port's queue: the kfuncs `bpf_xdp_esp_encap` and
//! `bpf_xdp_esp_decap`, and the states of `bpf_xdp_get_xfrm_state`.
//!
//! The frame stays in its buffer, because the program that runs refers to it. The cryptography is
//! that of the port's engine `aws-lc`, also with `ipsec-mb`, which is fast only with many packets.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use towpath_bpf::Errno;
use towpath_engine::offload::complete_checksum;
use towpath_ipsec::{
    AwsLc, Buffer, Cryptography, Esp as Headers, Flow, Limits, Locked, Mode, Nothing, Outbound,
    OwnedBuffer, Refusal, Sa,
};
use towpath_xdp::frame::Body;
use towpath_xdp::host::{ESP_RECORD_BYTES, Esp, EspLimits, EspOperation, EspState};

use super::arrivals::{keep_timestamp, meta};
use super::buffer::InPlace;
use super::meta::{Direction, EspMeta, Status};
use super::{Shared, now, status_of};

/// The SAs of a port for the programs of one worker.
pub(super) struct Synchronous {
    shared: Arc<Shared>,
    clock: Clock,
    last: Option<Last>,
}

/// The SA of the last packet whose policy protects it. Keeps neither the SA nor its keys.
struct Last {
    /// [`Table::changes`](towpath_ipsec::Table::changes) before the SA was found.
    changes: u64,
    flow: Flow,
    sa: Weak<Sa>,
}

impl Synchronous {
    pub(super) fn new(shared: &Arc<Shared>) -> Synchronous {
        Synchronous { shared: Arc::clone(shared), clock: Clock::default(), last: None }
    }
}

impl fmt::Debug for Synchronous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Synchronous").finish_non_exhaustive()
    }
}

impl Esp for Synchronous {
    fn state(&self, spi: u32, destination: IpAddr) -> Option<EspState> {
        let sa = self.shared.table.read().find(spi, destination).map(Arc::clone)?;
        Some(state_of(&sa))
    }

    fn run(
        &mut self,
        operation: EspOperation,
        frame: &mut Body,
        record: &mut [u8; ESP_RECORD_BYTES],
        worker: u32,
    ) -> Result<(), Errno> {
        let Synchronous { shared, clock, last } = self;
        let chosen = EspMeta::chosen(record);
        let mut call = Call { shared, clock, last, operation, chosen, worker };
        let (meta, result) = match prepare(operation, frame) {
            Ok(()) => {
                let meta = call.run(frame);
                (meta, result_of(meta.status))
            }
            Err(errno) => (refused(operation, Status::Refused), Err(errno)),
        };
        *record = EspMeta { ingress_ifindex: frame.rx.ifindex, ..meta }.to_bytes();
        result
    }
}

/// Puts a frame into one piece, and completes its checksum.
fn prepare(operation: EspOperation, frame: &mut Body) -> Result<(), Errno> {
    if frame.has_frags() {
        let len = frame.len();
        frame.pull_data(len).map_err(|_no_room| Errno::EOPNOTSUPP)?;
    }
    match (frame.offload(), operation) {
        (None, _) => Ok(()),
        (Some(work), _) if work.gso.is_some() => Err(Errno::EOPNOTSUPP),
        // The checksum of the outer headers, which are removed.
        (Some(_), EspOperation::Decap) => Ok(()),
        (Some(_), EspOperation::Encap) if complete_checksum(frame) => Ok(()),
        (Some(_), EspOperation::Encap) => Err(Errno::EINVAL),
    }?;
    if operation == EspOperation::Encap && frame.tailroom() < TRAILER {
        make_tailroom(frame);
    }
    Ok(())
}

/// Moves a packet towards its headroom, as far as its headers can still be added. A packet that
/// was pulled out of frags has no tailroom.
#[cold]
fn make_tailroom(frame: &mut Body) {
    let free = frame.headroom().saturating_sub(HEADERS);
    let shift = free.min(TRAILER - frame.tailroom());
    let mut target = InPlace(frame);
    if shift > 0 && !target.bytes().is_empty() {
        target.adjust_head(-(shift as isize));
        target.bytes_mut().copy_within(shift.., 0);
        target.adjust_tail(-(shift as isize));
    }
}

/// One call of a program.
struct Call<'a> {
    shared: &'a Shared,
    clock: &'a mut Clock,
    last: &'a mut Option<Last>,
    operation: EspOperation,
    /// Number and SPI of the SA that the program chose.
    chosen: Option<(u32, u32)>,
    worker: u32,
}

impl Call<'_> {
    fn run(&mut self, frame: &mut Body) -> EspMeta {
        let meta = match frame.is_external() {
            false => self.choose_and_work(&mut InPlace(frame)),
            // An application may write to this memory at any time.
            true => {
                let mut copy = Copied::of(frame);
                let meta = self.choose_and_work(&mut copy.buffer);
                copy.put_back(frame);
                meta
            }
        };
        if meta.status == Status::Done && meta.direction != Direction::Bypass {
            frame.set_offload(None);
            keep_timestamp(frame);
        }
        meta
    }

    fn choose_and_work(&mut self, buffer: &mut impl Buffer) -> EspMeta {
        let done = match (self.operation, self.chosen) {
            (EspOperation::Decap, None) => self.decap_by_spi(buffer),
            _ => self.choose(buffer.bytes()).map(|chosen| match chosen {
                Some((sa, step)) => self.work_with(&sa, buffer, &step),
                None => EspMeta::default(),
            }),
        };
        done.unwrap_or_else(|reason| {
            self.shared.refused.lock().count(reason);
            refused(self.operation, status_of(reason))
        })
    }

    /// Holds the table during the work on one packet, because a reference to the SA costs more.
    #[inline]
    fn decap_by_spi(&mut self, buffer: &mut impl Buffer) -> Result<EspMeta, Refusal> {
        let headers = Headers::of_frame(buffer.bytes())?;
        let view = self.shared.table.read();
        let sa = view.inbound(&headers)?;
        Ok(self.work_with(sa, buffer, &Step::Decap(Ok(headers))))
    }

    #[inline]
    fn work_with(&mut self, sa: &Arc<Sa>, buffer: &mut impl Buffer, step: &Step) -> EspMeta {
        let mut locked = sa.lock(self.clock.now());
        let done = match self.shared.is_null {
            false => self.work::<AwsLc>(&mut locked, buffer, step),
            true => self.work::<Nothing>(&mut locked, buffer, step),
        };
        match done {
            Ok(moved) => meta(sa, moved),
            Err(reason) => EspMeta { status: status_of(reason), ..meta(sa, 0) },
        }
    }

    /// The SA that the program chose, or that of the packet's policy, and what it does; `None` if
    /// the policy lets the packet pass as it is.
    #[inline]
    fn choose(&mut self, bytes: &[u8]) -> Result<Option<(Arc<Sa>, Step)>, Refusal> {
        let Some((number, spi)) = self.chosen else {
            let sa = self.of_flow(Flow::of_frame(bytes)?)?;
            return Ok(sa.map(|sa| (sa, Step::Encap)));
        };
        // Another SA could be the SA of another peer.
        let view = self.shared.table.read();
        let sa = view.by_id(number).filter(|sa| sa.spi() == spi).ok_or(Refusal::NoSa)?;
        let step = match self.operation {
            EspOperation::Encap => Step::Encap,
            // The SA counts a refusal.
            EspOperation::Decap => Step::Decap(Headers::of_frame(bytes)),
        };
        Ok(Some((Arc::clone(sa), step)))
    }

    /// The SA of the policy of a flow: the last one again, if nothing has changed.
    #[inline]
    fn of_flow(&mut self, flow: Flow) -> Result<Option<Arc<Sa>>, Refusal> {
        let changes = self.shared.table.changes();
        if let Some(last) = self.last.as_ref()
            && (last.changes, last.flow) == (changes, flow)
            && let Some(sa) = last.sa.upgrade()
            && !sa.is_dying()
        {
            return Ok(Some(sa));
        }
        let view = self.shared.table.read();
        Ok(match view.outbound(&flow)? {
            Outbound::Protect(sa) => {
                *self.last = Some(Last { changes, flow, sa: Arc::downgrade(sa) });
                Some(Arc::clone(sa))
            }
            Outbound::Bypass => None,
        })
    }

    #[inline]
    fn work<C: Cryptography>(
        &self,
        locked: &mut Locked<'_>,
        buffer: &mut impl Buffer,
        step: &Step,
    ) -> Result<isize, Refusal> {
        let refused = match step {
            Step::Encap => match locked.claim_for_worker(self.worker) {
                Ok(()) => return locked.encap_at_once::<C>(buffer),
                Err(reason) => reason,
            },
            Step::Decap(Ok(headers)) => return locked.decap_at_once::<C>(buffer, headers),
            Step::Decap(Err(reason)) => *reason,
        };
        locked.count(refused);
        Err(refused)
    }
}

/// The operation of an SA on a packet.
enum Step {
    Encap,
    /// The packet has these ESP headers, or none.
    Decap(Result<Headers, Refusal>),
}

/// The clock of SAs, read once a second.
#[derive(Debug, Default)]
struct Clock {
    /// Second of the cheap clock at which it was read.
    coarse: i64,
    now: u64,
}

impl Clock {
    /// [`now`], by a clock that is cheap to read. After a suspend it may lag by a second.
    #[inline]
    fn now(&mut self) -> u64 {
        let coarse = clock_gettime(ClockId::MonotonicCoarse).tv_sec;
        if coarse != self.coarse || self.now == 0 {
            *self = Clock { coarse, now: now() };
        }
        self.now
    }
}

/// A copy of a frame in lent memory.
struct Copied {
    buffer: OwnedBuffer,
    headroom: usize,
}

impl Copied {
    fn of(frame: &Body) -> Copied {
        let headroom = frame.headroom();
        let buffer = OwnedBuffer::with_room(&frame.to_vec(), headroom, frame.tailroom());
        Copied { buffer, headroom }
    }

    /// Puts the packet into the frame, which has the same room.
    fn put_back(self, frame: &mut Body) {
        let Copied { buffer, headroom } = self;
        let mut target = InPlace(frame);
        target.adjust_head(buffer.headroom() as isize - headroom as isize);
        let (bytes, len) = (buffer.bytes(), target.0.len());
        target.adjust_tail(bytes.len() as isize - len as isize);
        if frame.linear_len() == bytes.len() {
            frame.shared_linear_mut().write(bytes);
        }
    }
}

/// Bytes that ESP adds in front of a packet at most: IPv6, UDP, ESP, and an IV.
const HEADERS: usize = 40 + 8 + 8 + 16;
/// Bytes that it adds behind, without padding for traffic flow confidentiality: a block of padding,
/// its length, the next header, and an ICV.
const TRAILER: usize = 16 + 2 + 32;

fn refused(operation: EspOperation, status: Status) -> EspMeta {
    let direction = match operation {
        EspOperation::Encap => Direction::Out,
        EspOperation::Decap => Direction::In,
    };
    EspMeta { direction, status, ..EspMeta::default() }
}

/// The result of a call that ended with this status.
fn result_of(status: Status) -> Result<(), Errno> {
    Err(match status {
        Status::Done | Status::Chosen => return Ok(()),
        Status::Refused => Errno::EINVAL,
        Status::TooBig => Errno::EMSGSIZE,
        Status::NoSa => Errno::ENOENT,
        Status::NoPolicy => Errno::EACCES,
        Status::Expired => Errno::EKEYEXPIRED,
        Status::Replayed => Errno::EALREADY,
        Status::BadIcv => Errno::EBADMSG,
        Status::EngineFailed => Errno::EIO,
        Status::Busy => Errno::EBUSY,
    })
}

fn state_of(sa: &Sa) -> EspState {
    let (statistics, replay, lifetime) = (sa.statistics(), sa.replay(), sa.lifetime());
    let is_inbound = sa.direction() == towpath_ipsec::Direction::Inbound;
    let (sent, received) =
        if is_inbound { (0, statistics.sequence) } else { (statistics.sequence, 0) };
    // From the clock of SAs to the time of day.
    let today = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let booted = today.saturating_sub(now());
    let used = statistics.used;
    EspState {
        spi: sa.spi(),
        source: sa.source(),
        destination: sa.destination(),
        reqid: sa.reqid(),
        is_tunnel: matches!(sa.mode(), Mode::Tunnel(_)),
        is_inbound,
        is_expired: sa.is_expired(),
        esn: replay.esn,
        window: replay.window,
        sent,
        received,
        bytes: statistics.bytes,
        packets: statistics.packets,
        added: booted + statistics.added,
        used: if used == 0 { 0 } else { booted + used },
        soft: limits_of(lifetime.soft),
        hard: limits_of(lifetime.hard),
    }
}

fn limits_of(limits: Limits) -> EspLimits {
    let Limits { bytes, packets, seconds } = limits;
    EspLimits { bytes, packets, seconds }
}
