//! Two hosts joined by a veth, `far` and `near`. The near end has the kernel's stack on it, or
//! Towpath's daemon with an `afxdp` port and a shadow for the stack.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::live::Live;
use towpath_kernel::Namespace;
use towpath_udp::{Options, UdpStack};
use towpath_xsk::Server;

use crate::world::received_in;

/// The address of the near host.
pub const NEAR: [u8; 4] = [10, 77, 0, 2];
/// The address of the far host.
pub const FAR: [u8; 4] = [10, 77, 0, 1];

/// How the veth treats large packets of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// They pass whole, as through a veth by default.
    Whole,
    /// The sender's kernel cuts them, and the receiver's puts none together: a network card without
    /// offloads for UDP.
    Cut,
    /// The sender's kernel cuts them, and the receiver's puts them together (GRO).
    CutAndGro,
}

/// The hosts. They are gone when this is dropped.
pub struct Hosts {
    /// The other host, whose stack is the kernel's.
    pub far: Namespace,
    /// The namespace that the thread is in: the near host.
    pub near: Namespace,
    daemon: Option<Daemon>,
}

/// A daemon's engine in this process; the server is dropped first.
struct Daemon {
    _server: Server,
    _live: Live,
    path: PathBuf,
}

impl Hosts {
    /// The kernel's stack at both ends. The calling thread is in the near host from now on.
    pub fn of_kernel(link: Link) -> anyhow::Result<Hosts> {
        let hosts = Hosts::joined(link)?;
        hosts.near.run("ip addr add 10.77.0.2/24 dev near")?;
        // A benchmark may have the far host drop everything, also requests for its address.
        hosts.near.run("ping -c 1 -W 5 10.77.0.1").context("the far host does not answer")?;
        Ok(hosts)
    }

    /// Towpath at the near end. `spin_us` is how long its worker polls before it sleeps, in
    /// microseconds. The calling thread is in the near host from now on.
    pub fn of_towpath(link: Link, spin_us: u64) -> anyhow::Result<Hosts> {
        let mut hosts = Hosts::joined(link)?;
        // The port cannot complete checksums that the far host leaves to the veth.
        hosts.far.run("ethtool -K far tx off")?;
        let objects = Arc::<ObjectFiles>::default();
        let here = Path::new(".");
        let config = format!("[[worker]]\ncpu = 1\nspin_us = {spin_us}\n{CONFIG}");
        let loaded = parse(&config, Path::new("bench.toml"), here, &objects)?;
        let live = Live::start(&loaded.state, Arc::clone(&objects), Arc::default());
        let mut live = live.map_err(anyhow::Error::msg)?;
        let report = live.reconcile(&loaded.state);
        ensure!(report.failures.is_empty(), "{report:?}");
        hosts.near.run("ip addr add 10.77.0.2/24 dev stack0")?;
        hosts.near.run("ip link set stack0 up")?;
        let path = std::env::temp_dir().join(format!("hosts-{}.sock", std::process::id()));
        let server = Server::start(live.xsk().sockets(), &path, 0o600)?;
        hosts.daemon = Some(Daemon { _server: server, _live: live, path });
        // The first packet would wait for the address to be resolved.
        hosts.near.run("ping -c 1 -W 5 10.77.0.1").context("the far host does not answer")?;
        // The daemon hears of the address a moment later.
        let stack = hosts.stack()?;
        wait_until("address", || stack.bind((NEAR, 0).into()).is_ok())?;
        Ok(hosts)
    }

    fn joined(link: Link) -> anyhow::Result<Hosts> {
        let (far, near) = (Namespace::new()?, Namespace::new()?);
        near.enter()?;
        far.run(&format!("ip link add far type veth peer name near netns {}", near.path()))?;
        // Address resolution and the like would disturb the figures.
        for (host, name) in [(&far, "far"), (&near, "near")] {
            host.run(&format!("sysctl -q -w net.ipv6.conf.{name}.disable_ipv6=1"))?;
            host.run(&format!("ip link set {name} up"))?;
            let (cuts, gro) = match link {
                Link::Whole => continue,
                Link::Cut => ("off", "off"),
                Link::CutAndGro => ("off", "on"),
            };
            let offloads = format!(
                "ethtool -K {name} tx-udp-segmentation {cuts} gso {cuts} gro {gro} \
                 rx-udp-gro-forwarding {gro}"
            );
            host.run(&offloads)?;
        }
        far.run("ip addr add 10.77.0.1/24 dev far")?;
        Ok(Hosts { far, near, daemon: None })
    }

    /// A stack of an application on Towpath's port.
    pub fn stack(&self) -> anyhow::Result<UdpStack> {
        let daemon = self.daemon.as_ref().context("Towpath is not on this host")?;
        let options = Options { path: daemon.path.clone(), ..Options::new("p0") };
        Ok(UdpStack::open(&options)?)
    }

    /// The Ethernet address of the near host.
    pub fn near_mac(&self) -> anyhow::Result<[u8; 6]> {
        let name = if self.daemon.is_some() { "stack0" } else { "near" };
        let link: serde_json::Value =
            serde_json::from_str(&self.near.run(&format!("ip -j link show {name}"))?)?;
        let text = link[0]["address"].as_str().context("no address")?;
        let bytes: Vec<u8> =
            text.split(':').flat_map(|byte| u8::from_str_radix(byte, 16)).collect();
        bytes.first_chunk().copied().context("no Ethernet address")
    }

    /// Frames that the far host received.
    pub fn far_received(&self) -> anyhow::Result<u64> {
        received_in(&self.far.run("cat /proc/net/dev")?, "far")
    }
}

/// Waits until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        ensure!(Instant::now() < end, "no {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The reason why hosts cannot be made on this machine.
pub fn unavailable() -> Option<String> {
    if let Err(why) = towpath_kernel::Kernel::open() {
        return Some(why.to_string());
    }
    let is_missing = |name: &&str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output();
        !found.is_ok_and(|found| found.status.success())
    };
    let missing = ["ip", "ethtool", "ping"].into_iter().find(is_missing);
    missing.map(|name| format!("{name} is missing: scripts/install-deps.sh net"))
}

const CONFIG: &str = r#"
[[port]]
name = "p0"
kind = "afxdp"
interface = "near"
shadow = "stack0"
"#;
