//! A guest whose cables end in ports, and a host with a stack on the other side of the engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_engine::port::Device;
use towpath_engine::{Engine, Options, PortId, PortOptions};
use towpath_ports::packet::{self, Packet};
use towpath_ports::tap::{self, Tap};

use super::vm::{self, Card, Vm};
use crate::namespace::Namespace;
use crate::traffic::ping;
use crate::{lab, programs};

/// The connection between a guest's device and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// The port is of kind `packet`, on the tap that QEMU has opened.
    Packet,
    /// The port is of kind `tap`; what goes into one tap comes out of the other.
    Tap,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Scene {
    // Dropped first: its ports go before their interfaces.
    pub(crate) engine: Arc<Engine>,
    pub(crate) vm: Vm,
    /// Behind port `up`: 10.0.0.1.
    pub(crate) host: Namespace,
    pub(crate) up: PortId,
    /// Ports `m0`, `m1`: the ends of the guest's cables.
    pub(crate) members: Vec<PortId>,
    wires: Namespace,
    wire: Wire,
}

/// Address of the host, and of the guest.
pub(crate) const HOST: &str = "10.0.0.1";
pub(crate) const GUEST: &str = "10.0.0.2";

/// Says why this cannot run here.
pub(crate) fn unavailable() -> Option<String> {
    lab::unavailable().or_else(programs::unavailable).or_else(vm::unavailable)
}

impl Scene {
    /// A guest with `cables` cables, which are not connected yet.
    pub(crate) fn new(wire: Wire, cables: usize) -> Scene {
        let wires = Namespace::enter_new();
        let engine = Arc::new(Engine::start(&Options::default()).unwrap());
        let host = lab::new_host();
        let options = tap::Options { netns: Some(host.path()), ..tap::Options::new("h1") };
        let up = engine.add_port(PortOptions::new("up"), Box::new(Tap::new(&options).unwrap()));
        host.run("ip link set h1 up");
        lab::add_addresses(&host, 1);
        // Unrequested IPv6 packets would disturb counters.
        wires.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        let taps: Vec<_> = (0..cables).map(|index| format!("q{index}")).collect();
        for tap in &taps {
            wires.run(&format!("ip tuntap add {tap} mode tap vnet_hdr"));
            wires.run(&format!("ip link set {tap} up"));
        }
        let cards: Vec<_> = taps.into_iter().map(Card::Tap).collect();
        let vm = Vm::boot(&wires, &cards);
        let add = |index: usize| {
            let device = plug(wire, &wires, index);
            engine.add_port(PortOptions::new(&format!("m{index}")), device).unwrap()
        };
        let members = (0..cables).map(add).collect();
        Scene { up: up.unwrap(), engine, vm, host, members, wires, wire }
    }

    /// Pulls a cable: both sides lose their carrier.
    pub(crate) fn cut(&mut self, index: usize) {
        self.vm.set_link(index, false);
        self.set_carrier(index, "off");
    }

    /// Plugs it in again.
    pub(crate) fn mend(&mut self, index: usize) {
        self.vm.set_link(index, true);
        self.set_carrier(index, "on");
    }

    /// Loses or restores the carrier of our side alone.
    pub(crate) fn set_carrier(&self, index: usize, state: &str) {
        let interface = match self.wire {
            Wire::Packet => format!("q{index}"),
            Wire::Tap => format!("h{index}"),
        };
        self.wires.run(&format!("ip link set {interface} carrier {state}"));
    }

    /// Waits until the guest answers.
    #[track_caller]
    pub(crate) fn until_answered(&self) {
        until("the guest answers", || ping(&self.host, GUEST, 1, 56) == 1);
    }

    /// Pings both ways; all must be answered.
    #[track_caller]
    pub(crate) fn must_ping_both_ways(&mut self) {
        must_ping_both_ways(&self.host, &mut self.vm);
    }

    /// Checks that no frame was lost without a reason.
    #[track_caller]
    pub(crate) fn check(&self) {
        let end = Instant::now() + Duration::from_secs(2);
        while self.engine.conservation().held != 0 {
            assert!(Instant::now() < end, "{:?}", self.engine.conservation());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(self.engine.conservation().missing(), 0);
    }
}

/// Waits for something that must become true.
#[track_caller]
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Pings from a host to a guest and back; all must be answered.
#[track_caller]
pub(crate) fn must_ping_both_ways(host: &Namespace, vm: &mut Vm) {
    assert_eq!(ping(host, GUEST, 10, 1400), 10, "the guest answers");
    assert_eq!(vm.run(&format!("pings {HOST} 5")).trim(), "5", "the host answers");
}

/// Time until a guest answers a host.
#[track_caller]
pub(crate) fn until_answered(host: &Namespace) -> Duration {
    let start = Instant::now();
    let answers = || host.output(&format!("ping -n -q -c 1 -W 0.2 {GUEST}")).status.success();
    until("the guest answers", answers);
    start.elapsed()
}

/// The port at the end of a cable.
fn plug(wire: Wire, wires: &Namespace, index: usize) -> Box<dyn Device> {
    match wire {
        Wire::Packet => Box::new(Packet::new(&packet::Options::new(&format!("q{index}"))).unwrap()),
        Wire::Tap => {
            let name = format!("h{index}");
            let options = tap::Options { netns: Some(wires.path()), ..tap::Options::new(&name) };
            let tap = Tap::new(&options).unwrap();
            wires.run(&format!("ip link set {name} up"));
            // No bridge: it would keep what is sent to 01-80-C2-00-00-02 for itself.
            for (from, to) in [(format!("q{index}"), name.clone()), (name, format!("q{index}"))] {
                wires.run(&format!("tc qdisc add dev {from} clsact"));
                wires.run(&format!(
                    "tc filter add dev {from} ingress protocol all u32 match u32 0 0 \
                     action mirred egress redirect dev {to}"
                ));
            }
            Box::new(tap)
        }
    }
}
