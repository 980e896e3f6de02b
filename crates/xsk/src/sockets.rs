//! All sockets of an engine.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::FileType;
use rustix::io::Errno;
use towpath_engine::QueueId;
use towpath_xsk_client::protocol::{Route, UdpBinding};

use crate::pool::BufferPool;
use crate::socket::{Shared, Socket};

/// The functions of the engine that sockets need.
pub trait Host: fmt::Debug + Send + Sync {
    /// The port with this ifindex.
    fn device(&self, ifindex: u32) -> Option<Device>;

    /// The ifindex of the port with this name.
    fn ifindex(&self, _name: &str) -> Option<u32> {
        None
    }

    /// Delivers the frames of the socket's queue to it, as libxdp's default program would.
    fn steer(&self, _socket: &Arc<Socket>) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Puts a bound socket into an XSKMAP of a program on its port.
    fn insert(&self, _socket: &Arc<Socket>, _map: &str, _key: u32) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Delivers UDP datagrams to an address and port, as far as they arrive at the socket's queue,
    /// to it; returns the port, which it chooses if it is 0
    /// ([`Connection::bind_udp`](towpath_xsk_client::Connection::bind_udp)).
    fn bind_udp(&self, _socket: &Arc<Socket>, _binding: &UdpBinding) -> Result<u16, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Undoes [`Host::bind_udp`]; [`Host::detach`] does it for all addresses of a closed socket.
    fn unbind_udp(&self, _socket: &Arc<Socket>, _address: SocketAddr) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Ends new connections of a QUIC server that [`Host::bind_udp`] bound
    /// ([`Connection::drain_udp`](towpath_xsk_client::Connection::drain_udp)).
    fn drain_udp(&self, _socket: &Arc<Socket>, _address: SocketAddr) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// The route to a destination by the socket's port
    /// ([`Connection::route`](towpath_xsk_client::Connection::route)).
    fn route(&self, _socket: &Arc<Socket>, _destination: IpAddr) -> Result<Route, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Called when a socket was bound: workers must poll its tx ring. An error makes the bind fail.
    fn attach(&self, _socket: &Arc<Socket>) -> Result<(), Errno> {
        Ok(())
    }

    /// Called when sockets are closed: removes them from all maps. No worker uses them when this
    /// returns.
    fn detach(&self, _sockets: &[Arc<Socket>]) {}
}

/// Properties of a port for `bind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Number of its queues.
    pub queues: u32,
    /// Whether its frames can be in an application's memory.
    pub zero_copy: bool,
}

/// The sockets, and the queues that have sockets.
#[derive(Debug)]
pub struct Sockets {
    host: Arc<dyn Host>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    sockets: HashMap<u32, Arc<Socket>>,
    /// The pool of each queue and how many sockets use it.
    pools: HashMap<QueueId, (Arc<BufferPool>, usize)>,
    last_id: u32,
}

impl Sockets {
    /// A set without sockets.
    pub fn new(host: Arc<dyn Host>) -> Arc<Sockets> {
        Arc::new(Sockets { host, known: Mutex::default() })
    }

    /// `socket(AF_XDP, kind, protocol)`, as [`Sockets::open`].
    pub fn socket(self: &Arc<Self>, kind: u32, protocol: u32) -> Result<Arc<Socket>, Errno> {
        if kind != SOCK_RAW {
            return Err(Errno::SOCKTNOSUPPORT);
        }
        if protocol != 0 {
            return Err(Errno::PROTONOSUPPORT);
        }
        self.open()
    }

    /// A new socket (`socket(AF_XDP, SOCK_RAW, 0)`) of this process's user. It lives until
    /// [`Socket::close`].
    pub fn open(self: &Arc<Self>) -> Result<Arc<Socket>, Errno> {
        self.open_for(rustix::process::geteuid().as_raw())
    }

    /// A new socket of an application with this effective user ID.
    pub(crate) fn open_for(self: &Arc<Self>, user: u32) -> Result<Arc<Socket>, Errno> {
        let mut known = self.known.lock();
        if known.sockets.len() >= SOCKETS_MAX {
            return Err(Errno::MFILE);
        }
        let mut id = known.last_id;
        loop {
            // 0 is an empty entry of a map.
            id = id.checked_add(1).unwrap_or(1);
            if !known.sockets.contains_key(&id) {
                break;
            }
        }
        let socket = Arc::new(Socket::new(id, user, self)?);
        known.last_id = id;
        known.sockets.insert(id, Arc::clone(&socket));
        Ok(socket)
    }

    /// The socket with this number.
    pub fn get(&self, id: u32) -> Option<Arc<Socket>> {
        self.known.lock().sockets.get(&id).cloned()
    }

    /// The socket whose file of rings a descriptor refers to. The application got the descriptor
    /// from the server, or from another application.
    pub(crate) fn of_file(&self, file: &OwnedFd) -> Shared {
        let Ok(stat) = rustix::fs::fstat(file) else { return Shared::NoSocket };
        let identity = (stat.st_dev, stat.st_ino);
        match self.all().into_iter().find(|socket| socket.identity() == Some(identity)) {
            Some(socket) => Shared::Socket(socket),
            None if FileType::from_raw_mode(stat.st_mode) == FileType::Socket => {
                Shared::OtherFamily
            }
            None => Shared::NoSocket,
        }
    }

    /// All sockets, by number.
    pub fn all(&self) -> Vec<Arc<Socket>> {
        let mut all: Vec<_> = self.known.lock().sockets.values().cloned().collect();
        all.sort_by_key(|socket| towpath_engine::Socket::id(&**socket));
        all
    }

    /// Unbinds the sockets of a removed port for good (`xsk_notifier`, `NETDEV_UNREGISTER`).
    pub fn unregister(&self, ifindex: u32) {
        let mut all = self.all();
        all.retain(|socket| socket.is_on(ifindex));
        self.unbind(&all);
        all.iter().for_each(|socket| socket.hang_up());
    }

    /// Closes several sockets, as [`Socket::close`] does, at the cost of one.
    pub fn close(&self, sockets: &[Arc<Socket>]) {
        self.unbind(sockets);
        for socket in sockets {
            self.known.lock().sockets.remove(&towpath_engine::Socket::id(&**socket));
            socket.forget_setup();
        }
    }

    /// Takes bound sockets away from the workers.
    fn unbind(&self, sockets: &[Arc<Socket>]) {
        let unbound: Vec<_> = sockets.iter().filter(|it| it.starts_to_unbind()).cloned().collect();
        if unbound.is_empty() {
            return;
        }
        self.host.detach(&unbound);
        unbound.iter().filter_map(|it| it.pool()).for_each(|pool| self.leave_pool(pool));
    }

    pub(crate) fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    /// The first pool on a queue; a second is refused (`xsk_get_pool_from_qid`).
    pub(crate) fn add_pool(&self, pool: &Arc<BufferPool>) -> Result<(), Errno> {
        use std::collections::hash_map::Entry;
        match self.known.lock().pools.entry(pool.queue) {
            Entry::Occupied(_) => Err(Errno::BUSY),
            Entry::Vacant(place) => {
                place.insert((Arc::clone(pool), 1));
                Ok(())
            }
        }
    }

    /// Whether a queue has a pool.
    pub(crate) fn has_pool(&self, queue: QueueId) -> bool {
        self.known.lock().pools.contains_key(&queue)
    }

    /// Notes that one more socket uses the pool.
    pub(crate) fn share_pool(&self, pool: &BufferPool) {
        if let Some((_, users)) = self.known.lock().pools.get_mut(&pool.queue) {
            *users += 1;
        }
    }

    /// Notes that a socket no longer uses the pool; the last one frees the queue.
    pub(crate) fn leave_pool(&self, pool: &Arc<BufferPool>) {
        let mut known = self.known.lock();
        let Some((registered, users)) = known.pools.get_mut(&pool.queue) else { return };
        if !Arc::ptr_eq(registered, pool) {
            return;
        }
        *users -= 1;
        if *users == 0 {
            known.pools.remove(&pool.queue);
        }
    }
}

/// `SOCK_RAW`
const SOCK_RAW: u32 = 3;
/// Most sockets: more would be a mistake of an application, and each costs descriptors.
const SOCKETS_MAX: usize = 4096;
