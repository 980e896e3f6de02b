//! An open device, with its receivers and transmitters while no worker uses them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use crate::counters::PortCounters;
use crate::lane::{Fence, Mark};
use crate::port::{Device, Rx, Tx};

/// An open device, with its receivers and transmitters while no worker uses them.
#[derive(Debug)]
pub struct Opened {
    /// The device.
    pub device: Box<dyn Device>,
    /// Receivers by queue; `None` for stopped queues.
    rx: RwLock<Vec<Option<Arc<ParkedRx>>>>,
    /// Serialises starting and stopping of queues.
    pub(crate) queues_change: Mutex<()>,
    /// Transmitters by worker.
    pub(crate) tx: Vec<Parked<dyn Tx>>,
    /// Counters by worker.
    pub counters: Arc<[PortCounters]>,
    /// A queue reported an error and is no longer polled.
    pub failed: AtomicBool,
    /// Text of that error.
    pub(crate) failure: Mutex<Option<String>>,
    pub(crate) tx_error: Mutex<Option<std::io::Error>>,
    /// Dropped last, after the device and its queues are closed.
    is_open: Arc<()>,
}

impl Opened {
    /// An opened device, with counters for `workers` workers.
    pub(crate) fn new(
        device: Box<dyn Device>,
        rx: Vec<ParkedRx>,
        tx: Vec<Parked<dyn Tx>>,
        workers: usize,
    ) -> Opened {
        let rx = rx.into_iter().map(|rx| Some(Arc::new(rx))).collect();
        Opened {
            device,
            rx: RwLock::new(rx),
            queues_change: Mutex::default(),
            tx,
            counters: (0..workers).map(|_| PortCounters::default()).collect(),
            failed: AtomicBool::new(false),
            failure: Mutex::default(),
            tx_error: Mutex::default(),
            is_open: Arc::default(),
        }
    }

    /// A reference that is alive until the device and its queues are closed. The thread that drops
    /// the last reference closes them, which may still be in progress when no other thread can
    /// reach the device any more.
    pub fn is_open(&self) -> Weak<()> {
        Arc::downgrade(&self.is_open)
    }

    /// Keeps the last transmit error.
    pub(crate) fn note_tx_error(&self, error: &std::io::Error) {
        let mut last = self.tx_error.lock();
        if last.as_ref().is_none_or(|last| last.kind() != error.kind()) {
            *last = Some(std::io::Error::new(error.kind(), error.to_string()));
        }
    }

    /// Text of the error that ended the use of a queue, if any.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Text of the last transmit error, if any.
    pub fn tx_error(&self) -> Option<String> {
        let last = self.tx_error.lock();
        last.as_ref().map(ToString::to_string)
    }

    /// Whether all open receive queues have reached their end.
    pub fn is_finished(&self) -> bool {
        let queues = self.rx.read();
        queues.iter().flatten().all(|queue| queue.has_ended.load(Ordering::Relaxed))
    }

    /// The receiver of a queue, if the queue is open.
    pub(crate) fn rx(&self, queue: u32) -> Option<Arc<ParkedRx>> {
        let queues = self.rx.read();
        queues.get(queue as usize)?.clone()
    }

    /// Replaces or (with `None`) removes the receiver of a queue; returns the previous one.
    pub(crate) fn replace_rx(&self, queue: u32, rx: Option<Box<dyn Rx>>) -> Option<Arc<ParkedRx>> {
        let mut queues = self.rx.write();
        let count = queues.len().max(queue as usize + 1);
        queues.resize_with(count, || None);
        std::mem::replace(&mut queues[queue as usize], rx.map(|rx| Arc::new(Parked::new(rx))))
    }

    /// Numbers of the open queues.
    pub fn open_queues(&self) -> Vec<u32> {
        let queues = self.rx.read();
        (0..).zip(&*queues).filter(|(_, rx)| rx.is_some()).map(|(queue, _)| queue).collect()
    }
}

impl Drop for Opened {
    /// Closes all queues in parallel: closing a packet socket waits for an RCU grace period
    /// (`synchronize_net`), and parallel closing waits for about one in all instead of one per
    /// queue.
    fn drop(&mut self) {
        let mut queues: Vec<Closing> = Vec::new();
        let rx = self.rx.get_mut();
        queues.extend(rx.drain(..).flatten().map(|queue| Box::new(queue) as Closing));
        queues.extend(self.tx.drain(..).map(|queue| Box::new(queue) as Closing));
        let Some(last) = queues.pop() else { return };
        std::thread::scope(|scope| {
            for queue in queues {
                // If no thread can be started, the queue is closed here.
                let closing = std::thread::Builder::new().spawn_scoped(scope, || drop(queue));
                drop(closing);
            }
            drop(last);
        });
    }
}

/// Something that is closed when it is dropped.
type Closing = Box<dyn Send>;

/// A receive queue while no worker polls it.
pub(crate) type ParkedRx = Parked<dyn Rx>;

/// A slot for an object that one thread uses at a time, while no thread uses it.
pub(crate) struct Parked<T: ?Sized> {
    thing: Mutex<Option<Box<T>>>,
    /// Frames that must be processed before a thread may take the object again.
    behind: Mutex<Fence>,
    /// The queue has reached its end.
    pub(crate) has_ended: AtomicBool,
}

impl<T: ?Sized> Parked<T> {
    pub(crate) fn new(thing: Box<T>) -> Parked<T> {
        let (behind, has_ended) = (Mutex::default(), AtomicBool::new(false));
        Parked { thing: Mutex::new(Some(thing)), behind, has_ended }
    }

    pub(crate) fn take(&self) -> Option<Box<T>> {
        self.thing.lock().take()
    }

    /// Puts the object back; [`Parked::take_behind`] takes it only after `fence` is passed.
    pub(crate) fn put_behind(&self, thing: Box<T>, fence: Fence) {
        *self.behind.lock() = fence;
        self.put(thing);
    }

    /// Takes the object if it is in the slot and its fence is passed; `marks` returns the present
    /// marks of all workers.
    pub(crate) fn take_behind(&self, marks: impl Fn() -> Vec<Mark>) -> Option<Box<T>> {
        let mut thing = self.thing.lock();
        thing.as_ref()?;
        if self.behind.lock().is_passed(marks) { thing.take() } else { None }
    }

    pub(crate) fn put(&self, thing: Box<T>) {
        let before = self.thing.lock().replace(thing);
        assert!(before.is_none(), "one owner");
    }
}

impl<T: ?Sized> std::fmt::Debug for Parked<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parked")
    }
}
