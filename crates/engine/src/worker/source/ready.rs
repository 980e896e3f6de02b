//! Readiness of queues whose empty poll costs a system call.
//!
//! A worker with a thousand taps, one of them busy, would make 999 useless system calls per burst.
//! Instead, epoll(7) reports readable queues, and a queue that was empty is not polled before it is
//! reported. Reporting is level-triggered: a queue is reported until it is empty, however much the
//! worker took.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// A queue that epoll can watch.
pub(crate) trait Source {
    /// A number that is unique to this port and queue.
    fn key(&self) -> u64;

    /// See [`Rx::descriptor`](crate::port::Rx::descriptor).
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Whether the queue has ended and is not polled any more.
    fn is_finished(&self) -> bool;

    fn watch(&mut self) -> &mut Watch;
}

/// A worker's epoll instance and watched queues.
#[derive(Default)]
pub(crate) struct Ready {
    /// Made when [`WORTH_IT`] queues can be watched.
    epoll: Option<OwnedFd>,
    /// Index of each watched queue, by key.
    places: HashMap<u64, usize>,
}

/// Whether and how a queue is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Watch {
    /// Polled in each round, without epoll.
    #[default]
    Asked,
    /// Watched by epoll; polled, because it had frames at the last poll or was reported since.
    Busy,
    /// Watched by epoll; not polled, because it was empty at the last poll.
    Quiet,
}

impl Watch {
    pub(crate) fn is_quiet(self) -> bool {
        self == Watch::Quiet
    }

    pub(crate) fn is_watched(self) -> bool {
        self != Watch::Asked
    }

    /// Updates the state after a poll that found `count` frames.
    #[inline]
    pub(crate) fn note(&mut self, count: usize) {
        if self.is_watched() {
            *self = if count == 0 { Watch::Quiet } else { Watch::Busy };
        }
    }
}

impl Ready {
    /// Adds queues with a descriptor to epoll, if there are enough of them. Queues that epoll
    /// refuses are polled in each round.
    #[cold]
    pub(crate) fn adopt(&mut self, queues: &mut [impl Source]) {
        self.places.clear();
        let can_be = queues.iter().filter(|it| !it.is_finished() && it.descriptor().is_some());
        if self.epoll.is_none() && can_be.count() >= WORTH_IT {
            self.epoll = epoll::create(CreateFlags::CLOEXEC).ok();
        }
        for queue in queues.iter_mut().filter(|queue| queue.is_finished()) {
            self.forget(queue);
        }
        let Some(epoll) = &self.epoll else { return };
        for (place, queue) in queues.iter_mut().enumerate().filter(|(_, it)| !it.is_finished()) {
            let key = queue.key();
            let is_watched = queue.watch().is_watched();
            let Some(descriptor) = queue.descriptor() else { continue };
            if !is_watched {
                let (data, flags) = (EventData::new_u64(key), EventFlags::IN);
                if epoll::add(epoll, descriptor, data, flags).is_err() {
                    continue;
                }
                *queue.watch() = Watch::Busy;
            }
            self.places.insert(key, place);
        }
    }

    /// Removes a queue that goes to another worker or has ended from epoll.
    pub(crate) fn forget(&mut self, queue: &mut impl Source) {
        forget(self.epoll.as_ref(), &mut self.places, queue);
    }

    /// Marks quiet queues that epoll reports as busy.
    #[inline]
    pub(crate) fn look(&mut self, queues: &mut [impl Source]) {
        if !self.places.is_empty() {
            self.ask(queues);
        }
    }

    fn ask(&mut self, queues: &mut [impl Source]) {
        let Some(epoll) = &self.epoll else { return };
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If interrupted, the next round calls epoll again.
        let Ok((events, _rest)) = epoll::wait(epoll, &mut events[..], Some(&now)) else { return };
        for event in events {
            let place = self.places.get(&event.data.u64());
            let Some(queue) = place.and_then(|&place| queues.get_mut(place)) else { continue };
            if queue.is_finished() {
                // Otherwise its descriptor could stay readable for ever.
                forget(Some(epoll), &mut self.places, queue);
            } else {
                *queue.watch() = Watch::Busy;
            }
        }
    }

    /// The epoll descriptor, readable when a watched queue has frames; `None` without watched
    /// queues.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().filter(|_| !self.places.is_empty()).map(|epoll| epoll.as_fd())
    }
}

#[cold]
fn forget(epoll: Option<&OwnedFd>, places: &mut HashMap<u64, usize>, queue: &mut impl Source) {
    if queue.watch().is_watched() {
        places.remove(&queue.key());
        if let (Some(epoll), Some(descriptor)) = (epoll, queue.descriptor()) {
            // This fails if the descriptor's file was closed, which removed it already.
            let _known = epoll::delete(epoll, descriptor);
        }
        *queue.watch() = Watch::Asked;
    }
}

/// Fewest queues for which epoll is cheaper than polling each.
const WORTH_IT: usize = 4;
/// Most queues reported per call; further ones follow in the next round.
const EVENTS: usize = 64;
const _: () = assert!(WORTH_IT <= EVENTS, "one call names all of a few");
