//! A program on an interface, for the lifetime of its link.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use towpath_bpf::{Errno, Insn};

use crate::map::object_name;
use crate::program::KernelProgram;
use crate::sys_unsafe::{ProgramImage, link_create, number, prog_load};
use crate::uapi::{LinkCreate, ProgLoad};

/// Place on an interface where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver (`XDP_FLAGS_DRV_MODE`).
    Native,
    /// Behind the driver, on any interface (`XDP_FLAGS_SKB_MODE`).
    Generic,
}

/// A bpf_link of a program and an interface. The program is detached when this is dropped, and at
/// any end of the process.
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

/// A bpf_link that drops frames which arrive at an interface and would go into the host's stack;
/// frames that an XDP program takes before that are not affected. It ends as an [`XdpLink`] does.
#[derive(Debug)]
pub struct IngressDrop {
    _link: OwnedFd,
}

impl IngressDrop {
    /// # Errors
    ///
    /// Fails with `EINVAL` if the kernel has no `BPF_TCX_INGRESS` (before 6.6).
    pub fn new(ifindex: u32) -> Result<IngressDrop, Errno> {
        let insns = [Insn::new(0xb7, 0, 0, 0, TC_ACT_SHOT), Insn::new(0x95, 0, 0, 0, 0)];
        let insns: Vec<u8> = insns.iter().flat_map(|insn| insn.to_le_bytes()).collect();
        let image = ProgramImage { insns: &insns, license: b"GPL\0", ..ProgramImage::default() };
        let numbers = ProgLoad {
            prog_type: PROG_TYPE_SCHED_CLS,
            expected_attach_type: ATTACH_TYPE_TCX_INGRESS,
            prog_name: object_name("towpath_guard"),
            ..ProgLoad::default()
        };
        let program = prog_load(&image, &numbers, &mut [])?;
        let numbers = LinkCreate {
            prog_fd: number(program.as_fd()),
            target_ifindex: ifindex,
            attach_type: ATTACH_TYPE_TCX_INGRESS,
            flags: 0,
        };
        Ok(IngressDrop { _link: link_create(&numbers)? })
    }
}

impl AsFd for XdpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl KernelProgram {
    /// Attaches the program to an interface of this network namespace. `EBUSY` and `EEXIST` mean
    /// that another program is attached (`dev_xdp_attach`).
    pub fn attach(&self, ifindex: u32, mode: AttachMode) -> Result<XdpLink, Errno> {
        XdpLink::new(self.as_fd(), ifindex, mode)
    }
}

/// `BPF_XDP` and `BPF_TCX_INGRESS` of `enum bpf_attach_type`.
const ATTACH_TYPE_XDP: u32 = 37;
const ATTACH_TYPE_TCX_INGRESS: u32 = 46;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const TC_ACT_SHOT: i32 = 2;
