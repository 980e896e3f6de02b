//! Waiting for work without burning a core.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Worker;
use super::nodes::wire::REAP_PERIOD;
use super::source::rx::RxQueue;
use super::source::tx_ring::TxRing;
use crate::dequeue::monotonic_ns;
use crate::options::Mode;
use crate::port::Wake;

impl Worker {
    /// Between two rounds: announces that it holds nothing of any map, runs due timers, and sleeps
    /// if there was no work for a while.
    #[inline]
    pub(super) fn rest(&mut self, work: usize) {
        self.idle.rounds = self.idle.rounds.wrapping_add(1);
        if work > 0 {
            self.idle.since = None;
            if self.idle.rounds.is_multiple_of(QUIESCE_ROUNDS) {
                self.quiesce();
            }
            if self.idle.rounds.is_multiple_of(MISSED_ROUNDS) {
                self.count_missed();
            }
            return;
        }
        self.rest_idle();
    }

    fn rest_idle(&mut self) {
        self.quiesce();
        let now = Instant::now();
        self.stint.pause(&self.shared.load, now);
        let since = *self.idle.since.get_or_insert(now);
        // Whoever waits for that waits for it to the microsecond.
        let ahead = self.until_next();
        if ahead.is_some_and(|ahead| ahead.is_zero()) {
            self.stint.begin(&self.shared.load);
            self.run_timers();
        }
        if self.idle.missed.is_none_or(|last| now.duration_since(last) > MISSED_PERIOD) {
            self.idle.missed = Some(now);
            self.count_missed();
        }
        let is_soon = ahead.is_some_and(|ahead| ahead < WAKE_AHEAD);
        if self.shared.mode == Mode::Busy || now.duration_since(since) < SPIN || is_soon {
            std::hint::spin_loop();
            return;
        }
        self.sleep(now);
    }

    /// Sleeps until a descriptor is readable, somebody rings, it is time for something, or for
    /// [`SLEEP_MAX`].
    fn sleep(&mut self, now: Instant) {
        let waker = std::sync::Arc::clone(&self.shared.waker);
        waker.falls_asleep();
        let mut timeout =
            if self.nodes.wires.reap(&mut self.nodes.graph.pool) { REAP_PERIOD } else { SLEEP_MAX };
        if self.dequeues.iter().any(|it| it.waits_for_room(&self.snapshot)) {
            timeout = timeout.min(ROOM_PERIOD);
        }
        // The worker that this one waits for wakes nobody when it is done.
        if !self.awaited.is_empty() {
            timeout = timeout.min(AWAITED_PERIOD);
        }
        if let Some(ahead) = self.until_next() {
            timeout = timeout.min(ahead.saturating_sub(WAKE_AHEAD));
        }
        if self.has_news() || self.round() > 0 {
            self.idle.since = None;
            waker.awakes();
            return;
        }
        for domain in &self.domains {
            domain.offline(self.shared.number);
        }
        let mut fds = vec![PollFd::from_borrowed_fd(waker.bell(), PollFlags::IN)];
        let (mut is_due, mut rings) = (false, vec![None]);
        if let Some(ready) = self.ready.descriptor() {
            fds.push(PollFd::from_borrowed_fd(ready, PollFlags::IN));
            rings.push(None);
        }
        let asked = |queue: &&mut RxQueue| !queue.is_finished && !queue.watch.is_watched();
        let queues = self.queues.iter_mut().filter(asked);
        let sources = queues.map(|queue| (queue.rx.arm(), None));
        for (wake, ring) in sources.chain(self.tx_rings.iter().map(|it| (it.arm(), Some(it)))) {
            match wake {
                Wake::Now => is_due = true,
                Wake::Readable(fd) => {
                    fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                    rings.push(ring);
                }
                Wake::At(when) => timeout = timeout.min(when.saturating_duration_since(now)),
                Wake::Waker => {}
            }
        }
        if !is_due && !timeout.is_zero() {
            // An interrupted sleep is over too.
            self.shared.counters.rest();
            let _woken = poll(&mut fds, Timespec::try_from(timeout).ok().as_ref());
            self.shared.counters.begin_round();
            self.stint.wake(Instant::now());
        }
        for (events, ring) in fds.iter().map(PollFd::revents).zip(rings) {
            if let Some(ring) = ring.filter(|_| !events.is_empty()) {
                ring.rang(events.contains(PollFlags::HUP));
            }
        }
        drop(fds);
        self.tx_rings.iter().for_each(TxRing::disarm);
        waker.awakes();
        self.quiesce();
        // After a sleep it spins again, but no longer than one round when nothing came.
        self.idle.since = Some(now);
    }

    /// Whether there is a new configuration, or work from another worker.
    fn has_news(&self) -> bool {
        self.shared.offered() != self.snapshot.generation || self.shared.is_stopped()
    }

    pub(super) fn quiesce(&self) {
        for domain in &self.domains {
            domain.quiesce(self.shared.number);
        }
    }

    /// Asks queues what was lost before it could be received.
    pub(super) fn count_missed(&mut self) {
        let number = self.shared.number;
        self.queues.iter_mut().for_each(|queue| queue.count_missed(number));
    }

    /// How long it is to the next timer or launch time.
    fn until_next(&self) -> Option<Duration> {
        let links = self.snapshot.chains().flat_map(|chain| chain.links());
        let timers = links.filter_map(|link| link.program.next_timer_ns()).min();
        let next = timers.into_iter().chain(self.nodes.launches.next_ns()).min()?;
        Some(Duration::from_nanos(next.saturating_sub(monotonic_ns())))
    }

    /// Programs have timers, which must run where no frames come.
    fn run_timers(&mut self) {
        let Self { snapshot, runner, .. } = self;
        for link in snapshot.chains().flat_map(|chain| chain.links()) {
            if link.program.run_timers(&mut runner.xdp).is_err() {
                link.counters()[self.shared.number].faults.add(1);
            }
        }
    }
}

/// Without work for this long an adaptive worker sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Sleeps are no longer, for timers and links.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// How often a sleeping worker asks a port whether it has room for what a dequeue program has.
const ROOM_PERIOD: Duration = Duration::from_micros(50);
/// How often a sleeping worker looks whether it may take up a queue.
const AWAITED_PERIOD: Duration = Duration::from_micros(100);
/// A worker is awake so long before a timer or a launch time: as late as the system may be to wake
/// it.
const WAKE_AHEAD: Duration = Duration::from_micros(150);
/// How often an idle worker asks its queues what they lost.
const MISSED_PERIOD: Duration = Duration::from_millis(100);
/// A busy worker asks once in so many rounds: it may be a system call.
const MISSED_ROUNDS: u32 = 1 << 13;
/// A busy worker announces itself to all maps once in so many rounds; a program's own maps know
/// after each burst.
const QUIESCE_ROUNDS: u32 = 32;
const _: () = assert!(
    SPIN.as_nanos() < SLEEP_MAX.as_nanos(),
    "an adaptive worker sleeps longer than it spins"
);
const _: () =
    assert!(WAKE_AHEAD.as_nanos() < SLEEP_MAX.as_nanos(), "a sleep ends before its timer");
const _: () = assert!(QUIESCE_ROUNDS < MISSED_ROUNDS, "what costs more is rarer");
