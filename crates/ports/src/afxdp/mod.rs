//! `afxdp`: an interface of the host, through AF_XDP sockets, one for each of its queues.
//!
//! Frames are received into and sent from the engine's own memory, which is registered as the
//! sockets' UMEM. A small program gives each frame to the socket of its queue; it is attached by a
//! bpf_link, so that the kernel detaches it when this process ends, however it ends.
//!
//! A frame whose buffer the kernel holds stays in a table of the socket until the kernel returns
//! the buffer, or the socket is closed.

mod busy_poll_unsafe;
mod guard;
mod live;
mod options;
mod queues;
mod rx;
mod socket;
mod tx;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Scope;

use parking_lot::Mutex;
use towpath_engine::port::{Device, Features, Rx, RxHints, Speed, Tx};
use towpath_kernel::{AttachMode, Steering, XdpLink};
use towpath_xdp::Arena;
use towpath_xdp::frame::rx_metadata::SupportedHints;

use self::guard::Guard;
use self::live::WayOut;
pub use self::options::{Attach, Mode, Options, PeerOffloads, RxHintsFrom, Transmit};
use self::queues::Queues;
use self::socket::Socket;
use crate::Error;
use crate::error::failed;
use crate::host::{self, Interface, Peer, XdpAttached};

/// An interface of the host.
pub struct Afxdp {
    interface: Interface,
    options: Options,
    index: u32,
    mac: [u8; 6],
    /// The ifindex for other processes; `None` for an interface in another namespace.
    ifindex: Option<u32>,
    queues: Queues,
    attached: Attached,
    /// RX hints that the driver provides.
    rx_hints: RxHints,
    link: Mutex<Option<XdpLink>>,
    guard: Mutex<Guard>,
    steering: Steering,
    way_out: Option<Arc<WayOut>>,
    /// Sockets by queue.
    sockets: Mutex<Vec<Option<Arc<Socket>>>>,
    counters: Arc<Counters>,
    /// The peer interface, for a veth.
    peer: Option<Peer>,
    /// Whether the peer is to leave checksums to the device again when the port is closed.
    restores_peer: bool,
}

/// How the port's program is attached.
struct Attached {
    mode: AttachMode,
    /// Why it is not attached natively, if that was requested.
    notice: Option<String>,
}

/// Counters of the port beside the kernel's.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Invalid descriptors from the kernel, and packets lost by them.
    pub(crate) invalid: Count,
    /// Live frames that the kernel would not redirect to the interface.
    pub(crate) refused: Count,
}

/// A counter that several threads increment.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Afxdp {
    /// Takes over an interface: from now on its frames go to the port.
    pub fn new(options: &Options) -> Result<Afxdp, Error> {
        options.check()?;
        let is_foreign = host::is_foreign(options.netns.as_deref());
        host::within(options.netns.as_deref(), || Afxdp::new_here(options, is_foreign))
    }

    fn new_here(options: &Options, is_foreign: bool) -> Result<Afxdp, Error> {
        let name = &options.name;
        let failed = |step| failed(name, step);
        let interface = Interface::new(name).map_err(failed("opening a socket"))?;
        let index = interface.index().map_err(failed("looking for it"))?;
        let mac = interface.mac().map_err(failed("asking for its address"))?;
        interface.look_at_mtu();
        let attached = host::xdp_attached(index).map_err(failed("asking for its XDP program"))?;
        if let Some(XdpAttached { mode, id }) = attached {
            return Err(Error::Occupied { interface: name.clone(), mode, id });
        }
        let queues = Queues::new(&interface, options)?;
        let (max, unserved) = (queues.max, queues.unserved());
        let from_kernel = |errno: towpath_bpf::Errno| io::Error::from_raw_os_error(errno.0);
        let has_hints = options.rx_hints == RxHintsFrom::Driver;
        let steering = match options.transmit {
            _ if has_hints => Steering::with_hints(max, unserved, index),
            Transmit::Socket => Steering::new(max, unserved),
            Transmit::Auto => Steering::with_way_out(max, unserved, index),
        };
        let steering = steering.map_err(from_kernel);
        let steering =
            steering.map_err(failed("loading the program that redirects frames to Towpath"))?;
        let rx_hints = if has_hints { driver_hints(index) } else { RxHints::default() };
        let wanted = if has_hints { Attach::Native } else { options.attach };
        let (link, attached) = attach(&steering, index, wanted)
            .map_err(|(step, errno)| failed(step)(from_kernel(errno)))?;
        let peer = Peer::of(index);
        let is_switched = options.peer_offloads == PeerOffloads::Off;
        let restores_peer = is_switched && peer.as_ref().is_some_and(Peer::leaves_checksums);
        if let Some(peer) = peer.as_ref().filter(|_| restores_peer) {
            peer.leave_checksums(false).map_err(failed("peer_offloads"))?;
        }
        Ok(Afxdp {
            peer,
            restores_peer,
            interface,
            options: options.clone(),
            index,
            mac,
            ifindex: (!is_foreign).then_some(index),
            queues,
            attached,
            rx_hints,
            link: Mutex::new(Some(link)),
            guard: Mutex::new(Guard::new(unserved)),
            way_out: WayOut::new(steering.live(), name, index).map(Arc::new),
            steering,
            sockets: Mutex::new((0..max).map(|_| None).collect()),
            counters: Arc::default(),
        })
    }

    /// The socket of a queue, opened when it is first asked for.
    fn socket(&self, queue: u32, arena: &Arc<Arena>) -> io::Result<Arc<Socket>> {
        let mut sockets = self.sockets.lock();
        let known = sockets.get(queue as usize).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("there is no queue {queue}"))
        })?;
        if let Some(socket) = known {
            return Ok(Arc::clone(socket));
        }
        let first = sockets.iter().flatten().next();
        let first = first.map(|socket| &**socket);
        let buffers = rx::buffers(&self.options, self.queues.count(), arena.total());
        // A socket belongs to the namespace it is made in.
        let socket = host::within(self.options.netns.as_deref(), || {
            let socket = Socket::open(self.index, (queue, buffers), &self.options, arena, first);
            socket.map_err(failed(&self.options.name, "opening an AF_XDP socket"))
        });
        let socket = Arc::new(socket.map_err(io::Error::other)?);
        sockets[queue as usize] = Some(Arc::clone(&socket));
        Ok(socket)
    }

    /// Attaches the program again, so that it runs on queues that a veth got later
    /// (`veth_set_channels`). Meanwhile frames are dropped.
    fn attach_again(&self) {
        let mut link = self.link.lock();
        drop(link.take());
        let attached = host::within(self.options.netns.as_deref(), || {
            let attached = self.steering.attach(self.index, self.attached.mode);
            let attached = attached.map_err(|errno| io::Error::from_raw_os_error(errno.0));
            attached.map_err(failed(&self.options.name, "attaching again"))
        });
        // If attaching fails, the link is missing, and the next look tries again.
        *link = attached.ok();
    }

    /// Opens a queue, whose frames then go to its socket.
    fn open_queue(&self, queue: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        let socket = self.socket(queue, arena)?;
        let RxHints { timestamp, hash, vlan_tag: vlan, .. } = self.rx_hints;
        let told = self.options.rx_hints == RxHintsFrom::Driver;
        let told = told.then_some(SupportedHints { timestamp, hash, vlan });
        let rx = rx::Queue::new(&socket, &self.counters, &self.options, told)?;
        let set = self.steering.set(queue, socket.fd());
        set.map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        Ok(Box::new(rx))
    }

    fn statistics(&self) -> String {
        let mut sums = [0; 6];
        let sockets = self.sockets.lock();
        for statistics in sockets.iter().flatten().filter_map(|socket| socket.statistics().ok()) {
            let numbers = [
                statistics.rx_dropped,
                statistics.rx_ring_full.unwrap_or(0),
                statistics.rx_fill_ring_empty_descs.unwrap_or(0),
                statistics.rx_invalid_descs,
                statistics.tx_invalid_descs,
                statistics.tx_ring_empty_descs.unwrap_or(0),
            ];
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
        let names = [
            "rx_dropped",
            "rx_ring_full",
            "rx_fill_ring_empty_descs",
            "rx_invalid_descs",
            "tx_invalid_descs",
            "tx_ring_empty_descs",
        ];
        let pairs = names.iter().zip(sums).map(|(name, sum)| format!("{name} {sum}"));
        pairs.collect::<Vec<_>>().join(", ")
    }
}

impl Device for Afxdp {
    fn kind(&self) -> &'static str {
        "afxdp"
    }

    fn queues(&self) -> u32 {
        self.queues.count()
    }

    fn look(&self) {
        self.interface.look_at_mtu();
        self.guard.lock().attach(self.index, self.options.netns.as_deref());
        let has_more = self.queues.look(&self.interface);
        if has_more && self.peer.is_some() || self.link.lock().is_none() {
            self.attach_again();
        }
        // Sockets of removed queues are closed when their last user drops them.
        for socket in self.sockets.lock().iter_mut().skip(self.queues.count() as usize) {
            *socket = None;
        }
    }

    fn closes_soon(&self) {
        *self.guard.lock() = Guard::Off("off: the port is being closed");
    }

    fn features(&self) -> Features {
        Features {
            rx_frags: self.options.multi_buffer,
            tx_frags: self.options.multi_buffer,
            rx_hints: self.rx_hints,
            ..Features::default()
        }
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Numbers of another namespace mean nothing here.
    fn ifindex(&self) -> Option<u32> {
        self.ifindex
    }

    fn mtu(&self) -> u32 {
        self.interface.mtu().unwrap_or(1500)
    }

    fn link(&self) -> bool {
        self.interface.has_link()
    }

    fn speed(&self) -> Speed {
        self.interface.speed().unwrap_or_default()
    }

    fn open_rx(&self, queue: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        let opened = self.open_queue(queue, arena);
        self.queues.note(queue, &opened);
        opened
    }

    fn failures(&self) -> Vec<String> {
        let is_detached = self.link.lock().is_none();
        let detached = is_detached.then(|| {
            let name = &self.options.name;
            format!(
                "the program that redirects {name}'s frames to Towpath could not be attached \
                 again: arriving frames are dropped; `ip link show {name}` shows whether another \
                 program is attached"
            )
        });
        let guard = self.guard.lock().failure();
        self.queues.failure().into_iter().chain(detached).chain(guard).collect()
    }

    fn open_tx(&self, worker: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        let socket = self.socket(worker % self.queues.count(), arena)?;
        // With zero copy, the socket is fast enough.
        let way_out = self.way_out.as_ref().filter(|_| !socket.is_zero_copy);
        Ok(Box::new(tx::Transmitter::new(&socket, &self.counters, &self.options, way_out)))
    }

    fn warnings(&self) -> Vec<String> {
        let Some(peer) = self.peer.as_ref().filter(|peer| peer.leaves_checksums()) else {
            return Vec::new();
        };
        let name = peer.name();
        vec![format!(
            "{name}, the other end of this veth, leaves checksums to the device, which doesn't \
             compute \
             them: receivers drop its packets (TCP hangs). Set peer_offloads = \"off\" for this \
             port, or run `ethtool -K {name} tx off` in its namespace"
        )]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let attach = match self.attached.mode {
            AttachMode::Native => "native",
            AttachMode::Generic => "generic",
        };
        let attach = match &self.attached.notice {
            Some(notice) => format!("{attach} ({notice})"),
            None => attach.to_owned(),
        };
        let mut details = vec![("interface", self.options.name.clone()), ("attach", attach)];
        let sockets = self.sockets.lock();
        let modes = sockets.iter().flatten().map(|socket| {
            let mode = if socket.is_zero_copy { "zerocopy" } else { "copy" };
            format!("queue {} {mode}", socket.queue)
        });
        details.push(("mode", modes.collect::<Vec<_>>().join(", ")));
        drop(sockets);
        let transmit = match &self.way_out {
            Some(way_out) if way_out.is_open() => "bursts as live frames, others by the socket",
            _ => "by the socket",
        };
        details.push(("transmit", transmit.to_owned()));
        let hints = match self.options.rx_hints {
            RxHintsFrom::Off => "off",
            RxHintsFrom::Driver => "the driver's",
        };
        details.push(("rx_hints", hints.to_owned()));
        details.push(("guard", self.guard.lock().to_string()));
        details.push(("refused_live_frames", self.counters.refused.value().to_string()));
        details.push(("statistics", self.statistics()));
        details.push(("invalid_descriptors", self.counters.invalid.value().to_string()));
        details
    }
}

impl Drop for Afxdp {
    /// Closes the program's link and all sockets in parallel, because for each the kernel waits
    /// until no CPU uses it any more.
    fn drop(&mut self) {
        let (link, sockets) = (self.link.get_mut().take(), self.sockets.get_mut());
        std::thread::scope(|scope| {
            side_by_side(scope, link);
            sockets.drain(..).for_each(|socket| side_by_side(scope, socket));
        });
        if let Some(peer) = self.peer.as_ref().filter(|_| self.restores_peer) {
            // This fails if the peer was removed with its namespace.
            let _gone = peer.leave_checksums(true);
        }
    }
}

/// Drops a value on a new thread, or here if no thread can be started.
fn side_by_side<'scope, T: Send + 'scope>(scope: &'scope Scope<'scope, '_>, dropped: T) {
    let _closing = std::thread::Builder::new().spawn_scoped(scope, move || drop(dropped));
}

impl fmt::Debug for Afxdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Afxdp").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The hints that the driver advertises; all, if the kernel cannot report them.
fn driver_hints(index: u32) -> RxHints {
    let bits = host::XdpFeatures::new(index).and_then(|features| features.rx_metadata());
    let has = |bit: u64| bits.as_ref().map_or(true, |bits| bits & bit != 0);
    RxHints { timestamp: has(1), hash: has(2), vlan_tag: has(4), checksum: false }
}

type Refusal = (&'static str, towpath_bpf::Errno);

fn attach(
    steering: &Steering,
    ifindex: u32,
    wanted: Attach,
) -> Result<(XdpLink, Attached), Refusal> {
    let native = match wanted {
        Attach::Generic => None,
        _ => Some(steering.attach(ifindex, AttachMode::Native)),
    };
    let notice = match (native, wanted) {
        (Some(Ok(link)), _) => {
            return Ok((link, Attached { mode: AttachMode::Native, notice: None }));
        }
        (Some(Err(errno)), Attach::Native) => return Err(("attaching natively", errno)),
        (Some(Err(errno)), _) => Some(format!("the driver refuses native XDP: {errno}")),
        (None, _) => None,
    };
    match steering.attach(ifindex, AttachMode::Generic) {
        Ok(link) => Ok((link, Attached { mode: AttachMode::Generic, notice })),
        Err(errno) => Err(("attaching generically", errno)),
    }
}

/// More buffers of the same packet follow (`XDP_PKT_CONTD`).
const CONTINUES: u32 = 1;
