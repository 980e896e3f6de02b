//! Checks whether a target takes a frame. The port must be up and accept redirected frames
//! (`__xdp_enqueue`). The frame must not be longer than the port's MTU plus Ethernet header and
//! VLAN tag (`xdp_ok_fwd_dev`). If the frame has frags, the port must be able to send frags.

use towpath_xdp::Frame;
use towpath_xdp::frame::ETH_HLEN;

use crate::counters::DropReason;
use crate::snapshot::{Port, Snapshot};
use crate::target::{Check, Target};

/// Checks whether a target takes a frame; fails with the reason to drop it.
pub(crate) fn admit(target: &Target, snapshot: &Snapshot, frame: &Frame) -> Result<(), DropReason> {
    if target.check == Check::Nothing {
        return Ok(());
    }
    let port = target.owner.port().and_then(|port| snapshot.port(port));
    fits(port.ok_or(DropReason::Removed)?, frame, target.check)
}

/// The checks of a port, in the kernel's order.
fn fits(to: &Port, frame: &Frame, check: Check) -> Result<(), DropReason> {
    if to.is_shut {
        return Err(DropReason::NoProgram);
    }
    if !to.is_target && !to.up {
        return Err(DropReason::Down);
    }
    let is_gso = frame.offload().is_some_and(|offload| offload.gso.is_some());
    let is_unsupported = !to.is_target || frame.has_frags() && !to.features.tx_frags && !is_gso;
    // Forwarded frames are sent as a stack sends them, which makes them linear.
    if is_unsupported && check != Check::Forward {
        return Err(DropReason::Unsupported);
    }
    if frame.len() > bytes_max(to) && !is_gso {
        return Err(DropReason::TooLong);
    }
    Ok(())
}

/// Length in bytes of the longest frame that a port takes.
fn bytes_max(to: &Port) -> usize {
    to.mtu as usize + to.opened.device.mtu_excess() as usize + ETH_HLEN + VLAN_HLEN
}

/// Length in bytes of the longest linear frame that a port takes without further checks.
pub(crate) fn plain_max(to: &Port) -> u32 {
    if to.is_target { u32::try_from(bytes_max(to)).unwrap_or(u32::MAX) } else { 0 }
}

const VLAN_HLEN: usize = 4;
