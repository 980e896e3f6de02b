//! A socket in the test's hands.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use towpath_engine::port::Wake;
use towpath_engine::{QueueId, Socket};
use towpath_xdp::{Frame, Pool};

/// The socket.
#[derive(Debug)]
pub(crate) struct Fake {
    id: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) place: Option<QueueId>,
    /// Number of packets it takes until the test makes room.
    pub(crate) room: usize,
    /// Delivered, and not shown yet.
    hidden: Vec<Vec<u8>>,
    pub(crate) received: Vec<Vec<u8>>,
    pub(crate) refused: usize,
    /// Calls of `deliver`.
    pub(crate) calls: usize,
    pub(crate) to_send: VecDeque<Vec<u8>>,
    pub(crate) sent: usize,
    pub(crate) armed: bool,
}

impl Fake {
    pub(crate) fn new(id: u32, place: QueueId, room: usize) -> Arc<Fake> {
        let state = State { place: Some(place), room, armed: true, ..State::default() };
        Arc::new(Fake { id, state: Mutex::new(state) })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Socket for Fake {
    fn id(&self) -> u32 {
        self.id
    }

    fn bound_to(&self) -> Option<QueueId> {
        self.state().place
    }

    fn receives(&self) -> bool {
        true
    }

    fn transmits(&self) -> bool {
        true
    }

    fn deliver(&self, from: QueueId, frames: &mut Vec<Frame>, pool: &mut Pool) -> usize {
        let mut state = self.state();
        state.calls += 1;
        let room = if state.place == Some(from) { state.room } else { 0 };
        let count = frames.len().min(room);
        state.room -= count;
        state.refused += frames.len() - count;
        state.hidden.extend(frames[..count].iter().map(|frame| frame.to_vec()));
        pool.give_all(frames);
        count
    }

    fn flush(&self) {
        let mut state = self.state();
        let hidden = std::mem::take(&mut state.hidden);
        state.received.extend(hidden);
    }

    fn collect(&self, pool: &mut Pool, frames: &mut Vec<Frame>, limit: usize) -> usize {
        let state = self.state();
        let packets = state.to_send.iter().take(limit);
        frames.extend(packets.map(|packet| pool.frame(packet).unwrap().unwrap()));
        frames.len()
    }

    fn sent(&self, count: usize) {
        let mut state = self.state();
        state.sent += count;
        state.to_send.drain(..count);
    }

    fn arm(&self) -> Wake<'_> {
        let mut state = self.state();
        state.armed = true;
        if state.to_send.is_empty() { Wake::Waker } else { Wake::Now }
    }

    fn disarm(&self) {
        self.state().armed = false;
    }
}
