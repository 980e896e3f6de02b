//! Hosts that are joined by an engine.

use std::path::Path;
use std::time::{Duration, Instant};

use towpath_engine::counters::DropReason;
use towpath_engine::{
    Engine, Hook, Link, Options, Port, PortId, PortOptions, UpperName, WorkerOptions,
};
use towpath_xdp::Program;

use crate::kinds::{Kind, Plug};
use crate::namespace::Namespace;

/// Some hosts, each behind a port; ports of the first two are each other's uppers.
pub(crate) struct Lab {
    // Dropped first: its ports go before their namespaces.
    pub(crate) engine: Engine,
    pub(crate) hosts: Vec<Host>,
}

pub(crate) struct Host {
    pub(crate) namespace: Namespace,
    pub(crate) port: PortId,
    /// The last byte of its addresses: 10.0.0.N and fd00::N.
    pub(crate) number: usize,
}

/// Parts of a lab.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) hosts: usize,
    pub(crate) mtu: u32,
    pub(crate) queues: u32,
    pub(crate) workers: usize,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { hosts: 2, mtu: 1500, queues: 1, workers: 1 }
    }
}

/// Says why tests with namespaces cannot run here.
pub(crate) fn unavailable() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root".to_owned());
    }
    let missing =
        ["ip", "tc", "ethtool", "ping", "iperf3", "nsenter", "setpriv"].into_iter().find(|tool| {
            let paths = std::env::var_os("PATH").unwrap_or_default();
            !std::env::split_paths(&paths).any(|path| path.join(tool).exists())
        });
    if let Some(tool) = missing {
        return Some(format!("{tool} is missing: scripts/install-deps.sh net"));
    }
    (!Path::new("/dev/net/tun").exists()).then(|| "/dev/net/tun is missing".to_owned())
}

impl Lab {
    /// Hosts with addresses, joined.
    pub(crate) fn new(kind: &dyn Kind, plan: Plan) -> Lab {
        Lab::with_frames(kind, plan, Options::default().frames)
    }

    /// A lab whose engine has `frames` frames.
    pub(crate) fn with_frames(kind: &dyn Kind, plan: Plan, frames: usize) -> Lab {
        // Before the engine: its threads are where the ports' ends are.
        let wires = Namespace::enter_new();
        let worker = WorkerOptions::default();
        let options = Options { workers: vec![worker; plan.workers], frames };
        let engine = Engine::start(&options).unwrap();
        let mut lab = Lab { engine, hosts: Vec::new() };
        for number in 1..=plan.hosts {
            lab.add_host(kind, &wires, number, plan);
        }
        let join = |lab: &Lab, from: usize, to: usize| {
            let upper = UpperName::Named(format!("p{to}"));
            let port = lab.hosts[from - 1].port;
            lab.engine.change(|config| config.set_upper(port, upper)).unwrap();
        };
        join(&lab, 1, 2);
        join(&lab, 2, 1);
        lab
    }

    fn add_host(&mut self, kind: &dyn Kind, wires: &Namespace, number: usize, plan: Plan) {
        let namespace = new_host();
        let plug = Plug { name: format!("h{number}"), mtu: plan.mtu, queues: plan.queues };
        let device = kind.plug(&namespace, wires, &plug);
        let options = PortOptions::new(&format!("p{number}"));
        let port = self.engine.add_port(options, device).unwrap();
        namespace.run(&format!("ip link set h{number} up mtu {}", plan.mtu));
        add_addresses(&namespace, number);
        self.hosts.push(Host { namespace, port, number });
    }

    /// Attaches a program to the port of a host, instead of any other.
    pub(crate) fn attach(&self, host: usize, program: &Program) {
        let port = self.hosts[host].port;
        let link = Link::new(program.clone(), 1, self.engine.workers());
        self.engine.change(|config| config.set_links(port, Hook::Rx, vec![link])).unwrap();
    }

    /// The port of a host as workers see it.
    pub(crate) fn slot<T>(&self, host: usize, read: impl FnOnce(&Port) -> T) -> T {
        self.engine.read(|_, snapshot| read(snapshot.port(self.hosts[host].port).unwrap()))
    }

    /// Its number as programs know it.
    pub(crate) fn ifindex(&self, host: usize) -> u32 {
        self.slot(host, |slot| slot.ifindex)
    }

    /// Checks that no frame was lost without a reason, once it is quiet.
    #[track_caller]
    pub(crate) fn check(&self) {
        self.check_conservation();
        let taken: u64 = (0..self.hosts.len()).map(|host| self.frames(host).0).sum();
        assert!(taken > 0, "no frame came through the engine");
    }

    /// The same when ports are gone.
    #[track_caller]
    pub(crate) fn check_conservation(&self) {
        let end = Instant::now() + Duration::from_secs(2);
        while self.engine.conservation().held != 0 {
            assert!(Instant::now() < end, "{:?}", self.engine.conservation());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(self.engine.conservation().missing(), 0);
    }

    /// Frames that a host's port lost before it could receive them.
    pub(crate) fn missed(&self, host: usize) -> u64 {
        self.slot(host, |slot| slot.opened.counters.iter().map(|c| c.rx_missed.get()).sum())
    }

    /// Frames that each worker received from a host's port.
    pub(crate) fn by_worker(&self, host: usize) -> Vec<u64> {
        self.slot(host, |slot| slot.opened.counters.iter().map(|c| c.rx_packets.get()).collect())
    }

    /// Frames received and sent by a host's port.
    pub(crate) fn frames(&self, host: usize) -> (u64, u64) {
        self.slot(host, |slot| {
            let counters = slot.opened.counters.iter();
            counters.fold((0, 0), |(rx, tx), c| (rx + c.rx_packets.get(), tx + c.tx_packets.get()))
        })
    }

    /// Frames of each host's port, received and sent, when nothing moves any more.
    pub(crate) fn settled(&self) -> Vec<(u64, u64)> {
        let read = || (0..self.hosts.len()).map(|host| self.frames(host)).collect();
        let mut before: Vec<_> = read();
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let now = read();
            if now == before {
                return now;
            }
            before = now;
        }
    }

    /// Frames of a host's port that were dropped since it has an upper, by reason.
    pub(crate) fn drops(&self, host: usize) -> Vec<(&'static str, u64)> {
        let mut drops = Vec::new();
        self.slot(host, |slot| {
            for why in DropReason::ALL.into_iter().filter(|&why| why != DropReason::NoUpper) {
                let counters = slot.opened.counters.iter();
                let at = why as usize;
                let count: u64 = counters.map(|c| c.drops[at].get() + c.tx_drops[at].get()).sum();
                if count > 0 {
                    drops.push((why.name(), count));
                }
            }
        });
        drops
    }
}

/// A namespace whose stack says little on its own: that would only disturb counters.
pub(crate) fn new_host() -> Namespace {
    let namespace = Namespace::new();
    namespace.run("sysctl -qw net.ipv6.conf.default.addr_gen_mode=1");
    namespace.run("sysctl -qw net.ipv6.conf.default.router_solicitations=0");
    namespace.run("sysctl -qw net.ipv6.conf.default.mldv2_unsolicited_report_interval=1");
    namespace
}

/// Gives interface `hN` the addresses of host N.
pub(crate) fn add_addresses(namespace: &Namespace, number: usize) {
    namespace.run(&format!("ip addr add 10.0.0.{number}/24 dev h{number}"));
    namespace.run(&format!("ip addr add fd00::{number}/64 dev h{number} nodad"));
}
