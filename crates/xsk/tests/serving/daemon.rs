//! A daemon with one port, inside the test.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towpath_engine::Socket as _;
use towpath_xdp::{Arena, Pool};
use towpath_xsk::{Device, Errno, Host, Server, Socket, Sockets};
use towpath_xsk_client::Options;

/// A port whose wire leads back: a socket receives the packets that it sends on a queue.
#[derive(Debug, Default)]
struct Loopback {
    bound: Mutex<Vec<Weak<Socket>>>,
}

impl Host for Loopback {
    fn device(&self, ifindex: u32) -> Option<Device> {
        (ifindex == 7).then_some(Device { queues: 4, zero_copy: false })
    }

    fn ifindex(&self, name: &str) -> Option<u32> {
        (name == "loop0").then_some(7)
    }

    fn steer(&self, _socket: &Arc<Socket>) -> Result<(), Errno> {
        Ok(())
    }

    fn attach(&self, socket: &Arc<Socket>) -> Result<(), Errno> {
        self.bound.lock().push(Arc::downgrade(socket));
        Ok(())
    }

    fn detach(&self, sockets: &[Arc<Socket>]) {
        let is_gone = |known: &Weak<Socket>| {
            sockets.iter().any(|socket| known.as_ptr() == Arc::as_ptr(socket))
        };
        self.bound.lock().retain(|known| !is_gone(known));
    }
}

/// A daemon: a server, and a worker that never sleeps.
pub(crate) struct Daemon {
    pub(crate) sockets: Arc<Sockets>,
    server: Option<Server>,
    pub(crate) path: PathBuf,
    arena: Arc<Arena>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Daemon {
    pub(crate) fn start(name: &str) -> Daemon {
        let host = Arc::new(Loopback::default());
        let sockets = Sockets::new(Arc::clone(&host) as _);
        let path = std::env::temp_dir().join(format!("xsk-{name}-{}.sock", std::process::id()));
        let server = Server::start(&sockets, &path, 0o600).unwrap();
        let arena = Arena::new(512).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (ends, memory) = (Arc::clone(&stop), Arc::clone(&arena));
        let worker = std::thread::spawn(move || {
            let mut pool = Pool::new(&memory);
            while !ends.load(Ordering::Relaxed) {
                let bound = host.bound.lock().clone();
                bound.iter().filter_map(Weak::upgrade).for_each(|socket| turn(&socket, &mut pool));
                std::thread::yield_now();
            }
        });
        Daemon { sockets, server: Some(server), path, arena, stop, worker: Some(worker) }
    }

    pub(crate) fn options(&self, queue: u32) -> Options {
        let usual = Options::new("loop0", queue);
        Options { path: self.path.clone(), chunks: 256, entries: 64, ..usual }
    }

    /// Waits until that many sockets are left.
    #[track_caller]
    pub(crate) fn expect_sockets(&self, count: usize) {
        let end = Instant::now() + Duration::from_secs(10);
        while self.sockets.all().len() != count {
            assert!(Instant::now() < end, "{} sockets", self.sockets.all().len());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.server = None;
        self.stop.store(true, Ordering::Relaxed);
        self.worker.take().unwrap().join().unwrap();
        assert_eq!(self.sockets.all().len(), 0);
        assert_eq!(self.arena.free(), self.arena.total(), "a frame is lost");
    }
}

/// Delivers the packets that a socket sent back to it.
fn turn(socket: &Socket, pool: &mut Pool) {
    let Some(place) = socket.bound_to() else { return };
    socket.disarm();
    let mut frames = Vec::new();
    let count = socket.collect(pool, &mut frames, 32);
    socket.sent(count);
    socket.deliver(place, &mut frames, pool);
    socket.flush();
}
