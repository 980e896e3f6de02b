//! Wake-ups of quinn's tasks.
//!
//! A task for each descriptor of the socket waits in tokio's poller, and wakes the receiving task
//! and all sending ones. They look for work themselves.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use quinn::UdpPoller;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use towpath_udp::UdpSocket;

use crate::readable_unsafe::watched;

/// The tasks that wait for descriptors, and quinn's tasks, which they wake.
pub(crate) struct Wakers {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

#[derive(Default)]
struct Shared {
    receiver: Mutex<Option<Waker>>,
    senders: Arc<Notify>,
    /// A descriptor reported an error, as it does when the daemon is gone.
    has_failed: AtomicBool,
}

impl Wakers {
    /// Starts tasks for all descriptors of a socket.
    pub(crate) fn watch(socket: &UdpSocket) -> io::Result<Wakers> {
        let mut wakers = Wakers { shared: Arc::default(), tasks: Vec::new() };
        let mut files: Vec<BorrowedFd<'_>> = socket.recv_descriptors();
        files.extend(socket.send_descriptors().last());
        for file in files {
            let file = watched(file)?;
            let task = tokio::spawn(watch(file, Arc::clone(&wakers.shared)));
            wakers.tasks.push(task.abort_handle());
        }
        Ok(wakers)
    }

    /// Sets the task to wake for received datagrams.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut receiver = self.shared.receiver.lock();
        match &mut *receiver {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Notifies tasks that wait for room to send.
    pub(crate) fn writable(&self) -> Arc<Notify> {
        Arc::clone(&self.shared.senders)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Relaxed)
    }
}

impl Drop for Wakers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn watch(file: AsyncFd<OwnedFd>, shared: Arc<Shared>) {
    while let Ok(mut ready) = file.readable().await {
        let is_over = ready.ready().is_read_closed() || ready.ready().is_error();
        // The next edge counts: messages stay in the descriptor until a task that looks for work
        // takes them.
        ready.clear_ready();
        shared.has_failed.fetch_or(is_over, Ordering::Relaxed);
        let receiver = shared.receiver.lock().clone();
        receiver.iter().for_each(Waker::wake_by_ref);
        shared.senders.notify_waiters();
        if is_over {
            return;
        }
    }
}

/// Waits until there is room to send.
pub(crate) struct Writable {
    socket: Arc<UdpSocket>,
    notify: Arc<Notify>,
    /// The wait in progress.
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl Writable {
    pub(crate) fn new(socket: Arc<UdpSocket>, notify: Arc<Notify>) -> Writable {
        Writable { socket, notify, waiting: None }
    }
}

impl UdpPoller for Writable {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let waiting = this.waiting.get_or_insert_with(|| {
            let (socket, notify) = (Arc::clone(&this.socket), Arc::clone(&this.notify));
            Box::pin(async move {
                loop {
                    // Notifications from here on are not missed.
                    let notified = notify.notified();
                    tokio::pin!(notified);
                    notified.as_mut().enable();
                    if !socket.arm_send() {
                        return;
                    }
                    notified.await;
                }
            })
        });
        let result = waiting.as_mut().poll(context);
        if result.is_ready() {
            this.waiting = None;
        }
        result.map(Ok)
    }
}

impl fmt::Debug for Writable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writable").finish_non_exhaustive()
    }
}
