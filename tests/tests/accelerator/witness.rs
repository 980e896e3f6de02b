//! The port behind the accelerator, which looks at each frame and the record in front of it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use towpath_engine::port::{Device, Features, Rx, Tx};
use towpath_ports::ipsec::{Direction, EspMeta, Status};
use towpath_xdp::{Arena, Frame, Pool};

use super::packets::{has_text, was_sent};

#[derive(Debug, Clone, Default)]
pub(crate) struct Witness(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// Number of frames by direction and status of their records.
    counts: BTreeMap<(u8, u8), u64>,
    /// The first frame that should not have come.
    complaint: Option<String>,
}

impl Witness {
    /// Checks that no frame was wrong, and that all kinds of outcomes were seen.
    pub(crate) fn check(&self) {
        let seen = self.0.lock();
        assert_eq!(seen.complaint, None);
        for (direction, status) in [
            (Direction::In, Status::Done),
            (Direction::In, Status::BadIcv),
            (Direction::In, Status::Replayed),
            (Direction::In, Status::NoSa),
            (Direction::Out, Status::Done),
            (Direction::Out, Status::NoSa),
            (Direction::Out, Status::NoPolicy),
            (Direction::Out, Status::TooBig),
        ] {
            let key = (direction as u8, status as u8);
            assert!(seen.counts.contains_key(&key), "no frame with {direction:?} {status:?}");
        }
    }
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((direction, status), count) in &self.0.lock().counts {
            let direction = Direction::from_repr(*direction).unwrap_or_default();
            let status = Status::from_repr(*status).unwrap_or_default();
            writeln!(f, "{direction:?} {status:?}: {count}")?;
        }
        Ok(())
    }
}

/// The direction and status of a frame, and what is wrong with it.
fn look(frame: &Frame) -> ((u8, u8), Option<String>) {
    let own = frame.own().unwrap();
    let record: &[u8; EspMeta::LEN] = own.metadata().try_into().unwrap();
    let (direction, status, bytes) = (record[8], record[9], own.linear());
    // Frames that no SA worked on are as they came.
    let has_sa = record[4..8] != [0; 4];
    let is_open = has_sa && has_text(bytes);
    let is_done = status == Status::Done as u8;
    let why = match Direction::from_repr(direction).unwrap() {
        Direction::Bypass => Some("no policy lets packets pass"),
        Direction::In if is_done => (!was_sent(bytes)).then_some("nobody sent it"),
        Direction::In => is_open.then_some("plaintext is left"),
        Direction::Out if is_done || status == Status::EngineFailed as u8 => {
            is_open.then_some("it is not encrypted")
        }
        // It was refused before its encryption began.
        Direction::Out => None,
    };
    ((direction, status), why.map(|why| format!("{why}: {record:x?} {bytes:x?}")))
}

impl Device for Witness {
    fn kind(&self) -> &'static str {
        "witness"
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
        Ok(Box::new(self.clone()))
    }
}

impl Tx for Witness {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let mut seen = self.0.lock();
        for frame in frames.drain(..) {
            let (outcome, complaint) = look(&frame);
            *seen.counts.entry(outcome).or_default() += 1;
            seen.complaint = seen.complaint.take().or(complaint);
            pool.give(frame);
        }
        Ok(())
    }

    fn credit(&mut self) -> usize {
        usize::MAX
    }
}

/// A transmitter that takes and drops everything.
pub(crate) struct Nowhere;

impl Tx for Nowhere {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        frames.drain(..).for_each(|frame| pool.give(frame));
        Ok(())
    }

    fn credit(&mut self) -> usize {
        usize::MAX
    }
}
