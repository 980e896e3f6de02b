//! One socket: options, `bind`, and its use by workers (`net/xdp/xsk.c`).

mod bind;
mod busy_poll;
mod hints;
mod lent;
mod options;
mod rx;
mod tx;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, send, socketpair};
use towpath_engine::QueueId;
use towpath_engine::port::Wake;
use towpath_xdp::{Frame, Pool};

use crate::pool::BufferPool;
use crate::rings::{RingFile, RingMemory};
use crate::sockets::Sockets;
use crate::umem::Umem;
pub use bind::Shared;
use busy_poll::BusyPoll;
pub use options::Statistics;
use rx::Rx;
use tx::Tx;

/// An AF_XDP socket.
#[derive(Debug)]
pub struct Socket {
    id: u32,
    user: u32,
    sockets: Weak<Sockets>,
    rings: RingFile,
    /// The daemon's end of the pair: readable when the application wants to send.
    bell: OwnedFd,
    /// The application's end, until it is taken.
    application_bell: Mutex<Option<OwnedFd>>,
    setup: Mutex<Setup>,
    /// State for workers; set by `bind`, once.
    bound: OnceLock<Bound>,
    /// Closed, or its port is gone.
    is_unbound: AtomicBool,
    /// The application's end of the pair is closed.
    is_deserted: AtomicBool,
    busy_poll: BusyPoll,
}

/// State set up by options so far.
#[derive(Debug, Default)]
struct Setup {
    state: State,
    umem: Option<Arc<Umem>>,
    rx: Option<RingMemory>,
    tx: Option<RingMemory>,
    /// Unused once the socket is bound: the pool then has the ring.
    fill: Option<RingMemory>,
    completion: Option<RingMemory>,
    /// Most packets that one call sends (`XDP_MAX_TX_SKB_BUDGET`); it is stored, but not used.
    tx_budget: Option<u32>,
}

/// `enum xsk_state`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Ready,
    Bound,
    Unbound,
}

/// A bound socket as workers see it.
#[derive(Debug)]
struct Bound {
    pool: Arc<BufferPool>,
    rx: Option<Mutex<Rx>>,
    tx: Option<Mutex<Tx>>,
}

impl Socket {
    pub(crate) fn new(id: u32, user: u32, sockets: &Arc<Sockets>) -> Result<Socket, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let (bell, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok(Socket {
            id,
            user,
            sockets: Arc::downgrade(sockets),
            rings: RingFile::new()?,
            bell,
            application_bell: Mutex::new(Some(theirs)),
            setup: Mutex::default(),
            bound: OnceLock::new(),
            is_unbound: AtomicBool::new(false),
            is_deserted: AtomicBool::new(false),
            busy_poll: BusyPoll::default(),
        })
    }

    /// The effective user ID of its application.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// The file of its rings, to map.
    pub fn rings(&self) -> BorrowedFd<'_> {
        self.rings.fd()
    }

    /// Whether it can still be put into maps: it is not closed, and its port exists.
    pub fn is_open(&self) -> bool {
        self.setup.lock().state != State::Unbound
    }

    /// Entries of its rx, tx, fill and completion rings; 0 for a ring that it does not have.
    pub fn sizes(&self) -> [u32; 4] {
        let setup = self.setup.lock();
        let rings = [&setup.rx, &setup.tx, &setup.fill, &setup.completion];
        rings.map(|ring| ring.as_ref().map_or(0, |ring| ring.entries))
    }

    /// Identity of its file of rings.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        rustix::fs::fstat(self.rings()).ok().map(|stat| (stat.st_dev, stat.st_ino))
    }

    /// The descriptor for the application: readable when packets were received; an empty message on
    /// it wakes a sleeping worker. `None` if it was taken already.
    pub fn take_bell(&self) -> Option<OwnedFd> {
        self.application_bell.lock().take()
    }

    /// Checks of `sendmsg` without data, before it wakes a worker (`__xsk_sendmsg`).
    pub fn check_send(&self, waits: bool) -> Result<(), Errno> {
        let bound = self.active().ok_or(Errno::NXIO)?;
        if waits {
            return Err(Errno::OPNOTSUPP);
        }
        if bound.tx.is_some() { Ok(()) } else { Err(Errno::NOBUFS) }
    }

    /// Closes the socket: when this returns, no worker uses it, its queue is free, and only the
    /// application uses the memory.
    pub fn close(self: &Arc<Self>) {
        match self.sockets.upgrade() {
            Some(sockets) => sockets.close(std::slice::from_ref(self)),
            None => self.forget_setup(),
        }
    }

    /// Frees the application's setup with the socket.
    pub(crate) fn forget_setup(&self) {
        *self.setup.lock() = Setup { state: State::Unbound, ..Setup::default() };
    }

    /// Tells the application that the port is gone: its descriptor reports `POLLHUP`.
    pub(crate) fn hang_up(&self) {
        let _told = rustix::net::shutdown(&self.bell, rustix::net::Shutdown::Both);
    }

    /// Whether it was bound to a queue of that port.
    pub(crate) fn is_on(&self, ifindex: u32) -> bool {
        self.pool().is_some_and(|pool| pool.queue.ifindex == ifindex)
    }

    pub(crate) fn pool(&self) -> Option<&Arc<BufferPool>> {
        self.bound.get().map(|bound| &bound.pool)
    }

    /// Ends the use of the socket; `false` if it has ended already.
    pub(crate) fn starts_to_unbind(&self) -> bool {
        let was = std::mem::replace(&mut self.setup.lock().state, State::Unbound);
        was != State::Unbound && !self.is_unbound.swap(true, Ordering::SeqCst)
    }

    /// State for workers, while it is bound.
    #[inline]
    fn active(&self) -> Option<&Bound> {
        self.bound.get().filter(|_| !self.is_unbound.load(Ordering::Acquire))
    }

    /// Wakes the application. One waiting message is enough.
    #[cold]
    fn ring_bell(&self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _full_or_gone = send(&self.bell, &[1], flags);
    }
}

impl towpath_engine::Socket for Socket {
    fn id(&self) -> u32 {
        self.id
    }

    fn bound_to(&self) -> Option<QueueId> {
        self.active().map(|bound| bound.pool.queue)
    }

    fn receives(&self) -> bool {
        self.active().is_some_and(|bound| bound.rx.is_some())
    }

    fn lends(&self) -> bool {
        self.active().is_some_and(|bound| bound.pool.is_zero_copy && bound.rx.is_some())
    }

    fn lend(&self, frames: &mut Vec<Frame>, count: usize) {
        if let Some(bound) = self.active() {
            bound.lend(frames, count);
        }
    }

    fn take_back(&self, frames: &mut Vec<Frame>) {
        if let Some(bound) = self.active() {
            bound.take_back(frames);
        }
        frames.clear();
    }

    fn transmits(&self) -> bool {
        self.active().is_some_and(|bound| bound.tx.is_some())
    }

    #[inline]
    fn deliver(&self, from: QueueId, frames: &mut Vec<Frame>, pool: &mut Pool) -> usize {
        let Some(bound) = self.active() else {
            pool.give_all(frames);
            return 0;
        };
        if bound.pool.is_zero_copy {
            return bound.deliver_lent(from, frames, pool);
        }
        let delivered = bound.deliver(from, frames);
        pool.give_all(frames);
        delivered
    }

    #[inline]
    fn deliver_all(&self, from: QueueId, frames: &mut Vec<Frame>, pool: &mut Pool) -> usize {
        let (delivered, is_asleep) = match self.active() {
            None => (0, false),
            Some(bound) if bound.pool.is_zero_copy => {
                (bound.deliver_lent(from, frames, pool), bound.flush())
            }
            Some(bound) => bound.deliver_all(from, frames),
        };
        pool.give_all(frames);
        if is_asleep {
            self.ring_bell();
        }
        delivered
    }

    #[inline]
    fn flush(&self) {
        if self.active().is_some_and(Bound::flush) {
            self.ring_bell();
        }
    }

    fn has_packets(&self) -> bool {
        self.active().is_some_and(Bound::has_packets)
    }

    fn collect(&self, pool: &mut Pool, frames: &mut Vec<Frame>, limit: usize) -> usize {
        let limit = self.busy_poll.limit(limit);
        let Some(bound) = self.active() else { return 0 };
        let count = bound.collect(pool, frames, limit);
        // Packets for which no frame was made are completed already.
        if count == 0 && bound.takes_awaited() {
            self.ring_bell();
        }
        count
    }

    fn sent(&self, count: usize) {
        if let Some(bound) = self.active() {
            bound.sent(count);
            if bound.takes_awaited() {
                self.ring_bell();
            }
        }
    }

    fn arm(&self) -> Wake<'_> {
        let is_deserted = self.is_deserted.load(Ordering::Relaxed);
        let Some(bound) = self.active().filter(|_| !is_deserted) else {
            return Wake::At(Instant::now() + BELL_PAUSE);
        };
        // The ring requests a wake-up in any case, because it may no longer be polled.
        match bound.arm() {
            Some(wake) => wake,
            None if self.busy_poll.keeps_awake(|| bound.moved()) => Wake::Now,
            None => Wake::Readable(self.bell.as_fd()),
        }
    }

    /// Removes the messages that were sent to wake a worker. Remaining messages wake it again.
    fn rang(&self, is_gone: bool) {
        if is_gone {
            return self.is_deserted.store(true, Ordering::Relaxed);
        }
        let mut messages = 0..BELL_MESSAGES_MAX;
        let _is_empty =
            messages.any(|_| recv(&self.bell, &mut [0; 8], RecvFlags::DONTWAIT).is_err());
    }

    fn disarm(&self) {
        if let Some(bound) = self.active() {
            bound.disarm();
        }
    }
}

/// Most messages that are removed at a time.
const BELL_MESSAGES_MAX: usize = 64;
/// Interval at which a socket is polled whose application closed its end of the pair; usually the
/// socket is about to be closed.
const BELL_PAUSE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
