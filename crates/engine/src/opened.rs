//! What is open of a device: its receivers and transmitters while no worker has them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use crate::counters::PortCounters;
use crate::lane::{Fence, Mark};
use crate::port::{Device, Rx, Tx};

/// A device with its receivers and transmitters while no worker has them.
#[derive(Debug)]
pub struct Opened {
    /// The device.
    pub device: Box<dyn Device>,
    /// Receivers by queue, but for those that are stopped.
    rx: RwLock<Vec<Option<Arc<ParkedRx>>>>,
    /// Whoever starts or stops queues does it alone.
    pub(crate) queues_change: Mutex<()>,
    /// Transmitters by worker.
    pub(crate) tx: Vec<Parked<dyn Tx>>,
    /// Counters by worker.
    pub counters: Arc<[PortCounters]>,
    /// A queue reported an error: it is not polled any more.
    pub failed: AtomicBool,
    /// What the error said.
    pub(crate) failure: Mutex<Option<String>>,
    pub(crate) tx_error: Mutex<Option<std::io::Error>>,
    /// Goes last, when everything else of it is closed.
    is_open: Arc<()>,
}

impl Opened {
    /// What is open of a device, for so many workers.
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

    /// What is there until the device and its queues are closed. Whoever has them last closes them,
    /// and may still be at it when nobody can reach them any more.
    pub fn is_open(&self) -> Weak<()> {
        Arc::downgrade(&self.is_open)
    }

    /// Keeps what went wrong last when sending.
    pub(crate) fn note_tx_error(&self, error: &std::io::Error) {
        let mut last = self.tx_error.lock();
        if last.as_ref().is_none_or(|last| last.kind() != error.kind()) {
            *last = Some(std::io::Error::new(error.kind(), error.to_string()));
        }
    }

    /// What the error said that ended the use of a queue.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// What went wrong last when sending.
    pub fn tx_error(&self) -> Option<String> {
        let last = self.tx_error.lock();
        last.as_ref().map(ToString::to_string)
    }

    /// Whether all its receive queues came to their end.
    pub fn is_finished(&self) -> bool {
        let queues = self.rx.read();
        queues.iter().flatten().all(|queue| queue.has_ended.load(Ordering::Relaxed))
    }

    /// The receiver of a queue, if that is open.
    pub(crate) fn rx(&self, queue: u32) -> Option<Arc<ParkedRx>> {
        let queues = self.rx.read();
        queues.get(queue as usize)?.clone()
    }

    /// Puts another one in its place, or none; gives the one that was there.
    pub(crate) fn replace_rx(&self, queue: u32, rx: Option<Box<dyn Rx>>) -> Option<Arc<ParkedRx>> {
        let mut queues = self.rx.write();
        let count = queues.len().max(queue as usize + 1);
        queues.resize_with(count, || None);
        std::mem::replace(&mut queues[queue as usize], rx.map(|rx| Arc::new(Parked::new(rx))))
    }

    /// Queues that are open.
    pub fn open_queues(&self) -> Vec<u32> {
        let queues = self.rx.read();
        (0..).zip(&*queues).filter(|(_, rx)| rx.is_some()).map(|(queue, _)| queue).collect()
    }
}

impl Drop for Opened {
    /// The kernel makes whoever closes a packet socket wait until all CPUs have passed it
    /// (`synchronize_net`): once for all queues, not for one after the other.
    fn drop(&mut self) {
        let mut queues: Vec<Closing> = Vec::new();
        let rx = self.rx.get_mut();
        queues.extend(rx.drain(..).flatten().map(|queue| Box::new(queue) as Closing));
        queues.extend(self.tx.drain(..).map(|queue| Box::new(queue) as Closing));
        let Some(last) = queues.pop() else { return };
        std::thread::scope(|scope| {
            for queue in queues {
                // Without a thread it is closed here.
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

/// Something only one thread has at a time, when it is nobody's.
pub(crate) struct Parked<T: ?Sized> {
    thing: Mutex<Option<Box<T>>>,
    /// The frames that are to be worked on before a thread may take the thing again.
    behind: Mutex<Fence>,
    /// Nothing will come of it any more.
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

    /// Puts it down for when a fence is passed.
    pub(crate) fn put_behind(&self, thing: Box<T>, fence: Fence) {
        *self.behind.lock() = fence;
        self.put(thing);
    }

    /// Takes it, if it is there and what is to be done before has been done; `marks` says what all
    /// workers are given now.
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
