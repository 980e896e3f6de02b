//! What keeps frames off the host's stack while all of an interface's frames are to come to us.

use std::fmt;

use towpath_bpf::Errno;
use towpath_kernel::{IngressDrop, Unserved};

use crate::host;

/// While all frames are to come to us, none goes into the host's stack, whatever the driver does: a
/// veth runs no program on queues that it got later (`veth_set_channels`).
///
/// The kernel takes some milliseconds to attach it and to take it off, for which no frame should
/// wait: it comes when frames are flowing already, and goes while they still do.
pub(super) enum Guard {
    /// It comes with the next look at the queues.
    Wanted,
    On {
        _drop: IngressDrop,
    },
    /// Why there is none.
    Off(&'static str),
}

impl Guard {
    pub(super) fn new(unserved: Unserved) -> Guard {
        match unserved {
            Unserved::Drop => Guard::Wanted,
            Unserved::Pass => Guard::Off("off: queues behind these are the host's"),
        }
    }

    /// Attaches it, if it is wanted. A kernel that refuses it is asked again at the next look,
    /// unless it never has it.
    pub(super) fn attach(&mut self, ifindex: u32, netns: Option<&str>) {
        if !matches!(self, Guard::Wanted) {
            return;
        }
        match host::within(netns, || Ok(IngressDrop::new(ifindex))) {
            Ok(Ok(drop)) => *self = Guard::On { _drop: drop },
            Ok(Err(Errno::EINVAL)) => *self = Guard::Off("off: this kernel has no tcx (6.6)"),
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Guard::Wanted => "off: not attached yet",
            Guard::On { .. } => "on",
            Guard::Off(why) => why,
        })
    }
}
