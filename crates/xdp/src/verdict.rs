//! What a run decided about its frame, redirect target included.
//!
//! The kernel keeps the target of a redirect in per-CPU state until the driver asks for it. Here it
//! is part of the verdict, so that a burst of frames can be judged first and delivered in bulk.

use std::fmt;
use std::sync::Arc;

use towpath_bpf::map::Values;
use towpath_maps::Map;

/// The outcome of one run.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// What happens to the frame.
    pub action: Action,
    /// The 32-bit value the program returned. Values above 4 are no action: the frame is dropped
    /// as with [`Action::Aborted`].
    pub returned: u32,
    /// Where a redirected frame goes; `None` when the action is another, or when the program
    /// returned `XDP_REDIRECT` without a successful redirect call (the kernel drops the frame).
    pub target: Option<Target>,
}

/// `enum xdp_action`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Something went wrong: drop and count.
    Aborted,
    /// Drop.
    Drop,
    /// On to the stack.
    Pass,
    /// Back out of the port it came from.
    Tx,
    /// To [`Verdict::target`].
    Redirect,
}

/// Where a frame is redirected to.
#[derive(Debug, Clone)]
pub enum Target {
    /// `bpf_redirect`: an interface by number.
    Interface {
        /// Its number; whether it exists is found out on delivery.
        ifindex: u32,
    },
    /// `bpf_redirect_map`: the entry of a devmap, cpumap or xskmap that was there at the call.
    Entry {
        /// The map.
        map: Arc<Map>,
        /// The key, cut to 32 bits.
        key: u32,
        /// The entry at the time of the call.
        entry: towpath_maps::TargetEntry,
    },
    /// `bpf_redirect_map` with `BPF_F_BROADCAST`: every entry of a devmap.
    Broadcast {
        /// The map.
        map: Arc<Map>,
        /// Not to the interface the frame came from (`BPF_F_EXCLUDE_INGRESS`).
        exclude_ingress: bool,
    },
}

/// A [`Target`] as it is used once and at once: borrowed from a burst.
#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    /// [`Target::Interface`]
    Interface {
        /// Its number; whether it exists is found out on delivery.
        ifindex: u32,
    },
    /// [`Target::Entry`]
    Entry {
        /// The map.
        map: &'a Map,
        /// The key, cut to 32 bits.
        key: u32,
        /// The entry at the time of the call.
        entry: towpath_maps::TargetEntry,
    },
    /// [`Target::Broadcast`]
    Broadcast {
        /// The map.
        map: &'a Map,
        /// Not to the interface the frame came from.
        exclude_ingress: bool,
    },
}

/// A [`Target`] inside a burst: without references of its own to maps, which cost more than the
/// redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// [`Target::Interface`]
    Interface { ifindex: u32 },
    /// [`Target::Entry`] of the program's map of this index.
    Entry { map: u32, key: u32, entry: towpath_maps::TargetEntry },
    /// [`Target::Broadcast`] over the program's map of this index.
    Broadcast { map: u32, exclude_ingress: bool },
    /// Over a map that was found in a map of maps: the burst keeps it under this number.
    Inner(u32),
}

impl Target {
    /// The same, to be used at once.
    pub(crate) fn borrowed(&self) -> Destination<'_> {
        match self {
            Target::Interface { ifindex } => Destination::Interface { ifindex: *ifindex },
            Target::Entry { map, key, entry } => {
                Destination::Entry { map, key: *key, entry: *entry }
            }
            Target::Broadcast { map, exclude_ingress } => {
                Destination::Broadcast { map, exclude_ingress: *exclude_ingress }
            }
        }
    }
}

impl Action {
    /// From a program's return value; anything unknown counts as [`Action::Aborted`].
    #[inline]
    pub fn from_returned(returned: u32) -> Action {
        match returned {
            1 => Action::Drop,
            2 => Action::Pass,
            3 => Action::Tx,
            4 => Action::Redirect,
            _ => Action::Aborted,
        }
    }

    /// The kernel's name, e.g. `XDP_PASS`.
    pub fn name(self) -> &'static str {
        match self {
            Action::Aborted => "XDP_ABORTED",
            Action::Drop => "XDP_DROP",
            Action::Pass => "XDP_PASS",
            Action::Tx => "XDP_TX",
            Action::Redirect => "XDP_REDIRECT",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Interface { ifindex } => write!(f, "ifindex {ifindex}"),
            Target::Entry { map, key, entry } => match map.kind().values() {
                Values::Cpu => write!(f, "{}[{key}] (CPU {key})", map.name()),
                Values::Socket => write!(f, "{}[{key}] (socket {})", map.name(), entry.id),
                Values::Packets => write!(f, "{} at rank {key}", map.name()),
                _ => write!(f, "{}[{key}] (ifindex {})", map.name(), entry.number),
            },
            Target::Broadcast { map, .. } => write!(f, "all of {}", map.name()),
        }
    }
}
