//! Replay of a capture.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_capture::{LINK_TYPE_ETHERNET, Reader};
use towpath_engine::Waker;
use towpath_engine::port::{Rx, Wake};
use towpath_xdp::{Frame, Pool};

use super::{Timing, named, open_file, reader, wrong};
use crate::pace::Pace;
use crate::stream::reader::Feed;
use crate::stream::{self, Opened};

pub(super) struct Replay {
    path: PathBuf,
    source: Source,
    repeat: bool,
    /// Frames so far in this pass, to detect an empty capture.
    round: u64,
    /// The next frame and when it is due, if it was read early.
    waiting: Option<(Frame, Instant)>,
    timing: Clock,
    is_finished: bool,
    missed: u64,
}

/// The source of packets.
enum Source {
    File(Reader<BufReader<File>>),
    Feed(Feed),
}

enum Clock {
    /// Start of the replay, and the capture's first time stamp in nanoseconds.
    Original(Option<(Instant, u64)>),
    Rate(Pace),
    Unlimited,
}

impl Replay {
    pub(super) fn new(path: PathBuf, timing: Timing, repeat: bool) -> io::Result<Replay> {
        let source = match stream::open(&path).map_err(|error| named(&path, &error))? {
            Opened::File(file) => Source::File(reader(&path, file)?),
            Opened::Stream(file) => Source::Feed(Feed::start(file)?),
        };
        let timing = match timing {
            Timing::Original => Clock::Original(None),
            Timing::Rate(rate) => Clock::Rate(Pace::new(rate, 1)),
            Timing::Unlimited => Clock::Unlimited,
        };
        Ok(Replay {
            path,
            source,
            repeat,
            round: 0,
            waiting: None,
            timing,
            is_finished: false,
            missed: 0,
        })
    }

    /// The next frame and when it is due; `None` at the end, or if none is available now.
    fn read(&mut self, pool: &mut Pool) -> io::Result<Option<(Frame, Instant)>> {
        loop {
            let (stamp, frame) = match &mut self.source {
                Source::File(reader) => match reader.next_packet() {
                    Ok(Some(it)) => (it.timestamp_ns, frame_of(pool, it.data, it.link_type)),
                    Ok(None) if self.repeat && self.round > 0 => {
                        self.start_again()?;
                        continue;
                    }
                    Ok(None) => {
                        self.is_finished = true;
                        return Ok(None);
                    }
                    Err(error) => return Err(wrong(&self.path, &error)),
                },
                Source::Feed(feed) => match feed.next() {
                    Ok(Some(it)) => (it.timestamp_ns, frame_of(pool, &it.data, it.link_type)),
                    Ok(None) => return Ok(None),
                    Err(None) => {
                        self.is_finished = true;
                        return Ok(None);
                    }
                    Err(Some(error)) => return Err(wrong(&self.path, &error)),
                },
            };
            self.round += 1;
            let due = self.timing.due(stamp);
            match frame {
                Some(mut frame) => {
                    frame.store_rx_timestamp(stamp);
                    return Ok(Some((frame, due)));
                }
                None => self.missed += 1,
            }
        }
    }

    fn start_again(&mut self) -> io::Result<()> {
        self.source = Source::File(open_file(&self.path)?);
        self.round = 0;
        if let Clock::Original(origin) = &mut self.timing {
            *origin = None;
        }
        Ok(())
    }
}

impl Clock {
    /// Time at which a frame with this time stamp is due.
    fn due(&mut self, stamp: u64) -> Instant {
        let now = Instant::now();
        match self {
            Clock::Original(origin) => {
                let &mut (start, first) = origin.get_or_insert((now, stamp));
                start + Duration::from_nanos(stamp.saturating_sub(first))
            }
            Clock::Rate(_) | Clock::Unlimited => now,
        }
    }
}

/// Makes a frame of a captured packet; `None` if it is not Ethernet, too short or too long, or
/// there is no memory.
fn frame_of(pool: &mut Pool, data: &[u8], link_type: u16) -> Option<Frame> {
    if link_type != LINK_TYPE_ETHERNET {
        return None;
    }
    pool.frame(data).ok().flatten()
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
        if let (None, Source::Feed(feed)) = (&self.waiting, &mut self.source)
            && !feed.is_ready()
        {
            return Wake::Waker;
        }
        match (&self.waiting, &self.timing) {
            (Some((_, due)), _) => Wake::At(*due),
            _ if self.is_finished => Wake::Waker,
            (None, Clock::Rate(pace)) => pace.next().map_or(Wake::Now, Wake::At),
            _ => Wake::Now,
        }
    }

    fn set_waker(&mut self, waker: &Arc<Waker>) {
        if let Source::Feed(feed) = &self.source {
            feed.set_waker(waker);
        }
    }

    fn is_finished(&self) -> bool {
        self.is_finished && self.waiting.is_none()
    }

    fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }
}
