//! A program that keeps frames off the host's stack while the port owns all frames of an interface.
//!
//! `Afxdp::new` (`mod.rs`) refuses an interface that has another XDP program.

use std::fmt;

use towpath_bpf::Errno;
use towpath_kernel::{IngressDrop, Unserved};

use crate::{Error, host};

/// Keeps frames off the host's stack while the port must get all of them, whatever the driver does:
/// a veth runs no program on queues that it got later (`veth_set_channels`).
///
/// The kernel takes some milliseconds to attach and to detach the program, for which no frame
/// should wait. So it is attached when frames already flow, and detached while they still do.
pub(super) enum Guard {
    /// To be attached at the next look at the queues.
    Wanted,
    On {
        _drop: IngressDrop,
    },
    /// Not attached, and never tried again, for this reason.
    Off(&'static str),
    /// The kernel refused it for this reason; attaching is tried again at each look.
    Refused(String),
}

impl Guard {
    pub(super) fn new(unserved: Unserved) -> Guard {
        match unserved {
            Unserved::Drop => Guard::Wanted,
            Unserved::Pass => Guard::Off("off: queues behind these are the host's"),
        }
    }

    /// Attaches the program if it is wanted. If the kernel refuses it, it is tried again at the
    /// next look, unless the kernel does not support it at all.
    pub(super) fn attach(&mut self, ifindex: u32, netns: Option<&str>) {
        if let Guard::Wanted | Guard::Refused(_) = self {
            let attached = host::within(netns, || Ok(IngressDrop::new(ifindex)));
            *self = Guard::after(attached);
        }
    }

    fn after(attached: Result<Result<IngressDrop, Errno>, Error>) -> Guard {
        match attached {
            Ok(Ok(drop)) => Guard::On { _drop: drop },
            Ok(Err(Errno::EINVAL)) => Guard::Off("off: this kernel has no tcx (6.6)"),
            Ok(Err(errno)) => Guard::Refused(errno.to_string()),
            Err(error) => Guard::Refused(error.to_string()),
        }
    }

    /// The failure, if the program is wanted and the kernel refused it.
    pub(super) fn failure(&self) -> Option<String> {
        let Guard::Refused(why) = self else { return None };
        Some(format!(
            "the guard can't be attached (tcx), so frames of a queue that the interface gets may \
             go into the host's stack: {why}"
        ))
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Guard::Wanted => f.write_str("off: not attached yet"),
            Guard::On { .. } => f.write_str("on"),
            Guard::Off(why) => f.write_str(why),
            Guard::Refused(why) => write!(f, "off: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_is_told_and_asked_for_again() {
        let mut guard = Guard::after(Ok(Err(Errno::EPERM)));
        assert!(guard.failure().unwrap().contains(&Errno::EPERM.to_string()));
        assert!(guard.to_string().starts_with("off: "));
        // No interface has this number.
        guard.attach(u32::MAX >> 1, None);
        assert!(guard.failure().is_some());

        let old = Guard::after(Ok(Err(Errno::EINVAL)));
        assert!(old.failure().is_none(), "a kernel without tcx is not asked again");
        assert!(Guard::new(Unserved::Pass).failure().is_none());
    }
}
