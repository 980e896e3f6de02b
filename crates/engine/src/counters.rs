//! Counters: each worker has its own, and readers sum them up.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use strum::{EnumCount, IntoStaticStr, VariantArray};

/// Why a frame was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[repr(usize)]
pub enum DropReason {
    /// The program returned `XDP_DROP`.
    Verdict,
    /// The program returned `XDP_ABORTED` or an unknown action, or failed.
    Aborted,
    /// The program returned `XDP_PASS`, and the port has no upper.
    NoUpper,
    /// `XDP_REDIRECT` without a target (`bpf_redirect` was not called, or failed).
    NoTarget,
    /// The target is not a port here, or a map entry without a valid target (`-EINVAL`).
    BadTarget,
    /// The target does not take redirected frames, or not frames of several buffers
    /// (`-EOPNOTSUPP`).
    Unsupported,
    /// The target is down (`-ENETDOWN`).
    Down,
    /// The frame is longer than the target's MTU allows (`-EMSGSIZE`).
    TooLong,
    /// The target's ring or queue is full.
    RingFull,
    /// Sending failed.
    TxError,
    /// The program of a devmap or cpumap entry dropped it.
    EntryVerdict,
    /// There was no memory for a copy or for linearising.
    NoMemory,
    /// The frame could not be linearised, segmented or checksummed.
    Malformed,
    /// The XSKMAP entry has no AF_XDP socket, or one bound to another queue.
    NoSocket,
    /// The AF_XDP socket had no room for the frame; the socket's statistics say which ring lacked
    /// it.
    SocketFull,
    /// The bridge had no port to send the frame to, or the destination is a reserved address.
    Bridge,
    /// The port was removed while the frame was in flight.
    Removed,
    /// The bond has no member that can send (`-ENXIO`).
    NoMember,
    /// The frame passed on a member that the bond does not use now.
    Inactive,
    /// The queue that the frame was redirected to is full (`-EOVERFLOW`).
    QueueFull,
    /// The frame's rank is below the window of the queue it was redirected to (`-ERANGE`).
    QueueRank,
    /// The dequeue program that took the frame out of a queue dropped it.
    Dequeue,
    /// The frame's queue was freed with its map.
    QueueGone,
    /// The launch time was beyond [`crate::LAUNCH_HORIZON`], or too many frames waited for theirs.
    Launch,
    /// Programs of a guest and of its port sent the frame back and forth in a loop.
    Loop,
    /// A program that the port requires is missing, so that the port drops all frames.
    NoProgram,
}

impl DropReason {
    /// All reasons, in order.
    pub const ALL: [DropReason; Self::COUNT] = *Self::VARIANTS.first_chunk().expect("all of them");

    /// The reason's name in metrics and tables.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A counter that one thread increments and others read. A reader that sees an increment also sees
/// all earlier increments by that thread.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`; may be called only by the one thread that owns the counter.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Release);
    }

    /// The present value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Counters of one worker on one port.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct PortCounters {
    /// Frames received.
    pub rx_packets: Counter,
    /// Their bytes.
    pub rx_bytes: Counter,
    /// Frames that the port accepted for sending.
    pub tx_packets: Counter,
    /// Their bytes.
    pub tx_bytes: Counter,
    /// Frames lost before they could be received.
    pub rx_missed: Counter,
    /// Verdicts on frames that arrived here, by action number.
    pub actions: [Counter; 5],
    /// Frames that arrived here and were dropped, by reason.
    pub drops: [Counter; DropReason::ALL.len()],
    /// Frames to send that this port did not take, by reason.
    pub tx_drops: [Counter; DropReason::ALL.len()],
}

/// Counters of one worker over all ports: origins and fates of frames, which must balance.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct FrameCounters {
    /// Frames taken out of a receive queue.
    pub received: Counter,
    /// Frames made by the worker: copies for broadcast, segments of large packets.
    pub created: Counter,
    /// Frames taken by a transmitter or a socket.
    pub delivered: Counter,
    /// Frames dropped, by reason.
    pub dropped: [Counter; DropReason::ALL.len()],
    /// Frames replaced by others: the sources of segments and linear copies.
    pub freed: Counter,
    /// Frames given to another worker, put into a queue, or held until their launch time.
    pub handed_over: Counter,
    /// Frames taken over from another worker, from a queue, or at their launch time.
    pub taken_over: Counter,
    rounds: Rounds,
}

/// A worker's rounds. Between two rounds a worker holds no frames: those that came to it and are
/// not counted as gone are lost.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Rounds {
    /// Number of the round: odd while the worker works, even while it sleeps.
    beat: AtomicU64,
    /// Number of requests for the worker's sums, and number of the request answered last.
    asked: AtomicU64,
    answered: AtomicU64,
    /// The last answer, taken between two rounds.
    said: Mutex<Conservation>,
}

impl FrameCounters {
    /// Starts a round; the worker holds no frames. Answers a pending request for the worker's sums.
    #[inline]
    pub(crate) fn begin_round(&self) {
        let Rounds { beat, asked, answered, .. } = &self.rounds;
        let before = beat.load(Ordering::Relaxed);
        beat.store((before + 2) | 1, Ordering::Relaxed);
        if before.is_multiple_of(2) {
            // A reader that sees a counter change also sees that the worker is awake.
            fence(Ordering::Release);
        }
        if asked.load(Ordering::Relaxed) != answered.load(Ordering::Relaxed) {
            self.answer();
        }
    }

    /// Notes that the worker sleeps or ended, so that readers do not wait for its next round.
    #[inline]
    pub(crate) fn rest(&self) {
        let beat = self.rounds.beat.load(Ordering::Relaxed);
        self.rounds.beat.store((beat + 2) & !1, Ordering::Release);
    }

    /// Number of the present round: odd while the worker works, even while it sleeps.
    pub(crate) fn beat(&self) -> u64 {
        self.rounds.beat.load(Ordering::Relaxed)
    }

    #[cold]
    fn answer(&self) {
        let Rounds { asked, answered, said, .. } = &self.rounds;
        let number = asked.load(Ordering::Acquire);
        // A descheduled reader may hold the lock; then the next round answers.
        let Some(mut said) = said.try_lock() else { return };
        *said = self.sums();
        answered.store(number, Ordering::Release);
    }

    /// Requests the worker's sums between two rounds; returns the request's number.
    fn ask(&self) -> u64 {
        self.rounds.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The worker's sums between two rounds, if a round ends before `end`; otherwise its present
    /// sums, with the frames it holds.
    fn cut(&self, asked: u64, end: Instant) -> Conservation {
        loop {
            if let Some(sums) = self.sums_at_rest() {
                return sums;
            }
            if self.rounds.answered.load(Ordering::Acquire) >= asked {
                return *self.rounds.said.lock();
            }
            if Instant::now() >= end {
                let (now, lost) = (self.sums(), self.rounds.said.lock().missing);
                return Conservation {
                    held: (now.missing - lost).max(0) as u64,
                    missing: lost,
                    ..now
                };
            }
            std::thread::yield_now();
        }
    }

    /// The worker's sums, if it sleeps while they are read.
    fn sums_at_rest(&self) -> Option<Conservation> {
        let before = self.rounds.beat.load(Ordering::Acquire);
        let sums = before.is_multiple_of(2).then(|| self.sums())?;
        fence(Ordering::Acquire);
        (self.beat() == before).then_some(sums)
    }

    /// Number of frames that came to the worker and are not gone: 0 at the end of each burst.
    pub(crate) fn in_hand(&self) -> i64 {
        self.sums().missing
    }

    /// The present sums. Counters of fates are read first, because a worker counts a frame's origin
    /// before its fate.
    fn sums(&self) -> Conservation {
        let delivered = self.delivered.get();
        let dropped = self.dropped.iter().map(Counter::get).sum::<u64>();
        let freed = self.freed.get();
        let handed_over = self.handed_over.get();
        // For a single worker the difference may be negative.
        let in_flight = handed_over.wrapping_sub(self.taken_over.get());
        let (received, created) = (self.received.get(), self.created.get());
        let (come, gone) = (received + created, delivered + dropped + freed);
        let missing = come.wrapping_sub(gone.wrapping_add(in_flight)).cast_signed();
        Conservation { received, created, delivered, dropped, freed, in_flight, held: 0, missing }
    }
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
    /// [`FrameCounters::dropped`], for all reasons
    pub dropped: u64,
    /// [`FrameCounters::freed`]
    pub freed: u64,
    /// Frames that wait for another worker, in a queue, or for their launch time.
    pub in_flight: u64,
    /// Frames held by workers that take more than 5 ms for one burst, because of a slow program or
    /// a busy machine.
    pub held: u64,
    missing: i64,
}

impl Conservation {
    /// A consistent cut through the counters of all workers: each worker's are read between two of
    /// its rounds, or while it sleeps. Workers that do not end their round within 5 ms are read as
    /// they are.
    pub fn of<'a>(workers: &(impl Iterator<Item = &'a FrameCounters> + Clone)) -> Conservation {
        let end = Instant::now() + CUT_TIME_MAX;
        loop {
            // All workers are asked first, because one of them may take long.
            let asked: Vec<u64> = workers.clone().map(FrameCounters::ask).collect();
            let cuts = workers.clone().zip(asked).map(|(worker, asked)| worker.cut(asked, end));
            let cut = cuts.sum::<Conservation>();
            // A frame handed over between the cuts of two workers may be counted as taken over
            // only.
            let in_flight = cut.in_flight.cast_signed();
            if in_flight >= 0 || Instant::now() >= end {
                return Conservation { in_flight: in_flight.max(0) as u64, ..cut };
            }
        }
    }

    /// Number of lost frames: at the end of a round, a worker had neither passed them on nor
    /// counted them as gone. A value other than 0 is a bug, or a worker panicked while it held
    /// frames.
    pub fn missing(&self) -> i64 {
        self.missing
    }

    /// Whether all frames so far are gone or lost: none is in flight or held.
    pub fn is_settled(&self) -> bool {
        self.in_flight == 0 && self.held == 0
    }
}

impl Sum for Conservation {
    fn sum<I: Iterator<Item = Conservation>>(all: I) -> Conservation {
        all.fold(Conservation::default(), |sum, it| Conservation {
            received: sum.received + it.received,
            created: sum.created + it.created,
            delivered: sum.delivered + it.delivered,
            dropped: sum.dropped + it.dropped,
            freed: sum.freed + it.freed,
            in_flight: sum.in_flight.wrapping_add(it.in_flight),
            held: sum.held + it.held,
            missing: sum.missing + it.missing,
        })
    }
}

/// Longest wait of [`Conservation::of`] for workers' bursts.
const CUT_TIME_MAX: Duration = Duration::from_millis(5);

/// Counters of one worker for one program on one hook.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ProgramCounters {
    /// Frames that the program judged.
    pub runs: Counter,
    /// Run time in nanoseconds, counted while statistics are on.
    pub ns: Counter,
    /// Verdicts by action number, whatever their effect.
    pub actions: [Counter; 5],
    /// Runs that ended with a fault that a verified program cannot cause.
    pub faults: Counter,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Two workers: one copies frames and hands them to the other, which delivers them.
    #[test]
    fn no_frame_is_gone_before_it_came() {
        let workers = [FrameCounters::default(), FrameCounters::default()];
        let [first, second] = &workers;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    first.begin_round();
                    first.received.add(1);
                    first.created.add(1);
                    first.freed.add(1);
                    first.handed_over.add(1);
                }
                first.rest();
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    second.begin_round();
                    if second.taken_over.get() < first.handed_over.get() {
                        second.taken_over.add(1);
                        second.delivered.add(1);
                    }
                }
                second.rest();
            });
            let mut lies = None;
            for _ in 0..2000 {
                let frames = Conservation::of(&workers.iter());
                lies = lies.or((frames.missing() != 0).then_some(frames));
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(lies, None);
        });
        let frames = Conservation::of(&workers.iter());
        assert!(frames.missing() == 0 && frames.held == 0, "{frames:?}");
    }

    /// Frames that a worker holds count as held, however long; frames missing at the end of a round
    /// count as lost.
    #[test]
    fn what_is_in_hand_is_not_lost_and_what_is_lost_is_not_in_hand() {
        let worker = FrameCounters::default();
        let now = || {
            let frames = Conservation::of(&std::iter::once(&worker));
            (frames.held, frames.missing())
        };
        worker.begin_round();
        worker.received.add(64);
        worker.delivered.add(3);
        assert_eq!(now(), (61, 0));
        worker.delivered.add(60);
        // One frame is lost, and the next burst begins.
        worker.begin_round();
        worker.received.add(10);
        assert_eq!(now(), (10, 1), "also while it is at something else");
        worker.dropped[0].add(10);
        worker.rest();
        assert_eq!(now(), (0, 1));
    }
}
