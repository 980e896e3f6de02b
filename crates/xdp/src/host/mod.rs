//! The host as programs can query it: interfaces, routes, neighbours, sockets.
//!
//! The kernel answers from its network stack. Towpath owns plain tables instead, filled from a file
//! (`--fib`) or from the running host (`towpath-host`); helpers such as `bpf_fib_lookup` and
//! `bpf_check_mtu` read nothing else. A [`Live`] holds tables that are replaced while programs run.

mod bridges;
mod esp;
pub mod fib;
mod index;
mod live;
pub(crate) mod sockets;

use std::net::IpAddr;

use towpath_bpf::Env;

pub use bridges::{Bridges, Unknown};
pub use esp::{ESP_RECORD_BYTES, Esp, EspLimits, EspOperation, EspState};
pub(crate) use index::Index;
pub(crate) use live::Seen;
pub use live::{Live, Tables};
pub use sockets::{Socket, Transport};

/// Everything known about the host. The default is a host with nothing configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// Interfaces, at most one per ifindex.
    pub interfaces: Vec<Interface>,
    /// Routes of all tables, in no particular order.
    pub routes: Vec<fib::Route>,
    /// Neighbours (ARP and ND entries), in no particular order.
    pub neighbours: Vec<Neighbour>,
    /// TCP and UDP sockets.
    pub sockets: Vec<Socket>,
}

/// A network interface as helpers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its number, 1 or more.
    pub ifindex: u32,
    /// Its name, e.g. `eth0`.
    pub name: String,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Largest payload of a frame, in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Whether it is up (`IFF_UP`).
    pub up: bool,
    /// Whether IPv4 packets received here are forwarded (`ipv4/conf/IF/forwarding`).
    pub forwarding_v4: bool,
    /// Whether IPv6 packets received here are forwarded (`ipv6/conf/IF/forwarding`).
    pub forwarding_v6: bool,
    /// Its own addresses, with the preferred source address of each family first.
    pub addresses: Vec<IpAddr>,
    /// A VLAN device: the interface below it and its tag.
    pub vlan: Option<Vlan>,
}

/// VLAN settings of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vlan {
    /// ifindex of the interface below.
    pub lower: u32,
    /// Tag: 1..=4094.
    pub id: u16,
    /// EtherType of the tag: 0x8100 or 0x88a8.
    pub protocol: u16,
}

/// A neighbour whose Ethernet address is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Interface it is behind.
    pub ifindex: u32,
    /// Its IP address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: [u8; 6],
}

impl Host {
    /// A host with only a loopback interface, on which `BPF_PROG_TEST_RUN` lets frames arrive.
    pub fn with_loopback() -> Host {
        let loopback = Interface {
            ifindex: 1,
            name: "lo".to_owned(),
            mac: [0; 6],
            mtu: 65536,
            up: true,
            forwarding_v4: false,
            forwarding_v6: false,
            addresses: Vec::new(),
            vlan: None,
        };
        Host { interfaces: vec![loopback], ..Host::default() }
    }

    /// Adds interfaces that the host does not have: ports that exist in this process only. If an
    /// ifindex is taken, the host's own interface stays.
    pub fn merge(&mut self, ports: impl IntoIterator<Item = Interface>) {
        for port in ports {
            if self.interface(port.ifindex).is_none() {
                self.interfaces.push(port);
            }
        }
    }

    /// The interface with this ifindex.
    pub fn interface(&self, ifindex: u32) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.ifindex == ifindex)
    }

    /// The Ethernet address of a neighbour.
    pub fn neighbour(&self, ifindex: u32, address: IpAddr) -> Option<[u8; 6]> {
        let found = self.neighbours.iter().find(|n| n.ifindex == ifindex && n.address == address);
        found.map(|neighbour| neighbour.mac)
    }
}

/// The running kernel's types to link against (`/sys/kernel/btf/vmlinux`), read when a program
/// first needs one; built-in types if the kernel publishes none, or invalid ones.
pub fn kernel_types() -> Env {
    Env::of_kernel(|| std::fs::read("/sys/kernel/btf/vmlinux").ok())
}
