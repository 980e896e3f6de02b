//! The result of a run for its frame, with the redirect target.
//!
//! The kernel keeps the target of a redirect in per-CPU state until the driver asks for it. Here it
//! is part of the verdict, so that a burst of frames can be judged first and delivered in bulk.

use std::fmt;
use std::sync::Arc;

use towpath_bpf::map::Values;
use towpath_maps::{Map, TargetEntry};

/// The outcome of one run.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The action on the frame.
    pub action: Action,
    /// The 32-bit value the program returned. Values above 4 are no action: the frame is dropped
    /// as with [`Action::Aborted`].
    pub returned: u32,
    /// Where a redirected frame goes; `None` when the action is another, or when the program
    /// returned `XDP_REDIRECT` without a successful redirect call (the kernel drops the frame).
    pub target: Option<RedirectTarget>,
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

/// Where a frame is redirected to. `M` is how its map is known: kept, borrowed, or by a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectTarget<M = Arc<Map>> {
    /// `bpf_redirect`: an interface by number.
    Interface {
        /// Its number; whether it exists is found out on delivery.
        ifindex: u32,
    },
    /// `bpf_redirect_map`: the entry of a devmap, cpumap or xskmap that was there at the call, or a
    /// queue.
    Entry {
        /// The map.
        map: M,
        /// The key, cut to 32 bits; for a queue the rank.
        key: u32,
        /// The entry at the time of the call.
        entry: TargetEntry,
    },
    /// `bpf_redirect_map` with `BPF_F_BROADCAST`: every entry of a devmap.
    Broadcast {
        /// The map.
        map: M,
        /// Not to the interface the frame came from (`BPF_F_EXCLUDE_INGRESS`).
        exclude_ingress: bool,
    },
}

impl<M> RedirectTarget<M> {
    /// The same with the map known in another way, if it is known in that way.
    #[inline]
    pub(crate) fn with_map<N>(
        self,
        find: impl FnOnce(M) -> Option<N>,
    ) -> Option<RedirectTarget<N>> {
        Some(match self {
            RedirectTarget::Interface { ifindex } => RedirectTarget::Interface { ifindex },
            RedirectTarget::Entry { map, key, entry } => {
                RedirectTarget::Entry { map: find(map)?, key, entry }
            }
            RedirectTarget::Broadcast { map, exclude_ingress } => {
                RedirectTarget::Broadcast { map: find(map)?, exclude_ingress }
            }
        })
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

impl fmt::Display for RedirectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedirectTarget::Interface { ifindex } => write!(f, "ifindex {ifindex}"),
            RedirectTarget::Entry { map, key, entry } => match map.kind().values() {
                Values::Cpu => write!(f, "{}[{key}] (CPU {key})", map.name()),
                Values::Socket => write!(f, "{}[{key}] (socket {})", map.name(), entry.id),
                Values::Packets => write!(f, "{} at rank {key}", map.name()),
                _ => write!(f, "{}[{key}] (ifindex {})", map.name(), entry.number),
            },
            RedirectTarget::Broadcast { map, .. } => write!(f, "all of {}", map.name()),
        }
    }
}
