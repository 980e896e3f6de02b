//! Snapshots: the workers' immutable view of the configuration, replaced as a whole between bursts.

use std::collections::HashMap;
use std::sync::Arc;

use towpath_xdp::host::{Bridges, Esp, Interface, Unknown};

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

/// The configuration that workers use.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Number of the change, counting up.
    pub generation: u64,
    /// Ports by number.
    pub ports: Vec<Option<Arc<Port>>>,
    /// Port numbers by ifindex.
    pub by_ifindex: Numbers<PortId>,
    /// The queues each worker polls.
    pub polls: Vec<Vec<(PortId, u32)>>,
    /// Bridges and their ports.
    pub bridges: Vec<BridgeView>,
    /// Programs that entries of devmaps and cpumaps name, by id.
    pub entry_programs: Arc<HashMap<u32, Arc<Chain>>>,
    /// AF_XDP sockets by id.
    pub sockets: Sockets,
    /// The sockets each worker collects packets from.
    pub collects: Vec<Vec<Collect>>,
    /// The table of targets.
    pub(crate) targets: Box<[Target]>,
    /// All chains, of all hooks and map entries.
    pub(crate) chains: Box<[Arc<Chain>]>,
}

impl Snapshot {
    /// The port with number `id`.
    #[inline]
    pub fn port(&self, id: PortId) -> Option<&Arc<Port>> {
        self.ports.get(id.0 as usize)?.as_ref()
    }

    /// The port with this ifindex.
    pub fn port_of_ifindex(&self, ifindex: u32) -> Option<&Arc<Port>> {
        self.port(self.by_ifindex.get(ifindex)?)
    }

    /// All chains, of all hooks and map entries.
    pub fn chains(&self) -> impl Iterator<Item = &Arc<Chain>> {
        self.chains.iter()
    }

    /// Collects the chains of all ports and map entries, for [`Snapshot::chains`].
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

    /// The target of the socket with number `id`.
    #[inline]
    pub(crate) fn socket_target(&self, id: u32) -> Option<TargetId> {
        Some(TargetId::socket(self.ports.len(), self.sockets.place(id)?))
    }

    /// The outermost of the nested bonds around a port, or the port itself.
    fn outermost<'a>(&'a self, slot: &'a Arc<Port>) -> &'a Arc<Port> {
        let around = |slot: &&'a Arc<Port>| self.port(slot.member?.bond);
        std::iter::successors(Some(slot), around).last().unwrap_or(slot)
    }

    /// Whether `above` is the port itself or a bond, directly or nested, around it.
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

    /// The security associations of the ports that are up and have some, by ifindex.
    pub(crate) fn esp(&self) -> Vec<(u32, Box<dyn Esp>)> {
        let up = self.ports.iter().flatten().filter(|port| port.up);
        up.filter_map(|port| Some((port.ifindex, port.opened.device.esp()?))).collect()
    }

    /// The ports as interfaces for `bpf_fib_lookup` and `bpf_check_mtu`, to pass to `Host::merge`.
    /// All have forwarding enabled.
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

/// Answers programs' lookups in bridges.
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

/// The workers' view of a port.
#[derive(Debug, Clone)]
pub struct Port {
    /// Its number.
    pub id: PortId,
    /// Its name.
    pub name: Arc<str>,
    /// Its ifindex, as programs see it.
    pub ifindex: u32,
    /// MTU in bytes: the largest payload it sends.
    pub mtu: u32,
    /// Whether it is administratively up (`IFF_UP`).
    pub up: bool,
    /// Whether frames may be redirected to it now: it is up and has `NETDEV_XDP_ACT_NDO_XMIT`.
    pub is_target: bool,
    /// The port drops all frames because a required program is missing.
    pub is_shut: bool,
    /// Features of its device.
    pub features: Features,
    /// Destination of passed frames.
    pub upper: Upper,
    /// Linearises frames for programs without frags support.
    pub linearize: bool,
    /// Programs that judge received frames.
    pub rx_hook: Option<Arc<Chain>>,
    /// Programs that judge frames to send.
    pub tx_hook: Option<Arc<Chain>>,
    /// Its dequeue program.
    pub dequeue: Option<DequeueHook>,
    /// Its membership in a bond, if any.
    pub member: Option<Membership>,
    /// The workers' view of its members, if it is a bond.
    pub bond: Option<Arc<View>>,
    /// By queue: the only socket that receives there, if it lends its memory for reception.
    pub zero_copy_sockets: Vec<Option<Arc<Served>>>,
    /// Workers that run its programs on received frames, each on flows of its own. If `None`, the
    /// worker that polls a queue runs them.
    pub spread: Option<Arc<[usize]>>,
    /// The hook of received frames.
    pub(crate) rx: HookSpec,
    /// The hook of frames to send, if a program or tap sees them.
    pub(crate) tx: Option<HookSpec>,
    /// The hook of a guest's program on frames to the guest, if there is one.
    pub(crate) guest_rx: Option<HookSpec>,
    /// The hook of a guest's program on frames from the guest, if there is one.
    pub(crate) guest_tx: Option<HookSpec>,
    /// Target of passed frames after the bond's control plane has seen them.
    pub(crate) passed: TargetId,
    /// The open device.
    pub opened: Arc<Opened>,
}

impl Port {
    /// The first hook that judges received frames.
    #[inline]
    pub(crate) fn first_hook(&self) -> &HookSpec {
        self.guest_tx.as_ref().unwrap_or(&self.rx)
    }

    /// Whether a program sees received frames.
    #[inline]
    pub(crate) fn has_rx_programs(&self) -> bool {
        self.rx_hook.is_some() || self.guest_tx.is_some()
    }

    /// Whether a program or tap sees frames before they leave.
    #[inline]
    pub(crate) fn watches_tx(&self) -> bool {
        self.tx.is_some()
    }
}

/// A port's membership in a bond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// The bond.
    pub bond: PortId,
    /// Frames that pass here are dropped, because the bond uses another member.
    pub is_inactive: bool,
    /// The port runs the bond's program: the bond chooses the member for `XDP_TX`.
    pub is_delegate: bool,
    /// Control frames bypass the programs.
    pub protects: bool,
}

/// The workers' view of a bridge.
#[derive(Debug, Clone)]
pub struct BridgeView {
    /// The bridge with its forwarding database.
    pub bridge: Arc<Bridge>,
    /// Ports that have the bridge as upper.
    pub members: Vec<PortId>,
    /// Targets for frames to these ports.
    pub(crate) targets: Vec<TargetId>,
}

/// Destination of a port's passed frames.
#[derive(Debug, Clone, Default)]
pub enum Upper {
    /// None: passed frames are dropped and counted.
    #[default]
    None,
    /// Egress by another port.
    Port(PortId),
    /// The bridge with this index in [`Snapshot::bridges`].
    Bridge(usize),
    /// The bond that the port is a member of, and from there the bond's upper.
    Bond(PortId),
}
