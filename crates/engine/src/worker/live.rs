//! Live frames: a program makes traffic of its own (`BPF_F_TEST_XDP_LIVE_FRAMES`).
//!
//! Kernel counterpart: `bpf_test_run_xdp_live` in `net/bpf/test_run.c`. Frames seem to have come
//! from a port, are judged by the program alone, and go where it says: `XDP_PASS` to the port's
//! upper, `XDP_TX` out of the port as after a redirect to it, `XDP_REDIRECT` as ever. Unlike the
//! kernel's, each frame begins as the one that was given, whatever was done to frames before.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_maps::Domain;
use towpath_xdp::{Action, Arena, Burst, Frame, Program};

use super::BURST;
use super::errand::{Desk, Errand};
use super::outbox::Outboxes;
use crate::counters::Drop;
use crate::port::{Device, Features, Rx, Tx};
use crate::snapshot::{Opened, PortId, Slot, Snapshot, Upper};

/// A program that is to run on frames which then go on.
#[derive(Debug)]
pub struct LiveRun {
    program: Program,
    frame: Frame,
    /// The port that frames seem to come from, and how many are to come.
    ingress: Option<u32>,
    left: u32,
    batch: u32,
    took: Duration,
    took_max: Duration,
    /// Since when there are no frames to be had.
    starved: Option<Instant>,
    failure: Option<LiveError>,
    /// Where frames come from when they come from no port.
    nowhere: Slot,
    frames: Vec<Frame>,
}

/// Why a run ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LiveError {
    /// All frames are under way, and none comes back.
    #[error("there are no frames left")]
    NoMemory,
    /// The port that frames seem to come from is gone.
    #[error("the port is gone")]
    NoPort,
    /// It took longer than it may.
    #[error("it takes too long")]
    TooLong,
    /// The engine stopped.
    #[error("the engine stopped")]
    Stopped,
}

impl LiveRun {
    /// A run of `repeat` frames like `frame`, which says where they seem to come from, in batches
    /// of `batch`. `ingress` is that port's ifindex; without one, what passes or is sent back has
    /// nowhere to go. It ends when it took longer than `took_max`.
    pub fn new(
        program: &Program,
        frame: Frame,
        ingress: Option<u32>,
        (repeat, batch): (u32, u32),
        took_max: Duration,
    ) -> LiveRun {
        LiveRun {
            program: program.clone(),
            nowhere: nowhere(frame.rx.ifindex, program.maps().domain().workers()),
            frame,
            ingress,
            left: repeat,
            batch: batch.max(1),
            took: Duration::ZERO,
            took_max,
            starved: None,
            failure: None,
            frames: Vec::with_capacity(BURST),
        }
    }

    /// How long it took, once it is over.
    ///
    /// # Errors
    ///
    /// It was not complete.
    pub fn outcome(&self) -> Result<Duration, LiveError> {
        match self.failure {
            Some(failure) => Err(failure),
            None if self.left > 0 => Err(LiveError::Stopped),
            None => Ok(self.took),
        }
    }

    /// Runs one batch and sends what comes of it.
    fn run_batch(&mut self, desk: &mut Desk<'_>) -> Result<(), LiveError> {
        let Desk { snapshot, judge, out } = desk;
        let slot: &Slot = match self.ingress {
            Some(ifindex) => snapshot.port_of_ifindex(ifindex).ok_or(LiveError::NoPort)?,
            None => &self.nowhere,
        };
        let mut rest = self.batch.min(self.left) as usize;
        while rest > 0 {
            let copies = (0..rest.min(BURST)).map_while(|_| out.pool.copy(&self.frame));
            self.frames.extend(copies);
            let count = self.frames.len();
            if count == 0 {
                break;
            }
            out.seat.counters.created.add(count as u64);
            let burst = judge.entry(&self.program, &mut self.frames);
            for (index, frame) in self.frames.drain(..).enumerate() {
                out.send_live(snapshot, slot, frame, &burst, index);
            }
            judge.put_away(burst);
            self.left -= count as u32;
            rest -= count;
        }
        out.flush(snapshot, judge);
        self.wait_for_frames(rest > 0)
    }

    /// Frames come back while traffic goes on, if somebody takes them.
    fn wait_for_frames(&mut self, is_starved: bool) -> Result<(), LiveError> {
        if !is_starved {
            self.starved = None;
            return Ok(());
        }
        let since = *self.starved.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE { Err(LiveError::NoMemory) } else { Ok(()) }
    }
}

impl Errand for LiveRun {
    fn domain(&self) -> &Arc<Domain> {
        self.program.maps().domain()
    }

    fn step(&mut self, desk: &mut Desk<'_>) -> bool {
        let start = Instant::now();
        self.failure = self.run_batch(desk).err();
        self.took += start.elapsed();
        if self.left > 0 && self.took > self.took_max {
            self.failure.get_or_insert(LiveError::TooLong);
        }
        self.left == 0 || self.failure.is_some()
    }
}

impl Outboxes {
    /// A live frame's way out.
    fn send_live(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        frame: Frame,
        burst: &Burst,
        index: usize,
    ) {
        match burst.action(index) {
            // A bond's program sends back by the bond's choice, here too (`bpf_prog_run_xdp`).
            Action::Tx if slot.member.is_some_and(|member| member.is_delegate) => {
                self.tx_of(slot)(self, snapshot, slot, frame);
            }
            Action::Tx => self.redirect_to(snapshot, slot, frame),
            Action::Redirect => self.redirect(snapshot, slot, frame, burst.destination(index)),
            Action::Pass => self.pass(snapshot, slot, frame),
            Action::Drop => self.drop_at(slot, frame, Drop::Verdict),
            Action::Aborted => self.drop_at(slot, frame, Drop::Aborted),
        }
    }
}

/// The kernel's loopback device, as far as frames are concerned: nothing is above it, and nothing
/// can be sent out of it.
#[derive(Debug)]
struct Loopback;

impl Device for Loopback {
    fn kind(&self) -> &'static str {
        "loopback"
    }

    fn queues(&self) -> u32 {
        0
    }

    fn features(&self) -> Features {
        Features::default()
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn nowhere(ifindex: u32, workers: usize) -> Slot {
    Slot {
        id: PortId(u32::MAX),
        name: "lo".into(),
        ifindex,
        mtu: u32::from(u16::MAX),
        up: true,
        is_target: false,
        features: Features::default(),
        upper: Upper::None,
        linearize: false,
        rx_hook: None,
        tx_hook: None,
        member: None,
        bond: None,
        taps: Vec::new(),
        tx_taps: Vec::new(),
        sole: Vec::new(),
        borrows: false,
        opened: Arc::new(Opened::new(Box::new(Loopback), Vec::new(), Vec::new(), workers)),
    }
}

/// Frames that do not come back for so long are not waited for.
const PATIENCE: Duration = Duration::from_millis(100);
