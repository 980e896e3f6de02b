//! Ports whose datagrams applications get, by kind.

use towpath_kernel::Namespace;

/// The kind of the port `p0`. The interface `far` of the far host is at the other end of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A veth by AF_XDP, with this number of queues.
    Afxdp(u32),
    /// A veth by a packet socket.
    Packet,
    /// A tap of the far host.
    Tap,
    /// A pair, whose other end has the far host's tap as its upper.
    Pair,
    /// An active-backup bond of two veths, which a bridge joins at the far host.
    Bond,
}

impl Owner {
    /// Makes what the port needs.
    pub(crate) fn plug(self, near: &Namespace, far: &Namespace) {
        match self {
            Owner::Afxdp(queues) => plug(near, far, ("near", "far"), queues),
            Owner::Packet => plug(near, far, ("near", "far"), 1),
            Owner::Tap => {
                // The shadow has the tap's Ethernet address, so both hosts would choose the same
                // link-local address.
                for host in [near, far] {
                    host.run("sysctl -qw net.ipv6.conf.default.addr_gen_mode=1").unwrap();
                }
            }
            Owner::Pair => {}
            Owner::Bond => {
                far.run("ip link add far type bridge stp_state 0 forward_delay 0").unwrap();
                far.run("ip link set far up").unwrap();
                for (here, there) in [("near0", "far0"), ("near1", "far1")] {
                    plug(near, far, (here, there), 1);
                    far.run(&format!("ip link set {there} master far")).unwrap();
                }
                far.run("ethtool -K far tx off").unwrap();
            }
        }
    }

    /// The `[[port]]`s. `netns` is the far host's.
    pub(crate) fn ports(self, keys: &str, netns: &str) -> String {
        let port = |name: &str, kind: &str, keys: &str| {
            format!("[[port]]\nname = \"{name}\"\nkind = \"{kind}\"\n{keys}\n")
        };
        let tap = format!("interface = \"far\"\nnetns = \"{netns}\"\n");
        match self {
            Owner::Afxdp(_) => port("p0", "afxdp", &format!("interface = \"near\"\n{keys}")),
            Owner::Packet => port("p0", "packet", &format!("interface = \"near\"\n{keys}")),
            Owner::Tap => port("p0", "tap", &format!("{tap}{keys}")),
            Owner::Pair => [
                port("p0", "pair", &format!("peer = \"p1\"\n{keys}")),
                port("p1", "pair", "peer = \"p0\"\nupper = \"far\""),
                port("far", "tap", &format!("{tap}upper = \"p1\"")),
            ]
            .concat(),
            Owner::Bond => [
                port("m0", "packet", "interface = \"near0\""),
                port("m1", "packet", "interface = \"near1\""),
                port("p0", "bond", &format!("{BOND}{keys}")),
            ]
            .concat(),
        }
    }

    /// Whether `near` is the port's interface.
    pub(crate) fn has_wire(self) -> bool {
        matches!(self, Owner::Afxdp(_) | Owner::Packet)
    }
}

/// Joins both hosts.
pub(crate) fn plug(near: &Namespace, far: &Namespace, (here, there): (&str, &str), queues: u32) {
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    let netns = near.path();
    let peer = format!("peer name {here} netns {netns} {queues}");
    far.run(&format!("ip link add {there} {queues} type veth {peer}")).unwrap();
    // The port cannot complete checksums that the far host leaves to the veth.
    far.run(&format!("ethtool -K {there} tx off")).unwrap();
    far.run(&format!("ip link set {there} up")).unwrap();
    near.run(&format!("ip link set {here} up")).unwrap();
}

const BOND: &str =
    "members = [\"m0\", \"m1\"]\nmode = \"active-backup\"\nmiimon = 10\nprimary = \"m0\"\n";
