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
    /// The target of a redirected frame; `None` when the action is another one, or when the program
    /// returned `XDP_REDIRECT` without a successful redirect call (the kernel drops the frame).
    pub target: Option<RedirectTarget>,
}

/// `enum xdp_action`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Something went wrong: drop the frame and count it.
    Aborted,
    /// Drop the frame.
    Drop,
    /// Pass the frame on to the stack.
    Pass,
    /// Send the frame back out of the port it came from.
    Tx,
    /// Redirect the frame to [`Verdict::target`].
    Redirect,
}

/// The target of a redirect. `M` is the form of its map: kept, borrowed, or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectTarget<M = Arc<Map>> {
    /// `bpf_redirect`: an interface by its ifindex.
    Interface {
        /// The ifindex; whether it exists is found out on delivery.
        ifindex: u32,
    },
    /// `bpf_redirect_map`: the entry that a devmap, cpumap or xskmap had at the call, or a queue.
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
        /// Whether the interface the frame came from is left out (`BPF_F_EXCLUDE_INGRESS`).
        exclude_ingress: bool,
    },
}

impl<M> RedirectTarget<M> {
    /// The same target with its map in another form, if `map` gives one.
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
    /// The action of a program's return value; an unknown value counts as [`Action::Aborted`].
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
