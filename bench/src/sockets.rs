//! AF_XDP sockets beside an engine, served to applications as the daemon serves them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use towpath_engine::{Engine, Error, PortId, QueueId, Socket as _, port::Wake};
use towpath_maps::{Map, Value};
use towpath_xdp::{Frame, Pool};
use towpath_xsk::{Device, Errno, Host, Server, Socket, Sockets};

/// A server over an engine, with the map that leads to its sockets.
#[derive(Debug)]
pub struct Serving {
    host: Arc<EngineHost>,
    sockets: Arc<Sockets>,
    path: PathBuf,
    /// Goes first: it closes all sockets.
    server: Option<Server>,
}

/// What sockets know of the engine.
#[derive(Debug)]
struct EngineHost {
    engine: Arc<Engine>,
    map: Arc<Map>,
    delivery: Delivery,
    delivered_to_gone: AtomicU64,
}

/// How a burst gets into a socket's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Each frame by a call of its own.
    Scalar,
    /// In one piece.
    Batched,
}

/// A socket that gets its frames one by one, to be compared with.
#[derive(Debug)]
struct OneByOne(Arc<Socket>);

impl towpath_engine::Socket for OneByOne {
    fn id(&self) -> u32 {
        self.0.id()
    }

    fn bound_to(&self) -> Option<QueueId> {
        self.0.bound_to()
    }

    fn receives(&self) -> bool {
        self.0.receives()
    }

    fn transmits(&self) -> bool {
        self.0.transmits()
    }

    fn deliver(&self, from: QueueId, frames: &mut Vec<Frame>, pool: &mut Pool) -> usize {
        let mut single = Vec::with_capacity(1);
        let mut delivered = 0;
        for frame in frames.drain(..) {
            single.push(frame);
            delivered += self.0.deliver(from, &mut single, pool);
        }
        delivered
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn collect(&self, pool: &mut Pool, frames: &mut Vec<Frame>, limit: usize) -> usize {
        self.0.collect(pool, frames, limit)
    }

    fn sent(&self, count: usize) {
        self.0.sent(count);
    }

    fn arm(&self) -> Wake<'_> {
        self.0.arm()
    }

    fn rang(&self, is_gone: bool) {
        self.0.rang(is_gone);
    }

    fn disarm(&self) {
        self.0.disarm();
    }
}

impl Serving {
    /// Listens in the folder for temporary files.
    pub fn start(engine: &Arc<Engine>, map: &Arc<Map>) -> anyhow::Result<Serving> {
        Serving::start_with(engine, map, Delivery::Batched)
    }

    /// As [`Serving::start`], with sockets that get frames so.
    pub fn start_with(
        engine: &Arc<Engine>,
        map: &Arc<Map>,
        delivery: Delivery,
    ) -> anyhow::Result<Serving> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("towpath-bench-{}-{number}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let host = Arc::new(EngineHost {
            engine: Arc::clone(engine),
            map: Arc::clone(map),
            delivery,
            delivered_to_gone: AtomicU64::new(0),
        });
        let sockets = Sockets::new(Arc::clone(&host) as Arc<dyn Host>);
        let server = Some(Server::start(&sockets, &path, 0o600)?);
        Ok(Serving { host, sockets, path, server })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The sockets that are open.
    pub fn sockets(&self) -> Vec<Arc<Socket>> {
        self.sockets.all()
    }

    /// Packets delivered to sockets, those that are closed included.
    pub fn delivered(&self) -> u64 {
        let open: u64 = self.sockets().iter().map(|socket| socket.statistics().rx_packets).sum();
        open + self.host.delivered_to_gone.load(Ordering::SeqCst)
    }

    /// Closes all sockets.
    pub fn stop(&mut self) {
        self.server = None;
    }
}

impl Host for EngineHost {
    fn device(&self, ifindex: u32) -> Option<Device> {
        self.engine.read(|_, snapshot| {
            let slot = snapshot.port_of_ifindex(ifindex)?;
            Some(Device { queues: slot.opened.device.queues(), zero_copy: false })
        })
    }

    fn ifindex(&self, name: &str) -> Option<u32> {
        self.engine.read(|config, snapshot| Some(snapshot.port(config.find(name).ok()?)?.ifindex))
    }

    /// The key of the socket's queue leads to it.
    fn steer(&self, socket: &Arc<Socket>) -> Result<(), Errno> {
        let place = socket.bound_to().ok_or(Errno::NXIO)?;
        self.insert(socket, self.map.name(), place.queue)
    }

    fn insert(&self, socket: &Arc<Socket>, _map: &str, key: u32) -> Result<(), Errno> {
        let value = Value::One(socket.id().to_ne_bytes().to_vec());
        let stored = self.map.user().update(&key.to_ne_bytes(), &value, 0);
        stored.map_err(|errno| Errno::from_raw_os_error(errno.0))
    }

    fn attach(&self, socket: &Arc<Socket>) -> Result<(), Errno> {
        let socket: Arc<dyn towpath_engine::Socket> = match self.delivery {
            Delivery::Batched => Arc::clone(socket) as _,
            Delivery::Scalar => Arc::new(OneByOne(Arc::clone(socket))),
        };
        let added: Result<(), Error> = self.engine.change(|config| config.add_socket(socket));
        added.map_err(|_taken| Errno::NODEV)
    }

    fn detach(&self, sockets: &[Arc<Socket>]) {
        let forget = || sockets.iter().for_each(|socket| self.map.forget(socket.id()));
        forget();
        // Nothing of this can fail.
        let _removed = self.engine.change(|config| {
            sockets.iter().for_each(|socket| config.remove_socket(socket.id()));
            Ok(())
        });
        forget();
        let received = sockets.iter().map(|socket| socket.statistics().rx_packets).sum::<u64>();
        self.delivered_to_gone.fetch_add(received, Ordering::SeqCst);
    }
}

/// Frames lost on a port's way in, whatever the reason.
pub fn dropped(engine: &Engine, port: PortId) -> u64 {
    engine.read(|_, snapshot| {
        let Some(slot) = snapshot.port(port) else { return 0 };
        let drops = slot.opened.counters.iter().flat_map(|counters| &counters.drops);
        drops.map(|counter| counter.get()).sum()
    })
}
