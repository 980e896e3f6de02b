//! Output of programs: lines of `bpf_trace_printk` for debugging, and the two streams of each
//! program.
//!
//! Printing never waits: a lock held by a reader, or a full queue or stream, costs a line, which is
//! counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use towpath_bpf::Errno;

/// A line that a program printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The worker that ran the program.
    pub worker: u32,
    /// Time of the print (`CLOCK_MONOTONIC`).
    pub time: Duration,
    /// The program's C function.
    pub program: String,
    /// The printed text.
    pub text: String,
}

/// The last lines that programs printed. Bounded: old lines make room for new ones.
#[derive(Debug)]
pub struct Trace {
    /// Lines by worker, so that workers do not contend.
    workers: Box<[Mutex<VecDeque<Line>>]>,
    /// Whether lines are kept; without a listener they are not.
    is_kept: AtomicBool,
    /// Whether text for streams is kept.
    has_streams: AtomicBool,
    lost: AtomicU64,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace::new(1)
    }
}

impl Trace {
    /// A trace for a number of workers that keeps all lines and text for streams, to be taken
    /// later.
    pub fn new(workers: usize) -> Trace {
        Trace {
            workers: (0..workers.max(1)).map(|_| Mutex::default()).collect(),
            is_kept: AtomicBool::new(true),
            has_streams: AtomicBool::new(true),
            lost: AtomicU64::new(0),
        }
    }

    /// Sets whether lines are kept; if not, printing costs a program almost nothing. In both cases
    /// text for streams goes only to the streams from now on, as in the kernel.
    pub fn keep(&self, is_kept: bool) {
        self.has_streams.store(false, Ordering::Relaxed);
        self.is_kept.store(is_kept, Ordering::Relaxed);
    }

    /// Takes the text of all lines out, oldest first.
    pub fn take(&self) -> Vec<String> {
        self.take_lines().into_iter().map(|line| line.text).collect()
    }

    /// Takes all lines out, oldest first.
    pub fn take_lines(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        for worker in &self.workers {
            // The lock is held only for this, so that the worker can continue.
            let taken = std::mem::take(&mut *worker.lock());
            lines.extend(taken);
        }
        if self.workers.len() > 1 {
            lines.sort_by_key(|line| line.time);
        }
        lines
    }

    /// Number of lines lost to later ones, or printed while lines were being taken out.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether [`Trace::push`] keeps lines.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    /// Whether text for streams is kept here, too.
    #[inline]
    pub(crate) fn has_streams(&self) -> bool {
        self.has_streams.load(Ordering::Relaxed)
    }

    /// Holds the first worker's lines, as a reader does for a moment.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> parking_lot::MutexGuard<'_, VecDeque<Line>> {
        self.workers[0].lock()
    }

    pub(crate) fn push(&self, line: Line) {
        let worker = &self.workers[line.worker as usize % self.workers.len()];
        let Some(mut lines) = worker.try_lock() else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if lines.len() == LINES_MAX {
            lines.pop_front();
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        lines.push_back(line);
    }
}

/// A program's standard output and error, written by `bpf_stream_vprintk`.
///
/// Kernel counterpart: `kernel/bpf/stream.c`: unread text stays, up to 100 000 bytes of each.
#[derive(Debug, Default)]
pub struct Streams([Stream; 2]);

#[derive(Debug, Default)]
struct Stream {
    text: Mutex<VecDeque<u8>>,
    lost: AtomicU64,
}

/// One of a program's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamId {
    /// `BPF_STDOUT`
    Stdout = 1,
    /// `BPF_STDERR`
    Stderr = 2,
}

impl StreamId {
    /// The stream with this number (`enum bpf_stream_id`).
    pub fn from_number(number: u64) -> Option<StreamId> {
        match number as u32 {
            1 => Some(StreamId::Stdout),
            2 => Some(StreamId::Stderr),
            _ => None,
        }
    }
}

impl Streams {
    /// Takes at most `bytes_max` bytes out of a stream, oldest first.
    pub fn read(&self, stream: StreamId, bytes_max: usize) -> Vec<u8> {
        let mut text = self.stream(stream).text.lock();
        let count = text.len().min(bytes_max);
        text.drain(..count).collect()
    }

    /// Passes at most `bytes_max` bytes of a stream to `hand_over`, and removes them if that
    /// succeeds; returns their number.
    ///
    /// # Errors
    ///
    /// Fails with the error of `hand_over`; the text then stays.
    pub fn hand_over<E>(
        &self,
        stream: StreamId,
        bytes_max: usize,
        hand_over: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut text = self.stream(stream).text.lock();
        let count = text.len().min(bytes_max);
        hand_over(&text.make_contiguous()[..count])?;
        text.drain(..count);
        Ok(count)
    }

    /// Number of prints lost because a stream had no room, or was being read.
    pub fn lost(&self, stream: StreamId) -> u64 {
        self.stream(stream).lost.load(Ordering::Relaxed)
    }

    /// Appends text (`bpf_stream_push_str`): `ENOSPC` when the stream is full, `ENOMEM` while it is
    /// being read, as in the kernel when its allocator is busy.
    pub(crate) fn push(&self, stream: StreamId, text: &[u8]) -> Result<(), Errno> {
        let Stream { text: kept, lost } = self.stream(stream);
        let pushed = match kept.try_lock() {
            Some(kept) if kept.len() + text.len() >= STREAM_BYTES_MAX => Err(Errno::ENOSPC),
            Some(mut kept) => {
                kept.extend(text);
                Ok(())
            }
            None => Err(Errno::ENOMEM),
        };
        if pushed.is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
        pushed
    }

    fn stream(&self, stream: StreamId) -> &Stream {
        &self.0[stream as usize - 1]
    }
}

/// Most lines kept per worker.
const LINES_MAX: usize = 4096;
/// `BPF_STREAM_MAX_CAPACITY`
const STREAM_BYTES_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(worker: u32, time: u64) -> Line {
        let time = Duration::from_nanos(time);
        Line { worker, time, program: "p".to_owned(), text: format!("{worker}-{time:?}") }
    }

    #[test]
    fn lines_of_all_workers_come_in_order_and_old_ones_make_room() {
        let trace = Trace::new(2);
        [line(1, 2), line(0, 1), line(0, 3)].into_iter().for_each(|line| trace.push(line));
        assert_eq!(trace.take_lines(), [line(0, 1), line(1, 2), line(0, 3)]);
        (0..LINES_MAX as u64 + 5).for_each(|time| trace.push(line(0, time)));
        assert_eq!(trace.lost(), 5);
        let kept = trace.take_lines();
        assert_eq!((kept.len(), &kept[0]), (LINES_MAX, &line(0, 5)));
    }

    #[test]
    fn whoever_prints_does_not_wait_for_whoever_reads() {
        let (trace, streams) = (Trace::new(1), Streams::default());
        let _reads = (trace.workers[0].lock(), streams.0[0].text.lock());
        trace.push(line(0, 1));
        assert_eq!(trace.lost(), 1);
        assert_eq!(streams.push(StreamId::Stdout, b"x"), Err(Errno::ENOMEM));
        assert_eq!(streams.push(StreamId::Stderr, b"x"), Ok(()), "another one");
        assert_eq!((streams.lost(StreamId::Stdout), streams.lost(StreamId::Stderr)), (1, 0));
    }

    #[test]
    fn a_stream_keeps_what_the_kernel_keeps() {
        let streams = Streams::default();
        let text = [b'x'; 1000];
        let taken = std::iter::repeat_with(|| streams.push(StreamId::Stdout, &text));
        assert_eq!(taken.take_while(Result::is_ok).count(), 99);
        assert_eq!(streams.push(StreamId::Stdout, &text[..999]), Ok(()), "less than 100 000 bytes");
        assert_eq!(streams.push(StreamId::Stdout, b"x"), Err(Errno::ENOSPC));
        assert_eq!(streams.read(StreamId::Stdout, 10), [b'x'; 10]);
        let refused = streams.hand_over(StreamId::Stdout, 10, |_| Err(Errno::EFAULT));
        assert_eq!(refused, Err(Errno::EFAULT), "nothing is lost by that");
        assert_eq!(streams.read(StreamId::Stdout, usize::MAX).len(), 99_989);
        assert!(streams.read(StreamId::Stdout, 1).is_empty());
    }
}
