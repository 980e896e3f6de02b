//! Steering an interface's frames to AF_XDP sockets, and Towpath's frames out of it: an XSKMAP with
//! one socket for each queue and the program that redirects into it; in test runs the same program
//! sends the packets of a ring ([`crate::LiveFrames`]).

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use towpath_bpf::{Errno, Insn};

use crate::attach::{AttachMode, XdpLink};
use crate::hint_program;
use crate::live::{self, LiveFrames};
use crate::live_program;
use crate::map::object_name;
use crate::program::{F_XDP_HAS_FRAGS, PROG_TYPE_XDP};
use crate::sys_unsafe::{MapFd, ProgramImage, number, prog_load};
use crate::types::KernelTypes;
use crate::uapi::{MapCreate, ProgLoad};

/// Treatment of frames of a queue that has no socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    /// They go to the host's stack.
    Pass,
    /// They are dropped, so that no frame goes around a filter on the interface.
    Drop,
}

/// A program that gives each frame to the socket of its queue.
#[derive(Debug)]
pub struct Steering {
    sockets: MapFd,
    program: Arc<OwnedFd>,
    live: Option<Arc<LiveFrames>>,
}

impl Steering {
    /// Loads the program for up to `queues` queues. It takes frames of several buffers.
    pub fn new(queues: u32, unserved: Unserved) -> Result<Steering, Errno> {
        Steering::over(Steering::sockets(queues)?, unserved)
    }

    fn over(sockets: MapFd, unserved: Unserved) -> Result<Steering, Errno> {
        let program = Arc::new(load(&instructions(sockets.as_fd().as_raw_fd(), unserved))?);
        Ok(Steering { sockets, program, live: None })
    }

    /// As [`Steering::new`], with [`Steering::live`] out of an interface of this network namespace,
    /// if the kernel supports it (5.18).
    pub fn with_way_out(queues: u32, unserved: Unserved, ifindex: u32) -> Result<Steering, Errno> {
        let sockets = Steering::sockets(queues)?;
        let steer = instructions(sockets.as_fd().as_raw_fd(), unserved);
        let Ok(maps) = live::Maps::new(ifindex) else {
            return Steering::over(sockets, unserved);
        };
        let Ok(program) = load(&live_program::instructions(&steer, &maps)) else {
            return Steering::over(sockets, unserved);
        };
        let program = Arc::new(program);
        let live = Some(Arc::new(LiveFrames::new(&program, maps)));
        Ok(Steering { sockets, program, live })
    }

    /// As [`Steering::new`], for one interface whose driver is asked for its metadata of each
    /// frame, which is stored in front of the packet ([`crate::DriverHints`]). It can only be
    /// attached natively, and has no [`Steering::live`]: the kernel makes no test runs of a program
    /// that is bound to a device.
    ///
    /// # Errors
    ///
    /// Fails with `EOPNOTSUPP` if the kernel has no such kfuncs (before 6.8), or does not publish
    /// its types; with `EOPNOTSUPP` or `EINVAL` if the interface's driver has no metadata.
    pub fn with_hints(queues: u32, unserved: Unserved, ifindex: u32) -> Result<Steering, Errno> {
        let sockets = Steering::sockets(queues)?;
        let types = KernelTypes::default();
        let number = |name: &str| {
            let name = format!("bpf_xdp_metadata_rx_{name}");
            types.function(&name).ok_or(Errno::EOPNOTSUPP)
        };
        let (timestamp, hash, vlan_tag) =
            (number("timestamp")?, number("hash")?, number("vlan_tag")?);
        let steer = instructions(sockets.as_fd().as_raw_fd(), unserved);
        let kfuncs = hint_program::Kfuncs { timestamp, hash, vlan_tag };
        let insns = hint_program::instructions(&steer, kfuncs);
        let bound = ProgLoad {
            prog_flags: F_XDP_HAS_FRAGS | F_XDP_DEV_BOUND_ONLY,
            prog_ifindex: ifindex,
            ..ProgLoad::default()
        };
        let program = Arc::new(load_with(&insns, bound)?);
        Ok(Steering { sockets, program, live: None })
    }

    fn sockets(queues: u32) -> Result<MapFd, Errno> {
        let numbers = MapCreate {
            map_type: MAP_TYPE_XSKMAP,
            key_size: 4,
            value_size: 4,
            max_entries: queues.max(1),
            map_name: object_name("towpath_xsks"),
            ..MapCreate::default()
        };
        MapFd::create(&numbers, 4)
    }

    /// Steers frames of this queue to this AF_XDP socket from now on, until the socket is closed.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        self.sockets.update(&queue.to_le_bytes(), &number(socket).to_le_bytes(), 0)
    }

    /// Attaches the program to an interface.
    pub fn attach(&self, ifindex: u32, mode: AttachMode) -> Result<XdpLink, Errno> {
        XdpLink::new(self.program.as_fd(), ifindex, mode)
    }

    /// The sender of live frames out of the interface, for use while the program is attached.
    pub fn live(&self) -> Option<&Arc<LiveFrames>> {
        self.live.as_ref()
    }
}

fn load(insns: &[Insn]) -> Result<OwnedFd, Errno> {
    load_with(insns, ProgLoad { prog_flags: F_XDP_HAS_FRAGS, ..ProgLoad::default() })
}

fn load_with(insns: &[Insn], numbers: ProgLoad) -> Result<OwnedFd, Errno> {
    let insns: Vec<u8> = insns.iter().flat_map(|insn| insn.to_le_bytes()).collect();
    let image = ProgramImage { insns: &insns, license: b"GPL\0", ..ProgramImage::default() };
    let numbers = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        expected_attach_type: 37,
        prog_name: object_name("towpath_steer"),
        ..numbers
    };
    prog_load(&image, &numbers, &mut [])
}

/// `return bpf_redirect_map(&sockets, ctx->rx_queue_index, unserved)`
fn instructions(map: i32, unserved: Unserved) -> [Insn; 6] {
    let rx_queue_index = Insn::new(0x61, 2, 1, 16, 0);
    let [map_low, map_high] = [Insn::new(0x18, 1, PSEUDO_MAP_FD, 0, map), Insn::new(0, 0, 0, 0, 0)];
    let verdict = match unserved {
        Unserved::Pass => XDP_PASS,
        Unserved::Drop => XDP_DROP,
    };
    let miss = Insn::new(0xb7, 3, 0, 0, verdict);
    let call = Insn::new(0x85, 0, 0, 0, FUNC_REDIRECT_MAP);
    [rx_queue_index, map_low, map_high, miss, call, Insn::new(0x95, 0, 0, 0, 0)]
}

/// `BPF_F_XDP_DEV_BOUND_ONLY`.
const F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
const MAP_TYPE_XSKMAP: u32 = 17;
const PSEUDO_MAP_FD: u8 = 1;
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
const FUNC_REDIRECT_MAP: i32 = 51;
