//! Replaying a capture.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use towpath_capture::Reader;
use towpath_engine::port::{Rx, Wake};
use towpath_xdp::{Frame, Pool};

use super::{Timing, wrong};
use crate::pace::Pace;

pub(super) struct Replay {
    path: PathBuf,
    reader: Reader<BufReader<File>>,
    repeat: bool,
    /// Frames of this round, to notice a capture without any.
    round: u64,
    /// The next frame, when it was read too early.
    waiting: Option<(Frame, Instant)>,
    timing: Clock,
    is_finished: bool,
    missed: u64,
}

enum Clock {
    /// Start of the replay, and the capture's first time stamp in nanoseconds.
    Original(Option<(Instant, u64)>),
    Rate(Pace),
    Unlimited,
}

impl Replay {
    pub(super) fn new(path: PathBuf, timing: Timing, repeat: bool) -> io::Result<Replay> {
        let reader = Reader::open(&path).map_err(|error| wrong(&path, &error))?;
        let timing = match timing {
            Timing::Original => Clock::Original(None),
            Timing::Rate(rate) => Clock::Rate(Pace::new(rate, 1)),
            Timing::Unlimited => Clock::Unlimited,
        };
        Ok(Replay {
            path,
            reader,
            repeat,
            round: 0,
            waiting: None,
            timing,
            is_finished: false,
            missed: 0,
        })
    }

    /// The next frame and when it is due; `None` at the end, or when there is no memory.
    fn read(&mut self, pool: &mut Pool) -> io::Result<Option<(Frame, Instant)>> {
        loop {
            let packet = self.reader.next_packet().map_err(|error| wrong(&self.path, &error))?;
            let Some(packet) = packet else {
                if !self.repeat || self.round == 0 {
                    self.is_finished = true;
                    return Ok(None);
                }
                self.reader =
                    Reader::open(&self.path).map_err(|error| wrong(&self.path, &error))?;
                self.round = 0;
                if let Clock::Original(origin) = &mut self.timing {
                    *origin = None;
                }
                continue;
            };
            self.round += 1;
            let due = match &mut self.timing {
                Clock::Original(origin) => {
                    let stamp = packet.timestamp_ns;
                    let &mut (start, first) = origin.get_or_insert((Instant::now(), stamp));
                    start + Duration::from_nanos(stamp.saturating_sub(first))
                }
                _ => Instant::now(),
            };
            let is_ethernet = packet.link_type == towpath_capture::LINK_TYPE_ETHERNET;
            match pool.frame(packet.data) {
                Ok(Some(frame)) if is_ethernet => return Ok(Some((frame, due))),
                Ok(frame) => {
                    // Not Ethernet, or no memory.
                    self.missed += 1;
                    frame.into_iter().for_each(|frame| pool.give(frame));
                }
                Err(_too_short_or_long) => self.missed += 1,
            }
        }
    }
}

impl Rx for Replay {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let limit = match &mut self.timing {
            Clock::Rate(pace) => pace.due(limit),
            _ => limit,
        };
        let mut count = 0;
        let mut now = None;
        while count < limit && !self.is_finished {
            let next = match self.waiting.take() {
                Some(next) => next,
                None => match self.read(pool)? {
                    Some(next) => next,
                    None => break,
                },
            };
            let is_original = matches!(self.timing, Clock::Original(_));
            if is_original && next.1 > *now.get_or_insert_with(Instant::now) {
                self.waiting = Some(next);
                break;
            }
            frames.push(next.0);
            count += 1;
        }
        if let Clock::Rate(pace) = &mut self.timing {
            pace.sent(count);
        }
        Ok(count)
    }

    fn arm(&mut self) -> Wake<'_> {
        match (&self.waiting, &self.timing) {
            (Some((_, due)), _) => Wake::At(*due),
            _ if self.is_finished => Wake::Waker,
            (None, Clock::Rate(pace)) => pace.next().map_or(Wake::Now, Wake::At),
            _ => Wake::Now,
        }
    }

    fn is_finished(&self) -> bool {
        self.is_finished && self.waiting.is_none()
    }

    fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }
}
