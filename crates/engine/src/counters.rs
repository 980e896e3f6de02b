//! Counting: each worker counts for itself, readers add up.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
}

impl FrameCounters {
    /// Frames that came to the worker and are not gone: 0 at the end of each burst.
    pub(crate) fn in_hand(&self) -> i64 {
        Conservation::look(&std::iter::once(self)).missing()
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
}

impl Conservation {
    /// One cut through the counters of all workers, of each between two of its bursts. Where one
    /// is at a burst for longer than 5 ms, what it has in hand is [`Conservation::missing`].
    pub fn of<'a>(workers: &(impl Iterator<Item = &'a FrameCounters> + Clone)) -> Conservation {
        let start = Instant::now();
        while start.elapsed() < CUT_TIME_MAX {
            let cut = workers.clone().map(|worker| Self::cut(worker, start)).sum::<Conservation>();
            // What is handed over between two workers' cuts may have arrived and not left.
            if cut.missing() == 0 && cut.in_flight.cast_signed() >= 0 {
                return cut;
            }
        }
        let looked = Self::look(workers);
        // A worker may take frames over before they are counted as handed over.
        Conservation { in_flight: looked.in_flight.cast_signed().max(0) as u64, ..looked }
    }

    /// One worker's counters between two bursts, if it gets there in time.
    fn cut(worker: &FrameCounters, start: Instant) -> Conservation {
        loop {
            let looked = Self::look(&std::iter::once(worker));
            if looked.missing() == 0 || start.elapsed() >= CUT_TIME_MAX {
                return looked;
            }
            std::thread::yield_now();
        }
    }

    /// The sums of workers' counters, of which each counts a frame as come before as gone. What is
    /// gone is read first: if all that came until later is gone, nothing was on its way.
    fn look<'a>(workers: &(impl Iterator<Item = &'a FrameCounters> + Clone)) -> Conservation {
        let sum = |read: fn(&FrameCounters) -> &Counter| {
            workers.clone().map(|worker| read(worker).get()).sum::<u64>()
        };
        let delivered = sum(|it| &it.delivered);
        let by_reason = workers.clone().flat_map(|worker| &worker.dropped);
        let dropped = by_reason.map(Counter::get).sum::<u64>();
        let freed = sum(|it| &it.freed);
        let handed_over = sum(|it| &it.handed_over);
        // Of one worker it is less than nothing.
        let in_flight = handed_over.wrapping_sub(sum(|it| &it.taken_over));
        let (received, created) = (sum(|it| &it.received), sum(|it| &it.created));
        Conservation { received, created, delivered, dropped, freed, in_flight }
    }

    /// Frames that are neither accounted for nor on their way to another worker: those that a
    /// worker was at for too long to wait for it, and 0 otherwise.
    pub fn missing(&self) -> i64 {
        let come = self.received + self.created;
        let gone = self.delivered + self.dropped + self.freed;
        come.wrapping_sub(gone.wrapping_add(self.in_flight)).cast_signed()
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
                    first.received.add(1);
                    first.created.add(1);
                    first.freed.add(1);
                    first.handed_over.add(1);
                }
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if second.taken_over.get() < first.handed_over.get() {
                        second.taken_over.add(1);
                        second.delivered.add(1);
                    }
                }
            });
            let (mut exact, mut negative) = (0, None);
            for _ in 0..2000 {
                let frames = Conservation::of(&workers.iter());
                exact += u32::from(frames.missing() == 0);
                negative = negative.or((frames.missing() < 0).then_some(frames));
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(negative, None);
            // But for threads that were made to wait in the middle of a burst.
            assert!(exact > 1900, "{exact}");
        });
        let frames = Conservation::of(&workers.iter());
        assert_eq!(frames.missing(), 0, "{frames:?}");
    }
}
