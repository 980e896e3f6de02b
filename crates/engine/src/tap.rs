//! Taps: copies of what arrives at a port and of what leaves it, before the programs of either hook
//! and after, for somebody to read.
//!
//! A port without a tap pays one test per burst. One with a tap pays for the copies, and for
//! nothing else: when the reader is slow, copies are lost and counted, frames never.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use towpath_xdp::RedirectTarget;

use crate::chain::Hook;

/// What a tap shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapOptions {
    /// What it shows of what arrives.
    pub rx: Points,
    /// What it shows of what leaves.
    pub tx: Points,
    /// Links whose programs are watched one by one, as each sees the frames. Without any, the hook
    /// is watched as a whole: before its first program, and after the last.
    pub links: Vec<u32>,
    /// Only frames with these verdicts, before and after: bit `1 << action`.
    pub verdicts: u32,
    /// Copies are cut to so many bytes.
    pub snaplen: usize,
}

/// Where on a hook frames are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Points {
    /// Before its programs.
    pub entry: bool,
    /// As they were judged, with the verdict.
    pub exit: bool,
}

impl Points {
    /// Before and after.
    pub const BOTH: Points = Points { entry: true, exit: true };

    /// Whether there are any.
    pub fn is_any(self) -> bool {
        self.entry || self.exit
    }
}

impl TapOptions {
    /// What it shows of a hook.
    pub fn points(&self, hook: Hook) -> Points {
        match hook {
            Hook::Rx => self.rx,
            Hook::Tx => self.tx,
            // What it sends is seen where it leaves; what guests see is theirs.
            Hook::Dequeue | Hook::GuestRx | Hook::GuestTx => Points::default(),
        }
    }
}

impl Default for TapOptions {
    fn default() -> TapOptions {
        TapOptions {
            rx: Points::BOTH,
            tx: Points::default(),
            links: Vec::new(),
            verdicts: ALL_VERDICTS,
            snaplen: usize::MAX,
        }
    }
}

/// The workers' end of a tap.
#[derive(Debug)]
pub struct Tap {
    pub(crate) options: TapOptions,
    sender: SyncSender<Batch>,
    shared: Arc<Shared>,
    numbers: AtomicU64,
}

/// The reader's end of a tap.
#[derive(Debug)]
pub struct Reader {
    receiver: Receiver<Batch>,
    shared: Arc<Shared>,
    tap: Weak<Tap>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Bytes that wait for the reader.
    waiting: AtomicUsize,
    lost: AtomicU64,
}

/// Copies of one burst.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) records: Vec<Record>,
    pub(crate) bytes: Vec<u8>,
}

/// One copy.
#[derive(Debug)]
pub struct Record {
    /// Counts frames of this tap from 1: the same before and after a program.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub timestamp_ns: u64,
    /// Where it was seen.
    pub hook: Hook,
    /// The link whose program was watched.
    pub link: Option<u32>,
    /// The receive queue; of what leaves, the worker that sends it.
    pub queue: u32,
    /// Length of the frame.
    pub len: u32,
    /// What was decided; nothing before it was.
    pub verdict: Option<TappedVerdict>,
    /// Where its bytes are.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// What a program, or a hook as a whole, decided about a frame.
#[derive(Debug, Clone)]
pub struct TappedVerdict {
    /// What was returned; `XDP_PASS` when no program is there.
    pub returned: u32,
    /// Where a redirected frame goes.
    pub target: Option<RedirectTarget>,
}

impl Tap {
    /// A tap and its reader.
    pub fn new(options: TapOptions) -> (Arc<Tap>, Reader) {
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        let shared = Arc::<Shared>::default();
        let tap = Tap { options, sender, shared: Arc::clone(&shared), numbers: AtomicU64::new(1) };
        let tap = Arc::new(tap);
        let reader = Reader { receiver, shared, tap: Arc::downgrade(&tap) };
        (tap, reader)
    }

    /// Numbers for `count` frames; gives the first.
    pub(crate) fn number(&self, count: usize) -> u64 {
        self.numbers.fetch_add(count as u64, Ordering::Relaxed)
    }

    /// Hands copies to the reader, or counts them as lost.
    pub(crate) fn send(&self, batch: Batch) {
        let (count, bytes) = (batch.records.len(), batch.bytes.len());
        let waiting = self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        if waiting + bytes > BYTES_MAX || self.sender.try_send(batch).is_err() {
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.lost.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}

impl Reader {
    /// The next copies.
    ///
    /// # Errors
    ///
    /// None came in time, or none will come any more: the tap was taken away, or its port.
    pub fn recv(&self, timeout: Duration) -> Result<Batch, RecvTimeoutError> {
        let batch = self.receiver.recv_timeout(timeout)?;
        self.shared.waiting.fetch_sub(batch.bytes.len(), Ordering::Relaxed);
        Ok(batch)
    }

    /// Copies that were lost so far because this reader was too slow.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Whether this is the tap it reads.
    pub fn reads(&self, tap: &Arc<Tap>) -> bool {
        std::ptr::eq(self.tap.as_ptr(), Arc::as_ptr(tap))
    }
}

impl Batch {
    /// The copies with their bytes, in the order they were made.
    pub fn records(&self) -> impl Iterator<Item = (&Record, &[u8])> {
        self.records.iter().map(|record| (record, &self.bytes[record.start..record.end]))
    }
}

/// Every action.
pub const ALL_VERDICTS: u32 = 0x1f;
/// Bursts that may wait for a reader.
const BATCHES_MAX: usize = 1024;
/// Bytes that may wait for a reader.
const BYTES_MAX: usize = 16 << 20;
const _: () =
    assert!(BYTES_MAX >= BATCHES_MAX * crate::BURST * 64, "small frames fill the batches first");

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(bytes: usize) -> Batch {
        let record = Record {
            number: 1,
            timestamp_ns: 0,
            hook: Hook::Rx,
            link: None,
            queue: 0,
            len: 60,
            verdict: None,
            start: 0,
            end: bytes,
        };
        Batch { records: vec![record], bytes: vec![0; bytes] }
    }

    #[test]
    fn a_slow_reader_loses_copies_and_is_told_how_many() {
        let (tap, reader) = Tap::new(TapOptions::default());
        for _ in 0..BATCHES_MAX + 10 {
            tap.send(batch(60));
        }
        assert_eq!(reader.lost(), 10, "by number");
        while reader.recv(Duration::ZERO).is_ok() {}
        for _ in 0..20 {
            tap.send(batch(1 << 20));
        }
        assert_eq!(reader.lost(), 10 + 4, "by bytes");
        drop(tap);
        while reader.recv(Duration::ZERO).is_ok() {}
        assert_eq!(reader.recv(Duration::ZERO).err(), Some(RecvTimeoutError::Disconnected));
    }
}
