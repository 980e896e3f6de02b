//! Reception from the guest: each frame is copied out of its buffer, which is returned at once.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use towpath_engine::Waker;
use towpath_engine::port::{Rx, Wake};
use towpath_xdp::frame::{BUFFER_BYTES, ETH_HLEN, FRAME_BYTES_MAX, LINEAR_BYTES_MAX};
use towpath_xdp::{Frame, Pool};

use super::Shared;
use super::bell_unsafe::Kick;
use super::burst::{Burst, Chain, Direction, Violation};
use super::memory::{Memory, Piece};
use super::run::{RUN_MAX, Run, Wanted};
use super::vring::{Active, Setup, State, Vring};
use crate::vnet;

pub(super) struct Queue {
    shared: Arc<Shared>,
    receiver: Receiver,
}

/// The private state of a queue.
struct Receiver {
    /// The number of the pair.
    pair: u32,
    burst: Burst,
    /// The driver's kick, while kicks are enabled.
    kick: Option<Arc<Kick>>,
    is_armed: bool,
    missed: u64,
}

/// The result for a buffer.
enum Taken {
    Frame(Frame),
    /// The buffer is not a valid frame; its memory is free again.
    Malformed(Frame),
    /// There was not enough memory.
    NoMemory(Frame),
}

impl Queue {
    pub(super) fn new(shared: &Arc<Shared>, pair: u32) -> Queue {
        let burst = Burst::default();
        let receiver = Receiver { pair, burst, kick: None, is_armed: false, missed: 0 };
        Queue { shared: Arc::clone(shared), receiver }
    }
}

impl Receiver {
    fn receive_from(
        &mut self,
        shared: &Shared,
        state: &mut State,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> usize {
        let vring = shared.guest_tx(self.pair);
        let State { setup, active: Some(active), .. } = state else { return 0 };
        if self.is_armed {
            self.disarm(active);
        }
        let start = frames.len();
        let (mut done, mut has_others, mut violation) = (0, true, None);
        if setup.is_enabled && active.log.is_none() {
            (done, has_others) = self.receive_runs(vring, active, pool, frames, limit);
        }
        if has_others && done < limit {
            let others = self.receive_others(vring, setup, active, pool, frames, limit - done);
            (done, violation) = (done + others.0, others.1);
        }
        if shared.steers() {
            frames[start..].iter().for_each(|frame| shared.learn(frame, self.pair));
        }
        if done > 0 {
            state.signal();
        }
        if let Some(violation) = violation {
            vring.break_down(state, violation);
        }
        frames.len() - start
    }

    /// Receives from simple buffers. Returns their number, and whether a buffer of another kind
    /// follows.
    fn receive_runs(
        &mut self,
        vring: &Vring,
        active: &mut Active,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> (usize, bool) {
        let Active { ring, memory, features, .. } = active;
        let header = features.header_bytes();
        let bytes = ((header + ETH_HLEN) as u32, (header + LINEAR_BYTES_MAX) as u32);
        let mut done = 0;
        loop {
            let mut run = Run::new();
            let wanted = Wanted::new(limit - done, Direction::FromGuest, bytes);
            let has_others = ring.look(memory, &wanted, &mut run);
            let start = frames.len();
            // Buffers without memory for a frame stay in the ring.
            let count = pool.take_many(run.len(), frames);
            let mut malformed = 0;
            for ((at, frame), buffer) in (0..).zip(&mut frames[start..]).zip(&run) {
                let len = buffer.place.len() as usize - header;
                let known = buffer.place.read_behind(header, frame.room().part(0..len));
                frame.set_linear(len);
                if known[..2] != [0; 2] && !state_work(frame, &known) {
                    malformed |= 1u64 << at;
                }
            }
            if malformed != 0 {
                self.pass_over(vring, malformed, (frames, start), pool);
            }
            if count > 0 {
                ring.give_back(&run[..count]);
            }
            done += count;
            if has_others || count < RUN_MAX {
                return (done, has_others && count == run.len());
            }
        }
    }

    /// Removes malformed frames: those from `start` on whose bits are set.
    #[cold]
    fn pass_over(
        &mut self,
        vring: &Vring,
        mut malformed: u64,
        (frames, start): (&mut Vec<Frame>, usize),
        pool: &mut Pool,
    ) {
        self.note_malformed(vring, malformed.count_ones().into());
        // From the back, so that indexes of earlier frames stay valid.
        while malformed != 0 {
            let last = malformed.ilog2();
            pool.give(frames.remove(start + last as usize));
            malformed &= !(1 << last);
        }
    }

    fn note_malformed(&mut self, vring: &Vring, count: u64) {
        self.missed += count;
        vring.counters.malformed.fetch_add(count, Ordering::Relaxed);
    }

    /// Receives from buffers of any kind. Returns their number, and the driver's violation, if any.
    fn receive_others(
        &mut self,
        vring: &Vring,
        setup: &Setup,
        active: &mut Active,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> (usize, Option<Violation>) {
        let mut burst = std::mem::take(&mut self.burst);
        burst.clear();
        active.ring.collect(&active.memory, limit, Direction::FromGuest, &mut burst);
        let mut done = 0;
        let mut violation = burst.violation;
        if setup.is_enabled {
            let header = active.features.header_bytes();
            for chain in &burst.chains {
                let Some(frame) = pool.take() else { break };
                match take(&active.memory, header, &burst, chain, frame, pool) {
                    Ok(Taken::Frame(frame)) => frames.push(frame),
                    Ok(Taken::Malformed(frame)) => {
                        pool.give(frame);
                        self.note_malformed(vring, 1);
                    }
                    // The buffer stays in the ring until there is memory again.
                    Ok(Taken::NoMemory(frame)) => {
                        pool.give(frame);
                        break;
                    }
                    Err((why, frame)) => {
                        pool.give(frame);
                        violation = Some(why);
                        break;
                    }
                }
                done += 1;
            }
        } else if setup.was_enabled {
            // Frames from a disabled queue are discarded.
            done = burst.chains.len();
            self.missed += done as u64;
            vring.counters.disabled.fetch_add(done as u64, Ordering::Relaxed);
        }
        if !burst.chains.is_empty() {
            active.complete(&burst.chains[..done]);
        }
        self.burst = burst;
        (done, violation)
    }

    /// Disables kicks, as the worker polls again, and clears the one that woke it.
    #[cold]
    fn disarm(&mut self, active: &mut Active) {
        active.ring.ignore_kicks();
        self.is_armed = false;
        if let Some(kick) = &self.kick {
            kick.empty();
        }
    }
}

/// Copies the frame out of a buffer.
fn take(
    memory: &Memory,
    header: usize,
    burst: &Burst,
    chain: &Chain,
    frame: Frame,
    pool: &mut Pool,
) -> Result<Taken, (Violation, Frame)> {
    let pieces = burst.pieces(chain);
    let Some(len) = chain.bytes.checked_sub(header as u64) else {
        return Err((Violation::Short(chain.bytes), frame));
    };
    if len < ETH_HLEN as u64 || len > FRAME_BYTES_MAX as u64 {
        return Ok(Taken::Malformed(frame));
    }
    let len = len as usize;
    let mut reader = Reader { memory, pieces, at: 0 };
    let mut known = [0; vnet::BYTES_WITH_BUFFERS];
    reader.read(&mut known[..header]);
    let mut frame = match fill(&mut reader, frame, len, pool) {
        Ok(frame) => frame,
        Err(empty) => return Ok(Taken::NoMemory(empty)),
    };
    let known = std::array::from_fn(|index| known[index]);
    let is_frame = known[..2] == [0; 2] || state_work(&mut frame, &known);
    Ok(if is_frame { Taken::Frame(frame) } else { Taken::Malformed(frame) })
}

/// Applies the header to the frame. Returns `false` if it is inconsistent with the frame.
#[cold]
fn state_work(frame: &mut Frame, header: &[u8; vnet::BYTES]) -> bool {
    let offload = vnet::parse(header, frame.len());
    if let Ok(offload) = offload {
        frame.set_offload(offload);
    }
    offload.is_ok()
}

/// Reads a packet into a frame, and into frags if it is longer. Returns the frame if there is no
/// memory for those.
fn fill(
    reader: &mut Reader<'_>,
    mut frame: Frame,
    len: usize,
    pool: &mut Pool,
) -> Result<Frame, Frame> {
    let linear = len.min(LINEAR_BYTES_MAX);
    reader.read_shared(frame.room().part(0..linear));
    frame.set_linear(linear);
    let mut left = len - linear;
    while left > 0 {
        let Some(mut buffer) = pool.take() else {
            frame.clear();
            return Err(frame);
        };
        let part = left.min(BUFFER_BYTES);
        reader.read_shared(buffer.buffer().part(0..part));
        left -= part;
        if frame.append_buffer(buffer, part).is_err() {
            debug_assert!(false, "no frame is longer than frames are");
            break;
        }
    }
    Ok(frame)
}

/// Reads pieces one after the other.
struct Reader<'a> {
    memory: &'a Memory,
    pieces: &'a [Piece],
    /// Bytes of the first piece already read.
    at: usize,
}

impl Reader<'_> {
    fn read(&mut self, out: &mut [u8]) {
        self.read_shared(out.into());
    }

    fn read_shared(&mut self, mut out: towpath_xdp::SharedBytesMut<'_>) {
        let mut done = 0;
        while let Some(&piece) = self.pieces.first().filter(|_| done < out.len()) {
            let part = (piece.len as usize - self.at).min(out.len() - done);
            self.memory.read(piece, self.at, out.by_ref().part(done..done + part));
            done += part;
            self.at += part;
            if self.at == piece.len as usize {
                (self.pieces, self.at) = (&self.pieces[1..], 0);
            }
        }
        debug_assert_eq!(done, out.len(), "the chain was as long");
    }
}

impl Rx for Queue {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let Self { shared, receiver } = self;
        let vring = shared.guest_tx(receiver.pair);
        let mut count = shared.take_announcements(receiver.pair, pool, frames, limit);
        if vring.is_running() {
            let mut state = vring.lock();
            count += receiver.receive_from(shared, &mut state, pool, frames, limit - count);
        }
        Ok(count)
    }

    fn arm(&mut self) -> Wake<'_> {
        let Self { shared, receiver } = self;
        let vring = shared.guest_tx(receiver.pair);
        if !vring.is_running() {
            return Wake::Waker;
        }
        let mut state = vring.lock();
        // Buffers that wait until the queue is enabled for the first time do not keep the worker
        // awake.
        let waits = !state.setup.is_enabled && !state.setup.was_enabled;
        let Some(active) = state.active.as_mut().filter(|_| !waits) else { return Wake::Waker };
        receiver.is_armed = true;
        if active.ring.ask_for_kicks() {
            return Wake::Now;
        }
        receiver.kick.clone_from(&state.setup.kick);
        drop(state);
        match &receiver.kick {
            Some(kick) => Wake::Readable(kick.as_fd()),
            // The driver cannot kick.
            None => Wake::Now,
        }
    }

    fn set_waker(&mut self, waker: &Arc<Waker>) {
        self.shared.guest_tx(self.receiver.pair).set_waker(waker);
    }

    fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.receiver.missed)
    }
}
