//! Counting: each worker counts for itself, readers add up.

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
    /// The queue it was redirected to is full (`-EOVERFLOW`).
    QueueFull,
    /// Its rank is below the window of the queue it was redirected to (`-ERANGE`).
    QueueRank,
    /// The program that took it out of a queue dropped it.
    Dequeue,
    /// The queue it waited in went with its map.
    QueueGone,
    /// It was to leave later than anybody waits ([`crate::LAUNCH_HORIZON`]), or too many waited.
    Launch,
    /// Guests' programs and those of their ports sent it to and fro.
    Loop,
    /// A program that the port is to have isn't there, so that nobody says what may pass.
    NoProgram,
}

impl DropReason {
    /// All reasons, in order.
    pub const ALL: [DropReason; Self::COUNT] = *Self::VARIANTS.first_chunk().expect("all of them");

    /// Its name in metrics and tables.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A number that one thread counts up and others read. Who sees one of its steps sees what the
/// thread counted before.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; only ever from the one thread that owns it.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Release);
    }

    /// What it is now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
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
    pub drops: [Counter; DropReason::ALL.len()],
    /// Frames on their way out that this port did not take, by reason.
    pub tx_drops: [Counter; DropReason::ALL.len()],
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
    /// Dropped, by reason.
    pub dropped: [Counter; DropReason::ALL.len()],
    /// Used up without being dropped: what segments and linear copies were made of.
    pub freed: Counter,
    /// Given to another worker, put into a queue, or held until its launch time.
    pub handed_over: Counter,
    /// Taken over from another worker, or out of a queue, or no more held.
    pub taken_over: Counter,
    rounds: Rounds,
}

/// When nothing is in a worker's hands, so that what came and isn't gone is lost.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Rounds {
    /// Odd while the worker works, even while it sleeps; another number for each round.
    beat: AtomicU64,
    /// How often it was asked for its sums, and which time it answered last.
    asked: AtomicU64,
    answered: AtomicU64,
    /// What it answered, between two rounds.
    said: Mutex<Conservation>,
}

impl FrameCounters {
    /// The worker starts another round, with nothing in its hands. Whoever asked for its sums gets
    /// them now.
    #[inline]
    pub(crate) fn begin_round(&self) {
        let Rounds { beat, asked, answered, .. } = &self.rounds;
        let before = beat.load(Ordering::Relaxed);
        beat.store((before + 2) | 1, Ordering::Relaxed);
        if before.is_multiple_of(2) {
            // Whoever sees a counter change sees that it is awake.
            fence(Ordering::Release);
        }
        if asked.load(Ordering::Relaxed) != answered.load(Ordering::Relaxed) {
            self.answer();
        }
    }

    /// The worker sleeps, or is gone: nobody waits for it to come round.
    #[inline]
    pub(crate) fn rest(&self) {
        let beat = self.rounds.beat.load(Ordering::Relaxed);
        self.rounds.beat.store((beat + 2) & !1, Ordering::Release);
    }

    /// Its round: odd while it works, even while it sleeps.
    pub(crate) fn beat(&self) -> u64 {
        self.rounds.beat.load(Ordering::Relaxed)
    }

    #[cold]
    fn answer(&self) {
        let Rounds { asked, answered, said, .. } = &self.rounds;
        let number = asked.load(Ordering::Acquire);
        // Whoever reads it may have been made to wait: then after the next round.
        let Some(mut said) = said.try_lock() else { return };
        *said = self.sums();
        answered.store(number, Ordering::Release);
    }

    /// Asks for its sums between two rounds; gives which time that is.
    fn ask(&self) -> u64 {
        self.rounds.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Its sums between two rounds, if it comes round in time; or else as they are, with what it
    /// has in hand.
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

    /// Its sums, if it sleeps all the while.
    fn sums_at_rest(&self) -> Option<Conservation> {
        let before = self.rounds.beat.load(Ordering::Acquire);
        let sums = before.is_multiple_of(2).then(|| self.sums())?;
        fence(Ordering::Acquire);
        (self.beat() == before).then_some(sums)
    }

    /// Frames that came to the worker and are not gone: 0 at the end of each burst.
    pub(crate) fn in_hand(&self) -> i64 {
        self.sums().missing
    }

    /// What is gone is read first: it counts a frame as come before as gone.
    fn sums(&self) -> Conservation {
        let delivered = self.delivered.get();
        let dropped = self.dropped.iter().map(Counter::get).sum::<u64>();
        let freed = self.freed.get();
        let handed_over = self.handed_over.get();
        // Of one worker it is less than nothing.
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
    /// Waiting for another worker, in a queue, or for its launch time.
    pub in_flight: u64,
    /// In the hands of workers that are at one burst for longer than 5 ms: a slow program, or a
    /// machine that lets them wait.
    pub held: u64,
    missing: i64,
}

impl Conservation {
    /// One cut through the counters of all workers, of each between two of its rounds, or while it
    /// sleeps. Those that don't come round within 5 ms are taken as they are.
    pub fn of<'a>(workers: &(impl Iterator<Item = &'a FrameCounters> + Clone)) -> Conservation {
        let end = Instant::now() + CUT_TIME_MAX;
        loop {
            // All of them first: one may keep us waiting.
            let asked: Vec<u64> = workers.clone().map(FrameCounters::ask).collect();
            let cuts = workers.clone().zip(asked).map(|(worker, asked)| worker.cut(asked, end));
            let cut = cuts.sum::<Conservation>();
            // What is handed over between two workers' cuts may have arrived and not left.
            let in_flight = cut.in_flight.cast_signed();
            if in_flight >= 0 || Instant::now() >= end {
                return Conservation { in_flight: in_flight.max(0) as u64, ..cut };
            }
        }
    }

    /// Frames that are lost: a worker came round and had neither passed them on nor counted them as
    /// gone. Other than 0 is a fault of the program; or a worker panicked with them in hand.
    pub fn missing(&self) -> i64 {
        self.missing
    }

    /// Whether all frames that came so far are gone, or lost.
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

/// Whoever wants to know what became of all frames waits so long for workers' bursts.
const CUT_TIME_MAX: Duration = Duration::from_millis(5);

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

    /// What a worker has in hand is held, however long; what it comes round without is lost.
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
        // One is lost, and the next burst is begun.
        worker.begin_round();
        worker.received.add(10);
        assert_eq!(now(), (10, 1), "also while it is at something else");
        worker.dropped[0].add(10);
        worker.rest();
        assert_eq!(now(), (0, 1));
    }
}
