//! cpumap: frames handed to another worker.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use towpath_maps::{Map, Target};
use towpath_xdp::{Action, Frame};

use super::errand::Entrusted;
use super::judge::Judge;
use super::outbox::Outboxes;
use super::{BURST, Worker};
use crate::counters::Drop;
use crate::snapshot::{PortId, Slot, Snapshot};

/// Which entry of which cpumap: what has a queue of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    map: usize,
    key: u32,
    /// Most frames that wait in its queue (`cpumap_val::qsize`).
    limit: usize,
    /// The program to run there; 0 for none.
    program: u32,
}

/// Frames of one burst for one entry.
pub(super) struct CpuBulk {
    worker: usize,
    entry: Entry,
    frames: Vec<Frame>,
}

/// Frames that other workers handed over.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    queues: Mutex<Vec<Queue>>,
    /// Packets that control code wants to be sent.
    injected: Mutex<VecDeque<(PortId, Box<[u8]>)>>,
    /// What control code wants to be done.
    errands: Mutex<Errands>,
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Errands {
    new: Vec<Box<dyn Entrusted>>,
    /// Nobody does any more.
    is_closed: bool,
}

#[derive(Debug)]
struct Queue {
    entry: Entry,
    frames: VecDeque<Frame>,
}

impl Inbox {
    /// Appends what fits; the rest stays.
    fn push(&self, entry: Entry, frames: &mut Vec<Frame>) -> usize {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let known = queues.iter().position(|queue| queue.entry == entry);
        let index = known.unwrap_or_else(|| {
            queues.retain(|queue| !queue.frames.is_empty());
            queues.push(Queue { entry, frames: VecDeque::new() });
            queues.len() - 1
        });
        let queue = &mut queues[index].frames;
        let fits = frames.len().min(entry.limit.saturating_sub(queue.len()));
        queue.extend(frames.drain(..fits));
        self.waiting.fetch_add(fits, Ordering::Release);
        fits
    }

    /// Has a packet sent, unless too many wait for that.
    pub(crate) fn inject(&self, port: PortId, packet: &[u8]) -> bool {
        let mut injected = self.injected.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = injected.len() < INJECTED_MAX;
        if fits {
            injected.push_back((port, packet.into()));
            self.waiting.fetch_add(1, Ordering::Release);
        }
        fits
    }

    fn take_injected(&self) -> VecDeque<(PortId, Box<[u8]>)> {
        let mut injected = self.injected.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(injected.len(), Ordering::Release);
        std::mem::take(&mut injected)
    }

    /// Has something done. Who is gone forgets it, and whoever waits for it learns that.
    pub(crate) fn entrust(&self, errand: Box<dyn Entrusted>) {
        let mut errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner);
        if !errands.is_closed {
            errands.new.push(errand);
            self.waiting.fetch_add(1, Ordering::Release);
        }
    }

    fn take_errands(&self) -> Vec<Box<dyn Entrusted>> {
        let mut errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(errands.new.len(), Ordering::Release);
        std::mem::take(&mut errands.new)
    }

    /// The worker is gone: nothing will be done any more.
    pub(crate) fn close(&self) {
        let mut errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner);
        errands.is_closed = true;
        let gone = std::mem::take(&mut errands.new);
        drop(errands);
        drop(gone);
    }

    fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Takes up to a burst of frames of one entry.
    fn pop(&self, out: &mut Vec<Frame>) -> Option<Entry> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let index = queues.iter().position(|queue| !queue.frames.is_empty())?;
        let queue = &mut queues[index];
        let count = queue.frames.len().min(BURST);
        out.extend(queue.frames.drain(..count));
        let entry = queue.entry;
        // The next one first, next time.
        queues[index..].rotate_left(1);
        self.waiting.fetch_sub(count, Ordering::Release);
        Some(entry)
    }
}

impl Outboxes {
    /// Queues a frame for another worker (`cpu_map_enqueue`).
    pub(super) fn hand_to_cpu(
        &mut self,
        slot: &Slot,
        frame: Frame,
        map: &Map,
        key: u32,
        target: Target,
    ) {
        let worker = key as usize;
        if worker >= self.seats.len() {
            return self.drop_at(slot, frame, Drop::BadTarget);
        }
        let entry = Entry {
            map: std::ptr::from_ref(map).addr(),
            key,
            limit: target.number as usize,
            program: target.id,
        };
        match self.to_cpus.iter_mut().find(|bulk| bulk.worker == worker && bulk.entry == entry) {
            Some(bulk) => bulk.frames.push(frame),
            None => self.to_cpus.push(CpuBulk { worker, entry, frames: vec![frame] }),
        }
    }

    /// Sends what control code wants to be sent; gives the number of packets.
    fn send_injected(&mut self, snapshot: &Snapshot, judge: &mut Judge) -> usize {
        let injected = self.seat.inbox.take_injected();
        let count = injected.len();
        for (port, packet) in injected {
            let Some(slot) = snapshot.port(port) else { continue };
            // What is no frame, or finds no memory, is lost as on a wire.
            if let Ok(Some(frame)) = self.pool.frame(&packet) {
                self.seat.counters.created.add(1);
                self.send_checked(snapshot, slot, frame);
            }
        }
        if count > 0 {
            self.flush(snapshot, judge);
        }
        count
    }

    #[cold]
    pub(super) fn flush_cpus(&mut self) {
        for mut bulk in std::mem::take(&mut self.to_cpus) {
            let seat = &self.seats[bulk.worker];
            let count = seat.inbox.push(bulk.entry, &mut bulk.frames);
            self.seat.counters.handed_over.add(count as u64);
            if bulk.worker != self.seat.number {
                seat.waker.wake();
            }
            if !bulk.frames.is_empty() {
                self.drop_all(&mut bulk.frames);
            }
        }
    }
}

impl Worker {
    /// Works on a burst that was handed over; gives its length (`cpu_map_kthread_run`).
    #[inline]
    pub(super) fn take_inbox(&mut self) -> usize {
        if self.seat.inbox.is_empty() { 0 } else { self.work_inbox() }
    }

    #[cold]
    fn work_inbox(&mut self) -> usize {
        let Self { seat, snapshot, frames, judge, out, errands, .. } = self;
        let known = errands.len();
        errands.extend(seat.inbox.take_errands());
        let asked = out.send_injected(snapshot, judge) + errands.len() - known;
        let Some(entry) = seat.inbox.pop(frames) else { return asked };
        let count = frames.len();
        seat.counters.taken_over.add(count as u64);
        for frame in frames.iter_mut() {
            let ifindex = frame.rx.ifindex;
            frame.arrive(ifindex, 0);
        }
        let program = match entry.program {
            0 => None,
            id => snapshot.entry_programs.get(&id),
        };
        let burst = program.map(|program| judge.entry(program, frames));
        for (index, frame) in frames.drain(..).enumerate() {
            let Some(slot) = snapshot.port_of_ifindex(frame.rx.ifindex) else {
                seat.counters.dropped.add(1);
                out.pool.give(frame);
                continue;
            };
            match burst.as_ref().map(|burst| (burst.action(index), burst)) {
                None | Some((Action::Pass, _)) => out.pass(snapshot, slot, frame),
                Some((Action::Redirect, burst)) => {
                    out.redirect(snapshot, slot, frame, burst.destination(index));
                }
                Some(_) => out.drop_at(slot, frame, Drop::EntryVerdict),
            }
        }
        if let Some(burst) = burst {
            judge.put_away(burst);
        }
        out.flush(snapshot, judge);
        count
    }

    /// Drops what nobody will work on any more.
    pub(super) fn drain_inbox(&mut self) {
        self.seat.inbox.take_injected();
        while self.seat.inbox.pop(&mut self.frames).is_some() {
            self.seat.counters.taken_over.add(self.frames.len() as u64);
            self.out.drop_all(&mut self.frames);
        }
    }
}

/// Packets of control code that wait for a worker.
const INJECTED_MAX: usize = 1024;
