//! Which queues to ask, where to ask one in vain is a system call.
//!
//! A worker with a thousand taps of which one is busy would ask 999 in vain for each burst. So the
//! kernel says which are readable (epoll(7)): a queue that had nothing is not asked before. The
//! kernel goes on saying so until the queue is empty, whatever the worker took of it.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// A queue that the kernel may watch.
pub(crate) trait Source {
    /// Its number, of one port and one queue alone.
    fn key(&self) -> u64;

    /// See [`Rx::descriptor`](crate::port::Rx::descriptor).
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Whether it has ended, and is not asked any more.
    fn is_finished(&self) -> bool;

    fn watch(&mut self) -> &mut Watch;
}

/// What a worker knows of the readiness of its queues.
#[derive(Default)]
pub(crate) struct Ready {
    /// Made as soon as it is worth it.
    epoll: Option<OwnedFd>,
    /// The place of each queue that is watched.
    places: HashMap<u64, usize>,
}

/// How a queue is found to have frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Watch {
    /// It is asked in each round.
    #[default]
    Asked,
    /// The kernel watches it; it had frames when it was asked last, or was never asked.
    Busy,
    /// The kernel watches it, and it had nothing.
    Quiet,
}

impl Watch {
    pub(crate) fn is_quiet(self) -> bool {
        self == Watch::Quiet
    }

    pub(crate) fn is_watched(self) -> bool {
        self != Watch::Asked
    }

    /// What it is after it was asked.
    #[inline]
    pub(crate) fn note(&mut self, count: usize) {
        if self.is_watched() {
            *self = if count == 0 { Watch::Quiet } else { Watch::Busy };
        }
    }
}

impl Ready {
    /// Has the kernel watch the queues that it can watch, if they are many. A queue that it
    /// refuses is asked in each round.
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

    /// Ends the watch of a queue that goes to another worker, or has ended.
    pub(crate) fn forget(&mut self, queue: &mut impl Source) {
        forget(self.epoll.as_ref(), &mut self.places, queue);
    }

    /// Looks which quiet queues have frames.
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
        // Interrupted: the next round asks again.
        let Ok((events, _rest)) = epoll::wait(epoll, &mut events[..], Some(&now)) else { return };
        for event in events {
            let place = self.places.get(&event.data.u64());
            let Some(queue) = place.and_then(|&place| queues.get_mut(place)) else { continue };
            if queue.is_finished() {
                // Its descriptor may stay readable for ever.
                forget(Some(epoll), &mut self.places, queue);
            } else {
                *queue.watch() = Watch::Busy;
            }
        }
    }

    /// Readable as soon as a queue that is watched has frames.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().filter(|_| !self.places.is_empty()).map(|epoll| epoll.as_fd())
    }
}

#[cold]
fn forget(epoll: Option<&OwnedFd>, places: &mut HashMap<u64, usize>, queue: &mut impl Source) {
    if queue.watch().is_watched() {
        places.remove(&queue.key());
        if let (Some(epoll), Some(descriptor)) = (epoll, queue.descriptor()) {
            // The kernel forgot it by itself if its file was closed.
            let _known = epoll::delete(epoll, descriptor);
        }
        *queue.watch() = Watch::Asked;
    }
}

/// Fewer are asked as fast as the kernel says which are readable.
const WORTH_IT: usize = 4;
/// The kernel names so many at a time; others follow in the next round.
const EVENTS: usize = 64;
const _: () = assert!(WORTH_IT <= EVENTS, "one call names all of a few");
