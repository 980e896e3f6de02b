//! Counting: each worker counts for itself, readers add up.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a frame was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Drop {
    /// The program said `XDP_DROP`.
    Verdict,
    /// The program said `XDP_ABORTED` or something unknown, or failed.
    Aborted,
    /// Passed, and the port has no upper.
    NoUpper,
    /// `XDP_REDIRECT` without a target (`bpf_redirect` was not called, or failed).
    NoTarget,
    /// The target is no port here, or a map entry that leads nowhere (`-EINVAL`).
    BadTarget,
    /// The target does not take frames (`-EOPNOTSUPP`), or not of several buffers.
    Unsupported,
    /// The target is down (`-ENETDOWN`).
    Down,
    /// Longer than the target's MTU allows (`-EMSGSIZE`).
    TooLong,
    /// The target's ring or queue is full.
    RingFull,
    /// Sending failed.
    TxError,
    /// The program of a devmap or cpumap entry dropped it.
    EntryVerdict,
    /// No memory for a copy or for linearizing.
    NoMemory,
    /// It could not be made linear, cut or checksummed.
    Malformed,
    /// No AF_XDP socket, or not on this queue.
    NoSocket,
    /// The AF_XDP socket had no place for it; its statistics say which it lacked.
    SocketFull,
    /// The bridge had nowhere to send it, or was told not to.
    Bridge,
    /// Its port was removed while it was on its way.
    Removed,
    /// The bond has no member that can send (`-ENXIO`).
    NoMember,
    /// It passed on a member that its bond does not use now.
    Inactive,
}

impl Drop {
    /// All reasons, in order.
    pub const ALL: [Drop; 19] = [
        Drop::Verdict,
        Drop::Aborted,
        Drop::NoUpper,
        Drop::NoTarget,
        Drop::BadTarget,
        Drop::Unsupported,
        Drop::Down,
        Drop::TooLong,
        Drop::RingFull,
        Drop::TxError,
        Drop::EntryVerdict,
        Drop::NoMemory,
        Drop::Malformed,
        Drop::NoSocket,
        Drop::SocketFull,
        Drop::Bridge,
        Drop::Removed,
        Drop::NoMember,
        Drop::Inactive,
    ];

    /// Its name in metrics and tables.
    pub fn name(self) -> &'static str {
        match self {
            Drop::Verdict => "verdict",
            Drop::Aborted => "aborted",
            Drop::NoUpper => "no_upper",
            Drop::NoTarget => "no_target",
            Drop::BadTarget => "bad_target",
            Drop::Unsupported => "unsupported",
            Drop::Down => "down",
            Drop::TooLong => "too_long",
            Drop::RingFull => "ring_full",
            Drop::TxError => "tx_error",
            Drop::EntryVerdict => "entry_verdict",
            Drop::NoMemory => "no_memory",
            Drop::Malformed => "malformed",
            Drop::NoSocket => "no_socket",
            Drop::SocketFull => "socket_full",
            Drop::Bridge => "bridge",
            Drop::Removed => "removed",
            Drop::NoMember => "no_member",
            Drop::Inactive => "inactive",
        }
    }
}

/// A number that one thread counts up and others read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; only ever from the one thread that owns it.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// What it is now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one worker counted on one port.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct PortCounters {
    /// Frames received.
    pub rx_packets: Counter,
    /// Their bytes.
    pub rx_bytes: Counter,
    /// Frames the port took to send.
    pub tx_packets: Counter,
    /// Their bytes.
    pub tx_bytes: Counter,
    /// Frames lost before they could be received.
    pub rx_missed: Counter,
    /// Verdicts on frames that arrived here, by action number.
    pub actions: [Counter; 5],
    /// Frames that arrived here and were dropped, by reason.
    pub drops: [Counter; Drop::ALL.len()],
    /// Frames on their way out that this port did not take, by reason.
    pub tx_drops: [Counter; Drop::ALL.len()],
}

/// What one worker counted, whatever the port: the two sides of the frames' conservation.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct FrameCounters {
    /// Taken out of a receive queue.
    pub received: Counter,
    /// Made here: copies for broadcast, segments of large packets.
    pub created: Counter,
    /// Taken by a transmitter, or by a socket.
    pub delivered: Counter,
    /// Dropped for some reason.
    pub dropped: Counter,
    /// Used up without being dropped: what segments and linear copies were made of.
    pub freed: Counter,
    /// Given to another worker.
    pub handed_over: Counter,
    /// Taken over from another worker.
    pub taken_over: Counter,
}

/// Sums of [`FrameCounters`] over all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conservation {
    /// [`FrameCounters::received`]
    pub received: u64,
    /// [`FrameCounters::created`]
    pub created: u64,
    /// [`FrameCounters::delivered`]
    pub delivered: u64,
    /// [`FrameCounters::dropped`]
    pub dropped: u64,
    /// [`FrameCounters::freed`]
    pub freed: u64,
    /// Waiting for another worker.
    pub in_flight: u64,
}

impl Conservation {
    /// Adds one worker's counters.
    pub fn add(&mut self, worker: &FrameCounters) {
        self.received += worker.received.get();
        self.created += worker.created.get();
        self.delivered += worker.delivered.get();
        self.dropped += worker.dropped.get();
        self.freed += worker.freed.get();
        let handed_over = worker.handed_over.get();
        self.in_flight =
            self.in_flight.wrapping_add(handed_over).wrapping_sub(worker.taken_over.get());
    }

    /// Frames that are neither accounted for nor on their way: 0, read while nothing moves.
    pub fn missing(&self) -> i64 {
        let come = self.received + self.created;
        let gone = self.delivered + self.dropped + self.freed + self.in_flight;
        come.wrapping_sub(gone) as i64
    }
}

/// What one worker counted about one program on one hook.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ProgramCounters {
    /// Frames it judged.
    pub runs: Counter,
    /// Nanoseconds it took, while statistics are on.
    pub ns: Counter,
    /// Its verdicts by action number, whatever became of them.
    pub actions: [Counter; 5],
    /// Runs that did what no verified program can do.
    pub faults: Counter,
}
