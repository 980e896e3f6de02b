//! A program on an interface, for as long as somebody holds its link.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use towpath_bpf::Errno;

use crate::program::KernelProgram;
use crate::sys_unsafe::{link_create, number};
use crate::uapi::LinkCreate;

/// Where on an interface a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver (`XDP_FLAGS_DRV_MODE`).
    Native,
    /// Behind the driver, on any interface (`XDP_FLAGS_SKB_MODE`).
    Generic,
}

/// A bpf_link of a program and an interface. The program leaves the interface when this is
/// dropped, and when the process ends, however it does.
#[derive(Debug)]
pub struct XdpLink(OwnedFd);

impl XdpLink {
    pub(crate) fn new(
        program: BorrowedFd<'_>,
        ifindex: u32,
        mode: AttachMode,
    ) -> Result<XdpLink, Errno> {
        let flags = match mode {
            AttachMode::Generic => 1 << 1,
            AttachMode::Native => 1 << 2,
        };
        let numbers = LinkCreate {
            prog_fd: number(program),
            target_ifindex: ifindex,
            attach_type: ATTACH_TYPE_XDP,
            flags,
        };
        link_create(&numbers).map(XdpLink)
    }
}

impl AsFd for XdpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl KernelProgram {
    /// Attaches the program to an interface of this network namespace. `EBUSY` and `EEXIST` say
    /// that another program is there (`dev_xdp_attach`).
    pub fn attach(&self, ifindex: u32, mode: AttachMode) -> Result<XdpLink, Errno> {
        XdpLink::new(self.as_fd(), ifindex, mode)
    }
}

/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_TYPE_XDP: u32 = 37;
