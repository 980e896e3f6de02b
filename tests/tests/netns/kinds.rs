//! Port kinds under test: how each gets at a host's stack.

use towpath_engine::port::Device;
use towpath_ports::tap::{self, Tap};

use crate::namespace::Namespace;

/// How a host is plugged in.
#[derive(Debug, Clone)]
pub(crate) struct Plug {
    /// Name of the interface that the host sees.
    pub(crate) name: String,
    pub(crate) mtu: u32,
    pub(crate) queues: u32,
}

/// A port kind that can stand before a host's stack.
pub(crate) trait Kind: Sync {
    fn name(&self) -> &'static str;

    /// Makes an interface in `host` and the port that its frames come from. `wires` is a namespace
    /// for what else it takes, e.g. the other end of a veth.
    fn plug(&self, host: &Namespace, wires: &Namespace, plug: &Plug) -> Box<dyn Device>;
}

/// All kinds.
pub(crate) const ALL: &[&dyn Kind] = &[&TapKind];

/// A tap in the host.
struct TapKind;

impl Kind for TapKind {
    fn name(&self) -> &'static str {
        "tap"
    }

    fn plug(&self, host: &Namespace, _wires: &Namespace, plug: &Plug) -> Box<dyn Device> {
        let options = tap::Options {
            mtu: plug.mtu,
            queues: plug.queues,
            netns: Some(host.path()),
            ..tap::Options::new(&plug.name)
        };
        Box::new(Tap::new(&options).unwrap())
    }
}
