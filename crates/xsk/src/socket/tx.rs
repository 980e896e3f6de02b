//! Sending: from descriptors to frames (`__xsk_generic_xmit`).
//!
//! Packets are copied when they are collected and leave the ring once they are sent, so that
//! packets that a port cannot take now stay in the ring.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use towpath_engine::offload;
use towpath_engine::port::{Features, Wake};
use towpath_ring::{Consumer, Desc, Mapped};
use towpath_xdp::frame::offload::{Checksum, Offload};
use towpath_xdp::frame::{ETH_HLEN, LINEAR_BYTES_MAX};
use towpath_xdp::{Frame, FrameError, Pool, tai_now};

use super::Bound;
use crate::lent::Lent;
use crate::pool::{BufferPool, Completion};
use crate::umem::Umem;

/// The sending side of a socket.
#[derive(Debug)]
pub(super) struct Tx {
    pub(super) ring: Consumer<Mapped<Desc>>,
    /// Number of invalid descriptors, including the others of the same packet.
    pub(super) invalid: u64,
    /// Number of times that the ring ran out of packets.
    pub(super) empty: u64,
    pub(super) packets_sent: u64,
    /// Packets sent in place.
    pub(super) without_copy: u64,
    /// Packets read from the ring and not given back, in order; all their descriptors are in
    /// `descs`.
    collected: VecDeque<Packet>,
    descs: VecDeque<Desc>,
    scratch: Vec<u8>,
}

/// Descriptors at the head of the ring that belong together.
#[derive(Debug)]
struct Packet {
    count: u32,
    kind: Kind,
    /// The offset for a requested timestamp (`XDP_TXMD_FLAGS_TIMESTAMP`).
    timestamp: Option<u64>,
    /// The packet's offset, if its frame is in the application's memory.
    lent: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A frame was made for it.
    Frame,
    /// Dropped; the application gets its chunks back.
    Void,
    /// Dropped, and its descriptors count as invalid.
    Nonsense,
}

/// Requests in the metadata in front of a packet (`struct xsk_tx_metadata`).
#[derive(Debug, Default)]
struct Request {
    checksum: Option<Checksum>,
    timestamp: Option<u64>,
    launch_time_ns: Option<u64>,
}

/// The reason why a packet is not sent.
enum Refusal {
    /// It may be sent later.
    NoMemory,
    /// Never.
    Bad,
    /// It is shorter than an Ethernet header: it can never be sent, and no device counts it.
    Short,
}

impl Tx {
    pub(super) fn new(ring: Mapped<Desc>, uses_wakeup: bool) -> Tx {
        let mut ring = Consumer::new(ring);
        if uses_wakeup {
            // No worker polls it yet.
            let _ready = ring.arm();
        }
        Tx {
            ring,
            invalid: 0,
            empty: 0,
            packets_sent: 0,
            without_copy: 0,
            collected: VecDeque::new(),
            descs: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    /// Reads the next packet, behind those that were collected; `None` if its last descriptor is
    /// not in the ring yet. Its descriptors are appended to `descs`.
    fn next_packet(&mut self, umem: &Umem) -> Option<Packet> {
        let ahead = self.descs.len() as u32;
        let mut is_good = true;
        let mut count = 0;
        loop {
            if self.ring.available(ahead + count + 1) <= ahead + count {
                self.descs.truncate(ahead as usize);
                return None;
            }
            let desc = self.ring.peek(ahead + count);
            is_good &= umem.packet_at(&desc).is_some();
            self.descs.push_back(desc);
            count += 1;
            let is_last = desc.options & Desc::CONTINUES == 0;
            if is_last || count >= DESCRIPTORS_READ_MAX {
                break;
            }
        }
        is_good &= count <= DESCRIPTORS_MAX;
        let kind = if is_good { Kind::Frame } else { Kind::Nonsense };
        Some(Packet { count, kind, timestamp: None, lent: None })
    }

    /// Puts back the last packet, which is not collected.
    fn put_back(&mut self, packet: &Packet) {
        self.descs.truncate(self.descs.len() - packet.count as usize);
    }

    /// Forgets packets that were collected and not sent: they are still in the ring.
    fn rewind(&mut self, completion: &mut Completion, umem: &Umem) {
        for packet in self.collected.drain(..) {
            completion.cancel(packet.count);
            if let Some(data) = packet.lent
                && let Some(mut lent) = umem.lent()
            {
                lent.unsent(data);
            }
        }
        self.descs.clear();
    }

    fn collect(
        &mut self,
        pool: &BufferPool,
        frames: &mut Pool,
        out: &mut Vec<Frame>,
        limit: usize,
    ) -> usize {
        let mut completion = pool.completion();
        self.rewind(&mut completion, &pool.umem);
        let mut lent = if pool.is_zero_copy { pool.umem.lent() } else { None };
        let mut count = 0;
        while count < limit {
            let Some(mut packet) = self.next_packet(&pool.umem) else {
                self.empty += u64::from(!self.descs.is_empty());
                break;
            };
            if !completion.reserve(packet.count) {
                self.put_back(&packet);
                break;
            }
            if packet.kind == Kind::Frame {
                match self.build(&mut packet, &pool.umem, frames, lent.as_deref_mut()) {
                    Ok(frame) => out.push(frame),
                    Err(Refusal::Short) => packet.kind = Kind::Void,
                    Err(Refusal::Bad) => packet.kind = Kind::Nonsense,
                    Err(Refusal::NoMemory) => {
                        completion.cancel(packet.count);
                        self.put_back(&packet);
                        break;
                    }
                }
            }
            count += usize::from(packet.kind == Kind::Frame);
            self.collected.push_back(packet);
        }
        drop(lent);
        drop(completion);
        // Packets in front of the first frame need not wait.
        self.finish(pool, 0);
        count
    }

    /// A frame with the packet (`xsk_build_skb`).
    fn build(
        &mut self,
        packet: &mut Packet,
        umem: &Umem,
        pool: &mut Pool,
        lent: Option<&mut Lent>,
    ) -> Result<Frame, Refusal> {
        if let Some(lent) = lent
            && let Some(frame) = self.frame_in_place(packet, umem, lent)
        {
            return Ok(frame);
        }
        let bad = |_shorter_file| Refusal::Bad;
        let mut request = Request::default();
        let mut frame = None;
        self.scratch.clear();
        let descs = self.descs.range(self.descs.len() - packet.count as usize..);
        for (number, desc) in descs.enumerate() {
            let data = umem.packet_at(desc).ok_or(Refusal::Bad)?;
            let len = desc.len as usize;
            if number == 0 && desc.options & Desc::METADATA != 0 {
                request = read_request(umem, data, desc.len)?;
            }
            if packet.count == 1 && (ETH_HLEN..=LINEAR_BYTES_MAX).contains(&len) {
                let mut single = pool.take().ok_or(Refusal::NoMemory)?;
                let room = single.own_mut().ok_or(Refusal::NoMemory)?.room();
                umem.memory.read(data, &mut room[..len]).map_err(bad)?;
                single.set_linear(len);
                frame = Some(single);
                break;
            }
            let start = self.scratch.len();
            self.scratch.resize(start + len, 0);
            umem.memory.read(data, &mut self.scratch[start..]).map_err(bad)?;
        }
        let mut frame = match frame {
            Some(frame) => frame,
            None => pool
                .frame(&self.scratch)
                .map_err(|error| match error {
                    FrameError::TooShort(_) => Refusal::Short,
                    _ => Refusal::Bad,
                })?
                .ok_or(Refusal::NoMemory)?,
        };
        if let Some(checksum) = request.checksum {
            frame.set_offload(Some(Offload { checksum: Some(checksum), gso: None }));
            if umem.completes_checksums() {
                frame = complete_checksum(frame, pool)?;
            }
        }
        packet.timestamp = request.timestamp;
        if let Some(launch_time_ns) = request.launch_time_ns {
            frame.set_launch_time(launch_time_ns);
        }
        Ok(frame)
    }

    /// A frame in the packet's own memory, if the packet needs no changes.
    fn frame_in_place(&self, packet: &mut Packet, umem: &Umem, lent: &mut Lent) -> Option<Frame> {
        let desc = self.descs.back().filter(|desc| packet.count == 1 && desc.options == 0)?;
        let data = umem.packet_at(desc)?;
        let frame = lent.frame_at(data, desc.len as usize)?;
        packet.lent = Some(data);
        Some(frame)
    }

    /// Gives back the first `frames` frames of the collected packets, and the packets without a
    /// frame up to the next one.
    fn finish(&mut self, pool: &BufferPool, mut frames: usize) {
        let mut completion = pool.completion();
        let mut is_any = false;
        while let Some(packet) = self.collected.front() {
            match packet.kind {
                Kind::Frame if frames == 0 => break,
                Kind::Frame => {
                    frames -= 1;
                    self.packets_sent += 1;
                }
                Kind::Void => {}
                Kind::Nonsense => self.invalid += u64::from(packet.count),
            }
            for desc in self.descs.drain(..packet.count as usize) {
                // The chunk that it is sent from stays in use until the frame is gone.
                let is_done = packet.lent.is_none_or(|data| {
                    self.without_copy += 1;
                    pool.umem.lent().is_none_or(|mut lent| lent.sent(data, desc.addr))
                });
                if is_done {
                    completion.write(desc.addr);
                }
            }
            if let Some(at) = packet.timestamp {
                // This fails if the file became shorter.
                let _written = pool.umem.memory.write(at, &tai_now().to_ne_bytes());
            }
            self.ring.advance(packet.count);
            self.collected.pop_front();
            is_any = true;
        }
        if is_any {
            // Completions come first: an application that sees a free place in the tx ring may look
            // for them.
            completion.submit();
            self.ring.release();
        }
    }
}

/// Reads the requests in the metadata in front of a packet (`xsk_skb_metadata`).
fn read_request(umem: &Umem, data: u64, len: u32) -> Result<Request, Refusal> {
    let size = u64::from(umem.tx_metadata);
    let mut bytes = [0; 24];
    let there = bytes.len().min(size as usize);
    if size == 0 || umem.memory.read(data - size, &mut bytes[..there]).is_err() {
        return Err(Refusal::Bad);
    }
    let (flags, rest) = bytes.split_first_chunk().ok_or(Refusal::Bad)?;
    let ([s0, s1, o0, o1, ..], launch_time) = rest.split_first_chunk::<8>().ok_or(Refusal::Bad)?;
    let flags = u64::from_ne_bytes(*flags);
    if flags & !(TIMESTAMP | CHECKSUM | LAUNCH_TIME) != 0 {
        return Err(Refusal::Bad);
    }
    let mut request = Request::default();
    if flags & CHECKSUM != 0 {
        let checksum = Checksum {
            start: u16::from_ne_bytes([*s0, *s1]),
            offset: u16::from_ne_bytes([*o0, *o1]),
        };
        if u32::from(checksum.start) + u32::from(checksum.offset) + 2 > len {
            return Err(Refusal::Bad);
        }
        request.checksum = Some(checksum);
    }
    if flags & TIMESTAMP != 0 && size >= 16 {
        request.timestamp = Some(data - size + 8);
    }
    if flags & LAUNCH_TIME != 0 {
        let launch_time = launch_time.first_chunk().filter(|_| size >= 24).ok_or(Refusal::Bad)?;
        request.launch_time_ns = Some(u64::from_ne_bytes(*launch_time));
    }
    Ok(request)
}

/// `skb_checksum_help`
fn complete_checksum(frame: Frame, pool: &mut Pool) -> Result<Frame, Refusal> {
    let mut out = Vec::with_capacity(1);
    let features = Features { tx_frags: true, ..Features::default() };
    if let Err((frame, _why)) = offload::prepare_xmit(frame, &features, pool, &mut out) {
        pool.give(frame);
        return Err(Refusal::Bad);
    }
    out.pop().ok_or(Refusal::Bad)
}

impl Bound {
    /// Whether there are packets to send; usually there are none.
    pub(super) fn has_packets(&self) -> bool {
        let Some(tx) = &self.tx else { return false };
        let has_some = tx.lock().ring.available(1) > 0;
        // If there are packets, this is done when they are collected.
        if !has_some {
            self.reclaim();
        }
        has_some
    }

    pub(super) fn collect(&self, pool: &mut Pool, frames: &mut Vec<Frame>, limit: usize) -> usize {
        let Some(tx) = &self.tx else { return 0 };
        self.reclaim();
        let mut tx = tx.lock();
        tx.collect(&self.pool, pool, frames, limit)
    }

    pub(super) fn sent(&self, count: usize) {
        let Some(tx) = &self.tx else { return };
        let mut tx = tx.lock();
        tx.finish(&self.pool, count);
        tx.rewind(&mut self.pool.completion(), &self.pool.umem);
        drop(tx);
        self.reclaim();
    }

    /// Whether the application sleeps until packets are completed, and some were.
    pub(super) fn takes_awaited(&self) -> bool {
        self.pool.completion().takes_awaited()
    }

    /// Processes frames in the application's memory that were freed.
    fn reclaim(&self) {
        if self.pool.is_zero_copy {
            let mut fill = self.pool.fill();
            let mut completion = self.pool.completion();
            if let Some(mut lent) = self.pool.umem.lent() {
                lent.reclaim(&mut fill, &mut completion);
            }
        }
    }

    /// `None` if the application will signal new packets: because the flag requests it, or because
    /// the application ignores flags and always signals.
    pub(super) fn arm(&self) -> Option<Wake<'static>> {
        let mut tx = self.tx.as_ref()?.lock();
        let is_empty =
            if self.pool.uses_wakeup { tx.ring.arm() } else { tx.ring.available(1) == 0 };
        // There is no signal when a frame is freed.
        let waits = self.pool.umem.lent().is_some_and(|lent| lent.unfinished() > 0);
        let later = waits.then(|| Wake::At(Instant::now() + COMPLETION_PAUSE));
        if is_empty { later } else { Some(Wake::Now) }
    }

    /// Packets received and sent so far.
    pub(super) fn moved(&self) -> u64 {
        let received = self.rx.as_ref().map_or(0, |rx| rx.lock().frames);
        received + self.tx.as_ref().map_or(0, |tx| tx.lock().packets_sent)
    }

    pub(super) fn disarm(&self) {
        if let Some(tx) = &self.tx {
            tx.lock().ring.disarm();
        }
    }
}

/// Most descriptors of a packet: a linear part and `MAX_SKB_FRAGS` others (`xsk_build_skb`).
const DESCRIPTORS_MAX: u32 = 18;
/// Longest delay of a completion while the worker sleeps.
const COMPLETION_PAUSE: Duration = Duration::from_millis(1);
/// Most descriptors read for a packet; a packet without an end among them is invalid.
const DESCRIPTORS_READ_MAX: u32 = 64;
/// `XDP_TXMD_FLAGS_*`
const TIMESTAMP: u64 = 1;
const CHECKSUM: u64 = 2;
const LAUNCH_TIME: u64 = 4;
