//! What compiled code and its surroundings share: one structure per run, laid out for machine code.

use std::ffi::c_void;

/// The state compiled code works on. Its first fields mirror the running frame; whoever changes the
/// frame on the program's behalf (`bpf_xdp_adjust_head`, ...) writes them again before returning.
///
/// Compiled code reads `packet`, `worker` and `stop`; its batch entry writes `packet` and `index`.
/// Everything else belongs to the runtime.
#[derive(Debug)]
#[repr(C)]
pub struct Machine {
    /// The running frame, as programs see it.
    pub packet: Packet,
    /// Which descriptor of the burst is running.
    pub index: u32,
    /// Number of the running worker: index into per-CPU maps.
    pub worker: u32,
    /// Not 0 when the run has to end now; checked after each call.
    pub stop: u32,
    /// Value of r1 at the start: the address that stands for `struct xdp_md`.
    pub ctx: u64,
    /// Value of r10 in the entry function.
    pub stack_top: u64,
    /// What is left of a run's time, where it is limited; below 0 when it is used up.
    pub budget: i64,
    /// The runtime's own state.
    pub runtime: *mut c_void,
}

/// A frame as programs see it through `struct xdp_md`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Packet {
    /// Address of the first packet byte.
    pub data: u64,
    /// One past the last linear packet byte.
    pub data_end: u64,
    /// Address of the first metadata byte.
    pub data_meta: u64,
    /// `xdp_md.ingress_ifindex`
    pub ingress_ifindex: u32,
    /// `xdp_md.rx_queue_index`
    pub rx_queue_index: u32,
    /// `xdp_md.egress_ifindex`
    pub egress_ifindex: u32,
    /// Bytes of the packet behind its linear part.
    pub frags_len: u32,
}

/// One frame of a burst: what compiled code is given, and what it gives back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// The frame as it arrived. Programs that move its ends do so in [`Machine::packet`].
    pub packet: Packet,
    /// The low half of r0, written when the frame's run is over.
    pub returned: u32,
}

/// A function compiled code calls: machine, r1 to r5; gives r0.
pub type Callee = unsafe extern "C" fn(*mut Machine, u64, u64, u64, u64, u64) -> u64;

/// The functions of the runtime that compiled code calls.
#[derive(Debug, Clone, Copy)]
pub struct Callees {
    /// Tells what to call for the helper of a number.
    pub helper: fn(u32) -> Callee,
    /// Tells what to call for the kfunc that the runtime knows by a number.
    pub kfunc: fn(u32) -> Callee,
    /// `(map, index)`: address of the function to jump to (as [`crate::Program::entry`] gives it),
    /// or 0 when there is none or the limit of tail calls is reached.
    pub tail_call: Callee,
    /// `(address, bytes)`: loads through a pointer that may be stale; 0 when it is.
    pub probe: Callee,
    /// `(address, bytes, need)`: stops the run unless the program may do what
    /// [`Need`](crate::xir::Need), by number, says.
    pub guard: Callee,
    /// Those called without a number.
    pub direct: Direct,
}

/// Functions of the runtime behind [`crate::xir::RuntimeFunction`]: it says what they take.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names are the functions'")]
pub struct Direct {
    pub csum_diff: unsafe extern "C" fn(u64, u64, u64, u64, u64) -> u64,
    pub ktime: unsafe extern "C" fn(*mut Machine) -> u64,
    pub random: unsafe extern "C" fn(*mut Machine) -> u64,
    pub redirect: unsafe extern "C" fn(*mut Machine, u64, u64) -> u64,
    pub redirect_map: unsafe extern "C" fn(*mut Machine, u64, u64, u64) -> u64,
    pub load_bytes: unsafe extern "C" fn(*mut Machine, u64, u64, u64) -> u64,
    pub store_bytes: unsafe extern "C" fn(*mut Machine, u64, u64, u64) -> u64,
    pub check_mtu: unsafe extern "C" fn(*mut Machine, u64, u64, u64, u64) -> u64,
}
