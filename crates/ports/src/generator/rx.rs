//! Receive queues, which make the frames.

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
    /// Index of the next template.
    next: usize,
    left: Option<u64>,
    /// The templates padded to whole cache lines, if all fit one buffer.
    linear: Option<Vec<Linear>>,
}

/// A template padded to whole cache lines, which are cheaper to copy.
struct Linear {
    lines: Vec<[u8; LINE_BYTES]>,
    len: usize,
}

impl Linear {
    fn new(template: &[u8]) -> Linear {
        let line = |part: &[u8]| {
            let mut line = [0; LINE_BYTES];
            line[..part.len()].copy_from_slice(part);
            line
        };
        Linear { lines: template.chunks(LINE_BYTES).map(line).collect(), len: template.len() }
    }

    #[inline]
    fn fill(&self, frame: &mut Frame) {
        let bytes = self.lines.as_flattened();
        frame.room().part(0..bytes.len()).write(bytes);
        frame.set_linear(self.len);
    }

    /// [`Linear::fill`] for frames that are all alike; a packet of one line is not loaded again for
    /// each.
    fn fill_all(&self, frames: &mut [Frame]) {
        let [line] = &self.lines[..] else {
            return frames.iter_mut().for_each(|frame| self.fill(frame));
        };
        for frame in frames {
            frame.room().part(0..LINE_BYTES).write(line);
            frame.set_linear(self.len);
        }
    }
}

impl Queue {
    pub(super) fn new(options: &Arc<Options>, queue: u32) -> Queue {
        let varying = options.fields.iter().map(|&field| Varying::new(field, queue));
        Queue {
            varying: varying.collect(),
            pace: options.rate.map(|rate| Pace::new(rate, options.burst)),
            next: 0,
            left: options.count,
            linear: options
                .templates
                .iter()
                .map(|template| (template.len() <= LINEAR_LINES_MAX).then(|| Linear::new(template)))
                .collect(),
            options: Arc::clone(options),
        }
    }

    /// Takes frames and puts the next packets into them.
    fn make(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, count: usize) -> usize {
        let Some(templates) = &self.linear else { return self.make_long(pool, frames, count) };
        let start = frames.len();
        let taken = pool.take_many(count, frames);
        if let ([template], true) = (&templates[..], self.varying.is_empty()) {
            template.fill_all(&mut frames[start..]);
            return taken;
        }
        for frame in &mut frames[start..] {
            templates[self.next].fill(frame);
            self.next = if self.next + 1 == templates.len() { 0 } else { self.next + 1 };
            for varying in &mut self.varying {
                varying.apply(frame.shared_linear_mut());
            }
        }
        taken
    }

    /// As [`Queue::make`], for packets that take several buffers.
    fn make_long(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, count: usize) -> usize {
        for made in 0..count {
            let Some(mut frame) = frame_of(pool, &self.options.templates[self.next]) else {
                return made;
            };
            self.next = (self.next + 1) % self.options.templates.len();
            for varying in &mut self.varying {
                varying.apply(frame.shared_linear_mut());
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
        let made = self.make(pool, frames, count);
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

const LINE_BYTES: usize = 64;
/// Bytes of the whole lines that fit a linear buffer.
const LINEAR_LINES_MAX: usize = LINEAR_BYTES_MAX / LINE_BYTES * LINE_BYTES;
const _: () = assert!(LINEAR_LINES_MAX > 0 && LINEAR_LINES_MAX <= LINEAR_BYTES_MAX);
