//! Two guests whose ports are each other's uppers.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use towpath_engine::counters::DropReason;
use towpath_engine::{Engine, Options, PortId, PortOptions, UpperName, WorkerOptions};
use towpath_ports::vhost_user::{self, VhostUser};
use towpath_workload::virtio::{Guest, GuestOptions};

/// The engine, and the paths of its ports' sockets.
pub(crate) struct Scene {
    pub(crate) engine: Engine,
    pub(crate) ports: [PortId; 2],
    pub(crate) options: [vhost_user::Options; 2],
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene::with(1, |_| {})
    }

    /// A scene with this many workers, and other options of both ports.
    pub(crate) fn with(workers: usize, change: impl Fn(&mut vhost_user::Options)) -> Scene {
        let workers = vec![WorkerOptions::default(); workers];
        let engine = Engine::start(&Options { workers, frames: 4096 }).unwrap();
        let options = [socket(), socket()].map(|path| {
            let mut options = vhost_user::Options::new(path);
            change(&mut options);
            options
        });
        let add = |index: usize| {
            let device = VhostUser::new(options[index].clone()).unwrap();
            engine.add_port(PortOptions::new(&format!("v{index}")), Box::new(device)).unwrap()
        };
        let ports = [add(0), add(1)];
        join(&engine, ports);
        Scene { engine, ports, options }
    }

    /// Brings up a guest at a port.
    pub(crate) fn guest(&self, index: usize, options: GuestOptions) -> Guest {
        let path = &self.options[index].path;
        let guest = Guest::connect(path, options).unwrap();
        until("the guest's queues run", || {
            self.engine
                .read(|_, snapshot| snapshot.port(self.ports[index]).unwrap().opened.device.link())
        });
        guest
    }

    /// Reconnects a guest's front end to its port.
    pub(crate) fn reconnect(&self, index: usize, guest: &mut Guest) {
        let stream = UnixStream::connect(&self.options[index].path).unwrap();
        guest.reconnect(stream).unwrap();
    }

    /// A detail of a port.
    pub(crate) fn detail(&self, index: usize, name: &str) -> String {
        self.engine.read(|_, snapshot| {
            let details = snapshot.port(self.ports[index]).unwrap().opened.device.details();
            details.into_iter().find(|(known, _)| *known == name).unwrap().1
        })
    }

    /// Number of frames that a port got from its guest.
    pub(crate) fn received(&self, index: usize) -> u64 {
        self.engine.read(|_, snapshot| {
            let port = &snapshot.port(self.ports[index]).unwrap().opened;
            port.counters.iter().map(|counters| counters.rx_packets.get()).sum()
        })
    }

    /// The counters of the frames, for a message.
    pub(crate) fn story(&self) -> String {
        self.engine.read(|_, snapshot| {
            let mut text = format!("{:?}", self.engine.conservation());
            for port in snapshot.ports.iter().flatten() {
                let device = &port.opened.device;
                let (details, error) = (device.details(), port.opened.tx_error());
                text += &format!("\n{}: {details:?} {error:?}", port.name);
                for counters in port.opened.counters.iter() {
                    let drops = DropReason::ALL.into_iter().map(|why| {
                        let at = why as usize;
                        (why.name(), counters.drops[at].get() + counters.tx_drops[at].get())
                    });
                    let drops: Vec<_> = drops.filter(|(_, count)| *count > 0).collect();
                    let (rx, tx) = (counters.rx_packets.get(), counters.tx_packets.get());
                    text += &format!(" rx {rx} tx {tx} {drops:?}");
                }
            }
            text
        })
    }

    pub(crate) fn failures(&self, index: usize) -> Vec<String> {
        self.engine
            .read(|_, snapshot| snapshot.port(self.ports[index]).unwrap().opened.device.failures())
    }

    /// Closes a port and opens it again, as if the process had ended between the two.
    pub(crate) fn reopen(&mut self, index: usize) {
        let other = self.ports[1 - index];
        self.engine.change(|config| config.set_upper(other, UpperName::None)).unwrap();
        self.engine.remove_port(self.ports[index]).unwrap();
        let device = VhostUser::new(self.options[index].clone()).unwrap();
        let options = PortOptions::new(&format!("v{index}"));
        self.ports[index] = self.engine.add_port(options, Box::new(device)).unwrap();
        join(&self.engine, self.ports);
    }

    /// No frame was lost without a reason.
    #[track_caller]
    pub(crate) fn check(&self) {
        let end = Instant::now() + Duration::from_secs(2);
        while self.engine.conservation().held != 0 {
            assert!(Instant::now() < end, "{:?}", self.engine.conservation());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.engine.conservation().missing(), 0);
    }
}

fn join(engine: &Engine, ports: [PortId; 2]) {
    for (from, to) in [(0, "v1"), (1, "v0")] {
        let upper = UpperName::Named(to.to_owned());
        engine.change(|config| config.set_upper(ports[from], upper)).unwrap();
    }
}

/// A path for a socket that no other test has.
pub(crate) fn socket() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("towpath-vhost-{}-{number}", std::process::id()))
}

#[track_caller]
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A packet of `len` bytes, with a number in it.
pub(crate) fn packet(len: usize, number: u32) -> Vec<u8> {
    let mut packet: Vec<u8> =
        (0..len).map(|at| (at as u32).wrapping_mul(number | 1) as u8).collect();
    packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5]);
    packet[14..18].copy_from_slice(&number.to_be_bytes());
    packet
}
