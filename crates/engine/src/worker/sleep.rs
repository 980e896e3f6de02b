//! Sleep of idle workers: how long a worker without work polls before it sleeps, and for how long.

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
    /// Called between two rounds. Announces a quiescent state to all maps' reader groups, runs due
    /// timers, and sleeps if there was no work for a while.
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
        // Timers and launch times are kept to the microsecond.
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
        let spins = now.duration_since(since) < self.shared.spin;
        if self.shared.mode == Mode::Busy || spins || is_soon {
            std::hint::spin_loop();
            return;
        }
        self.sleep(now);
    }

    /// Sleeps until a descriptor is readable, the waker is called, a timer is due, or for
    /// [`SLEEP_MAX`].
    fn sleep(&mut self, now: Instant) {
        let waker = std::sync::Arc::clone(&self.shared.waker);
        waker.falls_asleep();
        let mut timeout =
            if self.nodes.wires.reap(&mut self.nodes.graph.pool) { REAP_PERIOD } else { SLEEP_MAX };
        if self.dequeues.iter().any(|it| it.waits_for_room(&self.snapshot)) {
            timeout = timeout.min(ROOM_PERIOD);
        }
        // The worker that holds an awaited queue may not wake this one when it is done.
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
            // An interrupted sleep ends, too.
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
        // After a sleep the worker polls again, but only for one round if it finds nothing.
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

    /// Counts frames that queues lost before they could be received.
    pub(super) fn count_missed(&mut self) {
        let number = self.shared.number;
        self.queues.iter_mut().for_each(|queue| queue.count_missed(number));
    }

    /// Time until the next timer or launch time.
    fn until_next(&self) -> Option<Duration> {
        let links = self.snapshot.chains().flat_map(|chain| chain.links());
        let timers = links.filter_map(|link| link.program.next_timer_ns()).min();
        let next = timers.into_iter().chain(self.nodes.launches.next_ns()).min()?;
        Some(Duration::from_nanos(next.saturating_sub(monotonic_ns())))
    }

    /// Runs due timers of programs, which must also run without traffic.
    fn run_timers(&mut self) {
        let Self { snapshot, runner, .. } = self;
        for link in snapshot.chains().flat_map(|chain| chain.links()) {
            if link.program.run_timers(&mut runner.xdp).is_err() {
                link.counters()[self.shared.number].faults.add(1);
            }
        }
    }
}

/// Longest sleep, as timers and links need attention.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// Longest sleep while packets of a dequeue program wait for room at a port.
const ROOM_PERIOD: Duration = Duration::from_micros(50);
/// Longest sleep while another worker holds a queue that this one awaits.
const AWAITED_PERIOD: Duration = Duration::from_micros(100);
/// Time by which a worker wakes before a timer or a launch time: the system's possible delay.
const WAKE_AHEAD: Duration = Duration::from_micros(150);
/// Interval at which an idle worker reads its queues' missed frames.
const MISSED_PERIOD: Duration = Duration::from_millis(100);
/// Rounds between two such reads of a busy worker; a read may be a system call.
const MISSED_ROUNDS: u32 = 1 << 13;
/// Rounds between two announcements of a quiescent state to all maps by a busy worker; a program's
/// own maps get one after each burst.
const QUIESCE_ROUNDS: u32 = 32;
const _: () =
    assert!(WAKE_AHEAD.as_nanos() < SLEEP_MAX.as_nanos(), "a sleep ends before its timer");
const _: () = assert!(QUIESCE_ROUNDS < MISSED_ROUNDS, "what costs more is rarer");
