//! Two hosts that a veth joins.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde_json::{Value as Json, json};
use towpath_daemon::api::types::PortView;
use towpath_kernel::Namespace;
use towpath_udp::{Options, UdpStack};

use super::failed;
use crate::demo::joint::Joint;
use crate::error::CliError;

/// The hosts. The thread that made them is in the near one.
pub(super) struct Hosts {
    far: Namespace,
    near: Namespace,
}

impl Hosts {
    /// Two hosts with the kernel's stacks.
    pub(super) fn new() -> Result<Hosts, CliError> {
        let hosts = Hosts {
            far: Namespace::new().map_err(failed)?,
            near: Namespace::new().map_err(failed)?,
        };
        let Hosts { far, near } = &hosts;
        near.enter().map_err(failed)?;
        run(far, &format!("ip link add far type veth peer name near netns {}", near.path()))?;
        for (host, name, address) in [(far, "far", FAR), (near, "near", NEAR)] {
            // A kernel without IPv6 has no such switch.
            let _quiet = host.run(&format!("sysctl -qw net.ipv6.conf.{name}.disable_ipv6=1"));
            run(host, &format!("ip addr add {address}/24 dev {name}"))?;
            run(host, &format!("ip link set {name} up"))?;
        }
        Ok(hosts)
    }

    /// Has senders cut large packets before they reach the veth, as before a network card without
    /// segmentation offloads for UDP.
    pub(super) fn cut_packets(&self) -> Result<(), CliError> {
        for (host, name) in [(&self.far, "far"), (&self.near, "near")] {
            run(
                host,
                &format!("ethtool -K {name} tx off tx-udp-segmentation off gso off gro off"),
            )?;
        }
        Ok(())
    }

    /// Puts a port of the daemon at the near end of the veth, and the host's address on its shadow.
    pub(super) fn attach(&self, joint: &Joint) -> Result<UdpStack, CliError> {
        run(&self.near, &format!("ip addr del {NEAR}/24 dev near"))?;
        let port = json!({ "name": PORT, "kind": "afxdp", "interface": "near", "shadow": SHADOW });
        let _port: PortView = joint.client.json("POST", "/v1/ports", &port)?;
        run(&self.near, &format!("ip addr add {NEAR}/24 dev {SHADOW}"))?;
        run(&self.near, &format!("ip link set {SHADOW} up"))?;
        let sockets: Json = joint.client.get("/v1/xsk")?;
        let path = sockets["socket"].as_str().ok_or_else(|| failed("no socket for sockets"))?;
        let options = Options { path: Path::new(path).to_owned(), ..Options::new(PORT) };
        let stack = UdpStack::open(&options).map_err(failed)?;
        // The daemon hears of the address a moment later.
        let start = Instant::now();
        while let Err(error) = stack.bind((NEAR, 0).into()) {
            if start.elapsed() > PATIENCE {
                return Err(failed(error));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(stack)
    }

    /// A socket of the kernel at the near host.
    pub(super) fn near_socket(&self) -> Result<UdpSocket, CliError> {
        kernel_socket(&self.near, NEAR)
    }

    /// A socket of the kernel at the far host.
    pub(super) fn far_socket(&self) -> Result<UdpSocket, CliError> {
        kernel_socket(&self.far, FAR)
    }
}

fn kernel_socket(host: &Namespace, address: Ipv4Addr) -> Result<UdpSocket, CliError> {
    // A socket belongs to the namespace in which it is made, and a thread to the one it entered.
    let made = std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            host.enter()?;
            UdpSocket::bind((address, 0))
        });
        made.join().unwrap_or_else(|_panicked| Err(std::io::Error::other("it panicked")))
    });
    let socket = made.map_err(failed)?;
    // The default is less than what is under way between busy ends.
    set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).map_err(failed)?;
    Ok(socket)
}

fn run(host: &Namespace, line: &str) -> Result<(), CliError> {
    host.run(line).map(drop).map_err(failed)
}

/// The host whose sockets are always the kernel's.
pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
/// The host whose sockets are compared.
pub(super) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
const PORT: &str = "p0";
const SHADOW: &str = "stack0";
const BUFFER_BYTES: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(10);
