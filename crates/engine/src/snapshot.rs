//! The configuration as workers see it: immutable, replaced as a whole between bursts.

use std::collections::HashMap;
use std::sync::Arc;

use towpath_xdp::host::{Bridges, Interface, Unknown};

use crate::bond::View;
use crate::bridge::Bridge;
use crate::chain::Chain;
use crate::dequeue::DequeueHook;
use crate::hook::HookSpec;
use crate::numbers::{Numbers, PortId};
use crate::opened::Opened;
use crate::port::Features;
use crate::sockets::{Collect, Served, Sockets};
use crate::target::{Target, TargetId};

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
