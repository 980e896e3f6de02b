//! `bind`, with which a socket's traffic begins.

use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use towpath_engine::QueueId;

use super::rx::Rx;
use super::tx::Tx;
use super::{Bound, Setup, Socket, State};
use crate::abi::{
    AF_XDP, Address, COPY, SHARE_QUEUE, SHARED_UMEM, USE_NEED_WAKEUP, USE_SG, ZEROCOPY,
};
use crate::pool::BufferPool;
use crate::sockets::{Device, Sockets};

/// The object behind [`Address::shared_umem_fd`].
#[derive(Debug, Clone)]
pub enum Shared {
    /// It is invalid, or not of a socket.
    NoSocket,
    /// It is a socket of another family.
    OtherFamily,
    /// It is this AF_XDP socket.
    Socket(Arc<Socket>),
}

impl Socket {
    /// `bind`, with the checks of `xsk_bind` in its order.
    pub fn bind(self: &Arc<Self>, address: &[u8], shared: &Shared) -> Result<(), Errno> {
        let address = Address::from_bytes(address).ok_or(Errno::INVAL)?;
        let known = SHARED_UMEM | COPY | ZEROCOPY | USE_NEED_WAKEUP | USE_SG | SHARE_QUEUE;
        if address.family != AF_XDP || address.flags & !known != 0 {
            return Err(Errno::INVAL);
        }
        let sockets = self.sockets.upgrade().ok_or(Errno::NXIO)?;
        let mut setup = self.setup.lock();
        if setup.state != State::Ready {
            return Err(Errno::BUSY);
        }
        let device = sockets.host().device(address.ifindex).ok_or(Errno::NODEV)?;
        if setup.rx.is_none() && setup.tx.is_none() {
            return Err(Errno::INVAL);
        }
        let pool = if address.flags & SHARED_UMEM != 0 {
            setup.shared_pool(self, &sockets, &address, device, shared)?
        } else {
            setup.own_pool(&sockets, &address, device)?
        };
        let result = setup.finish(self, &pool);
        // `close` unbinds only a socket in state bound.
        setup.state = if result.is_ok() { State::Bound } else { State::Unbound };
        drop(setup);
        let result = result.and_then(|()| sockets.host().attach(self));
        if result.is_err() {
            self.setup.lock().state = State::Unbound;
            self.is_unbound.store(true, std::sync::atomic::Ordering::SeqCst);
            sockets.leave_pool(&pool);
        }
        result
    }
}

impl Setup {
    /// The pool of a socket with its own memory (`xp_assign_dev`).
    fn own_pool(
        &self,
        sockets: &Sockets,
        address: &Address,
        device: Device,
    ) -> Result<Arc<BufferPool>, Errno> {
        let (Some(umem), Some(fill), Some(completion)) = (&self.umem, &self.fill, &self.completion)
        else {
            return Err(Errno::INVAL);
        };
        let wants = |flag| address.flags & flag != 0;
        if wants(ZEROCOPY) && (wants(COPY) || wants(SHARE_QUEUE)) {
            return Err(Errno::INVAL);
        }
        let queue = QueueId { ifindex: address.ifindex, queue: address.queue };
        check_queue(sockets, queue, device, wants(SHARE_QUEUE))?;
        let copies = wants(COPY) || wants(SHARE_QUEUE);
        let is_zero_copy = device.zero_copy && !copies && umem.lend();
        if wants(ZEROCOPY) && !is_zero_copy {
            return Err(Errno::OPNOTSUPP);
        }
        let mut pool = BufferPool::new(umem, queue, fill, completion)?;
        pool.is_multi_buffer = wants(USE_SG);
        pool.uses_wakeup = wants(USE_NEED_WAKEUP);
        pool.is_zero_copy = is_zero_copy;
        let pool = Arc::new(pool);
        if !wants(SHARE_QUEUE) {
            sockets.add_pool(&pool)?;
        }
        Ok(pool)
    }

    /// The pool of a socket that uses another socket's memory.
    fn shared_pool(
        &self,
        own: &Arc<Socket>,
        sockets: &Sockets,
        address: &Address,
        device: Device,
        shared: &Shared,
    ) -> Result<Arc<BufferPool>, Errno> {
        if address.flags != SHARED_UMEM || self.umem.is_some() {
            return Err(Errno::INVAL);
        }
        let other = match shared {
            Shared::NoSocket => return Err(Errno::NOTSOCK),
            Shared::OtherFamily => return Err(Errno::NOPROTOOPT),
            // The socket itself is not bound.
            Shared::Socket(other) if Arc::ptr_eq(other, own) => return Err(Errno::BADF),
            Shared::Socket(other) => other.active().ok_or(Errno::BADF)?,
        };
        let first = &other.pool;
        let queue = QueueId { ifindex: address.ifindex, queue: address.queue };
        if queue == first.queue {
            if self.fill.is_some() || self.completion.is_some() {
                return Err(Errno::INVAL);
            }
            sockets.share_pool(first);
            return Ok(Arc::clone(first));
        }
        let (Some(fill), Some(completion)) = (&self.fill, &self.completion) else {
            return Err(Errno::INVAL);
        };
        check_queue(sockets, queue, device, false)?;
        let mut pool = BufferPool::new(&first.umem, queue, fill, completion)?;
        pool.is_multi_buffer = first.is_multi_buffer;
        pool.uses_wakeup = first.uses_wakeup;
        // Only the first pool uses the chunks as frames; this pool copies from and to them.
        let pool = Arc::new(pool);
        sockets.add_pool(&pool)?;
        Ok(pool)
    }

    /// From now on the rings belong to the workers.
    fn finish(&self, socket: &Socket, pool: &Arc<BufferPool>) -> Result<(), Errno> {
        let rx = self.rx.as_ref().map(|rx| Ok(Mutex::new(Rx::new(rx.ring()?)))).transpose()?;
        let tx = self
            .tx
            .as_ref()
            .map(|tx| Ok(Mutex::new(Tx::new(tx.ring()?, pool.uses_wakeup))))
            .transpose()?;
        socket.bound.set(Bound { pool: Arc::clone(pool), rx, tx }).map_err(|_twice| Errno::BUSY)
    }
}

/// Checks of `xp_assign_dev` on the queue.
fn check_queue(
    sockets: &Sockets,
    queue: QueueId,
    device: Device,
    shares: bool,
) -> Result<(), Errno> {
    if !shares && sockets.has_pool(queue) {
        return Err(Errno::BUSY);
    }
    if queue.queue >= device.queues { Err(Errno::INVAL) } else { Ok(()) }
}
