//! The configuration as workers see it: immutable, replaced as a whole between bursts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use towpath_xdp::host::{Bridges, Interface, Unknown};

use crate::bond::View;
use crate::bridge::Bridge;
use crate::counters::PortCounters;
use crate::dequeue::DequeueHook;
use crate::hook::{Chain, HookSpec};
use crate::port::{Device, Features, Rx, Tx};
use crate::sockets::{Collect, Served, Sockets};
use crate::target::{Target, TargetId};
use crate::worker::{Fence, WorkerShared};

/// A port's number inside one engine. Numbers of removed ports are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PortId(pub u32);

/// Everything workers need to know.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Counts up with each change.
    pub generation: u64,
    /// Ports by number.
    pub ports: Vec<Option<Arc<Port>>>,
    /// Numbers by ifindex.
    pub by_ifindex: Numbers<PortId>,
    /// The queues each worker polls.
    pub polls: Vec<Vec<(PortId, u32)>>,
    /// Bridges and the ports below them.
    pub bridges: Vec<BridgeView>,
    /// Programs that entries of devmaps and cpumaps name, by id.
    pub entry_programs: Arc<HashMap<u32, Arc<Chain>>>,
    /// AF_XDP sockets by id.
    pub sockets: Sockets,
    /// The sockets each worker collects packets from.
    pub collects: Vec<Vec<Collect>>,
    /// Where frames can go.
    pub(crate) targets: Box<[Target]>,
    /// All programs there are, on whatever hook.
    pub(crate) chains: Box<[Arc<Chain>]>,
}

impl Snapshot {
    /// The port of that number.
    #[inline]
    pub fn port(&self, id: PortId) -> Option<&Arc<Port>> {
        self.ports.get(id.0 as usize)?.as_ref()
    }

    /// The port with that ifindex.
    pub fn port_of_ifindex(&self, ifindex: u32) -> Option<&Arc<Port>> {
        self.port(self.by_ifindex.get(ifindex)?)
    }

    /// All programs there are, on whatever hook.
    pub fn chains(&self) -> impl Iterator<Item = &Arc<Chain>> {
        self.chains.iter()
    }

    /// The same, found at all ports.
    pub(crate) fn find_chains(&self) -> impl Iterator<Item = &Arc<Chain>> {
        let ports = self.ports.iter().flatten();
        let hooks = ports.flat_map(|port| {
            let dequeue = port.dequeue.as_ref().map(|hook| &hook.chain);
            let guest = [&port.guest_rx, &port.guest_tx].into_iter().flatten();
            let guest = guest.filter_map(|hook| hook.chain.as_ref());
            port.rx_hook.iter().chain(&port.tx_hook).chain(dequeue).chain(guest)
        });
        hooks.chain(self.entry_programs.values())
    }

    /// The socket of that number as a target.
    #[inline]
    pub(crate) fn socket_target(&self, id: u32) -> Option<TargetId> {
        Some(TargetId::socket(self.ports.len(), self.sockets.place(id)?))
    }

    /// The bond around a port, and the bond around that, and so on; the port itself without any.
    fn outermost<'a>(&'a self, slot: &'a Arc<Port>) -> &'a Arc<Port> {
        let around = |slot: &&'a Arc<Port>| self.port(slot.member?.bond);
        std::iter::successors(Some(slot), around).last().unwrap_or(slot)
    }

    /// Whether `above` is a bond around a port, or the port itself.
    pub(crate) fn is_around(&self, above: PortId, slot: &Port) -> bool {
        let mut around = slot.member;
        while let Some(member) = around {
            if member.bond == above {
                return true;
            }
            around = self.port(member.bond).and_then(|bond| bond.member);
        }
        above == slot.id
    }

    /// The ports as `bpf_fib_lookup` and `bpf_check_mtu` are to see them, for `Host::merge`. They
    /// forward: that is what they are for.
    pub fn interfaces(&self) -> Vec<Interface> {
        let interface = |slot: &Arc<Port>| Interface {
            ifindex: slot.ifindex,
            name: slot.name.to_string(),
            mac: slot.opened.device.mac(),
            mtu: slot.mtu,
            up: slot.up,
            forwarding_v4: true,
            forwarding_v6: true,
            addresses: Vec::new(),
            vlan: None,
        };
        self.ports.iter().flatten().map(interface).collect()
    }
}

/// What programs are told about bridges.
impl Bridges for Snapshot {
    fn port_behind(&self, ingress: u32, vlan: u16, mac: [u8; 6]) -> Result<u32, Unknown> {
        let slot = self.port_of_ifindex(ingress).ok_or(Unknown::Bridge)?;
        let slot = self.outermost(slot);
        let Upper::Bridge(number) = slot.upper else { return Err(Unknown::Bridge) };
        let view = self.bridges.get(number).ok_or(Unknown::Bridge)?;
        let port = view.bridge.lookup(vlan, mac).and_then(|id| self.port(id));
        port.map(|port| port.ifindex).ok_or(Unknown::Address)
    }
}

/// Things by a number that is never 0: a table that is read for each redirected frame, ports by
/// ifindex for one. At most half of it is used.
#[derive(Debug, Default)]
pub struct Numbers<T> {
    /// A power of two, two at least, or none.
    entries: Box<[(u32, T)]>,
}

impl<T: Copy + Default> Numbers<T> {
    /// The table of these.
    pub fn new(things: &[(u32, T)]) -> Numbers<T> {
        let size = (things.len() * 2).next_power_of_two().max(2);
        let mut entries = vec![(0, T::default()); size].into_boxed_slice();
        for &(number, thing) in things {
            let mut at = Self::place(number, size);
            while entries[at].0 != 0 {
                at = (at + 1) & (size - 1);
            }
            entries[at] = (number, thing);
        }
        Numbers { entries }
    }

    /// The thing of that number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<T> {
        let size = self.entries.len();
        let mut at = Self::place(number, size);
        loop {
            let (known, thing) = *self.entries.get(at)?;
            if known == number && number != 0 {
                return Some(thing);
            }
            if known == 0 {
                return None;
            }
            at = (at + 1) & (size - 1);
        }
    }

    /// Where to start looking: the high bits of a product depend on all bits of a number (Fibonacci
    /// hashing), where the low ones are the same for multiples of a power of two.
    #[inline]
    fn place(number: u32, size: usize) -> usize {
        let mixed = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> ((u64::BITS - size.trailing_zeros()) % u64::BITS)) as usize
    }
}

/// One port as workers see it.
#[derive(Debug, Clone)]
pub struct Port {
    /// Its number.
    pub id: PortId,
    /// Its name.
    pub name: Arc<str>,
    /// Its ifindex, as programs see it.
    pub ifindex: u32,
    /// Largest payload it sends.
    pub mtu: u32,
    /// Set administratively (`IFF_UP`).
    pub up: bool,
    /// Whether frames may be redirected to it now: it is up, and has `NETDEV_XDP_ACT_NDO_XMIT`.
    pub is_target: bool,
    /// Everything is dropped: a program that it is to have isn't there.
    pub is_shut: bool,
    /// What its device can do.
    pub features: Features,
    /// Where passed frames go.
    pub upper: Upper,
    /// Makes frames linear for programs without frags support.
    pub linearize: bool,
    /// Programs that judge what arrives.
    pub rx_hook: Option<Arc<Chain>>,
    /// Programs that judge what leaves.
    pub tx_hook: Option<Arc<Chain>>,
    /// Its dequeue program.
    pub dequeue: Option<DequeueHook>,
    /// The bond it is a member of, if it is.
    pub member: Option<Membership>,
    /// How it chooses among its members, if it is a bond.
    pub bond: Option<Arc<View>>,
    /// By queue: the only socket that receives there, if it lends its memory to receive into.
    pub zero_copy_sockets: Vec<Option<Arc<Served>>>,
    /// Workers that run its programs on what arrives, each on flows of its own; the one that polls
    /// a queue does where there are none.
    pub spread: Option<Arc<[usize]>>,
    /// What becomes of what arrives.
    pub(crate) rx: HookSpec,
    /// What becomes of what is to leave, if somebody looks at it before it does.
    pub(crate) tx: Option<HookSpec>,
    /// What becomes of what is to reach a guest that has a program for that.
    pub(crate) guest_rx: Option<HookSpec>,
    /// What becomes of what such a guest sends.
    pub(crate) guest_tx: Option<HookSpec>,
    /// Where what passed goes, once its bond's control side has seen it.
    pub(crate) passed: TargetId,
    /// The device and what is open of it.
    pub opened: Arc<Opened>,
}

impl Port {
    /// Where what arrives is judged first.
    #[inline]
    pub(crate) fn first_hook(&self) -> &HookSpec {
        self.guest_tx.as_ref().unwrap_or(&self.rx)
    }

    /// Whether a program sees what arrives.
    #[inline]
    pub(crate) fn has_rx_programs(&self) -> bool {
        self.rx_hook.is_some() || self.guest_tx.is_some()
    }

    /// Whether somebody is to see what leaves before it does.
    #[inline]
    pub(crate) fn watches_tx(&self) -> bool {
        self.tx.is_some()
    }
}

/// What matters for frames that arrive on a member of a bond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// The bond.
    pub bond: PortId,
    /// What passes here is dropped: the bond uses another member.
    pub is_inactive: bool,
    /// Its program is the bond's: `XDP_TX` leaves by the bond's choice.
    pub is_delegate: bool,
    /// Control frames are taken out before a program sees them.
    pub protects: bool,
}

/// A bridge as workers see it.
#[derive(Debug, Clone)]
pub struct BridgeView {
    /// What it has learnt.
    pub bridge: Arc<Bridge>,
    /// Ports whose upper it is.
    pub members: Vec<PortId>,
    /// What passes to them.
    pub(crate) targets: Vec<TargetId>,
}

/// Where a port's passed frames go.
#[derive(Debug, Clone, Default)]
pub enum Upper {
    /// Nowhere: they are dropped and counted.
    #[default]
    None,
    /// Out of another port.
    Port(PortId),
    /// Into the bridge of that number in [`Snapshot::bridges`].
    Bridge(usize),
    /// To the bond it is a member of, and on to that one's upper.
    Bond(PortId),
}

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

    /// Takes it, if it is there and what is to be done before has been done.
    pub(crate) fn take_behind(&self, workers: &[Arc<WorkerShared>]) -> Option<Box<T>> {
        let mut thing = self.thing.lock();
        thing.as_ref()?;
        if self.behind.lock().is_passed(workers) { thing.take() } else { None }
    }

    pub(crate) fn put(&self, thing: Box<T>) {
        let before = self.thing.lock().replace(thing);
        debug_assert!(before.is_none(), "one owner");
    }
}

impl<T: ?Sized> std::fmt::Debug for Parked<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found_by_ifindex() {
        assert_eq!(Numbers::<PortId>::default().get(1), None);
        let ports: Vec<_> = (1..100).map(|i| (i * 64, PortId(i))).collect();
        let table = Numbers::new(&ports);
        assert!(ports.iter().all(|&(ifindex, id)| table.get(ifindex) == Some(id)));
        assert_eq!((table.get(0), table.get(65), table.get(6400)), (None, None, None));
    }

    /// Numbers that have their low bits in common, as neighbours do and as multiples of anything.
    #[test]
    fn numbers_are_where_the_search_begins() {
        for step in [1, 2, 3, 10, 64, 100, 256, 1000, 4096, 1 << 20] {
            let things: Vec<_> = (1..100).map(|i| (i * step, i)).collect();
            let table = Numbers::new(&things);
            let size = table.entries.len();
            let probes = |number: u32| {
                let place = table.entries.iter().position(|entry| entry.0 == number).unwrap();
                place.wrapping_sub(Numbers::<u32>::place(number, size)) % size + 1
            };
            let all: usize = things.iter().map(|&(number, _)| probes(number)).sum();
            assert!(all < 99 * 3 / 2, "multiples of {step}: {all} probes for 99 numbers");
        }
    }
}
