//! Many queues of which few have frames, where asking one is a system call: a worker asks only
//! those that the kernel says are readable, and none is forgotten.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::Pid;
use towpath_engine::PortId;
use towpath_engine::port::{Device, Features, Rx, Tx, Wake};
use towpath_xdp::{Arena, Frame, Pool};

use super::counting::{Counting, Sends};
use super::{Lab, packet, wait_for};

/// A port of many queues, each with a counter of the kernel's for what waits in it.
#[derive(Debug, Clone)]
struct Bells(Arc<[Bell]>);

#[derive(Debug)]
struct Bell {
    counter: OwnedFd,
    asked: AtomicUsize,
    /// Not 0 if the interface was deleted.
    is_gone: AtomicUsize,
}

#[derive(Debug)]
struct Queue(Bells, usize);

impl Bells {
    fn new(queues: usize) -> Bells {
        let bell = |_queue| Bell {
            counter: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap(),
            asked: AtomicUsize::new(0),
            is_gone: AtomicUsize::new(0),
        };
        Bells((0..queues).map(bell).collect())
    }

    /// Makes `frames` frames arrive at a queue.
    fn ring(&self, queue: usize, frames: u64) {
        rustix::io::write(&self.0[queue].counter, &frames.to_ne_bytes()).unwrap();
    }

    /// Its next receipt fails, and it stays readable.
    fn end(&self, queue: usize) {
        self.0[queue].is_gone.store(1, Ordering::SeqCst);
        self.ring(queue, 1);
    }

    fn asked(&self, queue: usize) -> usize {
        self.0[queue].asked.load(Ordering::SeqCst)
    }

    fn asked_of(&self, queues: std::ops::Range<usize>) -> usize {
        queues.map(|queue| self.asked(queue)).sum()
    }
}

impl Device for Bells {
    fn kind(&self) -> &'static str {
        "bells"
    }

    fn queues(&self) -> u32 {
        self.0.len() as u32
    }

    fn features(&self) -> Features {
        Features::default()
    }

    fn open_rx(&self, queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Ok(Box::new(Queue(self.clone(), queue as usize)))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(Counting::with_room(0)))
    }
}

impl Rx for Queue {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let bell = &self.0.0[self.1];
        bell.asked.fetch_add(1, Ordering::SeqCst);
        if bell.is_gone.load(Ordering::SeqCst) > 0 {
            return Err(io::Error::other("it is gone"));
        }
        let mut count = [0; 8];
        let Ok(_bytes) = rustix::io::read(&bell.counter, &mut count) else { return Ok(0) };
        let (waiting, limit) = (u64::from_ne_bytes(count), limit as u64);
        if waiting > limit {
            rustix::io::write(&bell.counter, &(waiting - limit).to_ne_bytes())?;
        }
        let count = pool.take_many(waiting.min(limit) as usize, frames);
        frames.iter_mut().for_each(|frame| frame.fill(&packet()));
        Ok(count)
    }

    fn arm(&mut self) -> Wake<'_> {
        Wake::Readable(self.0.0[self.1].counter.as_fd())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.0[self.1].counter.as_fd())
    }
}

const QUEUES: usize = 100;

fn lab() -> (Lab, Bells, Counting) {
    let lab = Lab::new();
    let (bells, target) = (Bells::new(QUEUES), Counting::with_room(usize::MAX));
    let from = lab.add("from", 11, Box::new(bells.clone()));
    lab.add("to", 12, Box::new(Sends(target.clone())));
    lab.upper(from, "to");
    (lab, bells, target)
}

#[test]
fn quiet_queues_are_not_asked() {
    let (lab, bells, target) = lab();
    wait_for("the first look", || (0..QUEUES).all(|queue| bells.asked(queue) > 0));
    // Each was asked in vain once; a configuration changes nothing of that.
    let quiet = bells.asked_of(1..QUEUES);
    for turn in 1..=1000 {
        bells.ring(0, 1);
        wait_for("the frame", || target.count() == turn);
    }
    assert_eq!(bells.asked_of(1..QUEUES), quiet, "{QUEUES} queues, one of them busy");
    lab.check_conservation();
}

#[test]
fn each_queue_is_asked_when_it_has_frames() {
    let (lab, bells, target) = lab();
    let mut sent = 0;
    for turn in 0..10u64 {
        // More than a burst, and more queues than the kernel names at a time.
        (0..QUEUES).for_each(|queue| bells.ring(queue, 100 + turn));
        sent += QUEUES as u64 * (100 + turn);
        wait_for("all frames", || target.count() == sent);
    }
    lab.check_conservation();
}

#[test]
fn a_queue_that_ends_keeps_no_worker_awake() {
    let (lab, bells, target) = lab();
    wait_for("the first look", || (0..QUEUES).all(|queue| bells.asked(queue) > 0));
    bells.end(7);
    let failed = || lab.engine.port(PortId(0)).unwrap().opened.failed.load(Ordering::SeqCst);
    wait_for("its end", failed);
    let asked = bells.asked(7);
    bells.ring(8, 1);
    wait_for("another's frame", || target.count() == 1);
    assert_eq!(bells.asked(7), asked, "it is of no more use");
    // It waits for the kernel, which a worker that spins does not.
    let threads = lab.engine.threads();
    let sleeps = threads.iter().map(|&thread| (thread, sleeps(thread)));
    for (thread, before) in sleeps {
        wait_for("sleep", || self::sleeps(thread) >= before + 5);
    }
    lab.check_conservation();
}

#[test]
fn queues_are_watched_wherever_they_go() {
    let (lab, bells, target) = lab();
    let mut sent = 0;
    for turn in 0..QUEUES as u32 {
        // A queue stops and starts again, and several move to a worker or away from it.
        lab.engine.stop_queue(PortId(0), turn).unwrap();
        lab.engine.start_queue(PortId(0), turn).unwrap();
        let moved = lab.engine.change(|config| {
            (0..turn).try_for_each(|queue| config.move_queue(PortId(0), queue, turn as usize % 2))
        });
        moved.unwrap();
        (0..QUEUES).for_each(|queue| bells.ring(queue, 3));
        sent += 3 * QUEUES as u64;
        wait_for("all frames", || target.count() == sent);
    }
    lab.check_conservation();
}

/// Number of times that a thread has slept so far.
fn sleeps(thread: Pid) -> u64 {
    let path = format!("/proc/self/task/{}/status", thread.as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}
