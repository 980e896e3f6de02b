//! Taps: copies of frames that arrive at a port or leave it, before or after the programs of either
//! hook, for a reader.
//!
//! A port without a tap pays one test per burst. A port with a tap pays for the copies and nothing
//! else: if the reader is slow, copies are lost and counted, but never frames.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use towpath_xdp::RedirectTarget;

use crate::chain::Hook;

/// Options of a tap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapOptions {
    /// Points of the `rx` hook at which frames are copied.
    pub rx: Points,
    /// Points of the `tx` hook at which frames are copied.
    pub tx: Points,
    /// Ids of links whose programs are tapped one by one, with the frames each sees. If empty, the
    /// hook is tapped as a whole: before its first program and after its last.
    pub links: Vec<u32>,
    /// Verdicts of the frames to copy, before and after the program: bit `1 << action`.
    pub verdicts: u32,
    /// Copies are truncated to this number of bytes.
    pub snaplen: usize,
}

/// The points of a hook at which frames are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Points {
    /// Before the programs.
    pub entry: bool,
    /// After the programs, with the verdict.
    pub exit: bool,
}

impl Points {
    /// Before and after the programs.
    pub const BOTH: Points = Points { entry: true, exit: true };

    /// Whether at least one point is selected.
    pub fn is_any(self) -> bool {
        self.entry || self.exit
    }
}

impl TapOptions {
    /// The points at which frames of a hook are copied.
    pub fn points(&self, hook: Hook) -> Points {
        match hook {
            Hook::Rx => self.rx,
            Hook::Tx => self.tx,
            // Packets of dequeue programs are seen at egress; guests' own hooks are not tapped.
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
    /// Bytes queued for the reader.
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
    /// Number of the frame within this tap, from 1; the same before and after a program.
    pub number: u64,
    /// Time of the copy, nanoseconds since 1970 (UTC).
    pub timestamp_ns: u64,
    /// The hook that was tapped.
    pub hook: Hook,
    /// Id of the link whose program was tapped; `None` for the hook as a whole.
    pub link: Option<u32>,
    /// The receive queue; on egress, the number of the worker that sends.
    pub queue: u32,
    /// Length of the frame in bytes.
    pub len: u32,
    /// The verdict; `None` before the program.
    pub verdict: Option<TappedVerdict>,
    /// Range of the copy in [`Batch::bytes`].
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The verdict of a program, or of a hook as a whole, on a frame.
#[derive(Debug, Clone)]
pub struct TappedVerdict {
    /// The returned action; `XDP_PASS` if there is no program.
    pub returned: u32,
    /// The target of a redirected frame.
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

    /// Allocates numbers for `count` frames; returns the first.
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
    /// Waits for the next copies.
    ///
    /// # Errors
    ///
    /// Fails if no copies arrive within `timeout`, or none will arrive because the tap or its port
    /// was removed.
    pub fn recv(&self, timeout: Duration) -> Result<Batch, RecvTimeoutError> {
        let batch = self.receiver.recv_timeout(timeout)?;
        self.shared.waiting.fetch_sub(batch.bytes.len(), Ordering::Relaxed);
        Ok(batch)
    }

    /// Number of copies lost so far because this reader was too slow.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Whether this reader reads `tap`.
    pub fn reads(&self, tap: &Arc<Tap>) -> bool {
        std::ptr::eq(self.tap.as_ptr(), Arc::as_ptr(tap))
    }
}

impl Batch {
    /// The copies with their bytes, in order.
    pub fn records(&self) -> impl Iterator<Item = (&Record, &[u8])> {
        self.records.iter().map(|record| (record, &self.bytes[record.start..record.end]))
    }
}

/// A mask of all verdicts.
pub const ALL_VERDICTS: u32 = 0x1f;
/// Most bursts queued for a reader.
const BATCHES_MAX: usize = 1024;
/// Most bytes queued for a reader.
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
