//! Two connected interfaces for sockets, in the kernel or in Towpath.

use std::path::PathBuf;

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use towpath_kernel::{AttachMode, Namespace, Steering, Unserved, XdpLink};

use crate::daemon::Daemon;

/// The kernel or Towpath.
pub(crate) enum World {
    Kernel(Box<Veth>),
    Towpath(Daemon),
}

/// A veth, with a program on its ends that gives all frames to a socket.
pub(crate) struct Veth {
    steering: [Steering; 2],
    _links: Vec<XdpLink>,
    /// Last: its interfaces go with it.
    _namespace: Namespace,
}

/// One of the two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Near,
    Far,
}

impl End {
    /// Its name, the same in both worlds.
    pub(crate) fn name(self) -> &'static str {
        match self {
            End::Near => "near",
            End::Far => "far",
        }
    }
}

/// Why the kernel cannot be asked, if so.
pub(crate) fn kernel_refuses() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root".to_owned());
    }
    if let Err(error) = Namespace::new() {
        return Some(format!("no network namespace: {error}"));
    }
    Steering::new(1, Unserved::Pass).err().map(|errno| format!("no program may be loaded: {errno}"))
}

/// Makes the veth's ends in the namespace that the calling thread enters for good.
fn enter_with_veth() -> Namespace {
    let namespace = Namespace::new().unwrap();
    namespace.enter().unwrap();
    // Frames that the stack makes on its own would be received too.
    namespace.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1").unwrap();
    let mtu = MTU;
    namespace
        .run(&format!("ip link add near mtu {mtu} type veth peer name far mtu {mtu}"))
        .unwrap();
    namespace.run("ip link set near up").unwrap();
    namespace.run("ip link set far up").unwrap();
    namespace
}

impl World {
    /// The calling thread moves into a namespace of its own.
    pub(crate) fn kernel() -> World {
        World::kernel_with(&[End::Near, End::Far])
    }

    /// The same, with sockets on some ends only.
    pub(crate) fn kernel_with(ends: &[End]) -> World {
        let namespace = enter_with_veth();
        let steering =
            [Steering::new(1, Unserved::Pass).unwrap(), Steering::new(1, Unserved::Pass).unwrap()];
        let attach =
            |&end: &End| steering[end as usize].attach(index(end), AttachMode::Native).unwrap();
        let links = ends.iter().map(attach).collect();
        World::Kernel(Box::new(Veth { steering, _links: links, _namespace: namespace }))
    }

    pub(crate) fn towpath() -> World {
        let ports = [(End::Near, End::Far), (End::Far, End::Near)].map(|(end, peer)| {
            let (name, peer) = (end.name(), peer.name());
            format!(
                "[[port]]\nname = \"{name}\"\nkind = \"pair\"\npeer = \"{peer}\"\nmtu = {MTU}\n"
            )
        });
        World::Towpath(Daemon::start(&ports.concat()))
    }
}

impl Veth {
    pub(crate) fn steering(&self, end: End) -> &Steering {
        &self.steering[end as usize]
    }
}

impl Daemon {
    /// Path from which applications get sockets.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.directory.join("xsk.sock")
    }
}

/// The number of one of the veth's ends.
pub(crate) fn index(end: End) -> u32 {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
    name_to_index(any, end.name()).unwrap()
}

/// The longest that a veth with a program takes is a page without what goes in front and behind.
pub(crate) const MTU: u32 = 3400;
