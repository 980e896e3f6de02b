//! Making frames.

use std::io;
use std::sync::Arc;

use towpath_engine::port::{Rx, Wake};
use towpath_xdp::frame::LINEAR_BYTES_MAX;
use towpath_xdp::{Frame, Pool};

use super::field::Varying;
use super::{Options, frame_of};
use crate::pace::Pace;

pub(super) struct Queue {
    options: Arc<Options>,
    varying: Vec<Varying>,
    pace: Option<Pace>,
    /// Which template is next.
    next: usize,
    left: Option<u64>,
    /// All templates fit one buffer.
    is_linear: bool,
}

impl Queue {
    pub(super) fn new(options: &Arc<Options>, queue: u32) -> Queue {
        let varying = options.fields.iter().map(|&field| Varying::new(field, queue));
        Queue {
            varying: varying.collect(),
            pace: options.rate.map(|rate| Pace::new(rate, options.burst)),
            next: 0,
            left: options.count,
            is_linear: options.templates.iter().all(|t| t.len() <= LINEAR_BYTES_MAX),
            options: Arc::clone(options),
        }
    }

    /// Puts the next packets into empty frames.
    fn fill(&mut self, frames: &mut [Frame]) {
        let templates = &self.options.templates;
        for frame in frames {
            frame.fill(&templates[self.next]);
            self.next = if self.next + 1 == templates.len() { 0 } else { self.next + 1 };
            for varying in &mut self.varying {
                varying.apply(frame.linear_mut());
            }
        }
    }

    /// As [`Queue::fill`], for packets that take several buffers.
    fn make_long(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, count: usize) -> usize {
        for made in 0..count {
            let Some(mut frame) = frame_of(pool, &self.options.templates[self.next]) else {
                return made;
            };
            self.next = (self.next + 1) % self.options.templates.len();
            for varying in &mut self.varying {
                varying.apply(frame.linear_mut());
            }
            frames.push(frame);
        }
        count
    }
}

impl Rx for Queue {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let mut count = limit;
        if let Some(left) = self.left {
            count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        if let Some(pace) = &mut self.pace {
            count = pace.due(count);
        }
        let start = frames.len();
        let made = if self.is_linear {
            let taken = pool.take_many(count, frames);
            self.fill(&mut frames[start..]);
            taken
        } else {
            self.make_long(pool, frames, count)
        };
        if let Some(left) = &mut self.left {
            *left -= made as u64;
        }
        if let Some(pace) = &mut self.pace {
            pace.sent(made);
        }
        Ok(made)
    }

    fn arm(&mut self) -> Wake<'_> {
        match &self.pace {
            _ if self.is_finished() => Wake::Waker,
            None => Wake::Now,
            Some(pace) => pace.next().map_or(Wake::Now, Wake::At),
        }
    }

    fn is_finished(&self) -> bool {
        self.left == Some(0)
    }
}
